package xdp

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/caps"
)

// hint says what to do about an error that the kernel's errno does not explain.
func hint(op string, err error) string {
	switch {
	case op == "register UMEM" && errors.Is(err, unix.ENOBUFS):
		return memlockHint()
	case op == "open socket" && errors.Is(err, unix.EPERM):
		return caps.Lacking(unix.CAP_NET_RAW)
	case op == "open socket" && errors.Is(err, unix.EAFNOSUPPORT):
		return "this kernel is built without CONFIG_XDP_SOCKETS"
	case op == "busy poll" && errors.Is(err, unix.EPERM):
		return caps.Lacking(unix.CAP_NET_ADMIN)
	case errors.Is(err, unix.EPERM):
		return caps.Lacking(unix.CAP_BPF, unix.CAP_NET_ADMIN)
	case op == "attach program" && errors.Is(err, unix.ERANGE):
		return "without multi-buffer XDP the MTU of this interface or its veth peer is too large: 3506 is the most"
	case op == "attach program" && errors.Is(err, unix.ENOSPC):
		return "it needs at least as many RX queues as its veth peer has TX queues"
	case op == "attach program" && errors.Is(err, unix.EOPNOTSUPP):
		return "the driver has no XDP, or not with the offloads that are on: virtio-net's rx-gro-hw and rx-checksumming are such"
	case op == "bind" && errors.Is(err, unix.ENETDOWN):
		return "set the interface up"
	}
	return ""
}

// memlockHint explains the ENOBUFS that means "too much locked memory".
func memlockHint() string {
	var lim unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &lim); err != nil || lim.Cur == unix.RLIM_INFINITY {
		return "the kernel could not pin the memory"
	}
	return fmt.Sprintf("the frames must fit the limit of locked memory, now %d KiB: raise it (ulimit -l), ask for fewer frames, or run with CAP_IPC_LOCK",
		lim.Cur>>10)
}
