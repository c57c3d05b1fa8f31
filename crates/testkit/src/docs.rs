//! Files of `docs/` that are made from code.

use std::path::Path;

/// Panics unless the file is what the code makes now; with `UPDATE_DOCS` in the environment it is
/// written first. `tests` names the tests that write it.
pub fn assert_current(file: &str, current: &str, tests: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(file);
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&path, current).expect("the docs can be written");
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    let different = there.lines().zip(current.lines()).find(|(old, new)| old != new);
    assert!(there == current, "run `UPDATE_DOCS=1 cargo test -p everloop {tests}`; first difference: {different:#?}");
}
