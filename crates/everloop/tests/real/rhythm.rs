//! A persona with a real program: it works, reflects and dreams, and finds its plan again.

use everloop_testkit::clis::CliProgram;
use everloop_testkit::offline::offline;
use serde_json::Value;

use super::world::World;

/// Four answers of the model, one for each turn; the last one repeats.
const SCRIPT: &str = r#"text:say=Done.,text:say={"worth": true, "notes": ["eu is slow"], "wake": "in 2h", "mood": 1},text:say={"memory": "- eu is slow in the morning", "plans": [{"when": "topic:deploy.*", "text": "look at the balancer"}]},text:say=Done again."#;

fn works_reflects_and_dreams(cli: CliProgram) {
    let world = World::new(cli, SCRIPT);
    let toml = world.env.read("everloop.toml");
    let persona = format!(
        "{toml}\n[persona.echo]\ncharter = \"look after the deploys\"\nagent = \"{}\"\nafter_few = \"4h\"\n\
         reflect = \"1/day\"\nreflect_every = 1\ndream = \"1/day\"\ndream_every = 1\n",
        cli.name()
    );
    world.env.write("everloop.toml", &persona);
    world.env.git_run(&["commit", "-q", "-a", "-m", "persona"]);
    world.env.run(&["trust"]).ok();
    let up = world.env.spawn(&["up", "--listen", "off"]);
    let show = || {
        let shown = world.env.run(&["persona", "show", "echo", "--json"]);
        if shown.code == 0 { shown.json()["persona"].clone() } else { Value::Null }
    };
    let took = |turns: u64| {
        let has = || show()["turns"] == turns && show()["state"] == "asleep";
        world.env.wait_for(&format!("it takes {turns} turns and sleeps"), has);
    };
    took(0);
    world.env.run(&["signal", "echo", "the deploy failed", "--topic", "deploy.eu"]).ok();
    took(3);
    let journal = world.env.run(&["logs", "echo"]).ok().stdout;
    for words in ["waking was worth it", "notes: eu is slow", "`mood` is no key", "version 1 of the memory", "1 plan"] {
        assert!(journal.contains(words), "{words}: {journal}");
    }
    world.env.run(&["signal", "echo", "it failed again", "--topic", "deploy.us"]).ok();
    took(4);
    let yields = show()["yields"].clone();
    assert_eq!((&yields["plan_hits"], &yields["plan_misses"]), (&1.into(), &0.into()), "{yields}");
    assert!(yields["inward"]["tokens"].as_u64().is_some_and(|tokens| tokens > 0), "{yields}");
    let calls = world.calls();
    assert_eq!(calls.len(), 4, "a request for each turn");
    assert!(calls[1].body.contains("Reflection [on-cycle]") && calls[2].body.contains("# Dream"));
    for words in ["look at the balancer", "eu is slow in the morning"] {
        assert!(calls[3].body.contains(words) && !calls[0].body.contains(words), "{words}");
    }
    world.env.run(&["replay"]).ok();
    world.env.run(&["down"]).ok();
    up.wait();
}

#[test]
fn claude_works_reflects_and_dreams() {
    offline(|| works_reflects_and_dreams(CliProgram::Claude));
}
