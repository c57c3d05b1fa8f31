#!/usr/bin/env bash
# Installs the test runners that the tests try to cheat: crates/testkit/test-runners.sh
#
# pytest in a Python environment of its own, jest and vitest by npm, axe-core for pages by npm too, and
# a build cache for go with what its standard library needs, in a cache outside of the repository,
# ${EVERLOOP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/everloop-test}, each complete or not at all.
# The configuration of pip and npm decides where packages come from.
# stdout: one line for each runner, `NAME VERSION`, then `dir FOLDER`: there `pytest/bin` has a
# `python3` and a `pytest`, `jest`, `vitest` and `axe-core` have a `node_modules`, and `go-build` is a GOCACHE.
# Exit code 0: all are there; 1: one could not be installed or started.
set -euo pipefail

# With their dependencies, so that every run has the same; an update is a commit of its own, and
# records crates/core/src/test_evidence/fixtures again.
pytest_pins="
iniconfig==2.3.1
packaging==26.3
pluggy==1.7.0
Pygments==2.21.0
pytest==9.2.0
"
# Other versions of vite need another Node than Debian has.
jest_pins="jest@30.5.2"
vitest_pins="vitest@3.2.7 vite@6.4.3"
axe_pins="axe-core@4.14.0"

cache="${EVERLOOP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/everloop-test}/test-runners"
mkdir -p -- "$cache"
cache=$(cd -- "$cache" && pwd -P)
# One at a time: a half-made folder that is found under the lock was left behind by a run that was
# killed.
exec 9>"$cache/lock"
flock --timeout 600 9 || { echo "error: \`$cache/lock\` was held for 10 minutes" >&2; exit 1; }
scratch="$cache/.new"
rm -rf -- "$scratch"
mkdir -- "$scratch"
trap 'chmod -R u+w -- "$scratch"; rm -rf -- "$scratch"' EXIT

fail() {
  echo "error: $1" >&2
  sed 's/^/  /' "$scratch/log" >&2
  exit 1
}

# quiet COMMAND…: its output is shown only if it fails.
quiet() {
  "$@" </dev/null >"$scratch/log" 2>&1 9>&- || fail "\`$*\` failed"
}

# folder NAME VERSION PINS: the folder of exactly these.
folder() {
  echo "$cache/$1-$2-$(cksum <<<"$3" | cut -d' ' -f1)"
}

# of_npm NAME PINS: Node finds what a package needs for its processor by itself, so no script of a
# package is run.
of_npm() {
  local name=$1 pins=$2 target
  target=$(folder "$name" "$(uname -m)" "$pins")
  if [[ ! -d $target ]]; then
    mkdir -- "$scratch/tree"
    # shellcheck disable=SC2086 # one word for each package
    quiet npm install --prefix "$scratch/tree" --cache "$scratch/npm" --ignore-scripts --no-audit --no-fund \
      --no-update-notifier --loglevel=error $pins
    mv -T -- "$scratch/tree" "$target"
  fi
  local want=${pins%% *} got
  want=${want##*@}
  got=$("$target/node_modules/.bin/$name" --version 2>"$scratch/log" 9>&- | grep -Eo '[0-9]+\.[0-9]+\.[0-9]+' | head -n1) \
    || fail "\`$name --version\` failed (to install it anew: rm -r $target)"
  [[ $got == "$want" ]] || fail "\`$name\` in \`$target\` is $got, not $want"
  ln -sfn -- "$target" "$links/$name"
  echo "$name $got"
}

# of_axe: a library for a browser, without a command of its own.
of_axe() {
  local target
  target=$(folder axe-core any "$axe_pins")
  if [[ ! -d $target ]]; then
    mkdir -- "$scratch/tree"
    quiet npm install --prefix "$scratch/tree" --cache "$scratch/npm" --ignore-scripts --no-audit --no-fund \
      --no-update-notifier --loglevel=error "$axe_pins"
    mv -T -- "$scratch/tree" "$target"
  fi
  [[ -s $target/node_modules/axe-core/axe.min.js ]] || fail "no axe.min.js in \`$target\`"
  ln -sfn -- "$target" "$links/axe-core"
  echo "axe-core ${axe_pins##*@}"
}

of_python() {
  local version target got
  # Another Python needs another environment.
  version=$(python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
  target=$(folder pytest "$version" "$pytest_pins")
  if [[ ! -e $target/complete ]]; then
    rm -rf -- "$target"
    quiet python3 -m venv -- "$target"
    # shellcheck disable=SC2086 # one word for each package
    quiet "$target/bin/python3" -m pip install --quiet --disable-pip-version-check --no-deps --no-input \
      --only-binary :all: $pytest_pins
    : >"$target/complete"
  fi
  got=$("$target/bin/pytest" --version 2>"$scratch/log") || fail "\`pytest --version\` failed (to install it anew: rm -r $target)"
  ln -sfn -- "$target" "$links/pytest"
  echo "$got"
}

# Newer versions come without a compiled standard library: compiling it for every test would take
# longer than the tests.
of_go() {
  local version target
  version=$(go env GOVERSION 2>"$scratch/log" 9>&-) || fail "\`go env\` failed"
  target="$cache/go-build-$version"
  if [[ ! -d $target ]]; then
    mkdir -- "$scratch/module"
    printf 'module warm\n\ngo 1.19\n' >"$scratch/module/go.mod"
    printf 'package warm\n\nimport (\n\t"fmt"\n\t"os"\n\t"testing"\n)\n\nfunc Test(t *testing.T) { fmt.Fprintln(os.Stderr, "warm") }\n' \
      >"$scratch/module/warm_test.go"
    quiet env -C "$scratch/module" GOCACHE="$scratch/go-build" GOPATH="$scratch/go" GOFLAGS= go test ./...
    mv -T -- "$scratch/go-build" "$target"
  fi
  ln -sfn -- "$target" "$links/go-build"
  echo "go ${version#go}"
}

links="$cache/links-$(cksum <<<"$pytest_pins$jest_pins$vitest_pins$axe_pins" | cut -d' ' -f1)"
mkdir -p -- "$links"
of_python
of_npm jest "$jest_pins"
of_npm vitest "$vitest_pins"
of_axe
of_go
echo "dir $links"
