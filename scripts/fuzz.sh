#!/usr/bin/env bash
# fuzz.sh [TIME] - runs every fuzz target of the module for TIME (10s) each.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# outOfTime reports whether nothing failed but that the time was over, which Go
# before 1.27 may call a failure (go.dev/issue/75804).
outOfTime() { grep -q '^ *context deadline exceeded$' "$log" && ! grep -q 'Failing input written' "$log"; }

for pkg in $(go list ./...); do
  for target in $(go test -list '^Fuzz' "$pkg" | grep '^Fuzz' || true); do
    echo "== $pkg $target"
    # without a bound, one new input may be made smaller for the whole time
    go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 20x "$pkg" | tee "$log" || outOfTime
  done
done
