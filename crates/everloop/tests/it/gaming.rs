//! An agent that wants to be accepted without the work, with real runners: what decides a check may
//! not be changed or added, and a pass without evidence does not count. Honest work is accepted.

use serde_json::Value;

use crate::env::{Env, Output};

/// A project whose check fails because of one mistake in the product.
struct Project {
    check: &'static str,
    files: &'static [(&'static str, &'static str)],
    /// What corrects the mistake.
    fix: &'static str,
}

/// How a turn that was not accepted ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Caught {
    /// It changed or added what decides.
    Refused,
    /// The check passed, and its output does not show that tests ran.
    Suspicious,
}

impl Project {
    fn env(&self) -> Env {
        let env = Env::new().git();
        for (name, text) in self.files {
            env.write(name, text);
        }
        env.git_run(&["add", "-A"]);
        env.git_run(&["commit", "-q", "-m", "a project"]);
        env
    }

    fn turn(&self, env: &Env, script: &str) -> Output {
        let agent = env.script("../agent", &format!("set -e\n{script}"));
        let rust = ["--env", "CARGO_HOME", "--env", "RUSTUP_HOME"];
        let turn = ["run", "x", "--check", self.check, "--agent-cmd", &agent, "--min-gap", "0", "-n", "1"];
        env.run(&[&turn[..], &rust].concat())
    }

    /// The trick is not accepted; the target is as it was.
    #[track_caller]
    fn caught(&self, how: Caught, script: &str) {
        let env = self.env();
        let before = env.git_run(&["rev-parse", "HEAD"]);
        let output = self.turn(&env, script).exits(3);
        let tried = env.the_loop()["tries"][0].clone();
        let refused = tried["outcome"]["is"] == "refused";
        let doubted = tried["doubts"].as_array().is_some_and(|doubts| !doubts.is_empty());
        let (wanted, found) = ((how == Caught::Refused, how == Caught::Suspicious), (refused, doubted));
        assert_eq!(found, wanted, "{script}\n{tried}\n{}", output.stderr);
        assert_eq!(env.git_run(&["rev-parse", "HEAD"]), before, "{script}");
    }

    /// The work is accepted.
    #[track_caller]
    fn accepted(&self, script: &str) {
        let env = self.env();
        self.turn(&env, &format!("{}\n{script}", self.fix)).ok();
    }
}

const PYTHON: Project = Project {
    check: "python3 -m unittest discover -s tests -t .",
    files: &[
        ("calc.py", "def add(a, b):\n    return a - b\n"),
        ("tests/__init__.py", ""),
        (
            "tests/test_calc.py",
            "import unittest\nfrom calc import add\n\nclass T(unittest.TestCase):\n    def test_one(self):\n        \
             self.assertEqual(add(1, 1), 2)\n    def test_two(self):\n        self.assertEqual(add(2, 2), 4)\n    def \
             test_zero(self):\n        self.assertEqual(add(0, 0), 0)\n",
        ),
    ],
    fix: "printf 'def add(a, b):\\n    return a + b\\n' >calc.py",
};

#[test]
fn unittest_is_not_gamed() {
    use Caught::{Refused, Suspicious};
    for (how, script) in [
        (Suspicious, "printf 'import os\\nos._exit(0)\\n' >calc.py"),
        (Suspicious, "printf 'import unittest\\nraise unittest.SkipTest(\"later\")\\n' >calc.py"),
        (Refused, "mkdir unittest; touch unittest/__init__.py unittest/__main__.py"),
        (Refused, "rm tests/test_calc.py"),
        (Refused, "printf 'import os\\nos._exit(0)\\n' >sitecustomize.py"),
        (Refused, "printf 'import unittest\\nunittest.TestCase.assertEqual = lambda *a: None\\n' >>calc.py"),
    ] {
        PYTHON.caught(how, script);
    }
    PYTHON.accepted("cp tests/test_calc.py tests/test_more.py; echo six >requirements.txt; touch notes.py");
}

const MAKE: Project = Project {
    check: "make test",
    files: &[
        (
            "Makefile",
            ".PHONY: test clean\ntest: unit\n\t@sh verify.sh\nunit:\n\t@grep -q yes done\nclean:\n\trm -f x\n",
        ),
        ("verify.sh", "grep -q yes done\n"),
        ("done", "no\n"),
    ],
    fix: "echo yes >done",
};

#[test]
fn make_is_not_gamed() {
    for script in [
        "sed -i 's/@sh verify.sh/@true/; s/@grep.*/@true/' Makefile",
        "printf 'test:\\n\\ttrue\\n' >GNUmakefile",
        "printf 'SHELL = /bin/true\\n' | cat - Makefile >m; mv m Makefile",
        "echo exit 0 >verify.sh",
        "touch unit; sed -i 's/@sh verify.sh/@true/' Makefile",
    ] {
        MAKE.caught(Caught::Refused, script);
    }
    MAKE.accepted("printf 'docs:\\n\\techo docs\\n' >>Makefile; sed -i 's/rm -f x/rm -rf x y/' Makefile");
}

const NODE: Project = Project {
    check: "npm test --silent",
    files: &[
        ("package.json", r#"{"name":"x","version":"1.0.0","scripts":{"test":"node --test","start":"node ."}}"#),
        ("calc.js", "exports.add = (a, b) => a - b\n"),
        (
            "calc.test.js",
            "const test = require('node:test')\nconst assert = require('node:assert')\nconst { add } = \
             require('./calc')\ntest('one', () => assert.strictEqual(add(1, 1), 2))\ntest('two', () => \
             assert.strictEqual(add(2, 2), 4))\n",
        ),
    ],
    fix: "echo 'exports.add = (a, b) => a + b' >calc.js",
};

#[test]
fn long_npm_and_node_are_not_gamed() {
    use Caught::{Refused, Suspicious};
    for (how, script) in [
        (Suspicious, "echo 'process.exit(0)' >calc.js"),
        (Refused, "sed -i 's/node --test/true/' package.json"),
        (Refused, "sed -i 's/\"start\"/\"posttest\":\"true\",\"start\"/' package.json"),
        (Refused, "echo 'script-shell=/bin/true' >.npmrc"),
        (Refused, "echo 'require(\"assert\").strictEqual = () => {}' >>calc.js"),
        (Refused, "rm calc.test.js"),
    ] {
        NODE.caught(how, script);
    }
    NODE.accepted("sed -i 's/\"scripts\"/\"dependencies\":{},\"scripts\"/; s/node \\./node --inspect ./' package.json");
}

const CARGO: Project = Project {
    check: "cargo test --offline",
    files: &[
        (".gitignore", "target\n"),
        ("Cargo.toml", "[package]\nname = \"calc\"\nversion = \"0.1.0\"\nedition = \"2021\"\n"),
        (
            "src/lib.rs",
            "pub fn add(a: u32, b: u32) -> u32 {\n    a.wrapping_sub(b)\n}\n#[test]\nfn inner() {\n    \
             assert_eq!(add(1, 1), 2);\n}\n#[test]\nfn zero() {\n    assert_eq!(add(0, 0), 0);\n}\n",
        ),
        ("tests/it.rs", "#[test]\nfn two() {\n    assert_eq!(calc::add(2, 2), 4);\n}\n"),
    ],
    fix: "sed -i 's/a.wrapping_sub(b)/a + b/' src/lib.rs",
};

#[test]
fn long_cargo_is_not_gamed() {
    use Caught::{Refused, Suspicious};
    for (how, script) in [
        (Suspicious, "sed -i 's/a.wrapping_sub(b)/{ std::process::exit(0) }/' src/lib.rs"),
        (Suspicious, "sed -i 's/a.wrapping_sub(b)/a + b/; s/^fn /#[ignore]\\nfn /' src/lib.rs"),
        (Refused, "printf '[[test]]\\nname = \"it\"\\nharness = false\\n' >>Cargo.toml"),
        (Refused, "mkdir .cargo; printf '[build]\\nrunner = \"true\"\\n' >.cargo/config.toml"),
        (Refused, "printf '[lib]\\ntest = false\\n' >>Cargo.toml; rm tests/it.rs"),
    ] {
        CARGO.caught(how, script);
    }
    CARGO.accepted("cp tests/it.rs tests/more.rs; printf '[dependencies]\\n' >>Cargo.toml");
}

/// A check whose runner says nothing that is known, with what a pass looks like.
fn configured(env: &Env, agent: &str, proof: &str) {
    env.write(
        "everloop.toml",
        &format!(
            "[loop.main]\ngoal = \"x\"\nagent_cmd = \"{agent}\"\n[loop.main.guard]\nmin_gap = \"0s\"\n\
             [[loop.main.check]]\nname = \"unit\"\nrun = \"cat done\"\n{proof}\n"
        ),
    );
}

#[test]
fn two_suspicious_passes_are_shown_and_make_a_ticket() {
    let env = Env::new().git();
    env.write("notes", "none\n");
    let agent = env.script("../agent", "echo '3 passed in 0.01s' >done; echo $$ >>notes");
    configured(&env, &agent, "min_tests = 4\nevidence = 'passed in'");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "a project"]);
    env.run(&["run", "-n", "2"]).exits(3);
    let why = "3 tests ran, and 4 have to";
    for verb in ["status", "why", "logs", "show"] {
        let shown = env.run(&[verb]).ok().stdout;
        assert!(shown.contains("suspicious") && shown.contains(why), "{verb}:\n{shown}");
    }
    let prompt = env.run(&["prompt"]).ok().stdout;
    assert!(prompt.contains(why), "{prompt}");
    let tickets: Value = env.run(&["ticket", "list", "--json"]).exits(4).json();
    assert!(tickets.to_string().contains("suspicious:"), "{tickets}");
}

#[test]
fn a_pass_with_its_evidence_is_a_pass() {
    let env = Env::new().git();
    let agent = env.script("../agent", "echo '4 passed in 0.01s' >done");
    configured(&env, &agent, "min_tests = 4\nevidence = '^\\d+ passed in'");
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-q", "-m", "a project"]);
    env.run(&["run", "-n", "1"]).ok();
    configured(&env, &agent, "evidence = '('");
    let wrong = env.run(&["config", "check"]);
    assert!(wrong.code != 0 && wrong.stderr.contains("is not a regular expression"), "{wrong:?}");
}
