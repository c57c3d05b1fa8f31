//! The views as pages. A page is a model of `services::views` in a template; what stands here is
//! which model, under which address.

use std::sync::Arc;

use askama::Template;
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use everloop_core::ids::TurnId;
use everloop_core::time::Time;
use everloop_engine::error::Failure;
use everloop_engine::quantities::{here, money, relative, tokens};
use everloop_engine::services::diff::{DiffAnswer, DiffDetail, diff};
use everloop_engine::services::prompts;
use everloop_engine::services::research::{self, RunLine};
use everloop_engine::services::views::View;
use everloop_engine::services::views::board::{BoardView, board};
use everloop_engine::services::views::burn::BurnView;
use everloop_engine::services::views::guard::{GuardView, guard};
use everloop_engine::services::views::inbox::{InboxView, inbox};
use everloop_engine::services::views::log::{LogRequest, log};
use everloop_engine::services::views::loops::{LoopView, one as one_loop};
use everloop_engine::services::views::mesh::{MeshView, mesh};
use everloop_engine::services::views::now::{GlobalBar, NowView, bar, now};
use everloop_engine::services::views::rhythm::{RhythmView, rhythm};
use everloop_engine::services::views::timeline::{TimelineView, timeline};
use everloop_engine::services::views::turn::{TurnView, one as one_turn};
use everloop_engine::services::{ServiceContext, notifiers};
use everloop_engine::text::clean;
use jiff::tz::TimeZone;

use super::super::App;
use super::actions::HandRun;
use super::form::Form;
use super::logins::{Notice, Visitor};
use super::{INTEGRITY, call, status_of, today};
use crate::ui::event_line;

/// Lines of a patch on a page; `everloop diff` has all.
const PATCH_LINES: usize = 600;

/// The addresses of all views.
pub(super) fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(home))
        .route("/inbox", get(inbox_page))
        .route("/board", get(board_page))
        .route("/guard", get(guard_page))
        .route("/rhythm", get(rhythm_page))
        .route("/timeline", get(timeline_page))
        .route("/burn", get(burn_page))
        .route("/research", get(research_page))
        .route("/research/{run}", get(metric_page))
        .route("/mesh", get(mesh_page))
        .route("/log", get(log_page))
        .route("/settings", get(settings_page))
        .route("/loop/{id}", get(loop_page))
        .route("/loop/{id}/diff", get(diff_page))
        .route("/loop/{id}/prompt", get(prompt_page))
        .route("/turn/{id}", get(turn_page))
}

/// A moment, behind any number of references: templates give one or two.
pub trait Moment {
    fn time(&self) -> Time;
}

impl Moment for Time {
    fn time(&self) -> Time {
        *self
    }
}

impl<T: Moment + ?Sized> Moment for &T {
    fn time(&self) -> Time {
        (**self).time()
    }
}

/// A sum, likewise.
pub trait Sum {
    fn sum(&self) -> u64;
}

impl Sum for u64 {
    fn sum(&self) -> u64 {
        *self
    }
}

impl<T: Sum + ?Sized> Sum for &T {
    fn sum(&self) -> u64 {
        (**self).sum()
    }
}

/// What stands around every view.
pub struct Head {
    title: String,
    view: Option<View>,
    bar: GlobalBar,
    today: u64,
    csrf: String,
    notice: Option<Notice>,
    now: Time,
    /// The address of the page, for its forms.
    back: String,
    integrity: &'static str,
}

/// A view in the list of views.
struct NavItem {
    path: String,
    label: &'static str,
    key: char,
    current: bool,
    /// What waits there.
    count: usize,
}

impl Head {
    fn views(&self) -> Vec<NavItem> {
        let item = |view: View| NavItem {
            path: if view == View::Now { "/".to_owned() } else { format!("/{}", view.label()) },
            label: view.label(),
            key: view.key(),
            current: self.view == Some(view),
            count: if view == View::Inbox { self.bar.needs_you } else { 0 },
        };
        View::ALL.into_iter().map(item).collect()
    }

    /// Whether a page without a script loads itself again: not one in which a person types.
    fn refreshes(&self) -> bool {
        matches!(self.view, Some(View::Now | View::Timeline | View::Burn | View::Mesh | View::Log))
    }

    /// `3m ago`, `in 2h`.
    fn ago(&self, at: impl Moment) -> String {
        relative(at.time(), self.now)
    }
}

#[expect(clippy::unused_self, reason = "templates call methods of the head")]
impl Head {
    /// `21:04:05` today, with the day on another one.
    fn at(&self, at: impl Moment) -> String {
        here(at.time())
    }

    /// For programs that read the page.
    fn iso(&self, at: impl Moment) -> String {
        jiff::Timestamp::from_millisecond(at.time().0).map(|at| at.to_string()).unwrap_or_default()
    }

    fn money(&self, sum: impl Sum) -> String {
        money(sum.sum())
    }

    fn tokens(&self, sum: impl Sum) -> String {
        tokens(sum.sum())
    }
}

/// Makes a page of a model: one struct and one template for each.
macro_rules! pages {
    ($($page:ident $path:literal { $($field:ident: $kind:ty),* };)*) => {
        $(
            #[derive(Template)]
            #[template(path = $path)]
            struct $page {
                head: Head,
                $($field: $kind,)*
            }
        )*
    };
}

pages! {
    NowPage "now.html" { view: NowView };
    InboxPage "inbox.html" { view: InboxView };
    BoardPage "board.html" { view: BoardView };
    GuardPage "guard.html" { view: GuardView };
    RhythmPage "rhythm.html" { view: RhythmView };
    TimelinePage "timeline.html" { view: TimelineView, svg: String };
    BurnPage "burn.html" { view: BurnView, svg: String };
    ResearchPage "research.html" { runs: Vec<RunLine> };
    MetricPage "metric.html" { run: MetricView, svg: String };
    MeshPage "mesh.html" { view: MeshView };
    LogPage "log.html" { lines: Vec<LogLine>, word: String, older: Option<u64> };
    SettingsPage "settings.html" { rows: Vec<SettingRow>, notifiers: Vec<NotifierLine> };
    LoopPage "loop.html" { view: LoopView, svg: String, by_hand: Option<HandRun> };
    DiffPage "diff.html" { view: DiffAnswer, lines: Vec<DiffLine>, more: usize };
    PromptPage "prompt.html" { id: String, lines: Vec<String> };
    TurnPage "turn.html" { view: TurnView };
}

/// The page after a login; it leads to the views by itself.
#[derive(Template)]
#[template(path = "entered.html")]
pub struct Entered {}

/// A page about what does not work, without anything of the ledger.
#[derive(Template)]
#[template(path = "problem.html")]
struct Problem<'a> {
    what: &'a str,
    hint: &'a str,
}

/// A record of the journal in words.
struct LogLine {
    seq: u64,
    owner: String,
    text: String,
}

/// A line of a patch.
struct DiffLine {
    kind: &'static str,
    text: String,
}

/// A setting of this supervisor.
struct SettingRow {
    key: String,
    value: String,
    /// What changes it.
    change: String,
}

/// A way by which tickets reach a person.
struct NotifierLine {
    name: String,
    trouble: String,
    pending: usize,
}

/// A research run.
struct MetricView {
    id: String,
    name: String,
    goal: String,
    summary: Vec<String>,
    rows: Vec<ExperimentLine>,
}

/// An experiment in a table.
struct ExperimentLine {
    number: u32,
    status: &'static str,
    value: String,
    description: String,
}

/// A page about an error.
pub(super) fn problem(status: StatusCode, what: &str, hint: &str) -> Response {
    match (Problem { what, hint }).render() {
        Ok(html) => (status, Html(html)).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

/// The answer to a browser that did not log in. It is the same for every path.
pub(super) fn stranger() -> Response {
    problem(StatusCode::UNAUTHORIZED, "you are not logged in here", "get a login link in your terminal: everloop ui")
}

/// Reads a model and renders it.
async fn page<P: Template + Send + 'static>(
    app: Arc<App>,
    request: Request,
    view: Option<View>,
    make: impl FnOnce(&ServiceContext, Head) -> Result<P, Failure> + Send + 'static,
) -> Response {
    let Some(visitor) = request.extensions().get::<Visitor>().cloned() else { return stranger() };
    let back = request.uri().path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string);
    let (notice, today) = (app.dashboard.logins.notice(&visitor), today(&app));
    let made = call(&app, move |context| {
        // The home page reads the bar with its loops.
        let bar = if view == Some(View::Now) { GlobalBar::default() } else { bar(context)? };
        let title = view.map_or("", View::label).to_owned();
        let now = context.now();
        let head = Head { title, view, bar, today, csrf: visitor.csrf, notice, now, back, integrity: &INTEGRITY };
        let page = make(context, head)?;
        page.render().map_err(|e| Failure::failed("the page could not be made").because(&e))
    });
    match made.await {
        Ok(html) => Html(html).into_response(),
        Err(failure) => {
            let hint = clean(failure.hint.as_deref().unwrap_or("go back to the first page"));
            problem(status_of(&failure), &clean(&failure.message), &hint)
        }
    }
}

async fn home(State(app): State<Arc<App>>, request: Request) -> Response {
    let make = |context: &ServiceContext, mut head: Head| {
        let mut view = now(context)?;
        head.bar = std::mem::take(&mut view.bar);
        Ok(NowPage { head, view })
    };
    page(app, request, Some(View::Now), make).await
}

async fn inbox_page(State(app): State<Arc<App>>, request: Request) -> Response {
    page(app, request, Some(View::Inbox), |context, head| Ok(InboxPage { head, view: inbox(context)? })).await
}

async fn board_page(State(app): State<Arc<App>>, request: Request) -> Response {
    page(app, request, Some(View::Board), |context, head| Ok(BoardPage { head, view: board(context)? })).await
}

async fn guard_page(State(app): State<Arc<App>>, request: Request) -> Response {
    page(app, request, Some(View::Guard), |context, head| Ok(GuardPage { head, view: guard(context)? })).await
}

async fn rhythm_page(State(app): State<Arc<App>>, request: Request) -> Response {
    page(app, request, Some(View::Rhythm), |context, head| Ok(RhythmPage { head, view: rhythm(context)? })).await
}

async fn mesh_page(State(app): State<Arc<App>>, request: Request) -> Response {
    page(app, request, Some(View::Mesh), |context, head| Ok(MeshPage { head, view: mesh(context)? })).await
}

async fn timeline_page(State(app): State<Arc<App>>, request: Request) -> Response {
    let make = |context: &ServiceContext, head| {
        let view = timeline(context)?;
        let svg = without_style(&view.svg());
        Ok(TimelinePage { head, view, svg })
    };
    page(app, request, Some(View::Timeline), make).await
}

async fn burn_page(State(app): State<Arc<App>>, request: Request) -> Response {
    let burn = Arc::clone(&app.dashboard.burn);
    let make = move |context: &ServiceContext, head: Head| {
        let view = burn.view(context)?;
        let svg = view.svg(head.now);
        Ok(BurnPage { head, view, svg })
    };
    page(app, request, Some(View::Burn), make).await
}

async fn research_page(State(app): State<Arc<App>>, request: Request) -> Response {
    let make = |context: &ServiceContext, head| Ok(ResearchPage { head, runs: research::list(context)? });
    page(app, request, Some(View::Research), make).await
}

async fn metric_page(State(app): State<Arc<App>>, Path(run): Path<String>, request: Request) -> Response {
    let make = move |context: &ServiceContext, mut head: Head| {
        let found = research::show(context, Some(&run))?;
        let figure = |value: Option<f64>| value.map_or_else(|| "–".to_owned(), everloop_core::picture::svg::figure);
        let rows = found.rows.iter().rev().map(|row| ExperimentLine {
            number: row.number,
            status: row.status.label(),
            value: figure(row.value),
            description: clean(&row.description),
        });
        let view = MetricView {
            id: found.id.to_string(),
            name: clean(&found.name),
            goal: clean(&found.goal),
            summary: found.summary.lines().map(clean).collect(),
            rows: rows.collect(),
        };
        // Before its first measurement a run has no chart.
        let svg = found.chart().map(|chart| without_style(&chart.svg())).unwrap_or_default();
        head.title.clone_from(&view.name);
        Ok(MetricPage { head, run: view, svg })
    };
    page(app, request, Some(View::Research), make).await
}

async fn log_page(State(app): State<Arc<App>>, request: Request) -> Response {
    let query = Form::parse(request.uri().query().unwrap_or_default());
    let make = move |context: &ServiceContext, head| {
        let (word, before) = (query.given("loop"), query.get("before").parse().ok());
        let found = log(context, &LogRequest { word: word.clone(), before })?;
        let zone = TimeZone::system();
        let lines = found.records.iter().map(|record| LogLine {
            seq: record.seq,
            owner: record.owner.as_ref().map(ToString::to_string).unwrap_or_default(),
            text: event_line(record, &zone),
        });
        Ok(LogPage { head, lines: lines.collect(), word: word.unwrap_or_default(), older: found.older })
    };
    page(app, request, Some(View::Log), make).await
}

async fn settings_page(State(app): State<Arc<App>>, request: Request) -> Response {
    let port = app.port.address.to_string();
    let node = app.port.node.to_string();
    let make = move |context: &ServiceContext, head| {
        let row = |key: &str, value: String, change: &str| SettingRow {
            key: key.to_owned(),
            value: clean(&value),
            change: change.to_owned(),
        };
        let home = context.home()?;
        let user = crate::config::user_dir(|name| std::env::var(name).ok());
        let user = user.map(|dir| dir.join(crate::config::USER_FILE).display().to_string()).unwrap_or_default();
        let rows = vec![
            row("version", env!("CARGO_PKG_VERSION").to_owned(), ""),
            row("node", node, ""),
            row("state folder", home.root().display().to_string(), "EVERLOOP_STATE_DIR, --state-dir"),
            row("port", port, "[node] listen, EVERLOOP_LISTEN, up --listen"),
            row("your own configuration", user, "everloop config show --origin"),
        ];
        let notifiers = notifiers::list(context)?.into_iter().map(|state| NotifierLine {
            name: clean(&state.sender.of.receiver.name),
            trouble: clean(&state.trouble.unwrap_or_default()),
            pending: state.pending,
        });
        Ok(SettingsPage { head, rows, notifiers: notifiers.collect() })
    };
    page(app, request, Some(View::Settings), make).await
}

async fn loop_page(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    let by_hand = app.dashboard.by_hand.of(&id);
    let make = move |context: &ServiceContext, mut head: Head| {
        let view = one_loop(context, &id)?;
        head.title.clone_from(&view.card.name);
        let svg = view.history.svg();
        Ok(LoopPage { head, view, svg, by_hand })
    };
    page(app, request, None, make).await
}

async fn diff_page(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    let make = move |context: &ServiceContext, mut head: Head| {
        let mut view = diff(context, Some(&id), DiffDetail::Patch)?;
        head.title = format!("diff of {}", clean(&view.name));
        for file in &mut view.files {
            file.path = clean(&file.path);
        }
        let patch = view.patch.take().unwrap_or_default();
        let all = patch.lines().count();
        let lines = patch.lines().take(PATCH_LINES).map(|line| DiffLine { kind: kind_of(line), text: clean(line) });
        let lines = lines.collect();
        Ok(DiffPage { head, view, lines, more: all.saturating_sub(PATCH_LINES) })
    };
    page(app, request, None, make).await
}

fn kind_of(line: &str) -> &'static str {
    match line.as_bytes() {
        [b'+', b'+', b'+', ..] | [b'-', b'-', b'-', ..] => "file",
        [b'+', ..] => "added",
        [b'-', ..] => "removed",
        [b'@', ..] => "place",
        _ => "same",
    }
}

async fn prompt_page(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    let make = move |context: &ServiceContext, mut head: Head| {
        let found = prompts::next(context, Some(&id))?;
        "prompt".clone_into(&mut head.title);
        Ok(PromptPage { head, id: found.id.to_string(), lines: found.text.lines().map(clean).collect() })
    };
    page(app, request, None, make).await
}

async fn turn_page(State(app): State<Arc<App>>, Path(id): Path<String>, request: Request) -> Response {
    let make = move |context: &ServiceContext, mut head: Head| {
        let turn: TurnId = id.parse().map_err(|_| Failure::usage("this is no turn"))?;
        let view = one_turn(context, &turn)?;
        head.title = format!("turn {}", view.turn);
        Ok(TurnPage { head, view })
    };
    page(app, request, None, make).await
}

/// A drawing without its own rules: the policy allows only the stylesheet, which has them.
fn without_style(svg: &str) -> String {
    match (svg.find("<style>"), svg.find("</style>")) {
        (Some(from), Some(to)) if from < to => format!("{}{}", &svg[..from], &svg[to + "</style>".len()..]),
        _ => svg.to_owned(),
    }
}
