# Recipes for people; `just` alone lists them. CI and releases use ./test.

set shell := ["bash", "-euo", "pipefail", "-c"]

_list:
    @just --list --unsorted

# Everything that must hold before a commit goes anywhere
test *args:
    ./test {{ args }}

# Format the tree
fmt:
    cargo fmt --all

# What ./test finds wrong without running anything
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings

# Spelling, licences and advisories; needs `typos` and `cargo-deny`
audit:
    typos
    cargo deny check

# The demo: a real loop with a scripted agent
demo *args:
    cargo run --release -- demo {{ args }}

# The simulation, for example: just sim --seeds 100000
sim *args:
    cargo run --release -p everloop-testkit --bin everloop-sim -- {{ args }}

# A real mesh in bad weather, for example: just chaos --for 5m --seed 7, or: just chaos --scenario hub-away
chaos *args:
    cargo build --release -p everloop
    cargo build --release -p everloop-testkit --bin everloop-chaos
    "${CARGO_TARGET_DIR:-target}/release/everloop-chaos" {{ args }}

# Two builds on purpose: in one, the testkit's planted bugs would be compiled into the binary that is measured.
# Costs next to their floors, for example: just bench --only turn,idle --quick
bench *args:
    cargo build --release -p everloop
    cargo build --release -p everloop-testkit --bin everloop-bench
    "${CARGO_TARGET_DIR:-target}/release/everloop-bench" {{ args }}

# The ledger next to plain SQL, on a server of its own, and next to other queues: just bench-hub --quick --peers
bench-hub *args:
    cargo build --release -p everloop-testkit --bin everloop-bench
    exe="${CARGO_TARGET_DIR:-target}/release/everloop-bench"; "$exe" --everloop "$exe" --only hub {{ args }}
