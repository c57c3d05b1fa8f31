//! Answers an agent's CLI at the moments of a session that everloop did not start.
//!
//! Nothing happens while no supervisor runs. The ledger is read first and written at most once,
//! because a person waits behind every call.

use std::path::{Path, PathBuf};
use std::time::Duration;

use everloop_agents::agent::limits::{self, VendorRefusal};
use everloop_agents::prices;
use everloop_agents::redact::{self, Secret};
use everloop_core::action::LoopCommand;
use everloop_core::event::Event;
use everloop_core::guard::Scope;
use everloop_core::hook::{
    Handoff, HookSession as Record, SESSION, SESSION_VERSION, SessionAct, StopDecision, StopRequest, Why,
};
use everloop_core::op::{Message, Op, Refusal as No};
use everloop_core::scoreboard::Scoreboard;
use everloop_core::spec::AgentKind;
use everloop_core::time::{Time, human};
use everloop_store::{Ledger, OpenMode, Recipients, Sqlite};
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use super::check::{self, CheckSet};
use super::runtime::block_on;
use super::sessions::read_record;
use super::{ServiceContext, handoff};
use crate::caller;
use crate::completion::{self, CompletionInputs};
use crate::error::Failure;
use crate::handoffs::HandoffOf;
use crate::hold::CliStart;
use crate::hook::answer;
use crate::hook::guardian::Guardian;
use crate::hook::payload::{HookEvent, Payload};
use crate::hook::session_folder::{self, SessionFolder};
use crate::hook::text::{self, Brief};
use crate::hook::{transcript, tree};
use crate::install::plan::AgentCli;
use crate::install::watch::{self, Loss};
use crate::mailbox::MessageBody;
use crate::state_folder::{StateFolder, node_id};
use crate::trust::{self, FileHashes, TrustStore};

/// Longer prompts are cut here.
const PROMPT_BYTES: usize = 4 << 10;
/// Messages delivered at once; the rest comes with the next prompt.
const MESSAGES: usize = 20;
/// Notifications that need a person; the last one is Gemini's.
const CALLS: [&str; 3] = ["idle_prompt", "permission_prompt", "ToolPermission"];
/// Another hook of the same session may write at the same time; more than two conflicts are not
/// chance.
const TRIES: usize = 3;

/// A call of a hook.
#[derive(Debug)]
pub struct HookRequest<'a> {
    /// The moment of the session, as its CLI calls it.
    pub event: &'a str,
    /// The agent; detected from the payload otherwise.
    pub agent: Option<&'a str>,
    /// What the CLI sent; `None` when it is unreadable.
    pub payload: Option<Payload>,
    pub source: HookSource,
}

/// What makes the CLI call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HookSource {
    /// Settings of a project or a user.
    Settings,
    /// The plugin of Claude Code, which every project has.
    Plugin,
}

/// Answers one hook: `reply` gets context for the agent or a refusal, in the CLI's format. Replies
/// are given before the one write: a message that was written down as delivered was delivered.
pub fn hook(
    context: &ServiceContext,
    request: HookRequest<'_>,
    reply: &mut dyn FnMut(Value) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let HookRequest { event, agent, payload, source } = request;
    let (Some(moment), Some(payload)) = (HookEvent::named(event), payload) else {
        tracing::debug!(event, "unknown hook, or unreadable stdin");
        return Ok(());
    };
    // A project with hooks of its own calls, too; one of both is enough.
    if source == HookSource::Plugin && watch::project_calls(&project_of(&payload, context), AgentCli::Claude, event) {
        return Ok(());
    }
    let Some(home) = StateFolder::supervised(context.state_dir.as_deref()) else { return Ok(()) };
    let Some(ledger) = context.reader(&home)? else { return Ok(()) };
    let cwd = payload.cwd().unwrap_or_else(|| context.dir.clone());
    let notice = notice(context, (moment, &cwd), &ledger)?;
    let projects = &*context.projects;
    let Some(file) = session_folder::in_force(projects, &home, &ledger, &cwd)? else {
        if let Some(notice) = notice {
            reply(json!({ "systemMessage": notice }))?;
        }
        return Ok(());
    };
    let Some(place) = SessionFolder::find(projects, &file, &ledger, context.now())? else {
        return Ok(());
    };
    let agent = agent.map_or_else(|| payload.agent().to_owned(), str::to_owned);
    let now = context.now();
    let ledger = Some(ledger);
    let mut session = SessionContext { context, reply, moment, home, ledger, place, payload, agent, notice, now };
    match moment {
        HookEvent::SessionStart => session.begins(),
        HookEvent::UserPromptSubmit => session.is_told(),
        HookEvent::PreToolUse => session.reaches_for_a_tool(),
        HookEvent::PostToolUse => session.used_a_tool(),
        HookEvent::Stop => session.wants_to_stop(),
        HookEvent::StopFailure => session.is_not_served(),
        HookEvent::PreCompact => session.hands_off("compaction"),
        HookEvent::Notification => session.calls_for_a_person(),
        HookEvent::SessionEnd => session.ends(),
        HookEvent::SubagentStop => Ok(()),
    }
}

/// The folder whose settings Claude Code reads.
fn project_of(payload: &Payload, context: &ServiceContext) -> PathBuf {
    let named = std::env::var_os("CLAUDE_PROJECT_DIR").map(PathBuf::from).filter(|dir| dir.is_absolute());
    named.or_else(|| payload.cwd()).unwrap_or_else(|| context.dir.clone())
}

/// One line for the person about a file that is not in force: what it would run, and how to trust
/// it. In a turn the supervisor reports it.
fn notice(
    context: &ServiceContext,
    (moment, cwd): (HookEvent, &Path),
    ledger: &Sqlite,
) -> Result<Option<String>, Failure> {
    if in_turn() || !matches!(moment, HookEvent::SessionStart | HookEvent::Stop) {
        return Ok(None);
    }
    let found = TrustStore::read(ledger)?.compare(&*context.projects, cwd, &mut FileHashes::default());
    let line = found.and_then(|found| trust::notice(&*context.projects, &found));
    Ok(line.map(|line| format!("everloop: {line}")))
}

/// One session at one moment.
struct SessionContext<'a> {
    context: &'a ServiceContext,
    reply: &'a mut dyn FnMut(Value) -> Result<(), Failure>,
    moment: HookEvent,
    home: StateFolder,
    /// For reading; dropped before anything is written.
    ledger: Option<Sqlite>,
    place: SessionFolder,
    payload: Payload,
    agent: String,
    /// About the configuration; part of the answer at the start of a session.
    notice: Option<String>,
    now: Time,
}

impl SessionContext<'_> {
    fn ledger(&self) -> Result<&Sqlite, Failure> {
        self.ledger.as_ref().ok_or_else(|| Failure::failed("the ledger was closed already"))
    }

    fn guardian(&self) -> Option<Guardian<'_>> {
        Guardian::of(&self.place, &self.home.copies())
    }

    /// The session's record so far.
    fn record(&self) -> Result<(u64, Record), Failure> {
        let row = self.ledger()?.doc(SESSION, self.payload.session())?;
        let (version, mut record) = match row {
            Some(row) => (row.version, read_record(&row.body)?),
            None => (0, Record { started_at: self.now, ..Record::default() }),
        };
        record.session_version = SESSION_VERSION;
        record.agent.clone_from(&self.agent);
        record.dir = self.place.dir.display().to_string();
        record.name.clone_from(&self.place.name);
        record.owner = self.place.id().cloned();
        record.seen_at = self.now;
        Ok((version, record))
    }

    fn happened(&self, did: impl IntoIterator<Item = SessionAct>) -> Op {
        let (session, name) = (self.payload.session().to_owned(), self.place.name.clone());
        let event = |did| Event::InSession { session: session.clone(), name: name.clone(), did };
        Op::Append { owner: None, events: did.into_iter().map(event).collect() }
    }

    /// The one write. Of two hooks of the same session that write at once, the record of the later
    /// one stays.
    fn write(&mut self, record: Option<(u64, Record)>, mut ops: Vec<Op>) -> Result<(), Failure> {
        self.ledger = None;
        let mut ledger = Sqlite::open(&self.home.database(), OpenMode::ReadWrite)?;
        let key = self.payload.session().to_owned();
        let mut version = record.as_ref().map(|(version, _)| *version);
        if let Some((version, record)) = record {
            let body = serde_json::to_string(&record).expect("a record is plain data and always has a JSON form");
            ops.push(Op::SaveDoc { kind: SESSION.to_owned(), key: key.clone(), version, body });
        }
        for _ in 1..TRIES {
            match ledger.transact(self.now, &ops) {
                Err(e) if matches!(e.refusal(), Some(No::Conflict { .. })) && version.is_some() => {
                    version = Some(ledger.doc(SESSION, &key)?.map_or(0, |row| row.version));
                    for op in &mut ops {
                        if let (Op::SaveDoc { kind, version: old, .. }, Some(new)) = (op, version)
                            && kind == SESSION
                        {
                            *old = new;
                        }
                    }
                }
                done => {
                    done?;
                    return Ok(());
                }
            }
        }
        ledger.transact(self.now, &ops)?;
        Ok(())
    }

    /// Adds context for the agent to the CLI's answer.
    fn tell(&mut self, context: &str) -> Result<(), Failure> {
        let name = self.payload.text("hook_event_name");
        let mut told = json!({ "hookSpecificOutput": { "hookEventName": name, "additionalContext": context } });
        if let Some(notice) = self.notice.take() {
            told["systemMessage"] = notice.into();
        }
        (self.reply)(told)
    }

    fn refuse(&mut self, why: &str) -> Result<(), Failure> {
        (self.reply)(answer::refusal(&self.agent, self.moment, &self.payload, why))
    }

    fn begins(&mut self) -> Result<(), Failure> {
        if let Some(guardian) = self.guardian() {
            guardian.accept()?;
        }
        let (version, mut record) = self.record()?;
        record.ended = false;
        // It begins again: an earlier hold is over.
        let before = record.did_not_go_on(self.now);
        let (ids, messages) = self.messages(&mut record)?;
        let handoff = HandoffOf::Folder(&self.place.root).read(self.ledger()?)?;
        let known = self.place.state.as_ref().map(|s| &s.progress.board);
        let board = record.verdict.as_ref().map(|v| &v.board).or(known);
        let brief = Brief { place: &self.place, board, handoff: handoff.as_ref(), messages: &messages };
        let brief = brief.render();
        self.tell(&brief)?;
        let (agent, dir) = (self.agent.clone(), self.place.dir.display().to_string());
        let began = SessionAct::Began { agent, source: self.payload.text("source").to_owned(), dir };
        let began = self.happened(before.into_iter().chain([began]));
        self.write(Some((version, record)), vec![began, Op::Consume { ids }])?;
        self.count_start();
        Ok(())
    }

    /// A session is a start, too: the guard shows how many there are. What a turn starts is counted
    /// with the turn. A failure here never fails the hook.
    fn count_start(&self) {
        if in_turn() {
            return;
        }
        let account = self.place.account(&self.agent).map(|name| Scope::Account(name.to_owned()));
        let scopes: Vec<Scope> = account.into_iter().chain([Scope::Node(node_id()), Scope::All]).collect();
        let by = format!("session {}", self.payload.session());
        let start = CliStart { scopes, agent: &self.agent, by, now: self.now };
        let counted = Sqlite::open(&self.home.database(), OpenMode::ReadWrite)
            .and_then(|mut ledger| start.count(&mut ledger, |_| None));
        if let Err(e) = counted {
            tracing::debug!(error = %e, "cannot count the start of a session");
        }
    }

    fn is_told(&mut self) -> Result<(), Failure> {
        let (version, mut record) = self.record()?;
        if record.echoes(self.payload.text("prompt")) {
            return self.went_on((version, record), Vec::new());
        }
        let before = record.did_not_go_on(self.now);
        if let Some(guardian) = self.guardian() {
            guardian.accept()?;
        }
        record.prompted();
        let full = record.fills(self.context_percent(), &self.place.hook.rules);
        let (ids, messages) = self.messages(&mut record)?;
        let mut told = text::messages(&messages);
        if full {
            told += &text::ask_for_handoff(record.context_percent.unwrap_or_default());
        }
        if !told.is_empty() {
            self.tell(told.trim())?;
        }
        let prompt = self.without_secrets(self.payload.text("prompt"));
        let prompted = SessionAct::Prompted { text: text::cut(prompt, PROMPT_BYTES) };
        let mut ops = vec![self.happened(before.into_iter().chain([prompted]))];
        ops.push(Op::Consume { ids });
        // A prompt means that the person is present: tickets that wait for one are closed.
        let answer = "the person went on with the session".to_owned();
        ops.extend(self.ticket_keys().map(|key| Op::CloseTicket { key, answer: answer.clone() }));
        self.write(Some((version, record)), ops)?;
        Ok(())
    }

    fn reaches_for_a_tool(&mut self) -> Result<(), Failure> {
        let targets = self.payload.targets();
        let Some(first) = targets.first() else { return Ok(()) };
        let judges = targets.iter().find(|path| self.place.protects(path));
        let hooks = watch::files(&self.home, &self.place.root)?;
        let hooks = targets.iter().find(|path| hooks.iter().any(|(_, file)| file == *path));
        let path = hooks.or(judges).unwrap_or(first);
        let shown = path.strip_prefix(&self.place.dir).unwrap_or(path).display().to_string();
        let why = if hooks.is_some() {
            Some(format!("`{shown}` is protected: it names the hooks of this session. A person changes it."))
        } else if judges.is_some() {
            Some(format!(
                "`{shown}` is protected: it judges the work, so work that changes it does not count. Change the work itself; new \
                 files beside it are welcome."
            ))
        } else {
            self.guardian().and_then(|guardian| guardian.refuses(&self.payload))
        };
        let Some(why) = why else { return Ok(()) };
        let tool = self.payload.text("tool_name").to_owned();
        let refused = self.happened([SessionAct::Refused { tool, path: shown, why: why.clone() }]);
        self.write(None, vec![refused])?;
        self.refuse(&format!("everloop: {why}"))
    }

    fn used_a_tool(&mut self) -> Result<(), Failure> {
        let restored = self.restore()?;
        let signs = self.signs();
        let record = self.record()?;
        if !restored.is_empty() {
            self.refuse(&about_restored(&restored))?;
        }
        self.went_on(record, restored)?;
        self.signal(signs);
        Ok(())
    }

    /// Writes down that a session went on after a refused stop, with what else happened.
    fn went_on(&mut self, (version, mut record): (u64, Record), mut did: Vec<SessionAct>) -> Result<(), Failure> {
        let held = record.went_on(self.now);
        let record = held.is_some().then_some((version, record));
        did.extend(held);
        if did.is_empty() {
            return Ok(());
        }
        let event = self.happened(did);
        self.write(record, vec![event])
    }

    /// Completion signs that were not reported yet, each as one batch. A failure here never fails
    /// the hook.
    fn signs(&self) -> Vec<Vec<Op>> {
        self.look_for_signs().unwrap_or_else(|failure| {
            tracing::debug!("cannot look for completion signs: {}", failure.render());
            Vec::new()
        })
    }

    fn look_for_signs(&self) -> Result<Vec<Vec<Op>>, Failure> {
        let place = &self.place;
        // At the end of a turn its supervisor looks for them.
        if place.hook.completions.is_empty() || in_turn() {
            return Ok(Vec::new());
        }
        let owner = place.id().map_or_else(|| format!("{} {}", place.root.display(), place.name), ToString::to_string);
        let said = self.payload.last_words();
        let by = format!("session {}", self.payload.session());
        let scene = CompletionInputs { owner: &owner, name: &place.name, dir: Some(&place.dir), by: &by, said };
        let (told, gone) = completion::look(self.ledger()?, &place.hook.completions, &scene, self.now)?;
        let mut batches: Vec<Vec<Op>> = gone.into_iter().map(|op| vec![op]).collect();
        let asleep = place.state.as_ref().filter(|state| !state.is_over());
        for sign in told {
            let wake = asleep.map(|state| {
                let body = serde_json::to_string(&LoopCommand::Wake).expect("a command is plain data");
                Op::Signal { to: state.id.to_string(), by: sign.waker(), body }
            });
            let event = self.happened([SessionAct::LooksComplete { rule: sign.rule, text: sign.text }]);
            batches.push([sign.remember, event].into_iter().chain(wake).collect());
        }
        Ok(batches)
    }

    /// Reports them. One that another process reported meanwhile is refused as a whole, as
    /// intended.
    fn signal(&mut self, batches: Vec<Vec<Op>>) {
        for batch in batches {
            let wakes = batch.iter().any(|op| matches!(op, Op::Signal { .. }));
            match self.write(None, batch) {
                Ok(()) if wakes => self.home.wake(),
                Ok(()) => {}
                Err(failure) => tracing::debug!("completion sign not reported: {}", failure.render()),
            }
        }
    }

    /// Puts back what was lost: guarded files, and the hooks of the CLI. In a turn the project is a
    /// clone, and its hooks are not those of a person's session.
    fn restore(&self) -> Result<Vec<SessionAct>, Failure> {
        let mut restored = self.guardian().map(|guardian| guardian.restore()).transpose()?.unwrap_or_default();
        if in_turn() {
            return Ok(restored);
        }
        for lost in watch::restore(&self.home, &self.place.root)? {
            let path = lost.file.strip_prefix(&self.place.root).unwrap_or(&lost.file).display().to_string();
            let left_bytes = (lost.how != Loss::Gone).then_some(0);
            restored.push(SessionAct::Restored { path, left_bytes });
        }
        Ok(restored)
    }

    fn wants_to_stop(&mut self) -> Result<(), Failure> {
        // The supervisor judges a turn after it, in a checkout of its own.
        if in_turn() {
            return Ok(());
        }
        let restored = self.restore()?;
        let (version, mut record) = self.record()?;
        let again = self.payload.flag("stop_hook_active");
        let before = if again { record.went_on(self.now) } else { record.did_not_go_on(self.now) };
        let rules = self.place.hook.rules.clone();
        let pending = self.payload.pending();
        let stop = StopRequest {
            tree: tree::signature(&self.place.dir),
            guard: self.place.held(self.ledger()?, self.now)?,
            pending: &pending,
            again,
        };
        let mut answer = record.wants_to_stop(&stop, &rules, self.now);
        if answer == StopDecision::Ask {
            answer = match self.judge()? {
                Some(board) => record.judged(board, tree::signature(&self.place.dir), &rules, self.now),
                None => StopDecision::LetGo(Why::Unjudged {
                    why: format!("the checks took longer than {}", human(self.place.hook.check_timeout)),
                }),
            };
        }
        let signs = self.signs();
        let full = record.fills(self.context_percent(), &rules);
        let board = record.verdict.as_ref().map(|v| v.board.clone()).unwrap_or_default();
        let failing: Vec<String> = board.failing().map(|row| row.name.clone()).collect();
        let mut did: Vec<SessionAct> = before.into_iter().chain(restored).collect();
        let mut ops = Vec::new();
        match answer {
            StopDecision::Hold => {
                let reason = text::reason(&self.place, &board);
                record.ask_to_go_on(failing, &reason, self.now);
                self.refuse(&reason)?;
            }
            StopDecision::LetGo(Why::Passes | Why::Cap { .. }) if full => {
                let reason = text::ask_for_handoff(record.context_percent.unwrap_or_default());
                record.ask_to_go_on(vec!["handoff".to_owned()], &reason, self.now);
                self.refuse(&reason)?;
            }
            StopDecision::LetGo(why) => {
                if let Why::Cap { holds } = &why {
                    let says = format!("was held {holds} times and {} still fails", failing.join(", "));
                    ops.push(self.ticket("stopped", &says));
                }
                did.push(SessionAct::LetGo { why });
            }
            StopDecision::Ask => {}
        }
        record.last = did.last().map(|did| (self.now, did.clone())).or(record.last);
        if !did.is_empty() {
            ops.push(self.happened(did));
        }
        self.write(Some((version, record)), ops)?;
        self.signal(signs);
        Ok(())
    }

    fn judge(&self) -> Result<Option<Scoreboard>, Failure> {
        let set = CheckSet {
            name: self.place.name.clone(),
            dir: self.place.dir.clone(),
            checks: self.place.checks.clone(),
            pass_env: self.place.pass_env(),
            isolation: self.place.isolation.clone(),
            hide: self.place.hidden(),
        };
        let check_timeout: Duration = self.place.hook.check_timeout;
        let boards = block_on(check::run_all(std::slice::from_ref(&set), self.context, check_timeout))??;
        Ok(boards.and_then(|mut boards| boards.pop()))
    }

    fn is_not_served(&mut self) -> Result<(), Failure> {
        let (version, mut record) = self.record()?;
        let error = self.payload.text("error").to_owned();
        let said = self.payload.text("last_assistant_message");
        let refusal = VendorRefusal {
            agent: AgentKind::Claude,
            record: limits::VendorRecord::Synthetic,
            status: None,
            codes: &[&error],
            text: said,
            reset_at: None,
        };
        let limit = limits::limit(&refusal, self.now, Some(&TimeZone::system()));
        let until = limit.as_ref().and_then(|limit| limit.reset_at);
        record.parked_until = until;
        let text = text::cut(self.without_secrets(&format!("{error} {said}")), 500);
        let parked = SessionAct::Parked { text: text.trim().to_owned(), until };
        let before = record.went_on(self.now);
        record.last = Some((self.now, parked.clone()));
        let mut ops = vec![self.happened(before.into_iter().chain([parked]))];
        if limit.is_some() && until.is_none() {
            ops.push(self.ticket("limit", &format!("is limited by its vendor without an end time: {text}")));
        }
        self.write(Some((version, record)), ops)?;
        Ok(())
    }

    fn hands_off(&mut self, at: &str) -> Result<(), Failure> {
        let (version, mut record) = self.record()?;
        let before = record.went_on(self.now);
        let mut ops = self.handoff(&record, at)?;
        ops.extend(before.map(|before| self.happened([before])));
        self.write(Some((version, record)), ops)?;
        Ok(())
    }

    fn ends(&mut self) -> Result<(), Failure> {
        let (version, mut record) = self.record()?;
        record.ended = true;
        let mut ops = self.handoff(&record, "end")?;
        let before = record.did_not_go_on(self.now);
        if let Some(SessionAct::NotHeld { failing }) = &before {
            let says = format!("was held and ended all the same; {} still fails", failing.join(", "));
            ops.push(self.ticket("stopped", &says));
        }
        let ended = SessionAct::Ended { reason: self.payload.text("reason").to_owned() };
        ops.push(self.happened(before.into_iter().chain([ended])));
        self.write(Some((version, record)), ops)?;
        Ok(())
    }

    /// Composes the handoff for the next session, unless this one wrote one itself.
    fn handoff(&self, record: &Record, at: &str) -> Result<Vec<Op>, Failure> {
        let session = self.payload.session();
        let before = HandoffOf::Folder(&self.place.root).read(self.ledger()?).ok().flatten();
        if before.is_some_and(|h| h.session == session && h.by_agent) {
            return Ok(vec![self.happened([SessionAct::HandedOff { at: at.to_owned() }])]);
        }
        let words = transcript::ending(&PathBuf::from(self.payload.text("transcript_path"))).words;
        let words = self.without_secrets(&words);
        let board = record.verdict.as_ref().map(|v| &v.board);
        let text = handoff::compose(&words, board, &self.place.root);
        if text.is_empty() {
            return Ok(Vec::new());
        }
        let left = Handoff { handoff_version: 1, session: session.to_owned(), at: self.now, text, by_agent: false };
        let mut ops = handoff::save(self.ledger()?, &left, &self.place.root)?;
        ops.push(self.happened([SessionAct::HandedOff { at: at.to_owned() }]));
        Ok(ops)
    }

    fn calls_for_a_person(&mut self) -> Result<(), Failure> {
        let (version, record) = self.record()?;
        let kind = self.payload.text("notification_type").to_owned();
        // A session that has finished may wait for as long as it likes.
        let finished = record.verdict.as_ref().is_some_and(|v| v.board.all_pass());
        if finished || !CALLS.contains(&kind.as_str()) {
            return Ok(());
        }
        let said = text::cut(self.without_secrets(self.payload.text("message")), 500);
        let ticket = self.ticket(&kind, &format!("waits for you: {said}"));
        self.write(Some((version, record)), vec![ticket])?;
        Ok(())
    }

    /// One ticket per session and cause.
    fn ticket(&self, cause: &str, says: &str) -> Op {
        let (session, name) = (self.payload.session(), &self.place.name);
        let text = format!("session {session} of {} in {} ({name}) {says}", self.agent, self.place.dir.display());
        Op::OpenTicket { key: format!("session:{session}:{cause}"), owner: self.place.id().cloned(), text }
    }

    fn ticket_keys(&self) -> impl Iterator<Item = String> {
        let session = self.payload.session().to_owned();
        ["stopped", "limit"].into_iter().chain(CALLS).map(move |cause| format!("session:{session}:{cause}"))
    }

    /// Messages that the session did not get yet: those of the loop, and of its own mailbox
    /// (`everloop message send @SESSION`), with the ids of the latter.
    fn messages(&self, record: &mut Record) -> Result<(Vec<u64>, Vec<String>), Failure> {
        let notes = self.place.state.as_ref().map_or_else(Vec::new, |s| s.people.notes.clone());
        let notes: Vec<String> = notes.iter().map(|note| note.text().to_owned()).collect();
        let mut messages: Vec<String> = record.untold(&notes).into_iter().map(str::to_owned).collect();
        let found = self.ledger()?.messages(Recipients::These(&[format!("@{}", self.payload.session())]), MESSAGES)?;
        messages.extend(found.iter().map(said));
        Ok((found.iter().map(|m| m.id).collect(), messages))
    }

    /// How full the context is, if the CLI or the transcript gives it.
    fn context_percent(&self) -> Option<u32> {
        let told = self.payload.context_tokens();
        let path = PathBuf::from(self.payload.text("transcript_path"));
        let end = transcript::ending(&path);
        let tokens = told.or(end.context_tokens)?;
        let named = prices::context_of(self.payload.text("model"));
        let window = self.place.hook.context_tokens;
        let window = window.unwrap_or_else(|| transcript::window(named.or(end.window), tokens));
        Some(transcript::percent(tokens, window))
    }

    fn without_secrets(&self, text: &str) -> String {
        let secrets: Vec<Secret> = self
            .place
            .hidden()
            .into_iter()
            .map(|hidden| Secret { name: hidden.name, value: hidden.value.into_encoded_bytes() })
            .collect();
        String::from_utf8_lossy(&redact::redact(&secrets, text.as_bytes())).into_owned()
    }
}

/// Whether this is a turn that everloop itself started.
fn in_turn() -> bool {
    std::env::var(caller::TURN).is_ok_and(|turn| !turn.is_empty())
}

fn said(message: &Message) -> String {
    format!("{}: {}", message.by, MessageBody::of(message).text)
}

fn about_restored(restored: &[SessionAct]) -> String {
    let names: Vec<&str> = restored
        .iter()
        .filter_map(|did| match did {
            SessionAct::Restored { path, .. } => Some(path.as_str()),
            _ => None,
        })
        .collect();
    format!(
        "everloop: {} lost most of what was in it, and was put back as it was. It is guarded: add to it, or take out smaller parts.",
        names.join(", ")
    )
}
