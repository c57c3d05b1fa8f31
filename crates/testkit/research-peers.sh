#!/usr/bin/env bash
# Installs what research runs are compared with: crates/testkit/research-peers.sh
#
# openevolve and gepa, and scipy for the linear program of the packing, in a Python environment of
# their own in a cache outside of the repository,
# ${EVERLOOP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/everloop-test}, complete or not at all.
# The configuration of pip decides where packages come from.
# stdout: one line for each package, `NAME VERSION`, then `dir FOLDER`: there `bin` has a `python3`.
# Exit code 0: all are there; 1: one could not be installed or imported.
set -euo pipefail

pins="openevolve==0.4.0 gepa==0.1.4 scipy==1.17.1 numpy==2.4.6"

cache="${EVERLOOP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/everloop-test}/research-peers"
mkdir -p -- "$cache"
cache=$(cd -- "$cache" && pwd -P)
# One at a time: a folder without `complete` was left behind by a run that was killed.
exec 9>"$cache/lock"
flock --timeout 600 9 || { echo "error: \`$cache/lock\` was held for 10 minutes" >&2; exit 1; }

fail() {
  echo "error: $1" >&2
  sed 's/^/  /' "$cache/log" >&2
  exit 1
}

# quiet COMMAND…: its output is shown only if it fails.
quiet() {
  "$@" </dev/null >"$cache/log" 2>&1 9>&- || fail "\`$*\` failed"
}

# Another Python needs another environment.
version=$(python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
target="$cache/$version-$(cksum <<<"$pins" | cut -d' ' -f1)"
if [[ ! -e $target/complete ]]; then
  rm -rf -- "$target"
  quiet python3 -m venv -- "$target"
  # shellcheck disable=SC2086 # one word for each package
  quiet "$target/bin/python3" -m pip install --quiet --disable-pip-version-check --no-input --only-binary :all: $pins
  : >"$target/complete"
fi
names="openevolve gepa scipy"
for name in $names; do
  quiet "$target/bin/python3" -c "import $name"
  "$target/bin/python3" -c "from importlib.metadata import version; print('$name', version('$name'))"
done
echo "dir $target"
