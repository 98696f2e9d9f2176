// Package rig has what the commands of urxe need to get from their flags to
// connected queue pairs.
package rig

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/verbs"
)

// Open opens a network interface as a device; without a name, the first one that is up and has an address.
func Open(name string, o verbs.Options) (*verbs.Device, error) {
	if name == "" {
		var err error
		if name, err = first(); err != nil {
			return nil, err
		}
	}
	return verbs.Open(name, o)
}

func first() (string, error) {
	list, err := verbs.Devices()
	if err != nil {
		return "", err
	}
	var down []string
	for _, d := range list {
		if d.Port.State == ib.PortActive && len(d.GIDs) > 0 {
			return d.Name, nil
		}
		down = append(down, d.Name)
	}
	if down == nil {
		return "", errors.New("this machine has no Ethernet interface")
	}
	return "", fmt.Errorf("no Ethernet interface is up and has an address (there are %s)", strings.Join(down, ", "))
}

// CheckMTU says whether the interface has room for packets of a path MTU.
func CheckMTU(d *verbs.Device, mtu ib.MTU) error {
	if active := d.QueryPort().ActiveMTU; mtu > active {
		return fmt.Errorf("path MTU %v: %s has room for %v: raise its interface's MTU to %d, or choose a smaller path MTU (-m)",
			mtu, d.Name(), active, mtu.Bytes()+ib.RoCEOverhead)
	}
	return nil
}

// PickGID returns the index of the GID by which d reaches a peer: the one that was asked for, or, if that is negative,
// Device.SourceGID.
func PickGID(d *verbs.Device, asked int, peer ib.GID) (int, error) {
	if asked >= 0 {
		_, err := d.QueryGID(asked)
		return asked, err
	}
	return d.SourceGID(peer)
}

// PeerGID returns the GID that the other end of a TCP connection may have, none if that isn't IP.
func PeerGID(c net.Conn) ib.GID {
	if a, ok := c.RemoteAddr().(*net.TCPAddr); ok {
		if ip, ok := netip.AddrFromSlice(a.IP); ok {
			return ib.GIDFromAddr(ip)
		}
	}
	return ib.GID{}
}

// Completions waits for the completions of a CQ: polling, or asleep when the CQ has a completion channel.
type Completions struct {
	CQ    *verbs.CQ
	armed bool
}

// Wait returns at least one completion, or why there is none: ctx ended.
func (c *Completions) Wait(ctx context.Context, wcs []verbs.WC) (int, error) {
	for i := 1; ; i++ {
		if n := c.CQ.Poll(wcs); n > 0 {
			return n, nil
		}
		if c.CQ.Channel() != nil {
			if err := c.sleep(ctx); err != nil {
				return 0, err
			}
		} else if i%1024 == 0 && ctx.Err() != nil {
			return 0, context.Cause(ctx)
		}
	}
}

// sleep arms the CQ, or, when it is armed already, waits for its event.
func (c *Completions) sleep(ctx context.Context) error {
	if !c.armed {
		c.armed = true
		return c.CQ.ReqNotify(false)
	}
	c.armed = false
	if _, err := c.CQ.Channel().Wait(ctx); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return err
	}
	return nil
}
