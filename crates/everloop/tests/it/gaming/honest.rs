//! Honest work in isolation, with the caches of its tools, which a new user does not have yet.

use std::fs;
use std::process::Command;

use super::{path_with, runner};
use crate::env::Env;

/// A repository with these files.
fn committed(files: &[(&str, &str)]) -> Env {
    let env = Env::new().git();
    for (name, text) in files {
        env.write(name, text);
    }
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "a project"]);
    env
}

/// One turn that reaches the goal.
#[track_caller]
fn reaches(env: &Env, check: &str, script: &str, flags: &[&str]) {
    let agent = env.script("../agent", &format!("set -e\n{script}"));
    let run = ["run", "x", "--check", check, "--agent-cmd", &agent, "--min-gap", "0", "-n", "1"];
    env.run(&[&run[..], flags].concat()).ok();
}

/// Runs a program of the person beside everloop.
fn person(env: &Env, script: &str) {
    let mut command = Command::new("sh");
    command.current_dir(env.project()).args(["-ec", script]).env("HOME", env.project().join("../home"));
    let output = command.output().expect("sh is there");
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn go_has_its_caches() {
    let env = committed(&[
        ("go.mod", "module example.com/calc\n\ngo 1.19\n"),
        ("calc.go", "package calc\n\nfunc Two() int { return 1 }\n"),
        (
            "calc_test.go",
            "package calc\n\nimport \"testing\"\n\nfunc TestTwo(t *testing.T) {\n\tif Two() != 2 {\n\t\tt.Fatal()\n\t}\n}\n",
        ),
    ]);
    let module = "module example.com/two\n";
    for (name, text) in [("v1.0.0.mod", module), ("v1.0.0.info", "{\"Version\":\"v1.0.0\"}"), ("list", "v1.0.0\n")] {
        env.write(&format!("../proxy/example.com/two/@v/{name}"), text);
    }
    person(
        &env,
        "cd ../proxy/example.com/two/@v; python3 -c 'import zipfile as z; z = z.ZipFile(\"v1.0.0.zip\", \"w\")\n\
         z.writestr(\"example.com/two@v1.0.0/go.mod\", \"module example.com/two\\n\")\n\
         z.writestr(\"example.com/two@v1.0.0/two.go\", \"package two\\n\\nfunc Two() int { return 2 }\\n\")\nz.close()'",
    );
    let proxy = env.project().join("../proxy").canonicalize().expect("it was just made");
    // Without compiled packages of the library this would take a minute with newer versions.
    let cache = env.project().join("../cache/go-build").display().to_string();
    person(&env, &format!("mkdir ../cache; cp -r {} {cache}", runner("go-build").display()));
    let env = env.var("GOPROXY", &format!("file://{}", proxy.display())).var("GOSUMDB", "off").var("GOCACHE", &cache);
    let agent = "go get example.com/two@v1.0.0\nprintf 'package calc\\n\\nimport \"example.com/two\"\\n\\nfunc Two() int \
                 { return two.Two() }\\n' >calc.go\ngo vet ./...; go test ./...";
    let flags = ["--env", "GOPROXY", "--env", "GOSUMDB", "--env", "GOCACHE"];
    reaches(&env, "GOPROXY=off go test ./...", agent, &flags);
    assert!(env.project().join("../home/go/pkg/mod/example.com/two@v1.0.0").exists(), "it was kept for later");
    assert!(env.read("go.sum").contains("example.com/two"));
}

#[test]
fn go_works_where_it_was_never_used() {
    let env = committed(&[("go.mod", "module x\n\ngo 1.19\n")]);
    // An empty package needs nothing of the library.
    reaches(
        &env,
        "test -f done && go list -export -f '{{.Export}}' . && go test ./...",
        "printf 'package x\\n' >x.go; touch done",
        &[],
    );
    assert!(env.project().join("../home/.cache/go-build").exists());
}

#[test]
fn long_npm_has_its_cache() {
    let env = committed(&[
        (".gitignore", "node_modules\n"),
        ("n.js", "module.exports = 1\n"),
        ("t.js", "require('assert').equal(require('two'), require('./n'))\n"),
        (
            "package.json",
            r#"{"name":"x","version":"1.0.0","scripts":{"test":"node t.js"},"dependencies":{"two":"file:lib/two-1.0.0.tgz"}}"#,
        ),
    ]);
    env.write("../two/package.json", r#"{"name":"two","version":"1.0.0","main":"two.js"}"#);
    env.write("../two/two.js", "module.exports = 2\n");
    person(&env, "export npm_config_cache=$PWD/../first; mkdir lib; cd lib; npm pack ../../two --silent >../../log");
    person(&env, "npm install --cache ../first --package-lock-only --offline --no-audit --no-fund --silent");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "a dependency"]);
    assert!(!env.project().join("../home/.npm").exists());
    let setup = "npm ci --offline --no-audit --no-fund --silent";
    reaches(&env, "npm test --silent", "echo 'module.exports = 2' >n.js; npm test --silent", &["--setup", setup]);
    assert!(env.project().join("../home/.npm/_cacache").exists());
}

#[test]
fn pytest_has_its_packages_and_leaves_its_caches() {
    let env = committed(&[
        (".gitignore", "deps\n"),
        ("n.py", "N = 1\n"),
        ("tests/test_n.py", "import n\nimport two\n\ndef test_n():\n    assert n.N == two.TWO\n"),
    ]);
    let wheels = "mkdir ../wheels; cd ../wheels; python3 -c 'import zipfile as z; z = z.ZipFile(\"two-1.0-py3-none-any.whl\", \"w\")\n\
         z.writestr(\"two.py\", \"TWO = 2\\n\")\n\
         z.writestr(\"two-1.0.dist-info/METADATA\", \"Metadata-Version: 2.1\\nName: two\\nVersion: 1.0\\n\")\n\
         z.writestr(\"two-1.0.dist-info/WHEEL\", \"Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n\")\n\
         z.writestr(\"two-1.0.dist-info/RECORD\", \"\")\nz.close()'";
    person(&env, wheels);
    fs::create_dir_all(env.project().join("../home/.cache/pip")).expect("the home is there");
    let found = env.project().join("../wheels").canonicalize().expect("it was just made");
    let env = env.var("PATH", &path_with("pytest/bin"));
    let setup = format!(
        "python3 -m pip install -q --disable-pip-version-check --no-index --find-links {} --target deps two && touch \
         $HOME/.cache/pip/used",
        found.display()
    );
    // Without a line in .gitignore what Python compiled is part of the work, and that is no trick.
    let agent = "echo N = 2 >n.py; PYTHONPATH=deps python3 -m pytest -q; test -d tests/__pycache__";
    reaches(&env, "PYTHONPATH=deps python3 -m pytest -q", agent, &["--setup", &setup]);
    assert!(env.git_run(&["ls-files"]).contains("__pycache__"));
}

#[test]
fn git_lfs_is_the_persons_filter() {
    let env = Env::new().git();
    env.git_run(&["lfs", "install"]);
    env.git_run(&["lfs", "track", "*.bin"]);
    env.write("a.bin", "hello\n");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "large files"]);
    let pointer = |name: &str| env.git_run(&["cat-file", "blob", &format!("HEAD:{name}")]);
    assert!(pointer("a.bin").starts_with("version https://git-lfs"));
    let check = "grep -qx 'hello again' a.bin && grep -qx new b.bin";
    let agent = "grep -qx hello a.bin; echo hello again >a.bin; echo new >b.bin; git add -A; git commit -qm mine";
    reaches(&env, check, agent, &[]);
    assert!(
        pointer("a.bin").starts_with("version https://git-lfs") && pointer("b.bin").starts_with("version https://")
    );
    assert_eq!((env.read("a.bin"), env.read("b.bin")), ("hello again\n".to_owned(), "new\n".to_owned()));
    assert!(env.git_run(&["lfs", "fsck"]).contains("OK"), "the objects are in the person's repository");
    assert_eq!(env.git_run(&["status", "--short"]), "");
}
