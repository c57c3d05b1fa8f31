//! A repository that several nodes share: work lands there once, whichever node pushes it and
//! however often.

use std::path::PathBuf;

use everloop_agents::workspace::{CommitMeta, Joining, Pushed, Remote, address_of};
use everloop_core::ids::{Fence, TaskId};
use everloop_core::planted::{self, Bug};

use super::Case;
use super::world::{Done, World, git_in, wait};

pub const CASES: &[Case] = &[
    ("shared::work_travels_and_lands_once", work_travels_and_lands_once),
    ("shared::what_does_not_fit_is_told_and_changes_nothing", what_does_not_fit_is_told_and_changes_nothing),
    ("shared::the_leader_looks_at_the_whole_difference", the_leader_looks_at_the_whole_difference),
];

const MAIN: &str = "refs/heads/main";

/// A bare repository next to the person's, with its `main` in it.
struct Shared {
    world: World,
    url: String,
}

impl Shared {
    fn new() -> Self {
        let world = World::new();
        let bare = beside(&world, "shared.git");
        world.git(&format!("clone -q --bare . {}", bare.display()));
        Self { url: bare.display().to_string(), world }
    }

    fn machine(&self, name: &str) -> Remote {
        let dir = beside(&self.world, name);
        wait(Remote::open(&dir, &self.url)).expect("there is room for a clone")
    }

    fn git(&self, args: &str) -> String {
        git_in(self.url.as_ref(), &args.split(' ').collect::<Vec<_>>())
    }

    /// A commit of the person on top of the first one, not on the branch, that writes one file.
    fn work(&self, file: &str, text: &str) -> String {
        self.world.git("checkout -q --detach main");
        self.world.write(file, text).commit(&format!("writes {file}"))
    }
}

fn beside(world: &World, name: &str) -> PathBuf {
    world.dir.with_file_name(name)
}

fn join(machine: &Remote, task: &str, work: &str) -> Joining {
    let (task, subject) = (TaskId::new(task), "a task");
    wait(machine.join(MAIN, work, &CommitMeta::new(&task, Fence(1), subject))).expect("the remote is there")
}

fn ready(joining: Joining) -> (String, String) {
    match joining {
        Joining::Ready { target, commit } => (target, commit),
        other => panic!("{other:?}"),
    }
}

fn work_travels_and_lands_once() -> Done {
    let shared = Shared::new();
    let (worker, leader) = (shared.machine("worker"), shared.machine("leader"));
    let work = shared.work("new.txt", "new\n");
    let pin = "refs/everloop/k3f9/k3f9-1/1";
    let operator = wait(Remote::open(&shared.world.dir, &shared.url))?;
    wait(operator.pin(&work, pin))?;
    wait(operator.pin(&work, pin))?;
    assert_eq!(wait(leader.fetch(pin))?, Some(work.clone()));
    assert_eq!(wait(leader.fetch("refs/heads/nowhere"))?, None);
    let base = wait(worker.fetch(MAIN))?.expect("the branch is there");
    wait(worker.begin("refs/everloop/m/result", &base))?;
    wait(worker.begin("refs/everloop/m/result", "0000000000000000000000000000000000000000"))?;
    assert_eq!(wait(worker.local("refs/everloop/m/result"))?, Some(base.clone()), "what was begun is not begun again");
    let (target, merge) = ready(join(&leader, "k3f9-1", &work));
    assert_eq!(target, base);
    // Two leaders at once: one of them is late, and then finds the trailer.
    wait(worker.fetch(pin))?;
    let (_, other) = ready(join(&worker, "k3f9-1", &work));
    assert_eq!(wait(leader.land(MAIN, &target, &merge))?, Pushed::Done);
    assert_eq!(wait(leader.land(MAIN, &target, &merge))?, Pushed::Done, "repeated after a crash");
    if other != merge {
        assert_eq!(wait(worker.land(MAIN, &target, &other))?, Pushed::Moved);
    }
    assert_eq!(join(&worker, "k3f9-1", &work), Joining::Landed { commit: merge });
    assert_eq!(join(&worker, "k3f9-2", &work), Joining::Contained, "by another task");
    let trailers = shared.git("log --format=%(trailers:key=Task-Id,valueonly) main");
    assert_eq!(trailers.lines().filter(|l| *l == "k3f9-1").count(), 1);
    assert_eq!(shared.git("show main:new.txt"), "new");
    Ok(())
}

fn what_does_not_fit_is_told_and_changes_nothing() -> Done {
    let shared = Shared::new();
    let machine = shared.machine("machine");
    let operator = wait(Remote::open(&shared.world.dir, &shared.url))?;
    let first = shared.work("a.txt", "ONE\n");
    wait(operator.pin(&first, "refs/everloop/x/1"))?;
    wait(machine.fetch("refs/everloop/x/1"))?;
    let (target, merge) = ready(join(&machine, "t-1", &first));
    wait(machine.land(MAIN, &target, &merge))?;
    let second = shared.work("a.txt", "two\n");
    wait(operator.pin(&second, "refs/everloop/x/2"))?;
    wait(machine.fetch("refs/everloop/x/2"))?;
    assert_eq!(join(&machine, "t-2", &second), Joining::Conflict { paths: vec!["a.txt".to_owned()] });
    assert_eq!(shared.git("rev-parse main"), merge);
    let gone = wait(Remote::open(&beside(&shared.world, "gone"), "/nowhere/at/all"))?;
    assert!(wait(gone.fetch(MAIN)).is_err(), "an unreachable remote is not an empty one");
    assert_eq!(wait(address_of(&shared.world.dir, &shared.url))?, shared.url);
    shared.world.git(&format!("remote add origin {}", shared.url));
    assert_eq!(wait(address_of(&shared.world.dir, "origin"))?, shared.url);
    Ok(())
}

fn the_leader_looks_at_the_whole_difference() -> Done {
    let shared = Shared::new();
    let (leader, operator) = (shared.machine("leader"), wait(Remote::open(&shared.world.dir, &shared.url))?);
    let spec = wait(shared.world.spec(""));
    let violations = |number: u32, name: &str| -> Result<Vec<String>, libtest_mimic::Failed> {
        let (work, pin) = (shared.work(name, "exit 0\n"), format!("refs/everloop/x/{number}"));
        wait(operator.pin(&work, &pin))?;
        wait(leader.fetch(&pin))?;
        let (target, merge) = ready(join(&leader, &format!("t-{number}"), &work));
        Ok(wait(leader.violations(&target, &merge, &spec))?)
    };
    assert_eq!(violations(1, "new.txt")?, Vec::<String>::new());
    assert_eq!(violations(2, "tests/t.sh")?, ["tests/t.sh"]);
    planted::plant(Some(Bug::LandsUninspected));
    let uninspected = violations(3, "tests/t.sh");
    planted::plant(None);
    assert_eq!(uninspected?, Vec::<String>::new());
    Ok(())
}
