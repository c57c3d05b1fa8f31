#!/usr/bin/env bash
# Installs the servers that the tests talk to and that no Debian package brings:
# crates/testkit/test-servers.sh
#
# They are Python packages in an environment of their own, in a cache outside of the repository,
# ${EVERLOOP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/everloop-test}, complete or not at all.
# pip's own configuration decides where packages come from. The programs that use them are in
# crates/testkit/servers.
# stdout: one line for each package, `NAME VERSION`, then `dir FOLDER`: the folder with the
# environment's `python3`.
# Exit code 0: all are there; 1: one could not be installed or imported.
set -euo pipefail

# With their dependencies, so that every run has the same; an update is a commit of its own.
pins="
aiosmtpd==1.4.6
atpublic==9.0.0
attrs==26.1.0
"

cache="${EVERLOOP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/everloop-test}/test-servers"
mkdir -p -- "$cache"
cache=$(cd -- "$cache" && pwd -P)
# One at a time: a half-made folder that is found under the lock was left behind by a run that was
# killed.
exec 9>"$cache/lock"
flock --timeout 600 9 || { echo "error: \`$cache/lock\` was held for 10 minutes" >&2; exit 1; }

fail() {
  echo "error: $1" >&2
  sed 's/^/  /' "$cache/log" >&2
  exit 1
}

# Another Python needs another environment.
version=$(python3 -c 'import sys; print("%d.%d.%d" % sys.version_info[:3])')
target="$cache/python-$version-$(cksum <<<"$pins" | cut -d' ' -f1)"
if [[ ! -e $target/complete ]]; then
  rm -rf -- "$target"
  python3 -m venv -- "$target" </dev/null >"$cache/log" 2>&1 9>&- || fail "\`python3 -m venv\` failed"
  # shellcheck disable=SC2086 # one word for each package
  "$target/bin/python3" -m pip install --quiet --disable-pip-version-check --no-deps --no-input --only-binary :all: \
    $pins </dev/null >"$cache/log" 2>&1 9>&- || fail "\`pip install\` failed"
  : >"$target/complete"
fi
for pin in $pins; do
  name=${pin%%==*} want=${pin##*==}
  got=$("$target/bin/python3" -c 'import importlib.metadata as m, sys; print(m.version(sys.argv[1]))' "$name" 2>"$cache/log") \
    || fail "\`$name\` cannot be found (to install it anew: rm -r $target)"
  [[ $got == "$want" ]] || fail "\`$name\` in \`$target\` is $got, not $want"
  echo "$name $got"
done
"$target/bin/python3" -c 'import aiosmtpd.smtp' 2>"$cache/log" || fail "\`aiosmtpd\` cannot be imported"
echo "dir $target/bin"
