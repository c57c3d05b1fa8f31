//! Links the unwinder into the program instead of looking for a shared one at every start: each
//! turn starts two shims.

use std::env;
use std::path::PathBuf;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed=CC");
    if env::var("CARGO_CFG_TARGET_OS").as_deref() == Ok("linux")
        && env::var("CARGO_CFG_TARGET_ENV").as_deref() == Ok("gnu")
        && env::var("HOST") == env::var("TARGET")
        && let Some(folder) = unwinder()
    {
        println!("cargo::rustc-link-search=native={}", folder.display());
        println!("cargo::rustc-link-lib=static:-bundle=gcc_eh");
    }
}

/// Where the C compiler keeps the static unwinder; without it the shared one is used.
fn unwinder() -> Option<PathBuf> {
    let cc = env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let output = Command::new(cc).arg("-print-file-name=libgcc_eh.a").output().ok()?;
    let path = PathBuf::from(String::from_utf8(output.stdout).ok()?.trim());
    path.is_absolute().then(|| path.parent().map(PathBuf::from))?
}
