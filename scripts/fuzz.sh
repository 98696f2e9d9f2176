#!/usr/bin/env bash
# fuzz.sh [TIME] - runs every fuzz target of the module for TIME (10s) each.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
for pkg in $(go list ./...); do
  for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
    echo "== $pkg $target"
    # without a bound, one new input may be made smaller for the whole time
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x "$pkg"
  done
done
