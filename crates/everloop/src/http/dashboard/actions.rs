//! What the buttons do: each a `POST /do/NAME`, a call of the service that the verb of the same name
//! calls, as the person that logged in. The answer leads back to the page, with a notice.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use everloop_core::action::LoopCommand;
use everloop_core::guard::Scope;
use everloop_core::ids::TaskId;
use everloop_core::op::Trust;
use everloop_core::raise::Raise;
use everloop_core::time::Time;
use everloop_engine::error::Failure;
use everloop_engine::services::guard::{self, HoldRequest, ReleaseRequest};
use everloop_engine::services::loops::{self, CommandAnswer, PauseRequest};
use everloop_engine::services::runtime::block_on;
use everloop_engine::services::tasks::{self, AddTask, AmendTask, TaskChange};
use everloop_engine::services::views::loops::{CheckRow, checks};
use everloop_engine::services::{ServiceContext, check, tickets};

use super::super::App;
use super::feed::Feed;
use super::form::Form;
use super::logins::{Notice, Visitor};
use super::{call, pages, status_of};

/// Results of checks by hand that are kept.
const MAX_RESULTS: usize = 8;
/// As long as one check may take; a person waits no longer.
const CHECKS_TIMEOUT: Duration = Duration::from_secs(600);
/// Lines of a check's output.
const OUTPUT_LINES: usize = 40;

/// The path of every action.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new().route("/do/{action}", post(perform))
}

/// Checks that a person runs, by loop; one run at a time.
#[derive(Debug, Default)]
pub struct ByHand(Mutex<BTreeMap<String, HandRun>>);

/// A run of a loop's checks.
#[derive(Clone, Debug)]
pub struct HandRun {
    pub started: Time,
    /// `None` while they run.
    pub result: Option<Result<Vec<CheckRow>, String>>,
}

impl ByHand {
    fn runs(&self) -> MutexGuard<'_, BTreeMap<String, HandRun>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The latest run of a loop's checks.
    pub fn of(&self, id: &str) -> Option<HandRun> {
        self.runs().get(id).cloned()
    }

    /// Takes the right to run checks.
    fn begin(&self, id: &str, now: Time) -> Result<(), Failure> {
        let mut runs = self.runs();
        if runs.values().any(|run| run.result.is_none()) {
            return Err(Failure::usage("checks are running already").hint("wait until they are done"));
        }
        while runs.len() >= MAX_RESULTS {
            let oldest = runs.iter().min_by_key(|(_, run)| run.started).map(|(id, _)| id.clone());
            drop(oldest.and_then(|id| runs.remove(&id)));
        }
        runs.insert(id.to_owned(), HandRun { started: now, result: None });
        Ok(())
    }

    fn end(&self, id: &str, result: Result<Vec<CheckRow>, String>) {
        if let Some(run) = self.runs().get_mut(id) {
            run.result = Some(result);
        }
    }
}

async fn perform(State(app): State<Arc<App>>, Path(action): Path<String>, request: Request) -> Response {
    let (Some(form), Some(visitor)) =
        (request.extensions().get::<Form>().cloned(), request.extensions().get::<Visitor>().cloned())
    else {
        return pages::stranger();
    };
    let back = local(form.get("back"));
    let (by_hand, feed) = (Arc::clone(&app.dashboard.by_hand), Arc::clone(&app.dashboard.feed));
    let done = call(&app, move |context| match action.as_str() {
        "checks" => run_checks(context, &form, (by_hand, feed)),
        action => act(context, action, &form),
    });
    let notice = match done.await {
        Ok(text) => Notice { good: true, text },
        Err(failure) => {
            let status = status_of(&failure);
            tracing::debug!(status = status.as_u16(), error = failure.message, "an action of the dashboard failed");
            let hint = failure.hint.map(|hint| format!("; {hint}")).unwrap_or_default();
            Notice { good: false, text: format!("{}{hint}", failure.message) }
        }
    };
    app.dashboard.logins.notify(&visitor, notice);
    (StatusCode::SEE_OTHER, [(LOCATION, back)]).into_response()
}

/// Where the form came from, if that is a page of ours.
fn local(back: &str) -> String {
    let is_ours =
        back.starts_with('/') && !back.starts_with("//") && back.bytes().all(|b| b.is_ascii_graphic() && b != b'\\');
    if is_ours { back.to_owned() } else { "/".to_owned() }
}

fn act(context: &ServiceContext, action: &str, form: &Form) -> Result<String, Failure> {
    let the_loop = || form.given("loop").ok_or_else(|| Failure::usage("the form names no loop"));
    let said = |answer: CommandAnswer| format!("{}: {}", answer.id, answer.done);
    match action {
        "answer" => answer(context, form),
        "ack" => {
            let (ticket, before) = tickets::ack(context, form.get("ticket"))?;
            let by = before.map(|by| format!(", as {by} did before")).unwrap_or_default();
            Ok(format!("ticket #{} is acknowledged{by}", ticket.id))
        }
        "wake" => loops::wake(context, Some(&the_loop()?)).map(said),
        "pause" => {
            let request =
                PauseRequest { word: Some(the_loop()?), reason: form.get("reason").trim().to_owned(), until: None };
            loops::pause(context, request).map(said)
        }
        "resume" => {
            let turns = number(form, "turns")?;
            loops::resume(context, Some(&the_loop()?), &Raise { turns, ..Raise::default() }).map(said)
        }
        "stop" => {
            let now = form.get("now") == "yes";
            let (state, taker) = loops::send(context, Some(&the_loop()?), &LoopCommand::Stop { now })?;
            let done = if now { "stops now" } else { "ends after the running turn, if any" };
            Ok(said(CommandAnswer::new(&state.id, done, taker)))
        }
        "steer" => {
            let message = form.given("text").ok_or_else(|| Failure::usage("the instruction is empty"))?;
            let command = LoopCommand::Steer { message, trust: Trust::Operator };
            let (state, taker) = loops::send(context, Some(&the_loop()?), &command)?;
            Ok(said(CommandAnswer::new(&state.id, "will read it in its next turn", taker)))
        }
        "hold" => {
            let time = number(form, "minutes")?.map(|minutes| Duration::from_secs(60 * u64::from(minutes)));
            let (scope, reason) = (scope(form)?, form.get("reason").to_owned());
            let (scope, _) = guard::hold(context, HoldRequest { scope, reason, time })?;
            Ok(format!("{scope} is held"))
        }
        "release" => {
            let request = ReleaseRequest { scope: Some(scope(form)?), reason: form.get("reason").to_owned() };
            let released: Vec<String> = guard::release(context, request)?.iter().map(ToString::to_string).collect();
            Ok(format!("released: {}", released.join(", ")))
        }
        "task-add" => add_task(context, form),
        "task-retry" => amend(context, form, TaskChange::Retry),
        "task-cancel" => amend(context, form, TaskChange::Cancel),
        other => Err(Failure::usage(format!("there is no action `{other}`"))),
    }
}

fn answer(context: &ServiceContext, form: &Form) -> Result<String, Failure> {
    let text = form.given("text").ok_or_else(|| Failure::usage("the answer is empty"))?;
    let done = tickets::answer(context, form.get("ticket"), &text)?;
    Ok(match (done.owner, done.released) {
        (Some(id), _) => format!("answered; loop {id} reads it in its next turn"),
        (None, Some(scope)) => format!("answered; {scope} is released"),
        (None, None) => "answered".to_owned(),
    })
}

fn add_task(context: &ServiceContext, form: &Form) -> Result<String, Failure> {
    let priority = form.given("priority").map(|text| text.parse::<i32>());
    let priority = priority.transpose().map_err(|_| Failure::usage("the priority is no whole number"))?;
    let added = tasks::add(
        context,
        AddTask {
            title: form.get("title").to_owned(),
            prompt: form.get("prompt").to_owned(),
            owner: form.given("loop"),
            priority: priority.unwrap_or_default(),
            ..AddTask::default()
        },
    )?;
    Ok(format!("task {} is on the board", added.task))
}

fn amend(context: &ServiceContext, form: &Form, change: TaskChange) -> Result<String, Failure> {
    let (task, reason) = (TaskId::new(form.get("task")), form.get("reason").trim().to_owned());
    let done = tasks::amend(context, &AmendTask { task, change, reason })?;
    Ok(format!("task {} is {} now", done.task, done.state))
}

/// Starts the checks of a loop in the person's folder; their result is on the loop's page.
fn run_checks(
    context: &ServiceContext,
    form: &Form,
    (by_hand, feed): (Arc<ByHand>, Arc<Feed>),
) -> Result<String, Failure> {
    let word = form.given("loop").ok_or_else(|| Failure::usage("the form names no loop"))?;
    let Some(set) = check::of_loop(context, Some(&word))? else {
        return Err(Failure::usage(format!("there is no loop `{word}`")));
    };
    by_hand.begin(&word, context.now())?;
    let context = context.clone();
    std::thread::spawn(move || {
        let boards = block_on(check::run_all(&[set], &context, CHECKS_TIMEOUT)).and_then(|boards| boards);
        let result = match boards {
            Ok(Some(boards)) => Ok(boards.iter().flat_map(|board| checks(board, OUTPUT_LINES)).collect()),
            Ok(None) => Err("the checks were interrupted".to_owned()),
            Err(failure) => Err(everloop_engine::text::clean(&failure.message)),
        };
        by_hand.end(&word, result);
        feed.nudge();
    });
    Ok("the checks run now, in your folder; the loop is not affected".to_owned())
}

fn scope(form: &Form) -> Result<Scope, Failure> {
    Scope::try_from(form.get("scope").trim().to_owned()).map_err(Failure::usage)
}

fn number(form: &Form, name: &str) -> Result<Option<u32>, Failure> {
    let parsed = form.given(name).map(|text| text.parse::<u32>());
    parsed.transpose().map_err(|_| Failure::usage(format!("`{name}` is no whole number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_action_leads_back_to_our_pages_only() {
        for (back, to) in [("/loop/k3f9", "/loop/k3f9"), ("/log?loop=a#x", "/log?loop=a#x")] {
            assert_eq!(local(back), to);
        }
        for foreign in ["", "//evil.example", "https://evil.example", "/\\evil.example", "/a\r\nSet-Cookie: x", "loop"]
        {
            assert_eq!(local(foreign), "/", "{foreign}");
        }
    }
}
