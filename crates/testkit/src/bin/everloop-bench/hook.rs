//! How long a person's own agent waits for a hook: each event of a session, over a long journal,
//! with a supervisor running.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use everloop_core::event::Event;
use everloop_core::op::Op;
use everloop_core::time::Time;
use everloop_store::{Ledger, OpenMode};

use crate::measure::{Times, run_times};
use crate::report::{BenchRow, heading, ms, ratio, remark};
use crate::scene::{Project, Scene, Supervised};
use crate::{Options, Result};

const ROWS: usize = 100_000;
const BATCH: usize = 1_000;

/// The goals for median and p99.
const TYPICAL: Duration = Duration::from_millis(20);
const WORST: Duration = Duration::from_millis(60);

const TOML: &str =
    "[loop.main]\ngoal = \"x\"\nagent_cmd = \"true\"\nchecks = [\"true\"]\n\n[guardian]\nfiles = [\"MEMORY.md\"]\n";

const MOMENTS: [(&str, &str); 10] = [
    ("SessionStart", r#""source":"startup""#),
    ("UserPromptSubmit", r#""prompt":"go on""#),
    ("PreToolUse", r#""tool_name":"Write","tool_input":{"file_path":"src.rs","content":"x"}"#),
    ("PostToolUse", r#""tool_name":"Bash","tool_input":{"command":"ls"}"#),
    ("Stop", r#""stop_hook_active":false"#),
    ("SubagentStop", r#""stop_hook_active":false"#),
    ("StopFailure", r#""error":"rate_limit","last_assistant_message":"limit""#),
    ("PreCompact", r#""trigger":"auto""#),
    ("Notification", r#""notification_type":"idle_prompt","message":"waits""#),
    ("SessionEnd", r#""reason":"other""#),
];

pub fn run(options: &Options) -> Result<()> {
    heading("hooks of an agent's own session");
    let scene = Scene::new(options, Project::Git)?;
    // Below the folder in which the supervisor starts, or it would work on the loop itself.
    let project = scene.project().join("inside");
    std::fs::create_dir(&project)?;
    std::fs::write(project.join("everloop.toml"), TOML)?;
    std::fs::write(project.join("MEMORY.md"), "what was learned\n".repeat(100))?;
    scene.finish(&["trust", "inside"], 0)?;
    let supervised = Supervised::start(&scene)?;
    fill(&scene, options)?;
    let samples = options.length.pick(200, 50);
    let floor = run_times(|| scene.clean(Path::new("/bin/true")), samples)?;
    for (moment, fields) in MOMENTS {
        let payload = scene.path("payload.json");
        let cwd = project.display();
        let text = format!(
            r#"{{"session_id":"bench","cwd":"{cwd}","hook_event_name":"{moment}","transcript_path":"",{fields}}}"#
        );
        std::fs::write(&payload, text)?;
        if moment == "Stop" {
            // The first one runs the check; its verdict on these files is cached from then on.
            times(&payload, 1, || scene.everloop(&["hook", moment]))?;
        }
        let took = times(&payload, samples, || scene.everloop(&["hook", moment]))?;
        let met = took.median() <= TYPICAL && took.p99() <= WORST;
        BenchRow::new(moment, format!("{} p99 {}", ms(took.median()), ms(took.p99())))
            .floor(
                "/bin/true",
                &format!("{} p99 {}", ms(floor.median()), ms(floor.p99())),
                ratio(took.median(), floor.median()),
            )
            .goal("<= 20 ms, p99 <= 60 ms", met)
            .print();
    }
    remark("Stop: on files that were judged before; otherwise it takes as long as the checks do");
    drop(supervised);
    Ok(())
}

/// How long a hook takes that reads this file on stdin. Its exit code is 0.
fn times(payload: &Path, samples: usize, mut command: impl FnMut() -> Command) -> Result<Times> {
    let mut all = Vec::with_capacity(samples);
    for _ in 0..samples {
        let mut command = command();
        command.stdin(File::open(payload)?).stdout(Stdio::null()).stderr(Stdio::null());
        let start = Instant::now();
        let status = command.status()?;
        all.push(start.elapsed());
        if !status.success() {
            return Err(format!("a hook ended with {status}").into());
        }
    }
    Times::new(all)
}

/// A journal that makes the state folder look old.
fn fill(scene: &Scene, options: &Options) -> Result<()> {
    let mut ledger = scene.ledger(OpenMode::ReadWrite)?;
    let events: Vec<Event> = (0..BATCH).map(|i| Event::Woken { by: format!("bench {i}") }).collect();
    for _ in 0..options.length.pick(ROWS, ROWS / 5) / BATCH {
        ledger.transact(Time(1), &[Op::Append { owner: None, events: events.clone() }])?;
    }
    Ok(())
}
