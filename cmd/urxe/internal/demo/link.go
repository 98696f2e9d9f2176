package demo

import (
	"errors"
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/veth"
	"github.com/urxe/urxe/verbs"
)

// Links that the demonstration runs over.
const (
	LinkAFXDP    = "af_xdp"    // a veth pair between two network namespaces
	LinkAFPacket = "af_packet" // the same
	LinkMem      = "mem"
)

// link is two devices that are joined.
type link struct {
	name, describe string
	rung           string   // how the devices got it
	reasons        []string // why not in a better way
	devices        [2]*verbs.Device
	close          []func() error // in this order
}

func openMem() (*link, error) {
	a, b, err := verbs.OpenPair(verbs.PairOptions{})
	if err != nil {
		return nil, err
	}
	return &link{name: LinkMem, describe: "a link in memory", devices: [2]*verbs.Device{a, b}, close: []func() error{a.Close, b.Close}}, nil
}

// openVeth makes two network namespaces with a veth pair between them, and opens its ends, over this link and no other.
func openVeth(mtu ib.MTU, kind verbs.LinkKind) (_ *link, err error) {
	missing, name := veth.Missing, "AF_XDP"
	if kind == verbs.LinkAFPacket {
		missing, name = veth.MissingNamespaces, "AF_PACKET"
	}
	if what := missing(); what != "" {
		return nil, fmt.Errorf("%s can't be used here: %s (--link=mem runs in memory)", name, what)
	}
	pair, err := veth.NewPair(veth.Config{Name: "urxe0", MTU: max(1500, mtu.Bytes()+ib.RoCEOverhead)})
	if err != nil {
		return nil, err
	}
	l := &link{name: kind.String(), describe: name + " on a veth pair between two network namespaces"}
	defer func() {
		if err != nil {
			err = errors.Join(err, l.Close())
		}
	}()
	for i, e := range pair.Ends {
		if err := e.NS.Do(func() (err error) {
			l.devices[i], err = verbs.Open(e.Name, verbs.Options{Link: kind})
			return err
		}); err != nil {
			l.close = append(l.close, pair.Close)
			return nil, err
		}
		l.close = append(l.close, l.devices[i].Close)
	}
	l.close = append(l.close, pair.Close)
	s := l.devices[0].Stats()
	l.rung, l.reasons = s.Rung, s.Reasons
	return l, nil
}

// Close undoes everything.
func (l *link) Close() (err error) {
	for _, f := range l.close {
		err = errors.Join(err, f())
	}
	return err
}
