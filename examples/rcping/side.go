package main

import (
	"errors"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/verbs"
)

// side is one end: a QP, its completions, and a registered buffer.
type side struct {
	cq  *verbs.CQ
	qp  *verbs.QP
	mr  *verbs.MR
	gid ib.GID
}

func newSide(d *verbs.Device, size int) (*side, error) {
	pd, err := d.AllocPD()
	if err != nil {
		return nil, err
	}
	mr, err := pd.RegMR(make([]byte, max(size, 1)), verbs.LocalWrite)
	if err != nil {
		return nil, err
	}
	cq, err := d.CreateCQ(256, nil)
	if err != nil {
		return nil, err
	}
	qp, err := pd.CreateQP(verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq})
	if err != nil {
		return nil, err
	}
	gid, err := d.QueryGID(0)
	return &side{cq, qp, mr, gid}, err
}

// connect tells each side of the other. On two machines this goes over TCP, say.
func connect(a, b *side) error {
	toA, err := a.qp.Endpoint(0)
	if err != nil {
		return err
	}
	toB, err := b.qp.Endpoint(0)
	if err != nil {
		return err
	}
	return errors.Join(a.qp.Connect(toB, verbs.ConnectOptions{}), b.qp.Connect(toA, verbs.ConnectOptions{}))
}

// roundTrip sends a message from a to b and back.
func roundTrip(a, b *side) error {
	for _, leg := range [][2]*side{{a, b}, {b, a}} {
		from, to := leg[0], leg[1]
		if _, err := to.qp.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{to.mr.SGE(0, to.mr.Len())}}); err != nil {
			return err
		}
		send := verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{from.mr.SGE(0, from.mr.Len())}}
		if _, err := from.qp.PostSend(send); err != nil {
			return err
		}
		if err := errors.Join(to.wait(), from.wait()); err != nil {
			return err
		}
	}
	return nil
}

// wait polls for one completion.
func (s *side) wait() error {
	var wcs [1]verbs.WC
	for s.cq.Poll(wcs[:]) == 0 {
	}
	return wcs[0].Err()
}
