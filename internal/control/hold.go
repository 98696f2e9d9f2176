// Package control lets one process hold a network interface for itself, and
// serve others that ask about it.
//
// The hold is an abstract unix socket that is named after the interface, and a
// second one after its index, which stays when it is renamed. Such names belong
// to a network namespace, as interfaces do, and go with the process, however it
// ends.
package control

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// ErrHeld means that another process, or this one, holds the interface.
var ErrHeld = errors.New("the interface is in use")

// address is the socket's name for an interface.
func address(ifname string) *net.UnixAddr {
	return &net.UnixAddr{Net: "unix", Name: "@urxe/" + ifname}
}

// Holder holds an interface until Close.
type Holder struct {
	ifname   string
	listener *net.UnixListener
	index    *net.UnixListener // nil: there was no such interface
	ctx      context.Context
	cancel   context.CancelFunc
	serving  sync.WaitGroup
}

// Hold takes an interface of the calling thread's network namespace. If it is
// held, the error wraps ErrHeld and names the holder.
func Hold(ifname string) (*Holder, error) {
	if ifname == "" || len(ifname) >= unix.IFNAMSIZ || strings.ContainsAny(ifname, "/ \t\n") {
		return nil, fmt.Errorf("%q can't be the name of a network interface", ifname)
	}
	runtime.LockOSThread() // the socket is made in this thread's namespace
	defer runtime.UnlockOSThread()
	l, err := take(ifname, ifname)
	if err != nil {
		return nil, err
	}
	h := &Holder{ifname: ifname, listener: l}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	if i, err := net.InterfaceByName(ifname); err == nil {
		if h.index, err = take(ifname, "/"+strconv.Itoa(i.Index)); err != nil {
			return nil, errors.Join(err, h.Close())
		}
		// Who only asks whose it is would stay in its queue, until that is full.
		h.serving.Go(func() { h.accept(h.index, func(c *net.UnixConn) { c.Close() }) })
	}
	return h, nil
}

// take makes the socket of a key, which is the name of an interface, or has a
// slash, as no name does, and its index.
func take(ifname, key string) (*net.UnixListener, error) {
	// The name is free some time after its holder was killed, as a process takes
	// apart its memory first; someone may also let go while we ask who he is.
	for range endPatience {
		l, err := net.ListenUnix("unix", address(key))
		if err == nil {
			return l, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return nil, fmt.Errorf("hold %s: %w", ifname, err)
		}
		if who, ends, err := holder(key); err == nil && !ends {
			return nil, fmt.Errorf("%w: %s is held by %s; end that, or choose another interface", ErrHeld, ifname, who)
		}
		time.Sleep(endLook)
	}
	return nil, fmt.Errorf("%w: %s is held by a process that doesn't answer, or doesn't come to its end", ErrHeld, ifname)
}

// endPatience is how often, every endLook, it is looked whether a holder that ends
// has let go.
const (
	endPatience = 200
	endLook     = 10 * time.Millisecond
)

// holder describes the process that holds an interface, and says whether it is
// about to end.
func holder(ifname string) (who string, ends bool, err error) {
	c, err := net.DialUnix("unix", nil, address(ifname))
	if err != nil {
		return "", false, err
	}
	defer c.Close()
	cred, err := peer(c)
	if err != nil {
		return "", false, err
	}
	return fmt.Sprintf("process %d %s", cred.Pid, describe(cred)), cred.Pid != 0 && ending(cred.Pid), nil
}

// HeldBy describes the process that holds an interface of the calling thread's network
// namespace, "" if no one does. One that ends is waited for.
func HeldBy(ifname string) (who string, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	key := ifname
	if i, err := net.InterfaceByName(ifname); err == nil {
		key = "/" + strconv.Itoa(i.Index)
	}
	for range endPatience {
		who, ends, err := holder(key)
		switch {
		case errors.Is(err, unix.ECONNREFUSED): // no one listens
			return "", nil
		case err != nil:
			return "", fmt.Errorf("look who holds %s: %w", ifname, err)
		case !ends:
			return who, nil
		}
		time.Sleep(endLook)
	}
	return "a process that doesn't come to its end", nil
}

// ending reports whether a process was killed and is not gone yet: SIGKILL is
// pending (bit 8 of SigPnd or ShdPnd), or its memory, with its command line, is
// gone.
func ending(pid int32) bool {
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err == nil && len(line) == 0 {
		return true
	}
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for line := range bytes.Lines(status) {
		name, value, _ := bytes.Cut(line, []byte(":"))
		if n := string(name); n != "SigPnd" && n != "ShdPnd" {
			continue
		}
		set, err := strconv.ParseUint(string(bytes.TrimSpace(value)), 16, 64)
		if err == nil && set>>(unix.SIGKILL-1)&1 != 0 {
			return true
		}
	}
	return false
}

// describe gives a process's command line and user.
func describe(cred *unix.Ucred) string {
	if cred.Pid == 0 {
		return "(in another PID namespace)"
	}
	line, _ := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", cred.Pid))
	command := string(bytes.ReplaceAll(bytes.TrimRight(line, "\x00"), []byte{0}, []byte{' '}))
	if command == "" {
		command = "?"
	}
	const longest = 120
	if len(command) > longest {
		command = command[:longest] + "…"
	}
	return fmt.Sprintf("(%s, uid %d)", command, cred.Uid)
}

// peer returns who is at the other end: for the listener's end, whoever called
// listen.
func peer(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if e := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); e != nil {
		return nil, e
	}
	return cred, err
}

// Quiesce ends all commands and takes no more. The interface stays held.
func (h *Holder) Quiesce() error {
	h.cancel()
	var err error
	for _, l := range h.listeners() {
		// A deadline in the past ends Accept and leaves the name taken.
		if e := l.SetDeadline(time.Unix(1, 0)); !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	h.serving.Wait()
	return err
}

func (h *Holder) listeners() []*net.UnixListener {
	if h.index == nil {
		return []*net.UnixListener{h.listener}
	}
	return []*net.UnixListener{h.listener, h.index}
}

// Close lets go of the interface.
func (h *Holder) Close() error {
	err := h.Quiesce()
	for _, l := range h.listeners() {
		if e := l.Close(); e != nil && !errors.Is(e, net.ErrClosed) {
			err = errors.Join(err, e)
		}
	}
	return err
}
