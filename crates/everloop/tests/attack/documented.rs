//! What is documented instead of refused, under each means: it succeeds where docs/security.md says
//! so, and nowhere else.

use std::os::unix::net::UnixListener;

use super::env::Env;

/// One attempt for each entry of `DOCUMENTED`; `$SOCKET` is the socket of another program.
const ATTEMPTS: [(&str, &str); 4] = [
    ("names", "ls $HOME/.ssh | grep -q id_canary && ! cat $HOME/.ssh/id_canary"),
    ("caches", "echo evil > $HOME/.cache/ccache/planted"),
    ("modes", "chmod 640 $HOME/kept && touch -d 2001-01-01 $HOME/kept"),
    ("sockets", "python3 -c \"import socket; socket.socket(socket.AF_UNIX).connect('$SOCKET')\""),
];

/// The attempts of one turn that succeed, and what its check finds in the cache.
fn succeed(mode: &str, config: &str) -> (Vec<String>, bool) {
    let env = Env::new();
    for name in [".ssh/id_canary", "kept", ".cache/ccache/clean"] {
        env.write(&format!("../home/{name}"), "c4nary\n");
    }
    env.write("everloop.toml", config);
    let folder = super::hidden_folder();
    let socket = folder.path().join("default");
    let _listener = UnixListener::bind(&socket).expect("a new socket");
    let tries = ATTEMPTS.map(|(name, command)| format!("({command}) > /dev/null 2>&1 && echo {name} >> found\n"));
    let agent = env.script("agent", &format!("SOCKET={}\n{}touch done", socket.display(), tries.concat()));
    let check = "test -f done && { grep -q evil $HOME/.cache/ccache/planted && touch built; true; }";
    let run = ["run", "x", "--check", check, "--agent-cmd", &agent, "--min-gap", "0", "-n", "1"];
    env.run(&[&run[..], &["--in-place", "--isolation", mode]].concat()).ok();
    let found = std::fs::read_to_string(env.project().join("found")).unwrap_or_default();
    (found.lines().map(str::to_owned).collect(), env.project().join("built").exists())
}

#[test]
fn what_is_documented_succeeds_where_it_is_said() {
    let every = super::DOCUMENTED.map(|documented| documented.name);
    assert_eq!(every, ATTEMPTS.map(|(name, _)| name), "each has its attempt");
    let (found, built) = succeed("landlock", "");
    assert_eq!((found, built), (every.map(str::to_owned).to_vec(), true));
    assert_eq!(succeed("bubblewrap", ""), (vec!["caches".to_owned()], true));
    assert_eq!(succeed("bubblewrap", "[isolation]\ncaches = false\n"), (Vec::new(), false));
}
