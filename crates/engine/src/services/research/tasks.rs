//! The next steps of a research run as tasks of the board, each of them once.

use everloop_core::ids::{LoopId, TaskId};
use everloop_core::picture::svg::fit;
use everloop_core::research::steps::{NextStep, StepSubject, next_steps};
use serde::Serialize;

use super::show;
use crate::error::Failure;
use crate::research::run_of;
use crate::services::ServiceContext;
use crate::services::tasks::{AddOnce, AddTask, add_once};

/// A title is one line of a listing; the whole step is in the prompt.
const TITLE_COLUMNS: usize = 150;

/// The tasks of a run's next steps.
#[derive(Clone, Debug, Serialize)]
pub struct StepTasks {
    #[serde(rename = "loop")]
    pub run: LoopId,
    /// The most promising first.
    pub tasks: Vec<StepTask>,
}

/// The task of one step.
#[derive(Clone, Debug, Serialize)]
pub struct StepTask {
    pub task: TaskId,
    pub step: String,
    /// Higher is sooner.
    pub priority: i32,
    /// It is new; otherwise an earlier call made it, whatever became of it since.
    pub made: bool,
}

/// Makes a task of each next step that has none yet.
pub fn make_tasks(context: &ServiceContext, word: Option<&str>) -> Result<StepTasks, Failure> {
    context.for_a_person("make tasks of a research run")?;
    let run = show(context, word)?;
    let (spec, found) = run.parts()?;
    let (id, steps) = (run_of(&run.state), next_steps(&run.rows, &spec.plan, found.sigma()));
    let mut tasks = Vec::new();
    for (priority, step) in (1..=i32::try_from(steps.len()).unwrap_or(i32::MAX)).rev().zip(&steps) {
        let task = AddTask {
            title: fit(&step.text, TITLE_COLUMNS),
            prompt: prompt(id, &run.goal, step),
            priority,
            author: Some(format!("research {id}")),
            ..AddTask::default()
        };
        let made = add_once(context, AddOnce { id: step.task(id), trust: step.trust(), task })?;
        tasks.push(StepTask { task: step.task(id), step: step.text.clone(), priority, made });
    }
    Ok(StepTasks { run: id.clone(), tasks })
}

fn prompt(run: &LoopId, goal: &str, step: &NextStep) -> String {
    let seen = match step.subject {
        StepSubject::Strategy(_) => String::new(),
        StepSubject::NearMiss(number) | StepSubject::Crash(number) => {
            format!("Its change: everloop research diff {number} {run}\n")
        }
    };
    format!("{}\n\nA next step of research run {run}: {}\n{seen}", step.text, goal.trim())
}
