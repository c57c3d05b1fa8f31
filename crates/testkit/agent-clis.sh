#!/usr/bin/env bash
# Installs the real agent programs that the tests drive, and clients of MCP: crates/testkit/agent-clis.sh [NAME…]
#
# They go into a cache outside of the repository, ${EVERLOOP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/everloop-test}, each
# into a folder of its own version, complete or not at all. npm's own configuration selects the registry. Each
# program has to start and name its version in an empty environment without a network.
# stdout: one line each, `NAME VERSION PROGRAM`, then `dir FOLDER`: the folder in which each is found under its plain name.
# Exit code 0: all are there; 1: one could not be installed or started; 2: usage.
set -euo pipefail

# NAME PACKAGE PROGRAM. The exact version, because npm quietly takes an older one when `engines` does not fit its Node,
# although the native programs do not care. Wording and fields change with almost every release, so an update is a commit
# of its own: change the version here, run the tests, record the streams again.
case $(uname -m) in
  x86_64) cpu=x64 triple=x86_64-unknown-linux-musl ;;
  aarch64) cpu=arm64 triple=aarch64-unknown-linux-musl ;;
  *) echo "error: no agent programs are known for \`$(uname -m)\`" >&2; exit 1 ;;
esac
pins="
claude @anthropic-ai/claude-code@2.1.325 @anthropic-ai/claude-code-linux-$cpu/claude
codex @openai/codex@0.166.0 @openai/codex-linux-$cpu/vendor/$triple/bin/codex
gemini @google/gemini-cli@0.61.0 @google/gemini-cli/bundle/gemini.js
opencode opencode-ai@1.18.33 opencode-linux-$cpu/bin/opencode
copilot @github/copilot@1.0.102 @github/copilot-linux-$cpu/copilot
qwen @qwen-code/qwen-code@0.15.10 @qwen-code/qwen-code/cli.js
mcp-sdk @modelcontextprotocol/sdk@1.32.2 @modelcontextprotocol/sdk/package.json
mcp-client @modelcontextprotocol/client@2.4.0 @modelcontextprotocol/client/package.json
mcp-inspector @modelcontextprotocol/inspector@2.12.0 @modelcontextprotocol/inspector/clients/launcher/build/index.js
"

for name in "$@"; do
  if ! grep -q "^$name " <<<"$pins"; then
    echo "usage: agent-clis.sh [NAME…], where NAME is one of" $(cut -d' ' -f1 <<<"$pins") >&2
    exit 2
  fi
done

cache="${EVERLOOP_TEST_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/everloop-test}/agent-clis"
mkdir -p -- "$cache"
cache=$(cd -- "$cache" && pwd -P)
# One at a time: whatever half-made folder is found under the lock was left behind by one that was killed.
exec 9>"$cache/lock"
flock --timeout 1200 9 || { echo "error: \`$cache/lock\` was held for 20 minutes" >&2; exit 1; }
scratch="$cache/.new"
rm -rf -- "$scratch"
trap 'rm -rf -- "$scratch"' EXIT

# Nothing but loopback is reachable: a program cannot update itself or send reports.
alone=(unshare --net)
((EUID == 0)) || alone=(unshare --map-root-user --net)

fail() {
  echo "error: $1" >&2
  sed 's/^/  /' "$scratch/log" >&2
  exit 1
}

# version PROGRAM: the version that it prints.
version() {
  rm -rf -- "$scratch/home"
  mkdir -m 700 -p -- "$scratch/home"
  "${alone[@]}" env -i PATH="$PATH" HOME="$scratch/home" timeout --kill-after=5 60 "$1" --version \
    </dev/null 9>&- 2>"$scratch/log" | grep -Eo '[0-9]+\.[0-9]+\.[0-9]+' | head -n1
}

install() {
  local name=$1 package=$2 program=$3 target=$4
  mkdir -p -- "$scratch/tree/bin"
  # Scripts of packages are not run: they would fetch what the registry does not have.
  npm install --prefix "$scratch/tree" --cache "$scratch/npm" --ignore-scripts --no-audit --no-fund \
    --no-update-notifier --loglevel=error "$package" </dev/null >"$scratch/log" 2>&1 9>&- \
    || fail "\`npm install $package\` failed"
  [[ -e "$scratch/tree/node_modules/$program" ]] || fail "\`$package\` came without \`$program\`"
  if [[ $program == *.json ]]; then
    # A library: its program is Node, which finds it.
    printf '%s\n' '#!/bin/sh' 'modules="$(dirname -- "$(readlink -f -- "$0")")/../node_modules"' \
      "[ \"\$1\" = --version ] && exec node -p \"require('\$modules/$program').version\"" \
      'NODE_PATH="$modules" exec node "$@"' >"$scratch/tree/bin/$name"
    chmod +x -- "$scratch/tree/bin/$name"
  elif [[ $program == *.js ]]; then
    printf '#!/bin/sh\nexec node "$(dirname -- "$(readlink -f -- "$0")")/../node_modules/%s" "$@"\n' "$program" \
      >"$scratch/tree/bin/$name"
    chmod +x -- "$scratch/tree/bin/$name"
  else
    ln -s -- "../node_modules/$program" "$scratch/tree/bin/$name"
  fi
  mv -T -- "$scratch/tree" "$target"
}

links="$cache/bin-$(cksum <<<"$pins" | cut -d' ' -f1)"
mkdir -p -- "$links" "$scratch"
while read -r name package program; do
  [[ -n $name ]] || continue
  (($# == 0)) || [[ " $* " == *" $name "* ]] || continue
  want=${package##*@}
  target="$cache/$name-$want"
  [[ -d $target ]] || install "$name" "$package" "$program" "$target"
  : >"$scratch/log"
  # What does not start is taken away again only by a person: it may be the machine, not the program.
  got=$(version "$target/bin/$name") || fail "\`$target/bin/$name --version\` failed (to install it anew: rm -r $target)"
  [[ $got == "$want" ]] || fail "\`$target/bin/$name\` says that it is $got, not $want"
  ln -sfn -- "../$name-$want/bin/$name" "$links/$name"
  echo "$name $got $target/bin/$name"
done <<<"$pins"
echo "dir $links"
