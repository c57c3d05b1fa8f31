//! `everloop research report` in a real browser: one page for both colour schemes and any width,
//! which requests nothing, and the chart as a picture.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use everloop_testkit::browser::{Browser, ColourScheme, PageScripts};
use serde_json::Value;

use crate::env::Env;

/// The page can be attached to a mail.
const MAX_BYTES: u64 = 300_000;

/// The changes of the scripted agent: number of the line = number of the experiment.
const IDEAS: [&str; 9] = [
    "echo 'EXPERIMENT: drop the largest number'; sed -i 1d numbers",
    "echo 'EXPERIMENT: halve the first number'; sed -i '1s/.*/15/' numbers",
    "echo 'EXPERIMENT: sort them'; sort -n numbers > s; cat s s > numbers; rm s",
    "echo 'EXPERIMENT: <script>document.title=\"owned\"</script> add one'; echo 3 >> numbers",
    "echo 'EXPERIMENT: a metric that is always 1'; echo 'echo 1' > metric.sh",
    "echo 'EXPERIMENT: think'",
    "echo 'EXPERIMENT: subtract a little'; sed -i '1s/.*/14/' numbers",
    "echo 'EXPERIMENT: remove the file'; rm numbers",
    "echo 'EXPERIMENT: a tenth'; sed -i '2s/.*/2/' numbers",
];

const PLAN: &str = "# Plan\n\n- drop <b>large</b> numbers\n- add numbers\n- measure better\n- think\n\
    - smaller steps\n- use a table\n";

/// What became of it: an experiment after a keep is about that keep, and so are the last two.
const REALITY: [[&str; 3]; 7] = [
    ["drop <b>large</b> numbers", "1", "worked: kept 1"],
    ["add numbers", "4", "did not work"],
    ["measure better", "5", "did not work"],
    ["think", "6", "did not work"],
    ["smaller steps", "7", "worked: kept 7"],
    ["use a table", "–", "not tried"],
    ["kept changes that no strategy named", "2, 9", "surprised: kept 2, 9"],
];

/// A run of all ideas with a plan, and its report.
fn reported() -> Env {
    let env = Env::new().git();
    env.write("numbers", "50\n30\n20\n");
    env.write(
        "metric.sh",
        "test -f numbers || { echo 'IndexError: no numbers'; exit 1; }; awk '{ s += $1 } END { print s }' numbers\n",
    );
    env.write(".everloop/research-plan.md", PLAN);
    env.git_run(&["add", "-A"]);
    env.git_run(&["commit", "-qm", "numbers"]);
    let outside = env.project().join("../outside");
    fs::create_dir_all(&outside).expect("the folder is the test's");
    for (n, idea) in IDEAS.iter().enumerate() {
        fs::write(outside.join(format!("idea-{}", n + 1)), idea).expect("the folder is the test's");
    }
    let agent = "#!/bin/sh\nn=$(sed -n 's/^- this is experiment \\([0-9]*\\).*/\\1/p' \"$1\")\n\
        grep -q 'Mend it' \"$1\" && { rm -f numbers; date +%N > other; exit; }\nsh \"$(dirname \"$0\")/idea-$n\"\n";
    let path = outside.join("agent");
    fs::write(&path, agent).expect("the folder is the test's");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it was just written");
    let agent = format!("{} {{prompt_file}}", path.canonicalize().expect("it was just written").display());
    let words = ["research", "a smaller sum", "--metric", "sh metric.sh", "--direction", "lower"];
    let rest = ["--agent-cmd", &agent, "--min-gap", "0", "-n", "9", "--goal-value", "5"];
    env.run(&[&words[..], &rest].concat()).exits(3);
    let out = env.run(&["research", "report", "-o", "out.html", "--png", "out.png", "--json"]).ok().json();
    for (key, name) in [("file", "out.html"), ("png", "out.png")] {
        assert!(out[key].as_str().is_some_and(|path| path.ends_with(name)), "{out}");
    }
    env
}

fn rows(env: &Env) -> Vec<Value> {
    env.run(&["research", "show", "--json"]).ok().json()["rows"].as_array().expect("rows").clone()
}

/// The cells of a table, row by row.
fn cells(browser: &Browser, heading: &str) -> Vec<Vec<String>> {
    let script = format!(
        "const part = [...document.querySelectorAll('section')].find(s => s.querySelector('h2').textContent === \
         '{heading}'); return [...part.querySelectorAll('tbody tr')].map(row => [...row.cells].map(c => c.textContent))"
    );
    serde_json::from_value(browser.eval(&script)).expect("cells are texts")
}

/// The contrast of two colours as in WCAG, for an element and what is behind it.
fn contrast(browser: &Browser, selector: &str, property: &str) -> f64 {
    let script = format!(
        "const light = c => {{ const [r, g, b] = c.match(/[\\d.]+/g).map(n => n / 255).map(n => n <= 0.03928 ? \
         n / 12.92 : ((n + 0.055) / 1.055) ** 2.4); return 0.2126 * r + 0.7152 * g + 0.0722 * b }};\
         const a = light(getComputedStyle(document.querySelector('{selector}')).{property});\
         const b = light(getComputedStyle(document.body).backgroundColor);\
         return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05)"
    );
    browser.eval(&script).as_f64().unwrap_or_else(|| panic!("`{selector}` has no {property}"))
}

#[test]
fn the_page_is_read_in_a_browser_in_both_colour_schemes_and_requests_nothing() {
    let env = reported();
    let file = env.project().join("out.html");
    assert!(fs::metadata(&file).expect("it was written").len() <= MAX_BYTES);
    let browser = Browser::start();
    let mut papers = Vec::new();
    for scheme in ColourScheme::ALL {
        browser.prefer(scheme);
        for (width, height) in [(1280, 900), (360, 740)] {
            browser.resize(width, height);
            browser.open_file(&file);
            let name = format!("research-report-{}-{width}", scheme.label());
            browser.keep_picture(&name);
            let over = browser.eval("return document.documentElement.scrollWidth - innerWidth").as_i64();
            assert!(over.is_some_and(|over| over <= 0), "{name} is wider than its window by {over:?}");
            // Letters of the chart can be read: at least nine pixels high on any screen.
            let script = "return document.querySelector('svg text').getBoundingClientRect().height";
            assert!(browser.eval(script).as_f64().is_some_and(|size| size >= 9.0), "{name}");
        }
        for (selector, property, least) in [
            ("p", "color", 7.0),
            ("dt", "color", 4.5),
            ("figcaption", "color", 4.5),
            ("svg text", "fill", 7.0),
            ("svg .best", "stroke", 3.0),
            ("svg .keep", "stroke", 3.0),
            ("svg .discard", "stroke", 3.0),
            ("svg .failed", "stroke", 3.0),
            ("svg .goal", "stroke", 3.0),
        ] {
            let found = contrast(&browser, selector, property);
            assert!(found >= least, "{selector} has a contrast of {found:.1} in {scheme:?}");
        }
        papers.push(browser.eval_text("return getComputedStyle(document.querySelector('svg .paper')).fill"));
    }
    assert_ne!(papers[0], papers[1], "the chart follows the colour scheme");
    let (page, requests) =
        (format!("file://{}", file.canonicalize().expect("it is there").display()), browser.requests());
    assert!(requests.len() == 4 && requests.iter().all(|url| *url == page), "{requests:?}");
    assert_eq!(browser.complaints(), Vec::<String>::new());
}

#[test]
fn chart_table_plan_and_diffs_are_those_of_the_run() {
    let env = reported();
    let rows = rows(&env);
    let browser = Browser::start();
    browser.scripts(PageScripts::Off);
    browser.resize(1280, 900);
    browser.open_file(&env.project().join("out.html"));
    assert_eq!(browser.eval_text("return document.title"), "Research: a-smaller-sum");
    let labelled = "const svg = document.querySelector('svg'); return svg.getAttribute('aria-labelledby').split(' ')\
        .map(id => document.getElementById(id).textContent).join('|')";
    let label = browser.eval_text(labelled);
    assert!(label.starts_with("a-smaller-sum|sh metric.sh, lower is better. Experiments: 9; kept 4"), "{label}");
    assert!(!browser.eval("return document.querySelector('details').open").as_bool().unwrap_or(true));
    browser.click("summary");
    assert!(browser.text("details").contains("subtract a little"), "the table opens without scripts");
    let table = cells(&browser, "All experiments");
    assert_eq!(table.len(), rows.len(), "every row is there");
    for (cells, row) in table.iter().zip(&rows) {
        let status = row["status"].as_str().expect("a status").replace('_', "-");
        assert_eq!((&cells[0], &cells[1]), (&row["number"].to_string(), &status));
        let value = row["value"].as_f64().map_or_else(String::new, |value| value.to_string());
        assert_eq!(cells[2], value, "experiment {}", cells[0]);
    }
    let plan = cells(&browser, "Plan versus reality");
    let plan: Vec<[&str; 3]> = plan.iter().map(|row| [0, 1, 2].map(|n| row[n].as_str())).collect();
    assert_eq!(plan, REALITY);
    assert!(browser.eval_text("return document.body.textContent").contains("+15"), "the diff of a keep");
    assert_eq!(browser.count("svg .keep"), 1 + 4, "the legend and four keeps");
}

#[test]
fn the_picture_is_the_chart() {
    let env = reported();
    let bytes = fs::read(env.project().join("out.png")).expect("it was written");
    assert!(bytes.starts_with(b"\x89PNG") && bytes.len() < 300_000, "{} bytes", bytes.len());
    let browser = Browser::start();
    browser.open_file(&env.project().join("out.png"));
    assert_eq!(
        browser.eval("const i = document.images[0]; return [i.naturalWidth, i.naturalHeight]").to_string(),
        "[1920,960]"
    );
    fs::copy(env.project().join("out.png"), everloop_testkit::browser::pictures().join("research-chart.png")).ok();
    let none = env.run(&["research", "report", "--png", "nowhere/out.png"]).exits(1).stderr;
    assert!(none.contains("cannot write") && none.contains("nowhere/out.png"), "{none}");
}
