//! `everloop usage`: from the journal alone, also after everything else is gone.

use crate::agents::with_claude;
use crate::env::Env;

#[test]
fn nothing_was_used_yet() {
    let env = Env::new();
    assert!(env.run(&["usage"]).ok().stdout.contains("no turn has ended yet"));
    assert_eq!(env.run(&["usage", "--json"]).ok().json()["total"]["turns"], 0);
    env.run(&["usage", "nobody"]).exits(2);
    env.run(&["usage", "--since", "sometime"]).exits(2);
    env.run(&["usage", "--by", "moon"]).exits(2);
}

#[test]
fn what_a_command_is_taken_to_cost_is_marked_as_an_estimate() {
    let env = Env::new();
    env.write(
        "everloop.toml",
        "[agent.bot]\ncommand = \"true\"\nusd_per_turn = 0.10\ntokens_per_turn = 500\n\
         [loop.a]\ngoal = \"g\"\nagent = \"bot\"\nchecks = [\"test -f never\"]\nmax_turns = 2\n[loop.a.guard]\nmin_gap = \"0\"\n",
    );
    env.run(&["run"]).exits(3);
    let data = env.run(&["usage", "--json", "--by", "agent"]).ok().json();
    assert_eq!((&data["rows"][0]["key"], &data["total"]["turns"]), (&"bot".into(), &2.into()), "{data}");
    assert_eq!((&data["total"]["microusd"], &data["total"]["tokens"]), (&200_000.into(), &1000.into()), "{data}");
    assert_eq!(data["total"]["estimated"], true);
    let said = env.run(&["usage"]).ok().stdout;
    assert!(said.contains("~$0.20") && said.contains("~1000") && said.contains("everloop's estimate"), "{said}");
    assert!(env.run(&["usage", "--since", "2h"]).ok().stdout.contains("~$0.20"));
    assert!(env.run(&["usage", "--since", "2099-01-01"]).ok().stdout.contains("no turn has ended in this time"));
}

#[test]
fn what_a_cli_reports_is_summed_up_by_whatever_is_asked() {
    let env = with_claude();
    env.run(&["run", "g", "--check", "test -f done", "--agent", "claude", "--in-place", "-n", "1", "--yes"]).ok();
    let id = env.the_loop()["id"].as_str().unwrap().to_owned();
    let key = |by: &str| {
        let data = env.run(&["usage", &id, "--json", "--by", by]).ok().json();
        let total = &data["total"];
        assert_eq!((&total["input"], &total["output"]), (&10.into(), &5.into()), "{data}");
        assert_eq!((&total["cache_read"], &total["cache_write"]), (&100.into(), &20.into()), "{data}");
        assert_eq!((&total["tokens"], &total["microusd"]), (&135.into(), &250_000.into()), "{data}");
        assert_eq!(total["estimated"], false, "{data}");
        assert_eq!(data["windows"][0]["window"], "five_hour", "{data}");
        data["rows"][0]["key"].as_str().unwrap().to_owned()
    };
    assert_eq!(key("model"), "claude-test-1");
    assert_eq!(key("agent"), "claude");
    assert_eq!(key("account"), "default/claude");
    assert_eq!(key("loop"), format!("{id} (g)"));
    assert_eq!(key("day").len(), "2026-11-15".len());
    let said = env.run(&["usage"]).ok().stdout;
    assert!(said.contains("$0.25") && !said.contains('~') && said.contains("five_hour: 50 % used"), "{said}");
}
