#!/usr/bin/env bash
# setup.sh WHAT... - installs the Debian packages that WHAT needs and that are
# not there yet. WHAT: demo test bench generate lint. Silent when nothing is
# missing. Exit status 3: something is missing and this user may not install it.
# shellcheck disable=SC2034 # the package sets are reached by their names
set -euo pipefail

# The XDP objects are committed, so the demo needs a kernel and nothing else.
demo=()
test=(qemu-system-x86 seabios busybox-static kmod cpio xz-utils zstd iproute2
  util-linux ibverbs-utils ibverbs-providers rdmacm-utils perftest
  libibverbs-dev gcc libc6-dev tshark tcpdump ethtool procps
  ibsim-utils infiniband-diags opensm ibutils python3)
bench=(iproute2 ethtool)
generate=(clang llvm libbpf-dev libc6-dev)
lint=(shellcheck)

say() { printf 'setup: %s\n' "$*" >&2; }

missing() { # PACKAGE...: those that are not installed
  local p have
  have=$(dpkg-query -W -f='${db:Status-Status} ${Package}\n' "$@" 2>/dev/null || true)
  for p; do
    grep -qx "installed $p" <<<"$have" || printf '%s\n' "$p"
  done
}

install_packages() {
  local apt=(apt-get -q -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0)
  export DEBIAN_FRONTEND=noninteractive
  say "installing $*"
  # the lists of a fresh machine are empty or old: only then fetch them
  "${apt[@]}" install -y --no-install-recommends "$@" </dev/null >&2 && return
  say "trying again with fresh package lists"
  "${apt[@]}" update </dev/null >&2
  "${apt[@]}" install -y --no-install-recommends "$@" </dev/null >&2
}

main() {
  local what want=() lack
  for what; do
    case $what in
      demo|test|bench|generate|lint) declare -n set=$what; want+=("${set[@]}");;
      *) say "unknown: $what (one of demo test bench generate lint)"; exit 2;;
    esac
  done
  command -v go >/dev/null || { say "no go command: install Go (https://go.dev/dl), at least the version in go.mod"; exit 3; }
  [ ${#want[@]} -gt 0 ] || exit 0
  if ! command -v dpkg-query >/dev/null; then
    say "not a Debian system: install by hand what these packages hold: ${want[*]}"
    exit 3
  fi
  mapfile -t lack < <(missing "${want[@]}")
  [ ${#lack[@]} -gt 0 ] || exit 0
  if [ "$(id -u)" != 0 ]; then
    say "missing packages; run as root: apt-get install -y ${lack[*]}"
    exit 3
  fi
  exec {lock}>/run/urxe-setup.lock
  flock "$lock"
  mapfile -t lack < <(missing "${want[@]}") # another run may have installed them
  [ ${#lack[@]} -eq 0 ] || install_packages "${lack[@]}"
}
main "$@"
