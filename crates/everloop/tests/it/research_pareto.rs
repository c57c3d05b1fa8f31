//! `everloop research --pareto`: further metrics count, and what nothing dominates is listed.

use serde_json::Value;

use crate::env::Env;
use crate::research::{project, research, statuses};

/// The sum of the numbers decides, the number of lines counts, too.
const METRIC: &str =
    "awk '{ s += $1; n++ } END { print \"METRIC sum=\" s; if (s != 77) print \"METRIC size=\" n }' numbers\n";

/// A keep, one line that is not as good, one that is worse, two lines between both, and no size.
const IDEAS: [&str; 5] = [
    "echo 'EXPERIMENT: a smaller first number'; sed -i 's/^50$/40/' numbers",
    "echo 'EXPERIMENT: one line'; echo 95 > numbers",
    "echo 'EXPERIMENT: another line'; echo 96 > numbers",
    "echo 'EXPERIMENT: two lines'; printf '93\\n1\\n' > numbers",
    "echo 'EXPERIMENT: no size'; echo 77 > numbers",
];

fn with_size() -> Env {
    let env = project(&IDEAS);
    env.write("metric.sh", METRIC);
    env.git_run(&["commit", "-qam", "a metric with a size"]);
    env
}

#[test]
fn what_nothing_dominates_stays_on_the_frontier() {
    let env = with_size();
    let out = research(&env, &["-n", "4", "--pareto", "size"]).exits(3);
    assert_eq!(statuses(&env), ["baseline", "keep", "frontier", "discard", "frontier"], "{}", out.stderr);
    assert!(out.stdout.contains("Keeps: 1 | Discards: 1") && out.stdout.contains("Frontier: 2"), "{}", out.stdout);
    let shown = env.run(&["research", "show", "--json"]).ok().json();
    let members: Vec<(u64, f64, f64)> = shown["frontier"]
        .as_array()
        .expect("a frontier")
        .iter()
        .map(|member| {
            let number = |value: &Value| value.as_f64().expect("a number");
            let size = number(&member["secondary"]["size"]);
            (member["number"].as_u64().expect("a number"), number(&member["value"]), size)
        })
        .collect();
    assert_eq!(members, [(1, 90.0, 3.0), (2, 95.0, 1.0), (4, 94.0, 2.0)], "the baseline left");
    let text = env.run(&["research", "show"]).ok().stdout;
    assert!(text.contains("frontier:") && text.contains("95, size 1  one line"), "{text}");
    env.run(&["research", "report", "-o", "out.html"]).ok();
    let page = env.read("out.html");
    assert!(page.contains("<h2>Frontier</h2>") && page.contains("<td>95<td>1<td>one line"), "{page}");
    let best = env.run(&["research", "best"]).ok().stdout;
    assert!(best.contains("experiment 1"), "the champion does not move: {best}");
    let refused = env.run(&["research", "apply", "--only", "3"]).exits(2).stderr;
    assert!(refused.contains("was not kept (discard)") && refused.contains("1, 2, 4"), "{refused}");
    env.run(&["research", "apply", "--only", "1,2"]).ok();
    assert_eq!(env.read("numbers"), "95\n");
    env.run(&["replay"]).ok();
}

#[test]
fn members_of_the_frontier_are_applied_without_any_keep() {
    let env = project(&["echo 'EXPERIMENT: one line'; echo 101 > numbers"]);
    env.write("metric.sh", METRIC);
    env.git_run(&["commit", "-qam", "a metric with a size"]);
    research(&env, &["-n", "1", "--pareto", "size:lower"]).exits(3);
    assert_eq!(statuses(&env), ["baseline", "frontier"]);
    env.run(&["research", "apply"]).exits(2);
    env.run(&["research", "apply", "--only", "1"]).ok();
    assert_eq!(env.read("numbers"), "101\n");
}

#[test]
fn a_further_value_that_is_missing_is_an_error_of_the_metric() {
    let env = project(&IDEAS[4..]);
    env.write("metric.sh", METRIC);
    env.git_run(&["commit", "-qam", "a metric with a size"]);
    research(&env, &["-n", "1", "--pareto", "size"]).exits(3);
    assert_eq!(statuses(&env), ["baseline", "metric_error"]);
    let shown = env.run(&["research", "show"]).ok().stdout;
    assert!(shown.contains("`METRIC size=value`"), "{shown}");
    let none = research(&with_size(), &["-n", "1", "--pareto", "weight"]).exits(1).stderr;
    assert!(none.contains("the metric cannot be read") && none.contains("`METRIC weight=value`"), "{none}");
}

#[test]
fn mistakes_about_further_metrics_have_a_reason_and_a_hint() {
    let env = with_size();
    for (flags, why) in [
        (&["--pareto", "size:down"][..], "`down` in `size:down` is no direction: it is `lower` or `higher`"),
        (&["--pareto", "size", "--pareto", "size:higher"], "`size` is named twice"),
        (&["--pareto", "sum", "--metric-name", "sum"], "is the metric that decides"),
        (&["--pareto", "size", "--mesh"], "values of different machines differ"),
    ] {
        let said = research(&env, &[&["-n", "1"], flags].concat()).exits(2).stderr;
        assert!(said.contains(why), "{flags:?}: {said}");
    }
}
