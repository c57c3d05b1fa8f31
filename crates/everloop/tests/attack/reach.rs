//! What a command in a turn or in a check can reach: one loop per means of isolation runs all
//! attempts in its turn and in its check.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::FileTypeExt;

use everloop_agents::isolation::Means;
use everloop_core::isolation::IsolationMode;

use super::env::Env;

/// One attempt: a command that succeeds when the attempt does.
pub struct Reach {
    pub area: &'static str,
    pub name: &'static str,
    command: &'static str,
}

const fn reach(area: &'static str, name: &'static str, command: &'static str) -> Reach {
    Reach { area, name, command }
}

/// Files of a person with a canary in them, below the home folder.
const SECRETS: &[&str] = &[
    ".ssh/id_canary",
    ".gnupg/secring.gpg",
    ".aws/credentials",
    ".azure/accessTokens.json",
    ".config/gcloud/credentials.db",
    ".kube/config",
    ".docker/config.json",
    ".netrc",
    ".npmrc",
    ".pypirc",
    ".pgpass",
    ".git-credentials",
    ".config/gh/hosts.yml",
    ".cargo/credentials.toml",
    ".vault-token",
    ".password-store/key.gpg",
    ".local/share/keyrings/login.keyring",
    ".mozilla/cookies.sqlite",
    ".config/chromium/Cookies",
    ".terraform.d/credentials.tfrc.json",
    ".codex/auth.json",
    ".gemini/oauth_creds.json",
    ".claude/.credentials.json",
    ".local/share/opencode/auth.json",
    ".config/github-copilot/hosts.json",
    ".config/rclone/rclone.conf",
    ".config/doctl/config.yaml",
    ".config/hub",
    ".m2/settings.xml",
    ".gem/credentials",
    ".fly/config.yml",
    "keys/other",
];

pub const ATTEMPTS: &[Reach] = &[
    reach("secrets", "ssh", "has .ssh/id_canary"),
    reach("secrets", "gnupg", "has .gnupg/secring.gpg"),
    reach("secrets", "aws", "has .aws/credentials"),
    reach("secrets", "azure", "has .azure/accessTokens.json"),
    reach("secrets", "gcloud", "has .config/gcloud/credentials.db"),
    reach("secrets", "kube", "has .kube/config"),
    reach("secrets", "docker", "has .docker/config.json"),
    reach("secrets", "netrc", "has .netrc"),
    reach("secrets", "npm", "has .npmrc"),
    reach("secrets", "pypi", "has .pypirc"),
    reach("secrets", "postgres", "has .pgpass"),
    reach("secrets", "git", "has .git-credentials"),
    reach("secrets", "github", "has .config/gh/hosts.yml"),
    reach("secrets", "cargo", "has .cargo/credentials.toml"),
    reach("secrets", "vault", "has .vault-token"),
    reach("secrets", "passwords", "has .password-store/key.gpg"),
    reach("secrets", "keyring", "has .local/share/keyrings/login.keyring"),
    reach("secrets", "firefox", "has .mozilla/cookies.sqlite"),
    reach("secrets", "chromium", "has .config/chromium/Cookies"),
    reach("secrets", "terraform", "has .terraform.d/credentials.tfrc.json"),
    reach("secrets", "codex", "has .codex/auth.json"),
    reach("secrets", "gemini", "has .gemini/oauth_creds.json"),
    reach("secrets", "claude", "has .claude/.credentials.json"),
    reach("secrets", "opencode", "has .local/share/opencode/auth.json"),
    reach("secrets", "copilot", "has .config/github-copilot/hosts.json"),
    reach("secrets", "rclone", "has .config/rclone/rclone.conf"),
    reach("secrets", "doctl", "has .config/doctl/config.yaml"),
    reach("secrets", "hub", "has .config/hub"),
    reach("secrets", "maven", "has .m2/settings.xml"),
    reach("secrets", "gem", "has .gem/credentials"),
    reach("secrets", "fly", "has .fly/config.yml"),
    reach("secrets", "another account", "has keys/other"),
    reach("secrets", "link", "ln -s $HOME/.ssh/id_canary l-$1 && grep -q c4nary l-$1"),
    reach("secrets", "hard link", "ln $HOME/.ssh/id_canary h-$1 && grep -q c4nary h-$1"),
    reach("secrets", "copy", "cp $HOME/.aws/credentials c-$1 && grep -q c4nary c-$1"),
    reach("secrets", "archive", "tar -C $HOME -cf t-$1 .ssh && grep -qa c4nary t-$1"),
    reach("secrets", "passwords of the machine", "head -c 1 /etc/shadow | grep -q ."),
    reach("secrets", "root of a process", "grep -q c4nary /proc/self/root$HOME/.ssh/id_canary"),
    reach("secrets", "a path around", "grep -q c4nary $HOME/.config/../.ssh/id_canary"),
    reach("secrets", "a reopened descriptor", "python3 reopen.py $HOME/.ssh/id_canary"),
    reach("secrets", "the supervisor's variables", "grep -qa k3y-of-the-supervisor /proc/[0-9]*/environ"),
    reach("state", "ledger", "cat $STATE/ledger.db > /dev/null"),
    reach("state", "key of the journal", "cat $STATE/ledger.key > /dev/null"),
    reach("state", "a file beside the ledger", "grep -q c4nary $STATE/canary.json"),
    reach("state", "jobs", "cat $STATE/turns/*/job.jsonl $STATE/checks/*/*/job.jsonl 2> /dev/null | grep -q argv"),
    reach("state", "a new file", "echo x > $STATE/planted-$1"),
    reach("state", "another spelling", "cat $STATE/../state/./ledger.db > /dev/null"),
    reach("state", "a link to it", "ln -s $STATE s-$1 && cat s-$1/ledger.db > /dev/null"),
    reach("state", "rows of the ledger", "python3 row.py $STATE/ledger.db"),
    reach(
        "verdict",
        "a job's log",
        "for j in $STATE/turns/*/job.jsonl $STATE/checks/*/*/job.jsonl; do : >> $j && exit 0; done; exit 1",
    ),
    reach(
        "verdict",
        "a pipe over a job's log",
        "for d in $STATE/turns/*/ $STATE/checks/*/*/; do mkfifo $d/f-$1 && exit 0; done; exit 1",
    ),
    reach(
        "verdict",
        "a file where checks run",
        "cd $STATE/work && for d in */*/verify; do : > $d/planted-$1 && ! test $d -ef $HERE && exit 0; done; exit 1",
    ),
    reach(
        "verdict",
        "settings of everloop's git",
        "for g in $STATE/work/*/git/config; do : >> $g && exit 0; done; exit 1",
    ),
    reach("verdict", "everloop's index", "for g in $STATE/work/*/git; do : > $g/x-$1 && exit 0; done; exit 1"),
    reach("repository", "the person's files", "echo x > $PROJECT/planted-$1 && rm $PROJECT/planted-$1"),
    reach("repository", "the person's settings", "git -C $PROJECT config attack.$1 x"),
    reach("repository", "the person's hooks", "echo x > $PROJECT/.git/hooks/post-merge-$1"),
    reach("repository", "the person's refs", "git -C $PROJECT update-ref refs/heads/planted-$1 HEAD"),
    reach("repository", "the person's index", "git -C $PROJECT update-index --force-remove nothing"),
    reach("repository", "the person's objects", "echo x-$1 | git -C $PROJECT hash-object -w --stdin"),
    reach("repository", "the person's alternates", "echo $PWD >> $PROJECT/.git/objects/info/alternates-$1"),
    reach("files", "home", "echo x > $HOME/planted"),
    reach("files", "beside the home", "echo x > $HOME/../planted"),
    reach("files", "truncate", "truncate -s 0 $HOME/kept && ! test -s $HOME/kept"),
    reach("files", "remove", "rm -f $HOME/removed-$1 && ! test -e $HOME/removed-$1"),
    reach("files", "rename", "mv $HOME/moved-$1 $HOME/gone-$1"),
    reach("files", "profile", "echo x >> $HOME/.profile"),
    reach("files", "git's own settings", "git config --global alias.x '!x'"),
    reach("files", "keys that open the machine", "echo x >> $HOME/.ssh/authorized_keys"),
    reach(
        "files",
        "programs that start by themselves",
        "mkdir -p $HOME/.config/autostart && echo x > $HOME/.config/autostart/x",
    ),
    reach("files", "programs in the path", "mkdir -p $HOME/.local/bin && echo x > $HOME/.local/bin/git"),
    reach("files", "the machine's settings", "touch /etc/everloop-attack-$1 && rm /etc/everloop-attack-$1"),
    reach(
        "files",
        "the machine's programs",
        "touch /usr/local/bin/everloop-attack-$1 && rm /usr/local/bin/everloop-attack-$1",
    ),
    reach("files", "settings of a CLI", "mkdir -p $HOME/.claude && echo '{}' > $HOME/.claude/settings.json"),
    reach("files", "a disk", "for b in $(find /dev -type b); do head -c 1 $b && exit 0; done; exit 1"),
    reach("processes", "signal", "for_shims 'kill -0 $pid'"),
    reach("processes", "memory map", "for_shims 'grep -q . /proc/$pid/maps'"),
    reach("processes", "trace", "for_shims 'python3 trace.py $pid'"),
    reach("processes", "descriptors", "for_shims 'ls /proc/$pid/fd/0'"),
    reach("processes", "variables of a shim", "for_shims 'grep -qa EVERLOOP_ /proc/$pid/environ'"),
    reach("processes", "user namespace", "unshare -U true"),
    reach("processes", "mount namespace", "unshare -m true"),
    reach("processes", "mount", "unshare -m mount --bind $HOME $HOME"),
    reach("processes", "root folder", "chroot / true"),
    reach("processes", "a device", "mknod dev-$1 c 1 3 && rm dev-$1"),
    reach("processes", "namespaces of a shim", "for_shims 'nsenter -t $pid -m true'"),
    reach("callers", "resume", "env -u EVERLOOP_TURN $EXE resume -n 99"),
    reach("callers", "a person's message", "beside message send x hello"),
    reach("callers", "a task", "beside task add attack"),
    reach("callers", "the journal", "beside logs x"),
    reach("callers", "the work", "beside show x"),
    reach("callers", "the reasons", "beside why x"),
    reach(
        "callers",
        "another spelling of the folder",
        "env -u EVERLOOP_TURN -u EVERLOOP_SOCKET -u TMPDIR $EXE --state-dir $STATE/../state status x",
    ),
    reach("callers", "stop", "env -u EVERLOOP_TURN -u EVERLOOP_SOCKET -u TMPDIR $EXE --state-dir $STATE/ stop"),
];

/// Attempts that only root can make at all. Shim and supervisor hide their memory, so for other
/// users the kernel refuses some of these without any isolation.
const OF_ROOT: &[&str] = &[
    "the supervisor's variables",
    "variables of a shim",
    "memory map",
    "trace",
    "descriptors",
    "namespaces of a shim",
    "user namespace",
    "mount namespace",
    "mount",
    "passwords of the machine",
    "root folder",
    "a device",
    "the machine's settings",
    "the machine's programs",
];

/// Attempts that are refused without isolation too: a caller is known by its place below the shim.
const REFUSED_ALWAYS: &[&str] = &["resume", "stop"];

/// Attaches to a process for a moment.
const TRACE: &str = "import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
pid = int(sys.argv[1])
if libc.ptrace(16, pid, 0, 0) != 0: sys.exit(1)
os.waitpid(pid, 0x40000000)
libc.ptrace(17, pid, 0, 0)
";

/// Opens a path without rights to read it, and reads it through its descriptor.
const REOPEN: &str = "import os, sys
fd = os.open(sys.argv[1], os.O_PATH)
sys.exit(b'c4nary' not in open('/proc/self/fd/%d' % fd, 'rb').read())
";

/// Reads rows of the ledger.
const ROW: &str = "import sqlite3, sys
rows = sqlite3.connect('file:' + sys.argv[1] + '?mode=ro', uri=True).execute('select count(*) from journal').fetchone()
sys.exit(rows[0] < 1)
";

const SHIMS: &str = "for_shims() { for p in /proc/[0-9]*; do pid=${p#/proc/}; \
    if tr '\\0' '\\n' < $p/cmdline 2>/dev/null | grep -qx __job && \
    tr '\\0' '\\n' < $p/cmdline 2>/dev/null | grep -q \"^/*$STATE\"; then eval \"$1\" && return 0; fi; done; return 1; }";

/// A command of a monitor or a notifier has no shim: there it is the supervisor itself.
const SUPERVISOR: &str = r#"case $1 in turn|check) ;; *) cd $PROJECT
  pid=$$; while [ "$pid" -gt 1 ]; do pid=$(awk '/^PPid/{print $2}' /proc/$pid/status)
    if tr '\0' '\n' < /proc/$pid/cmdline | head -n 1 | grep -q '/everloop$'; then break; fi; done
  for_shims() { test "$pid" -gt 1 && eval "$1"; } ;;
esac"#;

/// A world in which the wanted attempts can be made.
pub fn world(wanted: &dyn Fn(&str) -> bool) -> Env {
    let env = Env::new().var("SUPERVISOR_KEY", "k3y-of-the-supervisor").git();
    let fill = |path: std::path::PathBuf, text: &str| {
        let made = fs::create_dir_all(path.parent().expect("it is in a folder")).and_then(|()| fs::write(&path, text));
        made.expect("a new folder can be filled");
    };
    let home = env.project().join("../home");
    let plain = ["kept", ".profile", "removed-turn", "removed-check", "moved-turn", "moved-check"];
    for name in SECRETS.iter().chain(&plain) {
        fill(home.join(name), "c4nary\n");
    }
    fill(env.state().join("canary.json"), "c4nary\n");
    fs::create_dir_all(loot_dir(&env)).expect("a new folder can be filled");
    let other = "[account.other]\nfile = { KEY = \"~/keys/other\" }\n";
    env.write("everloop.toml", other);
    for (name, text) in [("trace.py", TRACE), ("reopen.py", REOPEN), ("row.py", ROW)] {
        env.write(name, text);
    }
    let (state, project) = (env.state().display().to_string(), env.project().display().to_string());
    let (exe, loot) = (env!("CARGO_BIN_EXE_everloop"), loot_dir(&env).display().to_string());
    let mut script = format!(
        "STATE={state}\nPROJECT={project}\nEXE={exe}\nLOOT={loot}\nHERE=$PWD\n{SHIMS}\n{SUPERVISOR}\n\
         has() {{ grep -q c4nary $HOME/$1; }}\n\
         beside() {{ env -u EVERLOOP_TURN -u EVERLOOP_SOCKET -u TMPDIR $EXE --state-dir $STATE \"$@\"; }}\n"
    );
    for (number, attempt) in ATTEMPTS.iter().enumerate().filter(|(_, attempt)| wanted(attempt.name)) {
        script.extend([format!("({}) > /dev/null 2>&1 && touch $LOOT/$1-{number}\n", attempt.command)]);
    }
    env.script("hostile.sh", &format!("{script}touch $LOOT/$1-ran\ntest $1 = check || echo yes > done\nexit 0"));
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "attack"]);
    env
}

pub fn loot_dir(env: &Env) -> std::path::PathBuf {
    env.project().join("../loot/all")
}

const HOSTILE_TURN: &str = "./hostile.sh turn";
const HOSTILE_CHECK: &str = "./hostile.sh check; grep -q yes done";

/// The attempts that succeeded.
pub struct Loot {
    /// By side and name.
    pub taken: BTreeSet<(String, String)>,
    /// What `run` printed beside its result.
    pub said: String,
}

impl Loot {
    pub fn names(&self) -> BTreeSet<&str> {
        self.taken.iter().map(|(_, name)| name.as_str()).collect()
    }
}

/// Makes the wanted attempts in a loop; the supervisor and its shims have these holes.
pub fn try_some(mode: &str, holes: &str, wanted: &dyn Fn(&str) -> bool) -> Loot {
    loot(world(wanted).var(everloop_core::planted::VARIABLE, holes), mode, (HOSTILE_TURN, HOSTILE_CHECK))
}

fn try_all(mode: &str, sides: (&str, &str)) -> Loot {
    loot(world(&|_| true), mode, sides)
}

#[expect(clippy::needless_pass_by_value, reason = "the world ends with its loop")]
fn loot(env: Env, mode: &str, (agent, check): (&str, &str)) -> Loot {
    let writable = loot_dir(&env).canonicalize().expect("it was made").display().to_string();
    let run = ["run", "x", "--check", check, "--agent-cmd", agent, "--min-gap", "0", "-n", "1"];
    let out = env.run(&[&run[..], &["--isolation", mode, "--writable", &writable]].concat());
    let names = fs::read_dir(loot_dir(&env)).expect("the folder is there").flatten();
    let names: Vec<String> = names.filter_map(|e| e.file_name().into_string().ok()).collect();
    for (side, _) in [("turn", agent), ("check", check)].into_iter().filter(|(_, run)| run.contains("hostile")) {
        assert!(names.contains(&format!("{side}-ran")), "the hostile {side} did not run: {out:?}");
    }
    taken(&env, out.stderr)
}

/// What was taken so far.
pub fn taken(env: &Env, said: String) -> Loot {
    let names = fs::read_dir(loot_dir(env)).expect("the folder is there").flatten();
    let number = |name: String| {
        let (side, number) = name.split_once('-')?;
        Some((side.to_owned(), ATTEMPTS.get(number.parse::<usize>().ok()?)?.name.to_owned()))
    };
    Loot { taken: names.filter_map(|entry| number(entry.file_name().into_string().ok()?)).collect(), said }
}

fn refused(mode: &str) {
    assert_eq!(try_all(mode, (HOSTILE_TURN, HOSTILE_CHECK)).taken, BTreeSet::new(), "{mode}");
}

#[test]
fn every_attempt_is_refused_by_default() {
    if Means::of(IsolationMode::Auto).holds() {
        refused("auto");
    } else {
        nothing_is_refused(&try_all("auto", (HOSTILE_TURN, "grep -q yes done")));
    }
}

/// On a machine without any means the suite names what is open, and so does `run`.
#[expect(clippy::print_stdout, reason = "a test has no other way to show what is open")]
fn nothing_is_refused(loot: &Loot) {
    let open = ATTEMPTS.iter().filter(|attempt| loot.names().contains(attempt.name));
    for Reach { area, name, .. } in open {
        println!("open without any means of isolation: {area}: {name}");
    }
    for words in ["neither Landlock nor a working bubblewrap", "not covered: your files, keys and processes"] {
        assert!(loot.said.contains(words), "{}", loot.said);
    }
}

#[test]
fn without_any_means_run_and_the_suite_say_what_is_open() {
    let env = world(&|_| true).var(everloop_core::planted::VARIABLE, "MeansMissing");
    // Only in the turn: one of the attempts stops the loop.
    let loot = loot(env, "auto", (HOSTILE_TURN, "grep -q yes done"));
    nothing_is_refused(&loot);
    let open = loot.names();
    for name in ["ssh", "another account", "ledger", "a job's log", "the person's refs", "home", "signal"] {
        assert!(open.contains(name), "{name} is not open: {open:?}");
    }
}

#[test]
fn every_attempt_is_refused_under_landlock() {
    refused("landlock");
}

#[test]
fn every_attempt_is_refused_under_bubblewrap() {
    refused("bubblewrap");
}

/// Whether this machine has a disk that this user can open.
pub fn has_disk() -> bool {
    let is_disk = |entry: &fs::DirEntry| entry.file_type().is_ok_and(|kind| kind.is_block_device());
    let mut devices = fs::read_dir("/dev").into_iter().flatten().flatten().filter(is_disk);
    devices.any(|entry| fs::File::open(entry.path()).is_ok())
}

/// An attempt that cannot succeed proves nothing: the suite fails where isolation is missing.
#[test]
fn every_attempt_succeeds_without_isolation() {
    let turn = try_all("none", (HOSTILE_TURN, "grep -q yes done"));
    let check = try_all("none", ("true", HOSTILE_CHECK));
    let names: BTreeSet<&str> = turn.names().union(&check.names()).copied().collect();
    let is_root = nix::unistd::geteuid().is_root();
    let possible = |name: &&str| match *name {
        "a disk" => has_disk(),
        name if REFUSED_ALWAYS.contains(&name) => false,
        name => is_root || !OF_ROOT.contains(&name),
    };
    let wanted = ATTEMPTS.iter().map(|attempt| attempt.name).filter(possible);
    let missing: Vec<&str> = wanted.filter(|name| !names.contains(name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
    let acted: Vec<&&str> = REFUSED_ALWAYS.iter().filter(|name| names.contains(**name)).collect();
    assert_eq!(acted, Vec::<&&str>::new());
}
