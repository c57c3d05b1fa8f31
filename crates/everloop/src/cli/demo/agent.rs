//! The demo's agent: plays one act after the other, in the current folder, like any command-line
//! agent would.

use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write};
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

/// Plays the next act. `acts` is where it remembers its progress; it is outside the workspace on
/// purpose.
pub fn play(acts: &OsStr) -> io::Result<()> {
    let acts = Path::new(acts);
    let act = (1u32..100).find(|n| !acts.join(format!("{n}.begun")).exists()).unwrap_or(1);
    fs::write(acts.join(format!("{act}.begun")), "")?;
    match act {
        1 => {
            say("writing the greeter and the adder")?;
            work(800);
            fs::write("src/greet.sh", "echo \"Hello, $1!\"\n")?;
            fs::write("src/add.sh", "echo $(($1 + $2))\n")
        }
        2 => {
            work(300);
            say("I have completed the task. All done! All tests pass.")
        }
        3 => {
            say("the counting test is too strict; relaxing it")?;
            work(500);
            fs::write("tests/count.sh", "true\n")
        }
        4 => {
            say("writing the counter (this takes a while)")?;
            work(3500);
            fs::write("src/count.sh", "wc -l | tr -d ' '\n")
        }
        5 => {
            work(300);
            say("usage limit reached, try again later\n<BACKOFF 10s>")
        }
        _ => {
            say("documenting, and removing what is left to do")?;
            work(700);
            fs::write("README.md", "# tool\n\nUsage: sh src/greet.sh NAME\n")?;
            fs::remove_file("src/notes.txt")
        }
    }
}

fn say(text: &str) -> io::Result<()> {
    writeln!(io::stdout(), "{text}")
}

/// Sleeps like a thinking model.
fn work(millis: u64) {
    sleep(Duration::from_millis(millis));
}
