package verbs

import (
	"io"
	"net/netip"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/wire"
)

// engine is what does the work under a Device: a Port in this process.
type engine interface {
	Name() string
	Keys() *mem.Table
	GIDs() []ib.GID
	VLANOf(index int) uint16
	PKeys() ib.PKeyTable
	ActiveMTU() ib.MTU
	State() ib.PortState
	LinkDowned() uint64
	Err() error
	OnChange(func())
	SetAllowPeers([]netip.Prefix) error
	Stats() Stats
	Drops() [wire.NumVerdicts]uint64
	Record(out io.Writer, stop <-chan struct{}) error
	Barrier()
	Close() error
	createQP(i rocev2.QPInit) (engineQP, error)
	NextHopKnown(av AV, ask bool) (bool, error)
	createAH(av AV) (engineAH, error)
}

// engineQP is a QP of an engine.
type engineQP interface {
	Number() ib.QPN
	Modify(a *QPAttr, mask AttrMask) error
	Query() QPAttr
	Doorbell()
	Kick()
	AttachMcast(group ib.GID, vlan uint16) error
	DetachMcast(group ib.GID, vlan uint16) error
	Destroy()
	poller() poller
}

// poller is what a thread that polls a CQ runs, until it ends its lease to sleep.
type poller interface {
	Poll()
	EndLease()
}

// portEngine makes a Port an engine.
type portEngine struct{ *rocev2.Port }

func (p portEngine) createQP(i rocev2.QPInit) (engineQP, error) {
	q, err := p.Port.CreateQP(i)
	if err != nil {
		return nil, err
	}
	return portQP{q}, nil
}

func (p portEngine) createAH(av AV) (engineAH, error) {
	a, err := p.Port.CreateAH(av)
	if err != nil {
		return nil, err
	}
	return a, nil
}

type portQP struct{ *rocev2.QP }

func (q portQP) poller() poller { return q.Worker() }
