#!/usr/bin/env bash
# test.sh - everything that must hold before a change lands: make test.
# Root runs all of it. Without root, tests that need AF_XDP, namespaces or a
# guest say what they lack and skip; URXE_REQUIRE=1 makes that a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

SEEDS=${SEEDS:-10000}
step() { printf '\n== %s\n' "$*"; }

# Packages whose tests use the machine as a whole: real time, namespaces, guests.
serial() { go list ./tests/... ./cmd/... ./examples/... 2>/dev/null; }
engine() { go list ./ib/... ./rocev2/... ./verbs/... ./xdp/... ./internal/... 2>/dev/null; }

scripts/setup.sh test || [ "$(id -u)" != 0 ] # root without packages is an error
if [ "$(id -u)" = 0 ]; then
  # a root that cannot use AF_XDP is found out by the tests, not assumed here
  export URXE_REQUIRE=${URXE_REQUIRE:-${CI:+1}}
else
  echo "not root: left out are the tests that need AF_XDP, network namespaces or a QEMU guest; 'sudo make test' runs them"
fi

step gofmt
unformatted=$(git ls-files -z -- '*.go' | xargs -0r gofmt -l)
[ -z "$unformatted" ] || { echo "not gofmt-ed: $unformatted"; exit 1; }

step go vet
go vet ./...

step "race detector"
# shellcheck disable=SC2046
go test -race -short -shuffle=on -timeout 20m $(engine)

step "simulation, $SEEDS seeds"
if [ -d tests/sim ]; then
  go test -timeout 60m ./tests/sim -seeds="$SEEDS"
fi

step "all tests"
# shellcheck disable=SC2046
go test -shuffle=on -timeout 20m $(engine) $(go list ./bpf/... ./sm/... 2>/dev/null)
# one at a time: they measure time, and guests need a core of their own
# shellcheck disable=SC2046
go test -p 1 -shuffle=on -timeout 60m $(serial)
