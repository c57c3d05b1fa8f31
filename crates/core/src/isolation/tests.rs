//! Which paths each kind of command reaches.

use super::*;

fn places(env: &dyn Fn(&str) -> Option<PathBuf>) -> Places<'_> {
    Places {
        home: Path::new("/home/me"),
        state: Path::new("/home/me/.local/state/everloop"),
        folder: Path::new("/home/me/.local/state/everloop/work/k/turn"),
        env,
        secret_files: vec!["/home/me/keys/other".into()],
        own: Vec::new(),
        own_writable: Vec::new(),
    }
}

fn made(kind: &CommandKind, spec: &IsolationSpec) -> Isolation {
    Isolation::of(kind, spec, &places(&|_| None))
}

fn turn(agent: AgentKind, argv: &[&str]) -> CommandKind {
    let argv: Vec<String> = argv.iter().map(|a| (*a).to_owned()).collect();
    CommandKind::Turn { agent, clis: clis_of(agent, &argv) }
}

fn has(paths: &[PathBuf], path: &str) -> bool {
    paths.iter().any(|p| p == Path::new(path))
}

#[test]
fn secrets_are_hidden_from_every_kind_of_command() {
    let kinds = [
        turn(AgentKind::Claude, &["claude"]),
        turn(AgentKind::Command, &["./agent.sh"]),
        CommandKind::Check,
        CommandKind::Setup,
    ];
    for kind in kinds {
        let isolation = made(&kind, &IsolationSpec::default());
        for path in ["/home/me/.ssh", "/home/me/.aws", "/home/me/.local/state/everloop", "/home/me/keys/other"] {
            assert!(has(&isolation.unreadable, path), "{kind:?} {path}");
        }
        assert!(isolation.writable.iter().all(|path| !path.ends_with("me")), "{kind:?}");
    }
}

#[test]
fn a_cli_reaches_its_own_login_and_no_other() {
    let (claude, codex) = ("/home/me/.claude/.credentials.json", "/home/me/.codex/auth.json");
    let of = |kind: &CommandKind| made(kind, &IsolationSpec::default());
    let isolation = of(&turn(AgentKind::Claude, &["claude"]));
    assert!(!has(&isolation.unreadable, claude) && has(&isolation.unreadable, codex));
    assert!(has(&isolation.writable, claude) && has(&isolation.made, "/home/me/.claude/projects"));
    let check = of(&CommandKind::Check);
    assert!(has(&check.unreadable, claude) && has(&check.unreadable, codex) && check.made.is_empty());
    let wrapped = of(&turn(AgentKind::Command, &["sh", "-c", "cat p | /opt/bin/codex exec -"]));
    assert!(has(&wrapped.unreadable, claude) && !has(&wrapped.unreadable, codex));
    let moved = Isolation::of(
        &turn(AgentKind::Claude, &["claude"]),
        &IsolationSpec::default(),
        &places(&|name| (name == "CLAUDE_CONFIG_DIR").then(|| "/srv/login".into())),
    );
    assert!(has(&moved.made, "/srv/login/projects"));
}

#[test]
fn settings_of_a_cli_are_never_writable() {
    for kind in [AgentKind::Claude, AgentKind::Codex, AgentKind::Gemini] {
        let isolation = made(&turn(kind, &[]), &IsolationSpec::default());
        for name in [
            ".claude/settings.json",
            ".claude/plugins/x",
            ".claude/hooks/x",
            ".claude.json",
            ".codex/config.toml",
            ".codex/hooks.json",
            ".gemini/settings.json",
            ".gemini/trustedFolders.json",
        ] {
            let path = Path::new("/home/me").join(name);
            let reached = isolation.writable.iter().chain(&isolation.made).any(|open| path.starts_with(open));
            assert!(!reached, "{kind:?} {name}");
        }
    }
}

#[test]
fn a_persons_words_beat_the_lists() {
    let spec = IsolationSpec {
        readable: vec!["~/.aws".to_owned(), "~/.kube/config".to_owned()],
        unreadable: vec!["~/diary".to_owned(), "relative".to_owned()],
        writable: vec!["/srv/cache".to_owned()],
        caches: false,
        ..IsolationSpec::default()
    };
    let isolation = made(&CommandKind::Check, &spec);
    assert!(!has(&isolation.unreadable, "/home/me/.aws") && has(&isolation.unreadable, "/home/me/diary"));
    assert!(has(&isolation.unreadable, "/home/me/.kube") && has(&isolation.readable, "/home/me/.kube/config"));
    assert_eq!(isolation.writable.len(), 2, "{:?}", isolation.writable);
    assert!(!isolation.unreadable.iter().any(|p| p.is_relative()));
}

#[test]
fn only_checks_and_plain_commands_lose_the_network() {
    let spec = IsolationSpec {
        check_network: NetworkAccess::None,
        agent_network: NetworkAccess::Loopback,
        ..IsolationSpec::default()
    };
    assert_eq!(made(&CommandKind::Check, &spec).network, NetworkAccess::None);
    assert_eq!(made(&turn(AgentKind::Command, &["./agent"]), &spec).network, NetworkAccess::Loopback);
    assert_eq!(made(&turn(AgentKind::Command, &["claude", "-p"]), &spec).network, NetworkAccess::Open);
    assert_eq!(made(&turn(AgentKind::Claude, &[]), &spec).network, NetworkAccess::Open);
    assert_eq!(made(&CommandKind::Setup, &spec).network, NetworkAccess::Open);
}

#[test]
fn the_folder_of_a_command_is_open_as_a_whole() {
    let spec = IsolationSpec { unreadable: vec!["/home/me/code/.env".to_owned()], ..IsolationSpec::default() };
    let mut at = places(&|_| None);
    at.folder = Path::new("/home/me/code");
    assert!(!has(&Isolation::of(&CommandKind::Check, &spec, &at).unreadable, "/home/me/code/.env"));
    at.folder = Path::new("/home/me");
    let at_home = Isolation::of(&CommandKind::Check, &spec, &at);
    assert_eq!(at_home.unreadable[0], Path::new("/etc/gshadow"));
    assert!(has(&at_home.unreadable, "/home/me/.local/state/everloop"), "the state stays hidden");
}

#[test]
fn a_persons_own_command_reads_no_login_and_writes_nothing_unless_its_section_says_so() {
    let at_home = |kind: &CommandKind, access: &CommandAccess| {
        let at = Places { folder: Path::new("/home/me"), ..places(&|_| None) };
        let around = IsolationSpec { readable: vec!["~/.aws".to_owned()], ..IsolationSpec::default() };
        Isolation::of(kind, &access.spec(&around), &at)
    };
    for kind in [CommandKind::Probe, CommandKind::Delivery] {
        let closed = at_home(&kind, &CommandAccess::default());
        let hidden = [".ssh", ".aws", ".config/gh", ".claude/.credentials.json", ".local/state/everloop", "keys/other"];
        for path in hidden {
            assert!(has(&closed.unreadable, &format!("/home/me/{path}")), "{kind:?} {path}");
        }
        assert_eq!(closed.writable, Vec::<PathBuf>::new(), "{kind:?}");
        let named = CommandAccess {
            readable: vec!["~/.ssh".to_owned()],
            writable: vec!["~/log".to_owned()],
            ..CommandAccess::default()
        };
        let opened = at_home(&kind, &named);
        assert!(!has(&opened.unreadable, "/home/me/.ssh") && has(&opened.unreadable, "/home/me/.aws"));
        assert_eq!(opened.writable, [PathBuf::from("/home/me/log")]);
    }
}
