package netif

import (
	"encoding/binary"
	"errors"
	"syscall"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// groups are the kinds of events that are watched.
var groups = []uint{
	unix.RTNLGRP_LINK, unix.RTNLGRP_NEIGH, unix.RTNLGRP_IPV4_IFADDR, unix.RTNLGRP_IPV6_IFADDR,
	unix.RTNLGRP_IPV4_ROUTE, unix.RTNLGRP_IPV6_ROUTE,
}

// watch takes in events until Close. An event is news of what to look at;
// only a neighbour's is itself what is looked at, since they are many.
func (i *Interface) watch() {
	defer i.ended.Done()
	for {
		msgs, from, err := i.events.Receive()
		select {
		case <-i.stop:
			return
		default:
		}
		switch {
		case errors.Is(err, unix.ENOBUFS): // events were lost
			i.resyncAndNotify()
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN):
		case err != nil:
			return
		case from != nil && from.Pid == 0: // of the kernel, not of another process
			i.take(msgs)
		}
	}
}

// news is what messages are about: what is to be looked at, and whether something
// that needs no look has changed.
type news struct{ link, addrs, changed bool }

// take looks at what msgs are about, once each, and notifies once.
func (i *Interface) take(msgs []syscall.NetlinkMessage) {
	var n news
	for k := range msgs {
		i.read(&msgs[k], &n)
	}
	if n.link {
		if i.look(i.readLink) {
			i.mayAskAtOnce()
			n.changed = true
		}
		if i.look(i.readNetdevs) {
			n.changed = i.look(i.readNeighbours) || n.changed
		}
	}
	if n.link || n.addrs { // addresses come and go with a link, and not all with an event
		n.changed = i.look(i.readAddrs) || n.changed
		i.followNetdevs()
	}
	if n.changed {
		i.changed()
	}
}

// read adds what a message says to the news.
func (i *Interface) read(m *syscall.NetlinkMessage, n *news) {
	if m.Header.Type == unix.RTM_NEWROUTE || m.Header.Type == unix.RTM_DELROUTE {
		i.mu.Lock()
		i.forgetRoutes()
		i.mu.Unlock()
		n.changed = true
		return
	}
	isLink := m.Header.Type == unix.RTM_NEWLINK || m.Header.Type == unix.RTM_DELLINK
	if !i.concerns(m.Data) && !(isLink && i.isAbove(m.Data)) {
		return
	}
	switch m.Header.Type {
	case unix.RTM_NEWLINK, unix.RTM_DELLINK:
		i.observe(m)
		n.link = true
	case unix.RTM_NEWADDR, unix.RTM_DELADDR:
		n.addrs = true
	case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
		n.changed = i.takeNeighbour(m) || n.changed
	}
}

// observe takes in whether a message about the interface says that it is up: it may be
// otherwise by now.
func (i *Interface) observe(m *syscall.NetlinkMessage) {
	const family, index, flags = 0, 4, 8 // in struct ifinfomsg
	if len(m.Data) < unix.SizeofIfInfomsg || int(binary.NativeEndian.Uint32(m.Data[index:])) != i.index ||
		m.Data[family] != unix.AF_UNSPEC { // a bridge tells of its ports
		return
	}
	i.seen.see(m.Header.Type == unix.RTM_NEWLINK && isUp(binary.NativeEndian.Uint32(m.Data[flags:])))
}

func (i *Interface) takeNeighbour(m *syscall.NetlinkMessage) (changed bool) {
	if len(m.Data) < unix.SizeofNdMsg {
		return false
	}
	n, err := netlink.NeighDeserialize(m.Data)
	if err != nil || n.Family != unix.AF_INET && n.Family != unix.AF_INET6 {
		return false // of a bridge's forwarding table, say
	}
	if m.Header.Type == unix.RTM_DELNEIGH {
		n.State = netlink.NUD_NONE
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.setNeighbour(n)
}

// look runs one of the read functions. When the kernel can't answer, what is
// known stays: the next event tries again.
func (i *Interface) look(read func() (bool, error)) bool {
	changed, err := read()
	return changed && err == nil
}

// reads are the ways to look at everything, in their order.
func (i *Interface) reads() []func() (bool, error) {
	return []func() (bool, error){i.readLink, i.readNetdevs, i.readAddrs, i.readNeighbours}
}

// resync looks at everything.
func (i *Interface) resync() error {
	i.mu.Lock()
	i.forgetRoutes()
	i.mu.Unlock()
	for _, read := range i.reads() {
		if _, err := read(); err != nil {
			return err
		}
	}
	return nil
}

func (i *Interface) resyncAndNotify() {
	for _, read := range i.reads() {
		i.look(read)
	}
	i.followNetdevs()
	i.mu.Lock()
	i.forgetRoutes()
	i.mu.Unlock()
	i.changed()
}
