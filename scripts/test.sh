#!/usr/bin/env bash
# test.sh - everything that must hold before a change lands: make test.
# Root runs all of it. Without root, tests that need AF_XDP, namespaces or a
# guest say what they lack and skip; URXE_REQUIRE=1 makes that a failure.
set -euo pipefail
cd "$(dirname "$0")/.."

SEEDS=${SEEDS:-10000}
step() { printf '\n== %s\n' "$*"; }

# Packages whose tests need the machine to themselves: they boot guests, run
# simulators, measure time, or compile.
alone='^github.com/urxe/urxe/(tests|cmd|examples|ib/umad/kerneltest|ib/ibsim|sm/daemon)(/|$)'
mapfile -t packages < <(go list ./...)
mapfile -t engine < <(printf '%s\n' "${packages[@]}" | grep -Ev "$alone")
# Those with goroutines that share memory; the subnet manager's core has none.
mapfile -t racing < <(printf '%s\n' "${engine[@]}" | grep -v '/sm/')
mapfile -t serial < <(printf '%s\n' "${packages[@]}" | grep -E "$alone")

scripts/setup.sh test || [ "$(id -u)" != 0 ] # root without packages is an error
if [ "$(id -u)" = 0 ]; then
  # a root that cannot use AF_XDP is found out by the tests, not assumed here
  export URXE_REQUIRE=${URXE_REQUIRE:-${CI:+1}}
else
  echo "not root: left out are the tests that need AF_XDP, network namespaces or a QEMU guest; 'sudo make test' runs them"
fi

step gofmt
unformatted=$(gofmt -l .) # git may be missing, or not let a root in who isn't the owner
[ -z "$unformatted" ] || { echo "not gofmt-ed: $unformatted"; exit 1; }

step go vet
go vet ./...

# Tests note here which rows of the conformance table they show.
URXE_CONFORM=$(mktemp -d)
export URXE_CONFORM
trap 'rm -rf "$URXE_CONFORM"' EXIT

step "race detector"
go test -race -short -shuffle=on -timeout 20m "${racing[@]}"
# Of the tests that cross packages those in which most goes on at once; a simulated network has one thread, but many run.
race() { go test -race -short -timeout 10m "$@"; }
race ./tests/procmem
race -run '^TestSeeds$' ./tests/sim -seeds=20
race -run Replay ./tests/golden
race -run 'Random|VerdictsAddUp' ./tests/hostile
race -run 'Under|Flood|MulticastOnEachRung' ./tests/netns

step "simulation, $SEEDS seeds"
go test -run '^TestSeeds$' -timeout 60m ./tests/sim -seeds="$SEEDS"

step "all tests"
go test -shuffle=on -timeout 20m "${engine[@]}"
go test -p 1 -shuffle=on -timeout 60m "${serial[@]}"

step "conformance table"
go run ./tests/conform/run check "$URXE_CONFORM"
