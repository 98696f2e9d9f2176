package verbs

import (
	"strings"

	"github.com/urxe/urxe/rocev2/mem"
)

// PD is a protection domain: QPs, memory regions and address handles of the same one work together.
type PD struct {
	dev                      *Device
	pd                       *mem.PD
	mrs, mws, qps, srqs, ahs int // that use it; under dev.mu
}

// AllocPD makes a protection domain. Its errors wrap ErrLimit or ErrClosed.
func (d *Device) AllocPD() (*PD, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	p := &PD{dev: d, pd: new(mem.PD)}
	if err := add(d, d.pds, p, limits.MaxPD, "PD"); err != nil {
		return nil, err
	}
	return p, nil
}

// Dealloc frees the protection domain; ErrBusy while it has QPs, SRQs, memory regions, windows or address handles.
func (p *PD) Dealloc() error {
	d := p.dev
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := stillIn(d, d.pds, p, "dealloc PD"); err != nil {
		return err
	}
	if err := inUse(d, "dealloc PD", user{p.qps, "QP"}, user{p.srqs, "SRQ"}, user{p.mrs, "MR"}, user{p.mws, "MW"}, user{p.ahs, "AH"}); err != nil {
		return err
	}
	delete(d.pds, p)
	return nil
}

// user is a number of objects of a kind.
type user struct {
	n    int
	kind string
}

// inUse makes the error of destroying something that other objects use, nil when there are none.
func inUse(d *Device, what string, users ...user) error {
	var by []string
	for _, u := range users {
		if u.n > 0 {
			by = append(by, count(u.n, u.kind))
		}
	}
	if by == nil || d.closed {
		return nil
	}
	return d.errorf("%s: %w by %s: destroy them first", what, ErrBusy, strings.Join(by, " and "))
}
