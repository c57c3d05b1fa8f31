//! Checks as real commands: each verdict, and commands that misbehave.

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use everloop_agents::check::{Checker, Question};
use everloop_agents::job::{self, ShimProgram};
use everloop_agents::protect;
use everloop_core::scoreboard::{CheckResult, Scoreboard, Verdict};
use everloop_core::spec::CheckSpec;
use everloop_core::test_evidence::Proof;
use libtest_mimic::Failed;

use super::Case;
use super::world::{Done, World, ensure, wait};

pub const CASES: &[Case] = &[
    ("check_pass_and_fail_with_output", || wait(pass_and_fail())),
    ("check_that_cannot_start_is_broken", || wait(cannot_start())),
    ("check_that_hangs_is_broken", || wait(hangs())),
    ("check_that_alternates_is_flaky", || wait(flaky())),
    ("check_killed_by_a_signal_fails", || wait(signal())),
    ("check_that_edits_itself_is_broken", || wait(edits_itself())),
    ("check_that_wants_a_terminal_or_input_fails", || wait(terminal())),
    ("check_that_floods_is_capped", || wait(floods())),
    ("check_that_leaves_a_daemon_leaves_none", || wait(daemon())),
    ("check_sees_no_secrets_and_shows_none", || wait(secrets())),
];

fn check(run: &str) -> CheckSpec {
    let timeout = Duration::from_secs(60);
    CheckSpec {
        name: "it".to_owned(),
        run: run.to_owned(),
        timeout,
        weight: 1,
        pin: String::new(),
        proof: Proof::default(),
        parallel: false,
    }
}

fn said(verdict: Verdict) -> Scoreboard {
    let row = CheckResult {
        name: "it".to_owned(),
        verdict,
        weight: 1,
        millis: 0,
        output: String::new(),
        fingerprint: 0,
        reference: None,
    };
    Scoreboard(vec![row])
}

async fn run(world: &World, check: CheckSpec, before: Option<Verdict>) -> Result<CheckResult, Failed> {
    let checker = Checker {
        outside: everloop_agents::environment::Outside::ours(),
        shim: ShimProgram::current()?,
        jobs: world.root.join("checks"),
        pass_env: vec!["PATH".to_owned()],
        isolation: None,
        hide: Vec::new(),
    };
    let before = before.map(said);
    let checks = [check];
    let question = Question { checks: &checks, cwd: &world.dir, before: before.as_ref(), changed: true };
    let mut board = checker.run(question).await?;
    let empty = |dir: &Path| job::is_clear(dir) && fs::read_dir(dir).is_ok_and(|entries| entries.count() == 1);
    let jobs = fs::read_dir(&checker.jobs).into_iter().flatten().flatten();
    ensure!(jobs.map(|entry| entry.path()).all(|dir| empty(&dir)), "nothing of a check is left in its folder");
    board.0.pop().ok_or_else(|| "one row".into())
}

fn why(result: &CheckResult) -> &str {
    match &result.verdict {
        Verdict::Broken { why } => why,
        _ => "not broken",
    }
}

async fn pass_and_fail() -> Done {
    let world = World::plain();
    let passed = run(&world, check("pwd; echo to stderr >&2"), None).await?;
    ensure!(passed.verdict == Verdict::Pass && passed.fingerprint == 0);
    ensure!(passed.output == format!("{}\nto stderr", world.dir.display()), "{passed:?}");
    let failed = run(&world, check("echo \"line 1\"; printf '\\033[31mred\\033[0m\\n'; exit 3"), None).await?;
    ensure!(failed.verdict == Verdict::Fail && failed.output == "line 1\nred", "{failed:?}");
    let again = run(&world, check("echo \"line 22\"; printf '\\033[31mred\\033[0m\\n'; exit 4"), None).await?;
    ensure!(failed.fingerprint == again.fingerprint && failed.fingerprint != 0);
    Ok(())
}

async fn cannot_start() -> Done {
    let world = World::plain();
    world.write("not-executable", "x");
    let missing = run(&world, check("no-such-program --now"), None).await?;
    ensure!(why(&missing).starts_with("cannot start: ") && why(&missing).contains("no-such-program"), "{missing:?}");
    let denied = run(&world, check("./not-executable"), None).await?;
    ensure!(why(&denied).starts_with("cannot start: "), "{denied:?}");
    let mut gone = World::plain();
    gone.dir.push("nowhere");
    let nowhere = run(&gone, check("true"), None).await?;
    ensure!(why(&nowhere).starts_with("cannot start: "), "{nowhere:?}");
    Ok(())
}

async fn hangs() -> Done {
    let world = World::plain();
    let slow = CheckSpec { timeout: Duration::from_millis(500), ..check("echo begun; sleep 600") };
    let started = Instant::now();
    let result = run(&world, slow, None).await?;
    ensure!(why(&result) == "timed out after 500ms" && result.output == "begun", "{result:?}");
    ensure!(started.elapsed() < Duration::from_secs(20));
    Ok(())
}

async fn flaky() -> Done {
    let world = World::plain();
    let alternates = |first: &str| {
        fs::write(world.dir.join("state"), first)?;
        Ok::<_, Failed>(check("s=$(cat state); echo $((1 - s)) >state; test $s = 1"))
    };
    let result = run(&world, alternates("0")?, Some(Verdict::Pass)).await?;
    ensure!(result.verdict == Verdict::Flaky { passes: 1, runs: 3 } && !result.verdict.passes(), "{result:?}");
    let mostly = "n=$(cat state); echo $((n + 1)) >state; test $n -gt 0";
    fs::write(world.dir.join("state"), "0")?;
    let result = run(&world, check(mostly), Some(Verdict::Pass)).await?;
    ensure!(result.verdict == Verdict::Flaky { passes: 2, runs: 3 } && result.verdict.passes(), "{result:?}");
    let result = run(&world, alternates("0")?, None).await?;
    ensure!(result.verdict == Verdict::Fail, "what is expected costs one run: {result:?}");
    Ok(())
}

async fn signal() -> Done {
    let world = World::plain();
    let result = run(&world, check("kill -9 $$"), None).await?;
    ensure!(result.verdict == Verdict::Fail, "{result:?}");
    Ok(())
}

async fn edits_itself() -> Done {
    let world = World::plain();
    world.write("check.sh", "echo 'exit 0' >check.sh\nexit 0\n");
    let command = check("sh check.sh");
    let pinned = CheckSpec { pin: protect::pin(&command.run, &world.dir)?, ..command };
    let result = run(&world, pinned.clone(), None).await?;
    ensure!(why(&result).contains("`check.sh`"), "{result:?}");
    let result = run(&world, pinned.clone(), None).await?;
    ensure!(why(&result).contains("`check.sh`") && result.millis == 0, "not even run: {result:?}");
    fs::remove_file(world.dir.join("check.sh"))?;
    let result = run(&world, pinned, None).await?;
    ensure!(why(&result).contains("is gone"), "{result:?}");
    Ok(())
}

async fn terminal() -> Done {
    let world = World::plain();
    let result = run(&world, check("test -t 0 || test -t 1 || read line </dev/tty || read line"), None).await?;
    ensure!(result.verdict == Verdict::Fail, "{result:?}");
    Ok(())
}

async fn floods() -> Done {
    let world = World::plain();
    let result = run(&world, check("yes something | head -c 200000000; echo the end; exit 1"), None).await?;
    ensure!(result.verdict == Verdict::Fail && result.output.ends_with("the end"), "{:?}", result.verdict);
    ensure!(result.output.len() <= 4096);
    Ok(())
}

async fn daemon() -> Done {
    let world = World::plain();
    let run_it = check("setsid sh -c 'echo $$ >pid; exec sleep 600' >/dev/null 2>&1 & while ! test -s pid; do :; done");
    let result = run(&world, run_it, None).await?;
    ensure!(result.verdict == Verdict::Pass, "{result:?}");
    let pid = fs::read_to_string(world.dir.join("pid"))?;
    let alive = fs::read_to_string(Path::new("/proc").join(pid.trim()).join("comm"));
    ensure!(alive.is_err(), "{alive:?}");
    Ok(())
}

async fn secrets() -> Done {
    let world = World::plain();
    let result = run(&world, check("env | grep -c '^CARGO' ; env | grep ^EVERLOOP_ | grep -v JOB"), None).await?;
    ensure!(result.output == "0", "{result:?}");
    // The one variable that the builder above passes by name, as a key would be.
    let result = run(&world, check("echo \"it is $PATH\""), None).await?;
    ensure!(result.output.starts_with("it is ") && !result.output.contains(&std::env::var("PATH")?), "{result:?}");
    Ok(())
}
