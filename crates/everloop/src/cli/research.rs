//! `everloop research`: improves a metric by experiments; reads, applies and reports them.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use everloop_core::action::LoopCommand;
use everloop_core::research::pareto::{self, FrontierPoint};
use everloop_core::research::row::{Row, header, short};
use everloop_core::research::shared::WORKERS_MOST;
use everloop_core::research::{Direction, KeepRule, MetricSpec, ResearchSpec};
use everloop_core::time::parse_duration;
use everloop_engine::error::{Code, Failure};
use everloop_engine::services::mesh::loops;
use everloop_engine::services::research as service;
use everloop_engine::services::research::apply::{self as apply_service, ApplyRequest, ApplyShape};
use everloop_engine::services::research::import::history;
use everloop_engine::services::research::tasks::make_tasks;
use serde_json::json;

use super::diff::painted;
use super::message::send;
use super::run::{self, MeshSwitches, RunArgs, RunSwitches};
use super::{VerbSession, take as take_verb};
use crate::config::{self, Flags};
use crate::ui::text::clean;

mod import;
mod report;

const HELP: &str = "Examples:
  everloop research \"make the parser faster\" --metric './bench.sh' --direction lower --agent claude -n 40
  everloop research \"a smaller binary\" --metric 'make && stat -c %s app' --direction lower --check 'make test' \\
    --scope 'src/**' --agent-cmd 'my-agent {prompt}'
  everloop research --loop fast     # `[research.fast]` of everloop.toml
  everloop research show            # rows, champion and chart of the run in this folder
  everloop research diff 12         # the change of experiment 12, kept or not
  everloop research apply           # bring the champion to your branch
  everloop research apply --tasks   # put the next steps on the board

The agent only edits. Each change is committed, the checks (guards) run on it, and the metric is measured; a noisy
metric is measured again, the champion too, before anything is kept. Nothing moves onto your branch before `apply`.
The metric prints a number as its last line, or `METRIC name=value` lines. Exit codes: 0 goal value reached, 3 bounds
used up.";

/// Improves a metric by experiments: one change at a time is committed, measured, and kept or
/// discarded.
#[derive(Debug, clap::Args)]
#[command(after_help = HELP, args_conflicts_with_subcommands = true)]
pub struct ResearchArgs {
    /// What is to be improved, in words; without it, the run of everloop.toml is started
    goal: Option<String>,
    /// Name of a `[research.NAME]` of everloop.toml, which flags change for this start
    #[arg(long = "loop", value_name = "NAME", conflicts_with = "goal")]
    name: Option<String>,
    #[command(flatten)]
    metric: MetricFlags,
    #[command(flatten)]
    flags: Flags,
    #[command(flatten)]
    mesh: MeshSwitches,
    #[command(flatten)]
    switches: RunSwitches,
    /// What to do with a run
    #[command(subcommand)]
    what: Option<What>,
}

/// The metric and the rules of a run.
#[derive(Clone, Debug, clap::Args)]
struct MetricFlags {
    /// Command that prints the metric: its last line that is a number, or `METRIC name=value` lines
    #[arg(long, value_name = "CMD")]
    metric: Option<String>,
    /// Which values are better: lower or higher
    #[arg(long, value_name = "WAY", value_parser = direction)]
    direction: Option<Direction>,
    /// The `METRIC` line that decides [default: the first one]
    #[arg(long, value_name = "NAME")]
    metric_name: Option<String>,
    /// Where the number is in a JSON output, as `results.0.mean`
    #[arg(long, value_name = "PATH")]
    json_path: Option<String>,
    /// Further `METRIC` line that counts: a change that is not kept stays on the frontier if nothing
    /// there is as good in everything; may be repeated [direction: lower]
    #[arg(long, value_name = "NAME[:WAY]")]
    pareto: Vec<String>,
    /// Time limit of a measurement until a normal time is known [default: 10m]
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    metric_timeout: Option<Duration>,
    /// Values below are an error of the metric
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    metric_min: Option<f64>,
    /// Values above are an error of the metric
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    metric_max: Option<f64>,
    /// End at the first champion that is at least this good
    #[arg(long, value_name = "X", allow_negative_numbers = true)]
    goal_value: Option<f64>,
    /// Files that experiments may change, as globs [default: all that nothing protects]
    #[arg(long, value_name = "GLOB")]
    scope: Vec<String>,
    /// When a change is kept: race, single, sigma2 or exact [default: race]
    #[arg(long, value_name = "RULE", value_parser = rule)]
    rule: Option<KeepRule>,
    /// Keep small gains whatever they cost in lines, and do not prefer shorter code
    #[arg(long)]
    no_simplicity: bool,
    /// End after this many experiments in a row without a keep
    #[arg(long, value_name = "N")]
    patience: Option<u32>,
    /// File with strategies to try, one per list item [default: .everloop/research-plan.md]
    #[arg(long, value_name = "FILE")]
    plan: Option<PathBuf>,
    /// Results table of another tool or an earlier run; the prompt lists its ideas as tried
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Let no other measurement run on this machine at the same time
    #[arg(long)]
    exclusive: bool,
    /// Experiments at a time on this machine, each in a clone of its own; budgets are divided evenly
    #[arg(long, value_name = "W", value_parser = workers)]
    workers: Option<u32>,
    /// Lines that an experiment may add and remove [default: 5000]
    #[arg(long, value_name = "N")]
    max_lines: Option<u32>,
    /// File of the results [default: in the state folder]
    #[arg(long, value_name = "FILE")]
    results: Option<PathBuf>,
}

/// Subcommands of `research`.
#[derive(Debug, clap::Subcommand)]
enum What {
    /// List all research runs
    List,
    /// Show a run: summary, chart and rows
    Show {
        /// Loop id or name [default: the run in this folder]
        id: Option<String>,
    },
    /// Show the champion
    Best {
        /// Loop id or name [default: the run in this folder]
        id: Option<String>,
    },
    /// Show what an experiment changed, kept or not
    Diff {
        /// Number of the experiment
        number: u32,
        /// Loop id or name [default: the run in this folder]
        id: Option<String>,
    },
    /// Bring the champion to your branch, as `everloop take` does; or the next steps to the board
    Apply {
        /// Loop id or name [default: the run in this folder]
        id: Option<String>,
        /// Make this branch with it, and leave everything else as it is
        #[arg(long, value_name = "NAME")]
        branch: Option<String>,
        /// As one commit instead of one for each kept experiment
        #[arg(long)]
        squash: bool,
        /// Only these experiments, kept or on the frontier; the checks run on what they make together
        #[arg(long, value_name = "N,…", value_delimiter = ',', conflicts_with = "squash")]
        only: Vec<u32>,
        /// Move no branch; make a task of each next step of the report, the first most urgent
        #[arg(long, conflicts_with_all = ["branch", "squash", "only"])]
        tasks: bool,
    },
    /// End a run after its experiment; `everloop resume` continues it
    Stop {
        /// Loop id or name [default: the run in this folder]
        id: Option<String>,
    },
    /// Write a report as one HTML file
    Report(report::ReportFlags),
    /// Summarise the results table of another tool (TSV), which `--history` of a new run reads
    Import {
        /// The file with the table
        file: PathBuf,
    },
    /// Print the table of all experiments
    Export {
        /// Loop id or name [default: the run in this folder]
        id: Option<String>,
    },
}

fn direction(text: &str) -> Result<Direction, String> {
    let all = [Direction::Lower, Direction::Higher];
    all.into_iter().find(|way| way.label() == text).ok_or_else(|| "it is `lower` or `higher`".to_owned())
}

fn workers(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|n| (1..=WORKERS_MOST).contains(n));
    number.ok_or_else(|| format!("it is a number from 1 to {WORKERS_MOST}"))
}

fn rule(text: &str) -> Result<KeepRule, String> {
    let found = KeepRule::ALL.into_iter().find(|rule| rule.label() == text);
    found.ok_or_else(|| "it is `race`, `single`, `sigma2` or `exact`".to_owned())
}

pub fn research(args: ResearchArgs, session: &mut VerbSession) -> Result<Code, Failure> {
    match args.what {
        None => start(args, session),
        Some(What::List) => list(session),
        Some(What::Show { id }) => show(session, id.as_deref()),
        Some(What::Best { id }) => best(session, id.as_deref()),
        Some(What::Diff { number, id }) => diff(session, number, id.as_deref()),
        Some(What::Apply { id, tasks: true, .. }) => tasks(session, id.as_deref()),
        Some(What::Apply { id, branch, squash, only, tasks: false }) => {
            let shape = match (squash, only) {
                (true, _) => ApplyShape::Squash,
                (false, only) if only.is_empty() => ApplyShape::Line,
                (false, only) => ApplyShape::Only(only),
            };
            apply(session, &ApplyRequest { word: id, branch, shape })
        }
        Some(What::Stop { id }) => stop(session, id.as_deref()),
        Some(What::Report(flags)) => report::report(&flags, session),
        Some(What::Import { file }) => import::import(session, &file),
        Some(What::Export { id }) => export(session, id.as_deref()),
    }
}

fn start(args: ResearchArgs, session: &VerbSession) -> Result<Code, Failure> {
    let ResearchArgs { goal, name, metric, flags, mesh, switches, .. } = args;
    if let Some(goal) = goal {
        let spec = metric.spec(session)?;
        return run::research(&RunArgs::of(goal, flags, mesh, switches), session, spec);
    }
    let args = RunArgs::named(configured(session, name)?, flags, mesh, switches);
    run::research_of_file(&args, session, &mut |spec| metric.clone().change(spec, session))
}

/// The name of the run in everloop.toml that is meant.
fn configured(session: &VerbSession, name: Option<String>) -> Result<String, Failure> {
    if let Some(name) = name {
        return Ok(name);
    }
    let mut known = super::config::load(session)?.research_runs();
    match known.len() {
        1 => Ok(known.remove(0)),
        0 => Err(Failure::usage("there is no goal, and no `[research.NAME]` in everloop.toml here or above")
            .hint("everloop research \"GOAL\" --metric 'CMD' --direction lower --agent claude")),
        _ => Err(Failure::usage("everloop.toml holds several research runs")
            .hint(format!("name one: everloop research --loop {}", known.join(" | ")))),
    }
}

impl MetricFlags {
    /// A run that stands in no file.
    fn spec(self, session: &VerbSession) -> Result<ResearchSpec, Failure> {
        let missing =
            |flag: &str| Failure::usage(format!("a research run needs {flag}")).hint("everloop research --help");
        let run = self.metric.clone().ok_or_else(|| missing("--metric 'CMD'"))?;
        let direction = self.direction.ok_or_else(|| missing("--direction lower or higher"))?;
        let mut spec = ResearchSpec::new(MetricSpec::new(run, direction));
        spec.metric.exclusive = spec.metric.is_disturbed();
        if self.plan.is_none() {
            let usual = config::plan(&session.dir.join(config::PLAN));
            spec.plan = usual.map_err(Failure::usage)?.unwrap_or_default();
        }
        self.change(&mut spec, session)?;
        Ok(spec)
    }

    /// Changes what was typed.
    fn change(self, spec: &mut ResearchSpec, session: &VerbSession) -> Result<(), Failure> {
        for value in [self.goal_value, self.metric_min, self.metric_max].into_iter().flatten() {
            if !value.is_finite() {
                return Err(Failure::usage(format!("`{value}` is no finite number")));
            }
        }
        let metric = &mut spec.metric;
        let disturbed = self.metric.is_some() || self.metric_name.is_some();
        metric.check.run = self.metric.unwrap_or_else(|| metric.check.run.clone());
        metric.direction = self.direction.unwrap_or(metric.direction);
        metric.check.timeout = self.metric_timeout.unwrap_or(metric.check.timeout);
        metric.name = self.metric_name.or(metric.name.take());
        if !self.pareto.is_empty() {
            let further = pareto::read_all(&self.pareto, metric.name.as_deref());
            metric.pareto = further.map_err(|why| Failure::usage(format!("--pareto: {why}")))?;
        }
        metric.json_path = self.json_path.or(metric.json_path.take());
        (metric.min, metric.max) = (self.metric_min.or(metric.min), self.metric_max.or(metric.max));
        metric.exclusive |= self.exclusive || disturbed && metric.is_disturbed();
        if !self.scope.is_empty() {
            spec.scope = self.scope;
        }
        spec.goal_value = self.goal_value.or(spec.goal_value);
        spec.rule = self.rule.unwrap_or(spec.rule);
        spec.simplicity &= !self.no_simplicity;
        spec.patience = self.patience.or(spec.patience);
        spec.max_lines = self.max_lines.unwrap_or(spec.max_lines);
        let results = self.results.map(|path| session.dir.join(path).display().to_string());
        spec.workers = self.workers.unwrap_or(spec.workers);
        spec.results = results.or(spec.results.take());
        if let Some(file) = self.history {
            spec.history = Some(history(&session.dir.join(file))?.ideas());
        }
        if let Some(file) = self.plan {
            let path = session.dir.join(file);
            let none = || Failure::usage(format!("cannot read the plan `{}`: there is no such file", path.display()));
            spec.plan = config::plan(&path).map_err(Failure::usage)?.ok_or_else(none)?;
        }
        Ok(())
    }
}

fn list(session: &mut VerbSession) -> Result<Code, Failure> {
    let runs = service::list(session)?;
    let mut text = String::new();
    for run in &runs {
        let best = run.best.zip(run.baseline).map_or_else(
            || "no value yet".to_owned(),
            |(best, baseline)| format!("{} -> {}", short(baseline), short(best)),
        );
        let (goal, name) = (clean(&run.goal), clean(&run.name));
        writeln!(text, "{} {name} ({}): {} experiments, {best}: {goal}", run.id, run.phase, run.experiments)
            .expect("writing to a string cannot fail");
    }
    if runs.is_empty() {
        text.push_str(
            "no research runs yet: everloop research \"GOAL\" --metric 'CMD' --direction lower --agent claude\n",
        );
    }
    session.ui.said(text.trim_end(), &json!({ "runs": runs }))?;
    Ok(Code::Ok)
}

/// Rows that `show` prints.
const ROWS_SHOWN: usize = 15;
/// Size of the chart in a terminal.
const CHART: (usize, usize) = (78, 12);

fn show(session: &mut VerbSession, id: Option<&str>) -> Result<Code, Failure> {
    let run = service::show(session, id)?;
    let workers = if run.workers > 1 { format!(", {} workers", run.workers) } else { String::new() };
    let mut text = format!("{} {} ({}{workers}): {}\n", run.id, clean(&run.name), run.phase, clean(&run.goal));
    if run.rows.is_empty() {
        text.push_str("the baseline is not measured yet\n");
    } else {
        text.push_str(&run.chart()?.terminal(CHART.0, CHART.1));
        text.push('\n');
        let more = run.rows.len().saturating_sub(ROWS_SHOWN);
        if more > 0 {
            writeln!(text, "({more} earlier rows: everloop research export {})", run.id)
                .expect("writing to a string cannot fail");
        }
        for row in run.rows.iter().skip(more) {
            text.push_str(&line(row));
        }
        if !run.frontier.is_empty() {
            text.push_str("frontier:\n");
            text.extend(run.frontier.iter().map(member));
        }
        text.extend(run.summary.lines().map(|line| clean(line) + "\n"));
    }
    session.ui.said(text.trim_end(), &run)?;
    Ok(Code::Ok)
}

/// A member of the frontier for people.
fn member(point: &FrontierPoint) -> String {
    let further: Vec<String> =
        point.secondary.iter().map(|(name, value)| format!("{} {}", clean(name), short(*value))).collect();
    let (value, change) = (short(point.value), clean(&point.description));
    format!("{:>4} {value:>12}, {}  {change}\n", point.number, further.join(", "))
}

/// A row for people.
fn line(row: &Row) -> String {
    let value = row.value.map_or_else(|| "-".to_owned(), short);
    let why = if row.why.is_empty() { String::new() } else { format!(" ({})", clean(&row.why)) };
    format!("{:>4} {:<12} {:>12}  {}{why}\n", row.number, row.status.label(), value, clean(&row.description))
}

fn best(session: &mut VerbSession, id: Option<&str>) -> Result<Code, Failure> {
    let run = service::show(session, id)?;
    let (_, research) = run.parts()?;
    let row = run.row(research.champion.number)?;
    let commit = row.commit.as_deref().unwrap_or("-");
    let text = format!(
        "experiment {} of {}: {} (baseline {})\n{commit}: {}",
        row.number,
        run.id,
        short(research.champion.value()),
        short(research.baseline),
        clean(&row.description)
    );
    session.ui.said(&text, row)?;
    Ok(Code::Ok)
}

fn diff(session: &mut VerbSession, number: u32, id: Option<&str>) -> Result<Code, Failure> {
    let run = service::show(session, id)?;
    let row = run.row(number)?;
    let patch = service::patch(&run, row)?;
    let lines: Vec<String> = patch.lines().map(|line| painted(line, session.ui.paint())).collect();
    session.ui.answer(&lines, &json!({ "loop": run.id, "experiment": number, "patch": patch }))?;
    Ok(Code::Ok)
}

fn apply(session: &mut VerbSession, request: &ApplyRequest) -> Result<Code, Failure> {
    let answer = apply_service::apply(session, request)?;
    let numbers: Vec<String> = answer.experiments.iter().map(u32::to_string).collect();
    let checks = match answer.checks {
        0 => String::new(),
        n => format!("; {n} checks pass on it"),
    };
    let text = format!("{}\nit holds experiments {}{checks}", take_verb::words(&answer.work), numbers.join(", "));
    session.ui.said(&text, &answer)?;
    Ok(Code::Ok)
}

fn tasks(session: &mut VerbSession, id: Option<&str>) -> Result<Code, Failure> {
    let answer = make_tasks(session, id)?;
    let mut text = String::new();
    for task in &answer.tasks {
        let was = if task.made { "" } else { " (made before)" };
        writeln!(text, "{}{was}: {}", task.task, clean(&task.step)).expect("writing to a string cannot fail");
    }
    if answer.tasks.is_empty() {
        writeln!(text, "run `{}` has no next steps on record", answer.run).expect("writing to a string cannot fail");
    }
    session.ui.said(text.trim_end(), &answer)?;
    Ok(Code::Ok)
}

fn stop(session: &mut VerbSession, id: Option<&str>) -> Result<Code, Failure> {
    session.for_a_person("stop a research run")?;
    let run = service::show(session, id)?;
    if run.remote.is_some() {
        loops::stop(session, run.id.as_str())?;
        session.ui.said(&format!("run `{}` stops", run.id), &json!({ "id": run.id, "stop": true }))?;
        return Ok(Code::Ok);
    }
    let (state, taker) = send::send(session, Some(run.id.as_str()), &LoopCommand::Stop { now: false })?;
    send::tell(session, &state.id, "stops after the running experiment, if any", taker)?;
    Ok(Code::Ok)
}

fn export(session: &mut VerbSession, id: Option<&str>) -> Result<Code, Failure> {
    let run = service::show(session, id)?;
    let (spec, _) = run.parts()?;
    let table: String = std::iter::once(header(spec.metric.direction)).chain(run.rows.iter().map(Row::line)).collect();
    session.ui.said(table.trim_end(), &run)?;
    Ok(Code::Ok)
}
