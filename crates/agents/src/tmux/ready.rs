//! Brings a pane into the state that a turn needs: alive, and in the turn's folder. A pane of
//! everloop is restarted for that, within bounds; a person's pane is never touched.

use std::fmt;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::pane::{Pane, PaneOrigin, PaneVariable, Program};
use super::state::State;
use super::{PaneError, TmuxServer};

/// A program that needs more restarts than this does not stay up.
const MOST: usize = 3;
/// The period of that bound.
const WITHIN: Duration = Duration::from_secs(3600);

/// Agents are ready for a prompt within a few seconds of their start; one that is still busy then
/// is at work.
const IDLE_WITHIN: Duration = Duration::from_secs(30);
/// Poll interval for the idle state.
const POLL_INTERVAL: Duration = Duration::from_millis(150);

/// Where a turn happens.
#[derive(Clone, Copy, Debug)]
pub enum PaneTarget<'a> {
    /// In the loop's own worktree: the program has to run there.
    Worktree(&'a Path),
    /// In the pane's own folder, in the person's checkout; this path is for a pane that lost its
    /// own folder.
    Folder(&'a Path),
}

/// Why a program has to be restarted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Need {
    /// The pane or its server is gone.
    Gone,
    /// The program in it has ended.
    Ended,
    /// It runs in another folder, or in one that was removed.
    Elsewhere(PathBuf),
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Need::Gone => f.write_str("the pane or its tmux server is gone"),
            Need::Ended => f.write_str("its program has ended"),
            Need::Elsewhere(cwd) => write!(f, "its program works in `{}`", cwd.display()),
        }
    }
}

impl TmuxServer {
    /// Makes sure that the program of a pane is alive and in its place. Returns a description of
    /// what was done, if anything was.
    pub fn ready(&self, name: &str, place: PaneTarget<'_>) -> Result<Option<String>, PaneError> {
        let pane = self.pane(name)?;
        let Some(need) = self.need(&pane, place)? else { return Ok(None) };
        if matches!(pane.origin, PaneOrigin::Adopted { .. }) {
            return Err(reserved(&pane, need, place));
        }
        // A running turn would lose its program.
        let _turn = self.files.lock_turn(&pane.name)?;
        if let Need::Elsewhere(cwd) = &need {
            self.wait_until_idle(&pane, cwd, place)?;
        }
        let _lock = self.files.lock(&pane.name)?;
        // Another process may have restarted it meanwhile.
        let pane = self.pane(name)?;
        match (self.need(&pane, place)?, &pane.origin) {
            (Some(need), PaneOrigin::Started(program)) => self.revive(&pane, program, &need, place).map(Some),
            (Some(need), PaneOrigin::Adopted { .. }) => Err(reserved(&pane, need, place)),
            (None, _) => Ok(None),
        }
    }

    fn revive(&self, pane: &Pane, program: &Program, need: &Need, place: PaneTarget<'_>) -> Result<String, PaneError> {
        let name = pane.name.to_string();
        let now_ms = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_millis() as u64);
        let mut revived_ms = recent(&pane.revived_ms, now_ms);
        let times = revived_ms.len();
        if times >= MOST {
            return Err(PaneError::TooOften { name, times, why: need.to_string() });
        }
        revived_ms.push(now_ms);
        let program = Program { cwd: home(program, place), ..program.clone() };
        let (cwd, missing) = (program.cwd.clone(), missing(&program));
        // Recorded before the start: a crash in between costs one of the three, and no start goes
        // uncounted.
        self.files.write(&pane.clone().revived(&revived_ms))?;
        self.files.write(&self.again(pane, program)?.revived(&revived_ms))?;
        let times = times + 1;
        Ok(format!("`{name}` was started again in `{}` ({times} of {MOST} in an hour): {need}{missing}", cwd.display()))
    }

    /// A program is moved only while it waits for a prompt: otherwise it is at work elsewhere. One
    /// that was just started needs a moment.
    fn wait_until_idle(&self, pane: &Pane, cwd: &Path, place: PaneTarget<'_>) -> Result<(), PaneError> {
        let end = Instant::now() + IDLE_WITHIN;
        loop {
            let (_, state) = self.see(pane)?;
            match state {
                State::Idle | State::Dead { .. } => return Ok(()),
                State::Working | State::Unknown if Instant::now() < end => std::thread::sleep(POLL_INTERVAL),
                State::Working | State::Unknown | State::Asking { .. } | State::Limited { .. } => {
                    return Err(PaneError::Occupied {
                        name: pane.name.to_string(),
                        doing: state.label(),
                        cwd: cwd.to_owned(),
                        wanted: place.path().to_owned(),
                    });
                }
            }
        }
    }

    /// A pane with another program than the recorded one needs nothing: it must not be changed, and
    /// typing detects that.
    fn need(&self, pane: &Pane, place: PaneTarget<'_>) -> Result<Option<Need>, PaneError> {
        let Some(snapshot) = self.snapshot(pane)? else { return Ok(Some(Need::Gone)) };
        if snapshot.dead {
            return Ok(Some(Need::Ended));
        }
        Ok(elsewhere(pane, place).map(Need::Elsewhere))
    }
}

impl<'a> PaneTarget<'a> {
    fn path(self) -> &'a Path {
        match self {
            PaneTarget::Worktree(path) | PaneTarget::Folder(path) => path,
        }
    }
}

/// The program's folder, if it is not the turn's.
fn elsewhere(pane: &Pane, place: PaneTarget<'_>) -> Option<PathBuf> {
    let (pid, remembered) = match &pane.origin {
        PaneOrigin::Started(program) => (pane.process.pid, Some(program.cwd.as_path())),
        PaneOrigin::Adopted { foreground, .. } => (foreground.pid, None),
    };
    let link = PathBuf::from(format!("/proc/{pid}/cwd"));
    let real = fs::read_link(&link).unwrap_or_default();
    // A recreated worktree has the same path and is another folder.
    let removed = fs::metadata(&link).is_ok_and(|m| m.nlink() == 0);
    let there = match (place, remembered) {
        (PaneTarget::Folder(_), _) => !removed,
        // A shell may change its folder; where it was started is what counts.
        (PaneTarget::Worktree(wanted), Some(cwd)) => !removed && same(cwd, wanted),
        (PaneTarget::Worktree(wanted), None) => !removed && same(&real, wanted),
    };
    (!there).then(|| remembered.map_or(real, Path::to_owned))
}

fn same(a: &Path, b: &Path) -> bool {
    let id = |path: &Path| fs::metadata(path).ok().map(|m| (m.dev(), m.ino()));
    a == b || id(a).is_some() && id(a) == id(b)
}

/// The folder in which the program is to run.
fn home(program: &Program, place: PaneTarget<'_>) -> PathBuf {
    match place {
        PaneTarget::Worktree(path) => path.to_owned(),
        PaneTarget::Folder(path) if !program.cwd.is_dir() => path.to_owned(),
        PaneTarget::Folder(_) => program.cwd.clone(),
    }
}

fn reserved(pane: &Pane, need: Need, place: PaneTarget<'_>) -> PaneError {
    let name = pane.name.to_string();
    match need {
        Need::Gone | Need::Ended => PaneError::Adopted { name },
        Need::Elsewhere(cwd) => PaneError::Elsewhere { name, cwd, wanted: place.path().to_owned() },
    }
}

fn recent(times_ms: &[u64], now_ms: u64) -> Vec<u64> {
    let within = WITHIN.as_millis() as u64;
    // A start from a clock that was ahead counts: rather too few restarts than too many.
    times_ms.iter().copied().filter(|t| now_ms.saturating_sub(*t) < within).collect()
}

/// A pane that was started by hand may have had more variables than this process has.
fn missing(program: &Program) -> String {
    let unset = |v: &PaneVariable| match v {
        PaneVariable::Outside { name } if std::env::var_os(name).is_none() => Some(name.clone()),
        PaneVariable::Outside { .. } | PaneVariable::Fixed { .. } => None,
    };
    let names: Vec<String> = program.env.iter().filter_map(unset).collect();
    if names.is_empty() { String::new() } else { format!("; not set here: {}", names.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_last_hour_counts() {
        let hour = 3_600_000;
        assert_eq!(recent(&[0, 1, hour, hour + 9], hour), [1, hour, hour + 9]);
    }
}
