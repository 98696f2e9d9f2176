#!/usr/bin/env bash
# rxe-peer.sh - a real Linux rdma_rxe (Soft-RoCE) peer for interop tests.
#
# Boots a stock Debian kernel under qemu with a tiny initramfs holding
# rdma_rxe, the RDMA core modules and Debian's rdma userland, attaches the
# guest's virtio-net NIC to a bridge inside private network namespaces, and
# runs commands in the guest over an out-of-band virtio-serial channel.
#
#   $RXE_LAB-sw  namespace of the "switch": bridge br0, one tap per guest
#   $RXE_LAB     namespace of the system under test: veth rnic0 <-> br0
#
# Nothing is created in the caller's own network namespace, and nothing is
# installed on the machine. Needs root, and these Debian 12 packages:
#   qemu-system-x86 seabios busybox-static kmod cpio xz-utils zstd iproute2 util-linux
#   ibverbs-utils ibverbs-providers rdmacm-utils perftest
#
# usage: rxe-peer.sh <verb> ...
#   build [--force]                 make the cache: kernel image + initramfs
#   net-up                          make both namespaces, the bridge and rnic0
#   start NAME [options]            boot a guest and wait until rxe0 is usable
#       --tap IF          tap device, made in the switch namespace  (tap-NAME)
#       --ip ADDR/LEN     guest IPv4 address, repeatable     (10.77.0.2/24)
#       --ip6 ADDR/LEN    guest IPv6 address, repeatable     (none)
#       --mac MAC         guest MAC                          (from NAME)
#       --mtu N           guest, tap and bridge port MTU     (1500)
#       --nics N          NICs: beside eth0, ones that are down and have no
#                         addresses, on the same bridge      (1)
#       --smp N --mem MIB guest size                         (1, 512)
#       --accel A         auto | kvm | tcg                   ($RXE_ACCEL)
#       --machine M       pc | q35 | microvm                 ($RXE_MACHINE)
#       --cpu MODEL       qemu CPU model                     (max; kvm: host)
#       --offload         leave checksum/segmentation offloads on
#       --no-rxe          do not create rxe0
#       --append STR      extra kernel command line
#       --ttl SECS        the guest ends itself after this      (3600)
#   exec NAME [-t SECS] -- CMD ARG...   run argv in the guest
#   sh   NAME [-t SECS] -- SCRIPT       run one shell script text in the guest
#       both copy the command's stdout and stderr, and exit with its status;
#       124 = timed out (the guest command is killed), 125 = no such guest
#   host CMD ARG...                 run CMD in the system-under-test namespace
#   share NAME                      print the host folder the guest sees as /host
#   log NAME | list                 console log | guests that are running
#   mtu NAME N                      change the MTU of a guest and its tap
#   host-mtu N                      change the MTU of rnic0 and the bridge
#   stop NAME... | stop --all       end guests
#   net-down                        stop all guests, end what runs in the
#                                   namespaces and delete them
#   sweep                           net-down for labs whose owner is gone
#
# Environment (each also has a default):
#   RXE_CACHE    cache folder, safe to keep and share    (/var/cache/urxe)
#   RXE_RUN      run-time state                          (/run/urxe)
#   RXE_LAB      lab name: namespaces and state          (urxelab)
#   RXE_OWNER    pid that owns the lab; sweep ends it when that is gone  (none)
#   RXE_KERNEL   Debian kernel: a series, of which the cached or else the newest
#                package serves, or a package name       (6.1)
#   RXE_HOST_IP  space-separated addresses of rnic0      (10.77.0.1/24 fd77::1/64)
#   RXE_HOST_MTU MTU of rnic0 and br0                    (9000)
#   RXE_MODULES  extra module names for the initramfs
#   RXE_BINARIES extra host binaries (absolute paths) for the initramfs
set -euo pipefail
export LC_ALL=C

RXE_CACHE=${RXE_CACHE:-/var/cache/urxe}
RXE_RUN=${RXE_RUN:-/run/urxe}
RXE_LAB=${RXE_LAB:-urxelab}
RXE_KERNEL=${RXE_KERNEL:-6.1}
RXE_ACCEL=${RXE_ACCEL:-tcg}
RXE_MACHINE=${RXE_MACHINE:-q35}
RXE_HOST_IP=${RXE_HOST_IP:-10.77.0.1/24 fd77::1/64}
RXE_HOST_MTU=${RXE_HOST_MTU:-9000}
RXE_BOOT_TIMEOUT=${RXE_BOOT_TIMEOUT:-60}

SW=$RXE_LAB-sw
STATE=$RXE_RUN/$RXE_LAB
PORTS=8                                   # commands at once, per guest
# set by resolve_kernel
PACKAGE='' VERSION='' KERNEL='' INITRD=''

MODULES="virtio_pci virtio_mmio virtio_net virtio_console
  rdma_rxe ib_uverbs ib_umad ib_cm iw_cm rdma_cm rdma_ucm
  crc32_generic crc32_pclmul crc32c_generic crc32c-intel
  9p 9pnet_virtio veth dummy bridge 8021q bonding sch_netem sch_prio sch_ingress cls_u32 act_gact
  ${RXE_MODULES:-}"

BINARIES="ibv_devices ibv_devinfo ibv_asyncwatch ibv_rc_pingpong
  ibv_uc_pingpong ibv_ud_pingpong ibv_srq_pingpong ibv_xsrq_pingpong
  rping ucmatose cmtime udaddy udpong mckey rcopy rstream riostream
  rdma_client rdma_server rdma_xclient rdma_xserver
  ib_write_bw ib_write_lat ib_read_bw ib_read_lat ib_send_bw ib_send_lat
  ib_atomic_bw ib_atomic_lat raw_ethernet_bw
  rdma ip tc bridge"
OPTIONAL="ibstat ibaddr perfquery smpquery ethtool"

log()  { printf 'rxe-peer: %s\n' "$*" >&2; }
die()  { log "$*"; exit 1; }
need() { command -v "$1" >/dev/null || die "missing $1 (Debian package $2)"; }
now_ms() { local t=${EPOCHREALTIME/./}; echo $((t / 1000)); }

# ---------------------------------------------------------------- the cache

# Kernel packages change their names with every update, and the old ones leave
# the archive: a series names whichever is at hand. The cached one comes first,
# so a machine without network that has booted once can boot again.
resolve_kernel() { # [fresh]: look in the archive before the cache
  local series=$RXE_KERNEL
  if [[ $RXE_KERNEL == linux-image-* ]]; then
    PACKAGE=$RXE_KERNEL
    series=$(sed -E 's/^linux-image-([0-9]+[.][0-9]+).*/\1/' <<<"$RXE_KERNEL")
    if ! cached_kernels | grep -qxF "$PACKAGE" && ! archive_kernels "$series" | grep -qxF "$PACKAGE"; then
      log "$PACKAGE is in neither cache nor archive; taking another $series"
      PACKAGE=
    fi
  fi
  if [ -z "$PACKAGE" ] && [ "${1:-}" != fresh ]; then PACKAGE=$(newest "$series" < <(cached_kernels)); fi
  if [ -z "$PACKAGE" ]; then PACKAGE=$(newest "$series" < <(archive_kernels "$series")); fi
  if [ -z "$PACKAGE" ]; then PACKAGE=$(newest "$series" < <(cached_kernels)); fi
  [ -n "$PACKAGE" ] || die "no package linux-image-$series.*-amd64 is known to apt (is bookworm-security among its sources?)"
  VERSION=${PACKAGE#linux-image-}
  KERNEL=$RXE_CACHE/vmlinux-$VERSION
  INITRD=$RXE_CACHE/initramfs-$VERSION.cpio
}

# The plain flavour only: not cloud, rt or unsigned.
newest() { grep -E "^linux-image-${1//./[.]}[.][0-9]+([+-][a-z0-9]+)?-amd64$" | sort -V | tail -1 || true; }

cached_kernels() {
  local deb
  for deb in "$RXE_CACHE"/linux-image-*_*.deb; do
    if [ -e "$deb" ]; then deb=${deb##*/}; echo "${deb%%_*}"; fi
  done
}

archive_kernels() { # SERIES
  local found
  found=$(apt-cache pkgnames "linux-image-$1.")
  if [ -z "$(newest "$1" <<<"$found")" ]; then
    apt-get -q update >&2 || true
    found=$(apt-cache pkgnames "linux-image-$1.")
  fi
  printf '%s\n' "$found"
}

# The kernel as an uncompressed ELF, which qemu enters through its PVH note:
# under TCG unpacking the bzImage alone would take longer than the boot.
# The x86 setup header (boot protocol 2.08) says where the payload lies; its
# last four bytes are the unpacked size.
build_kernel() {
  local bz=$1 out=$2 sects off len magic tool
  u() { od -An -v -t "u$2" -j "$1" -N "$2" "$bz" | tr -d ' '; } # little-endian
  sects=$(u $((0x1f1)) 1); [ "$sects" -gt 0 ] || sects=4
  off=$(((sects + 1) * 512 + $(u $((0x248)) 4)))
  len=$(($(u $((0x24c)) 4) - 4))
  magic=$(od -An -v -t x1 -j "$off" -N 4 "$bz" | tr -d ' ')
  case $magic in
    fd377a58) tool=xz;;
    28b52ffd) tool=zstd;;
    1f8b*) tool=gzip; len=$((len + 4));;
    *) die "$bz: unknown payload compression (magic $magic)";;
  esac
  need "$tool" "${tool/xz/xz-utils}"
  # xz and zstd may warn about what follows the stream: judge by the result
  tail -c +$((off + 1)) "$bz" | head -c "$len" | "$tool" -dc >"$out" || true
  [ "$(head -c 4 "$out" | tail -c 3 | tr -d '\0')" = ELF ] ||
    die "$bz: the $tool payload is no ELF file"
}

# Copies the named modules and all they depend on out of $1 into $2,
# uncompressed: newer kernels ship .ko.xz, which the guest would unpack slowly.
build_modules() {
  local from=$1 to=$2 name path dep
  local -A seen=()
  depmod -b "$from" "$VERSION"
  local tree=lib/modules/$VERSION
  mkdir -p "$to/$tree"
  for name in $MODULES; do
    path=$(awk -F: -v n="/${name//[-_]/[-_]}[.]ko([.](xz|zst|gz))?" '$1 ~ n"$" {print $1; exit}' \
      "$from/$tree/modules.dep")
    if [ -z "$path" ]; then
      grep -qE "/${name//[-_]/[-_]}[.]ko$" "$from/$tree/modules.builtin" ||
        log "kernel has no module $name"
      continue
    fi
    for dep in "$path" $(awk -F': ?' -v p="$path" '$1 == p {print $2}' \
        "$from/$tree/modules.dep"); do
      [ -n "${seen[$dep]:-}" ] && continue
      seen[$dep]=1
      mkdir -p "$to/$tree/${dep%/*}"
      case $dep in
        *.xz)  xz -dc "$from/$tree/$dep" >"$to/$tree/${dep%.xz}";;
        *.zst) zstd -qdc "$from/$tree/$dep" >"$to/$tree/${dep%.zst}";;
        *.gz)  gzip -dc "$from/$tree/$dep" >"$to/$tree/${dep%.gz}";;
        *)     install -m 644 "$from/$tree/$dep" "$to/$tree/$dep";;
      esac
    done
  done
  cp "$from/$tree"/modules.{builtin,builtin.modinfo} "$to/$tree/"
  sed -E 's/[.](xz|zst|gz)$//' "$from/$tree/modules.order" >"$to/$tree/modules.order"
  depmod -b "$to" "$VERSION"
}

# Copies a host ELF file and its shared libraries, at their own paths.
build_binary() {
  local root=$1 bin=$2 lib
  install -D -m 755 "$bin" "$root/bin/${bin##*/}"
  build_libs "$root" "$bin"
}
build_libs() {
  local root=$1 lib
  for lib in $(env -i ldd "$2" 2>/dev/null |
      awk '$2 == "=>" && $3 ~ /^\// {print $3} $1 ~ /^\/.*ld-linux/ {print $1}'); do
    [ -e "$root$lib" ] || install -D -m 755 "$lib" "$root$lib"
  done
}

build_userland() {
  local root=$1 b p applet
  mkdir -p "$root"/{bin,dev,proc,sys,tmp,run,etc,host,root,lib,usr,var}
  ln -s ../bin "$root/usr/bin"; ln -s bin "$root/sbin"
  ln -s ../bin "$root/usr/sbin"; ln -s ../lib "$root/usr/lib"
  ln -s ../run "$root/var/run"
  install -m 755 "$(command -v busybox)" "$root/bin/busybox"
  if ldd "$root/bin/busybox" >/dev/null 2>&1; then
    die "busybox is not static (Debian package busybox-static)"
  fi
  for applet in $(busybox --list); do
    [ -e "$root/bin/$applet" ] || ln -s busybox "$root/bin/$applet"
  done
  # dash, not busybox sh: that one runs its own applets before PATH (ip, tc)
  rm -f "$root/bin/sh"; build_binary "$root" /bin/dash; ln -s dash "$root/bin/sh"
  for b in $BINARIES; do
    p=$(command -v "$b") || die "missing $b (see the package list in this file)"
    rm -f "$root/bin/$b"; build_binary "$root" "$(readlink -f "$p")"
    [ -e "$root/bin/$b" ] || ln -s "$(basename "$(readlink -f "$p")")" "$root/bin/$b"
  done
  for b in $OPTIONAL ${RXE_BINARIES:-}; do
    if p=$(command -v "$b"); then
      rm -f "$root/bin/${b##*/}"; build_binary "$root" "$(readlink -f "$p")"
    fi
  done
  # libibverbs finds providers by name, so they are in nobody's ldd output
  local dir=/usr/lib/x86_64-linux-gnu/libibverbs
  p=$(compgen -G "$dir/librxe-rdmav*.so") ||
    die "missing the rxe provider (Debian package ibverbs-providers)"
  install -D -m 644 "$p" "$root/lib/x86_64-linux-gnu/libibverbs/${p##*/}"
  build_libs "$root" "$p"
  install -D -m 644 /etc/libibverbs.d/rxe.driver "$root/etc/libibverbs.d/rxe.driver"
  # glibc loads this one only when a thread calls pthread_exit (rping does)
  p=/lib/x86_64-linux-gnu/libgcc_s.so.1
  install -D -m 644 "$p" "$root$p"
  echo 'root:x:0:0:root:/root:/bin/sh' >"$root/etc/passwd"
  echo 'root:x:0:' >"$root/etc/group"
  echo 'hosts: files' >"$root/etc/nsswitch.conf"
  printf '127.0.0.1 localhost\n::1 localhost\n' >"$root/etc/hosts"
  : >"$root/etc/ld.so.conf"; ldconfig -r "$root" 2>/dev/null || true
  guest_init >"$root/init"; guest_agent >"$root/bin/rxe-agent"
  chmod 755 "$root/init" "$root/bin/rxe-agent"
}

# PID 1 of the guest. Its parameters are on the kernel command line.
guest_init() { cat <<'EOF'
#!/bin/sh
export PATH=/bin HOME=/root
mount -t proc proc /proc; mount -t sysfs sys /sys; mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts; mount -t tmpfs tmpfs /dev/shm
mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /run
exec </dev/null >/dev/console 2>&1
echo RXE-PEER-INIT "$(cut -d' ' -f1 /proc/uptime)"
ulimit -l unlimited
arg() { for w in $(cat /proc/cmdline); do
  case $w in "rxe.$1="*) echo "${w#*=}";; esac; done; }

if [ "$(arg mmio)" = 1 ]; then modprobe virtio_mmio; else modprobe virtio_pci; fi
modprobe -a virtio_console virtio_net
# ports and their names arrive as messages, some time after the driver loads
n=0 tries=0
while [ $n -lt "$(arg ports)" ]; do
  for port in /sys/class/virtio-ports/*; do
    if [ "$(cat "$port/name" 2>/dev/null)" = "rxe.$n" ] &&
       [ -c "/dev/${port##*/}" ]; then
      rxe-agent "/dev/${port##*/}" "$n" & n=$((n + 1)); continue 2
    fi
  done
  tries=$((tries + 1))
  [ $tries -gt 200 ] && { echo RXE-PEER-FAILED no port rxe.$n; break; }
  usleep 20000
done

hostname "$(arg name)"
ip link set lo up
dev=eth0
mtu=$(arg mtu)
for d in /sys/class/net/*; do
  [ "$(cat "$d/address")" = "$(arg mac)" ] && dev=${d##*/}
done
# no DAD and no router solicitation: addresses are usable at once
for k in accept_dad dad_transmits router_solicitations accept_ra; do
  echo 0 >/proc/sys/net/ipv6/conf/$dev/$k
done
[ -n "$mtu" ] && ip link set "$dev" mtu "$mtu"
ip link set "$dev" up
for a in $(arg ip) $(arg ip6); do ip addr add "$a" dev "$dev" nodad 2>/dev/null ||
  ip addr add "$a" dev "$dev"; done

modprobe -a ib_uverbs ib_umad rdma_ucm rdma_rxe
if [ "$(arg rxe)" != 0 ]; then
  rdma link add rxe0 type rxe netdev "$dev" || echo RXE-PEER-FAILED rdma link add
  i=0
  while ! grep -qs ACTIVE /sys/class/infiniband/rxe0/ports/1/state; do
    i=$((i + 1)); [ $i -gt 100 ] && { echo RXE-PEER-FAILED port; break; }
    usleep 20000
  done
fi
if [ "$(arg share)" = 1 ]; then
  modprobe -a 9pnet_virtio 9p
  mount -t 9p -o trans=virtio,version=9p2000.L,cache=mmap,msize=131072 host /host
fi
echo RXE-PEER-READY "$(cut -d' ' -f1 /proc/uptime)"
( sleep "$(arg ttl)" && reboot -f ) &   # qemu runs with -no-reboot
while :; do wait; sleep 1; done
EOF
}

# One agent per virtio-serial port. Lines, host to guest:
#   RUN id base64(script)      KILL id
# and guest to host:
#   1 id a line of stdout      2 id a line of stderr      X id status
# A port runs one command; a new RUN first ends one that a lost client left.
guest_agent() { cat <<'EOF'
#!/bin/sh
dev=$1 n=$2 job=
dir=/run/agent/$n
mkdir -p "$dir"; cd /root
exec 3<>"$dev" || exit 1
end() {
  # a command that has only just begun has not written its pid yet
  while [ -n "$job" ] && [ ! -s "$dir/pid" ] && kill -0 "$job" 2>/dev/null; do
    usleep 10000
  done
  [ -s "$dir/pid" ] && kill -9 -"$(cat "$dir/pid")" 2>/dev/null
  [ -n "$job" ] && wait "$job" 2>/dev/null
  job=
}
runit() {
  id=$1
  rm -f "$dir/o" "$dir/e" "$dir/pid"; mkfifo "$dir/o" "$dir/e"
  awk -v p="1 $id" '{ print p, $0; fflush() }' <"$dir/o" >&3 & a=$!
  awk -v p="2 $id" '{ print p, $0; fflush() }' <"$dir/e" >&3 & b=$!
  setsid /bin/sh -c 'echo $$ >"$1/pid"; exec /bin/sh "$1/script"' sh "$dir" \
    </dev/null >"$dir/o" 2>"$dir/e" 3>&- &
  wait $!; rc=$?
  wait $a $b
  rm -f "$dir/pid"
  echo "X $id $rc" >&3
}
while read -r verb id text <&3; do
  case $verb in
  RUN) end; echo "$text" | base64 -d >"$dir/script"; runit "$id" & job=$! ;;
  KILL) end ;;
  esac
done
EOF
}

# Both products are rebuilt when this file, the kernel or a binary changes.
stamp() {
  { cat "${BASH_SOURCE[0]}"; echo "$PACKAGE ${RXE_MODULES:-} ${RXE_BINARIES:-}"
    for b in $BINARIES busybox $OPTIONAL; do
      stat -L -c '%n %s %Y' "$(command -v "$b" || echo /)"; done
  } | sha256sum | cut -d' ' -f1
}

fetch() { apt-get -q -o APT::Sandbox::User=root download "$PACKAGE" >&2; }

cmd_build() {
  [ "$(id -u)" = 0 ] || die "needs root"
  need qemu-system-x86_64 qemu-system-x86; need ip iproute2; need busybox busybox-static
  need depmod kmod; need cpio cpio; need xz xz-utils; need flock util-linux
  mkdir -p "$RXE_CACHE"
  exec {lock}>"$RXE_CACHE/.lock"; flock "$lock"
  if [ "${1:-}" = --force ]; then resolve_kernel fresh; else resolve_kernel; fi
  local want; want=$(stamp)
  if [ "${1:-}" != --force ] && [ -s "$KERNEL" ] && [ -s "$INITRD" ] &&
     [ "$(cat "$INITRD.stamp" 2>/dev/null)" = "$want" ]; then
    exec {lock}>&-; return 0
  fi
  local work; work=$(mktemp -d "$RXE_CACHE/build.XXXXXX")
  # shellcheck disable=SC2064
  trap "rm -rf '$work'" EXIT
  if ! compgen -G "$RXE_CACHE/${PACKAGE}_*.deb" >/dev/null; then
    log "fetching $PACKAGE"
    (cd "$work" && { fetch || { apt-get -q update >&2; fetch; }; }) ||
      die "apt-get download $PACKAGE failed"
    mv "$work/$PACKAGE"_*.deb "$RXE_CACHE/"
  fi
  log "building initramfs for $VERSION"
  dpkg -x "$(compgen -G "$RXE_CACHE/${PACKAGE}_*.deb" | tail -1)" "$work/deb"
  build_kernel "$work/deb/boot/vmlinuz-$VERSION" "$work/vmlinux"
  cp "$work/deb/boot/config-$VERSION" "$RXE_CACHE/config-$VERSION"
  build_userland "$work/root"
  build_modules "$work/deb" "$work/root"
  find "$work/root" -exec touch -h -d @0 {} +
  (cd "$work/root" && find . -print0 | sort -z |
    cpio -0 -o -H newc -R 0:0 --reproducible --quiet) >"$work/initramfs"
  mv "$work/vmlinux" "$KERNEL"; mv "$work/initramfs" "$INITRD"
  echo "$want" >"$INITRD.stamp"
  rm -rf "$work"; trap - EXIT
  log "built $KERNEL ($(du -m "$KERNEL" | cut -f1) MiB)," \
    "$INITRD ($(du -m "$INITRD" | cut -f1) MiB)"
  exec {lock}>&-
}

# -------------------------------------------------------------- the network

in_sw() { ip netns exec "$SW" "$@"; }

quiet_ns() { # NETNS DISABLE_IPV6: no duplicate address detection, no solicitations
  # shellcheck disable=SC2016
  ip netns exec "$1" sh -c 'cd /proc/sys/net/ipv6/conf; for k in default all; do
    echo "$1" >$k/disable_ipv6; echo 0 >$k/accept_dad
    echo 0 >$k/router_solicitations; done' sh "$2"
}

cmd_net_up() {
  mkdir -p "$STATE"
  [ -e "/run/netns/$SW" ] && return 0
  # before there is anything to leave behind
  if [ -n "${RXE_OWNER:-}" ]; then echo "$RXE_OWNER $(started "$RXE_OWNER")" >"$STATE/owner"; fi
  ip netns add "$SW"; ip netns add "$RXE_LAB"
  quiet_ns "$SW" 1; quiet_ns "$RXE_LAB" 0
  ip -n "$SW" link set lo up; ip -n "$RXE_LAB" link set lo up
  ip -n "$SW" link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0
  # shellcheck disable=SC2016
  # bridge netfilter would drop frames whose IP header is malformed, and cost time
  ip netns exec "$SW" sh -c 'for f in /proc/sys/net/bridge/bridge-nf-call-*; do
    [ -e "$f" ] && echo 0 >"$f"; done; true'
  ip -n "$SW" link set br0 mtu "$RXE_HOST_MTU" up
  ip -n "$SW" link add host0 mtu "$RXE_HOST_MTU" type veth \
    peer name rnic0 mtu "$RXE_HOST_MTU" netns "$RXE_LAB"
  ip -n "$SW" link set host0 master br0 up
  ip -n "$RXE_LAB" link set rnic0 address 02:77:00:00:00:01 up
  # real checksums on the wire, as a NIC would send them
  if command -v ethtool >/dev/null; then
    ip netns exec "$RXE_LAB" ethtool -K rnic0 tx off tso off gso off gro off \
      >/dev/null 2>&1 || true
  fi
  local a
  for a in $RXE_HOST_IP; do ip -n "$RXE_LAB" addr add "$a" dev rnic0; done
}

# Only processes that were started in the lab's own namespaces are ended: they
# would keep the namespace, and with it links and XDP programs, alive.
cmd_net_down() {
  local ns pid
  cmd_stop --all
  for ns in "$SW" "$RXE_LAB"; do
    for pid in $(ip netns pids "$ns" 2>/dev/null); do kill -9 "$pid" 2>/dev/null || true; done
    ip netns del "$ns" 2>/dev/null || true
  done
  rm -rf "$STATE" # the owner's record goes last: an interrupted sweep starts again
}

cmd_mtu() { # NAME N
  alive "$1" >/dev/null || die "guest $1 does not run"
  ip -n "$SW" link set "$(cat "$STATE/$1/port")" mtu "$2"
  cmd_exec exec "$1" -- ip link set eth0 mtu "$2"
}

cmd_host_mtu() {
  ip -n "$SW" link set host0 mtu "$1"
  ip -n "$RXE_LAB" link set rnic0 mtu "$1"
}

# ---------------------------------------------------------------- ownership

# When a process started, in ticks since boot: tells it from a later one with
# the same pid.
started() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f20; }

owner_gone() { # LAB: true if the lab has an owner, and that has ended
  local pid start
  read -r pid start 2>/dev/null <"$RXE_RUN/$1/owner" || return 1
  [ "$(started "$pid")" != "$start" ]
}

cmd_sweep() {
  local dir lab
  mkdir -p "$RXE_RUN"
  exec {sweeping}>"$RXE_RUN/.sweep"; flock "$sweeping"
  for dir in "$RXE_RUN"/*/; do
    lab=$(basename "$dir")
    if owner_gone "$lab"; then
      log "removing lab $lab, whose owner is gone"
      RXE_LAB=$lab "${BASH_SOURCE[0]}" net-down
    fi
  done
  exec {sweeping}>&-
}

# ---------------------------------------------------------------- the guest

alive() { # NAME: prints the pid if that guest runs
  local pid; pid=$(cat "$STATE/$1/pid" 2>/dev/null) || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF " $STATE/$1/pid " || return 1
  echo "$pid"
}

ended() { # PID: gone, or dead and only waiting for its parent to notice
  local stat; stat=$(cat "/proc/$1/stat" 2>/dev/null) || return 0
  [[ ${stat##*) } == [ZX]* ]]
}

# KVM counts only if it gets a guest to user space about as fast as real
# hardware does: some hosts (PVM) open /dev/kvm but interpret a stock kernel.
kvm_usable() {
  local verdict=$RXE_RUN/kvm log
  if [ ! -e "$verdict" ]; then
    mkdir -p "$RXE_RUN"
    log=$RXE_RUN/kvm.log
    if [ -w /dev/kvm ]; then
      timeout 8 qemu-system-x86_64 -machine q35,accel=kvm \
        -cpu host,-arch-capabilities -m 512 -nodefaults -no-user-config \
        -display none -serial stdio -no-reboot -kernel "$KERNEL" \
        -initrd "$INITRD" -append "console=ttyS0 quiet panic=-1" \
        </dev/null >"$log" 2>&1 || true
    else
      echo 'no access to /dev/kvm' >"$log"
    fi
    if grep -qa RXE-PEER-INIT "$log"; then echo yes; else echo no; fi >"$verdict"
  fi
  [ "$(cat "$verdict")" = yes ]
}

cmd_start() {
  local name=${1:?guest name}; shift
  [[ $name =~ ^[a-z0-9]{1,11}$ ]] || die "start: NAME must be 1-11 of a-z, 0-9"
  local tap=tap-$name ttl=3600 ip=() ip6=() mac='' mtu=1500 nics=1 smp=1 mem=512 cpu='' rxe=1
  local accel=$RXE_ACCEL machine=$RXE_MACHINE append='' offload=off
  while [ $# -gt 0 ]; do case $1 in
    --tap) tap=$2; shift 2;;       --ip) ip+=("$2"); shift 2;;
    --ip6) ip6+=("$2"); shift 2;;  --mac) mac=$2; shift 2;;
    --mtu) mtu=$2; shift 2;;       --nics) nics=$2; shift 2;;
    --smp) smp=$2; shift 2;;       --mem) mem=$2; shift 2;;
    --accel) accel=$2; shift 2;;
    --machine) machine=$2; shift 2;; --cpu) cpu=$2; shift 2;;
    --ttl) ttl=$2; shift 2;;
    --append) append=$2; shift 2;; --offload) offload=on; shift;;
    --no-rxe) rxe=0; shift;;
    *) die "start: unknown option $1";;
  esac; done
  [ ${#ip[@]} -gt 0 ] || ip=(10.77.0.2/24)
  [ -n "$mac" ] || mac=$(printf '%s' "$name" | sha256sum |
    sed -E 's/^(..)(..)(..)(..).*/02:77:\1:\2:\3:\4/')
  mac=${mac,,}
  alive "$name" >/dev/null && die "guest $name already runs"
  cmd_build; cmd_net_up

  if [ "$accel" = auto ]; then if kvm_usable; then accel=kvm; else accel=tcg; fi; fi
  case $accel in
    tcg|tcg,*) cpu=${cpu:-max};;
    kvm) cpu=${cpu:-host,-arch-capabilities};;
  esac

  local dir=$STATE/$name i w bus=pci
  rm -rf "$dir"; mkdir -p "$dir/share"
  local cmdline="console=ttyS0 quiet panic=-1 mitigations=off nokaslr
    no_timer_check cryptomgr.notests net.ifnames=0
    rxe.name=$name rxe.mac=$mac rxe.mtu=$mtu rxe.rxe=$rxe rxe.share=1 rxe.ports=$PORTS rxe.ttl=$ttl"
  for i in "${ip[@]}"; do cmdline+=" rxe.ip=$i"; done
  for i in "${ip6[@]}"; do cmdline+=" rxe.ip6=$i"; done
  if [ "$machine" = microvm ]; then
    # no PIT channel 2, HPET or PM timer there: the kernel must be told
    bus=device
    cmdline+=" rxe.mmio=1 tsc_early_khz=$(awk -F: '/cpu MHz/ {printf "%d", $2 * 1000; exit}' /proc/cpuinfo)"
  fi
  # shellcheck disable=SC2206
  w=($cmdline $append); cmdline="${w[*]}"

  echo "$tap" >"$dir/port"
  local dev=(-device "virtio-serial-$bus,max_ports=$((PORTS + 1))")
  for ((i = 0; i < PORTS; i++)); do
    mkfifo "$dir/p$i.in" "$dir/p$i.out"
    dev+=(-chardev "pipe,id=c$i,path=$dir/p$i"
          -device "virtserialport,chardev=c$i,name=rxe.$i")
  done
  local nic=virtio-net-$bus,mrg_rxbuf=on
  [ "$bus" = pci ] && nic+=,romfile=
  for i in csum guest_csum gso guest_tso4 guest_tso6 guest_ecn guest_ufo \
           host_tso4 host_tso6 host_ecn host_ufo; do nic+=,$i=$offload; done
  for ((i = 0; i < nics; i++)); do
    # the first octet of those beside eth0 keeps them apart from all others
    if [ $i -gt 0 ]; then tap=t$i-$name; mac=$(printf '%02x' $((i * 4 + 2)))${mac:2}; fi
    plug "$tap" "$mtu" "$dir"
    dev+=(-netdev "tap,id=n$i,ifname=$tap,script=no,downscript=no" -device "$nic,netdev=n$i,mac=$mac")
  done
  local qemu=(qemu-system-x86_64 -name "$name"
    -machine "$machine" -accel "$accel" -cpu "$cpu" -smp "$smp" -m "$mem"
    -nodefaults -no-user-config -no-reboot -display none
    -kernel "$KERNEL" -initrd "$INITRD" -append "$cmdline"
    -serial "file:$dir/console"
    -fsdev "local,id=h,path=$dir/share,security_model=none"
    -device "virtio-9p-$bus,fsdev=h,mount_tag=host"
    "${dev[@]}" -daemonize -pidfile "$dir/pid")
  printf '%q ' "${qemu[@]}" >"$dir/cmdline"
  local t0; t0=$(now_ms)
  # descriptors the caller passed down must not stay open in the guest process
  in_sw "${qemu[@]}" </dev/null >"$dir/qemu.log" 2>&1 || {
    cat "$dir/qemu.log" >&2; free_guest "$name"; die "qemu did not start"; }

  local limit=$((t0 + RXE_BOOT_TIMEOUT * 1000))
  until grep -qsa RXE-PEER-READY "$dir/console"; do
    if ! alive "$name" >/dev/null || [ "$(now_ms)" -gt $limit ]; then
      tail -n 20 "$dir/console" "$dir/qemu.log" >&2 || true
      cmd_stop "$name"; die "guest $name did not come up"
    fi
    sleep 0.05
  done
  if grep -qa RXE-PEER-FAILED "$dir/console"; then
    grep -a RXE-PEER-FAILED "$dir/console" >&2; cmd_stop "$name"; die "no rxe0 in $name"
  fi
  log "$name ready after $(($(now_ms) - t0)) ms ($accel, $machine, ${ip[*]} ${ip6[*]} mtu $mtu)"
}

# Puts a tap on the bridge, made unless it is there, and notes what was made.
plug() { # TAP MTU DIR
  if ! ip -n "$SW" link show "$1" >/dev/null 2>&1; then
    in_sw ip tuntap add dev "$1" mode tap
    echo "$1" >>"$3/taps"
  fi
  ip -n "$SW" link set "$1" mtu "$2" master br0 up
}

free_guest() {
  local dir=$STATE/$1 tap
  while read -r tap; do
    ip -n "$SW" link del "$tap" 2>/dev/null || true
  done < <(cat "$dir/taps" 2>/dev/null)
  if [ -e "$dir/console" ]; then mv "$dir/console" "$STATE/$1.console"; fi
  rm -rf "$dir"
}

cmd_stop() {
  local name pid i
  if [ "${1:-}" = --all ]; then
    set --
    for i in "$STATE"/*/; do if [ -d "$i" ]; then set -- "$@" "$(basename "$i")"; fi; done
  fi
  for name; do
    if pid=$(alive "$name"); then
      kill "$pid" 2>/dev/null || true
      for ((i = 0; i < 60; i++)); do
        ended "$pid" && break
        [ $i -eq 40 ] && kill -9 "$pid" 2>/dev/null
        sleep 0.05
      done
    fi
    free_guest "$name"
  done
}

cmd_list() {
  local d n p
  for d in "$STATE"/*/; do
    [ -d "$d" ] || continue
    n=$(basename "$d"); p=$(alive "$n") && echo "$n pid $p"
  done
  return 0
}

# ------------------------------------------------------------ guest commands

quote() { # argv as one POSIX shell command
  local a out=''
  for a; do out+="'${a//\'/\'\\\'\'}' "; done
  printf '%s' "$out"
}

cmd_exec() { # exec|sh NAME [-t SECS] [--] ...
  local how=$1 name='' limit=120; shift
  while [ $# -gt 0 ]; do case $1 in
    -t) limit=$2; shift 2;;
    --) shift; break;;
    *) [ -z "$name" ] || break; name=$1; shift;;
  esac; done
  if [ -z "$name" ] || [ $# -eq 0 ]; then log "$how: needs NAME and a command"; exit 2; fi
  local dir=$STATE/$name script i fd in out
  alive "$name" >/dev/null || { log "guest $name does not run"; exit 125; }
  if [ "$how" = exec ]; then script=$(quote "$@"); else script=$*; fi
  for ((i = 0; i < PORTS; i++)); do
    exec {fd}>"$dir/p$i.lock"
    if flock -n "$fd"; then break; fi
    exec {fd}>&-
  done
  [ "$i" -lt $PORTS ] || { log "guest $name: all $PORTS command slots are busy"; exit 125; }
  local id=$$.$SRANDOM line left
  exec {in}<>"$dir/p$i.in" {out}<>"$dir/p$i.out"
  # shellcheck disable=SC2064
  trap "echo 'KILL $id' >&$in; exit 130" INT TERM HUP
  printf 'RUN %s %s\n' "$id" "$(printf '%s\n' "$script" | base64 -w0)" >&"$in"
  local end=$((SECONDS + limit))
  while :; do
    left=$((end - SECONDS))
    if [ $left -le 0 ] || ! IFS= read -r -t "$left" -u "$out" line; then
      echo "KILL $id" >&"$in"
      log "$name: timed out after $limit s: $script"; exit 124
    fi
    case $line in
      "1 $id "*) printf '%s\n' "${line#"1 $id "}";;
      "2 $id "*) printf '%s\n' "${line#"2 $id "}" >&2;;
      "X $id "*) trap - INT TERM HUP; exit "${line##* }";;
    esac
  done
}

main() {
  local verb=${1:-help}; shift || true
  case $verb in
    build) cmd_build "$@";;
    net-up) cmd_net_up;;
    net-down) cmd_net_down;;
    start) cmd_start "$@";;
    stop) [ $# -gt 0 ] || die "stop: which guest?"; cmd_stop "$@";;
    exec) cmd_exec exec "$@";;
    sh) cmd_exec sh "$@";;
    host) exec ip netns exec "$RXE_LAB" "$@";;
    share) alive "$1" >/dev/null || exit 125; echo "$STATE/$1/share";;
    mtu) cmd_mtu "$@";;
    host-mtu) cmd_host_mtu "$1";;
    sweep) cmd_sweep;;
    log) cat "$STATE/$1/console" 2>/dev/null || cat "$STATE/$1.console";;
    list) cmd_list;;
    *) sed -n '2,/^set -/p' "${BASH_SOURCE[0]}" | grep '^#' | cut -c3-
       [ "$verb" = help ] || exit 2;;
  esac
}
main "$@"
