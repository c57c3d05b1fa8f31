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

# A night: all long tests and those in real time, node-years of simulation, an hour of chaos; for example: just soak 600
# Each simulation takes so many seconds, from a seed that is printed: SIM_SEED=… repeats it
soak seconds="1200":
    seed="${SIM_SEED:-$RANDOM$RANDOM}"; echo "SIM_SEED=$seed"; dir=$(crates/testkit/agent-clis.sh | sed -n 's/^dir //p'); \
        servers=$(crates/testkit/test-servers.sh | sed -n 's/^dir //p'); \
        runners=$(crates/testkit/test-runners.sh | sed -n 's/^dir //p'); \
        SIM_SEED="$seed" SIM_SECONDS={{ seconds }} EVERLOOP_TEST_CLIS="$dir" EVERLOOP_TEST_SERVERS="$servers" \
        EVERLOOP_TEST_RUNNERS="$runners" \
        cargo nextest run --workspace --profile soak --no-fail-fast
    just chaos --for 60m
    just sim --mesh --minutes 120

# A real mesh under faults, for example: just chaos --for 5m --seed 7, or: just chaos --scenario hub-away
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

# Research runs: false keeps, own cost, and convergence beside openevolve and gepa, which it installs; minutes to hours
bench-research *args:
    cargo build --release -p everloop
    cargo build --release -p everloop-testkit --bin everloop-bench
    dir=$(crates/testkit/research-peers.sh | sed -n 's/^dir //p'); EVERLOOP_RESEARCH_PEERS="$dir" \
        "${CARGO_TARGET_DIR:-target}/release/everloop-bench" --only noise,research,convergence {{ args }}
