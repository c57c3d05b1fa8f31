//! The agent of `everloop demo research`: makes the change that its script has for the experiment of
//! the prompt, in the current folder, like any command-line agent would. A turn that is run again
//! after a crash makes the same change.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// The hidden verb under which this binary plays the agent.
pub const PROPOSER_ARG: &str = "__demo-proposer";
/// The experiment during which the supervisor is killed.
pub const KILLED: u32 = 6;
/// Thinks like a model, but not as long.
const THINKS: Duration = Duration::from_millis(300);
/// The turn of the kill goes on long enough for the next supervisor to find it at work.
const THINKS_LONG: Duration = Duration::from_millis(2500);

/// What an experiment changes.
struct Change {
    description: &'static str,
    file: &'static str,
    text: &'static str,
}

/// The strategy of the first commit: bisection.
pub const START: &str = "function guess(low, high) {\n    return (low + high) / 2\n}\n";

/// The changes, in the order of the experiments.
const CHANGES: [Change; 6] = [
    Change {
        description: "small numbers are more frequent: split at a third",
        file: "guess.awk",
        text: "function guess(low, high) {\n    return low + (high - low) / 3\n}\n",
    },
    Change {
        description: "the opposite: split at two thirds",
        file: "guess.awk",
        text: "function guess(low, high) {\n    return low + (high - low) * 2 / 3\n}\n",
    },
    Change {
        description: "split in the middle of the square roots",
        file: "guess.awk",
        text: "function guess(low, high) {\n    return ((sqrt(low) + sqrt(high)) / 2) ^ 2\n}\n",
    },
    Change {
        description: "much smarter",
        file: "guess.awk",
        text: "function guess(low, high) {\n    # much smarter\n    \
               return int(((sqrt(low) + sqrt(high)) / 2) ^ 2 + 0.5)\n}\n",
    },
    Change { description: "a metric that is always 1", file: "metric.sh", text: "echo METRIC guesses=1\n" },
    Change {
        description: "split at the geometric mean",
        file: "guess.awk",
        text: "function guess(low, high) {\n    return int((low * high) ^ 0.5 + 0.5)\n}\n",
    },
];

/// What mends the third change: the middle of 3 and 3 is 2.9999…, which is outside.
const MENDED: Change = Change {
    description: "split in the middle of the square roots, rounded",
    file: "guess.awk",
    text: "function guess(low, high) {\n    return int(((sqrt(low) + sqrt(high)) / 2) ^ 2 + 0.5)\n}\n",
};

/// Makes the change of the experiment that the prompt is about. `acts` is where it shows that it has
/// begun.
pub fn play(acts: &OsStr, prompt: &OsStr) -> io::Result<()> {
    let prompt = fs::read_to_string(prompt)?;
    let number = experiment(&prompt).unwrap_or(1);
    fs::write(Path::new(acts).join(format!("{number}.begun")), "")?;
    let planned = usize::try_from(number).ok().and_then(|number| CHANGES.get(number.checked_sub(1)?));
    let change = if prompt.contains("The change before crashed.") { Some(&MENDED) } else { planned };
    let Some(change) = change else { return writeln!(io::stdout(), "EXPERIMENT: no idea is left") };
    writeln!(io::stdout(), "EXPERIMENT: {}", change.description)?;
    sleep(if number == KILLED { THINKS_LONG } else { THINKS });
    fs::write(change.file, change.text)
}

/// The number of the experiment in a prompt.
fn experiment(prompt: &str) -> Option<u32> {
    let (_, rest) = prompt.split_once("this is experiment ")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}
