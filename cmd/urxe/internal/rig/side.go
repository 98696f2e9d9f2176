package rig

import (
	"errors"
	"fmt"

	"github.com/urxe/urxe/verbs"
)

// Config says what a Side is like.
type Config struct {
	Size   int  // bytes of the registered buffer
	QPs    int  // 0: 1
	Depth  int  // work requests of each queue
	Inline int  // bytes of inline data
	Events bool // with a completion channel

	PKeyIndex uint16 // of the QPs
}

// Side is one side of a test: connected QPs that share a CQ and a registered buffer.
type Side struct {
	Completions
	Dev *verbs.Device
	PD  *verbs.PD
	QPs []*verbs.QP
	Buf []byte
	MR  *verbs.MR

	channel *verbs.CompChannel
}

const allRights = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

// NewSide makes a side with QPs in INIT.
func NewSide(d *verbs.Device, c Config) (s *Side, err error) {
	s = &Side{Dev: d, Buf: make([]byte, c.Size)}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if s.PD, err = d.AllocPD(); err != nil {
		return nil, err
	}
	if s.MR, err = s.PD.RegMR(s.Buf, allRights); err != nil {
		return nil, err
	}
	if c.Events {
		if s.channel, err = d.CreateCompChannel(); err != nil {
			return nil, err
		}
	}
	n := max(c.QPs, 1)
	if s.CQ, err = d.CreateCQ(2*n*c.Depth, s.channel); err != nil {
		return nil, err
	}
	for range n {
		if err := s.addQP(c); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// Close destroys all of it.
func (s *Side) Close() (err error) {
	for _, q := range s.QPs {
		err = errors.Join(err, q.Destroy())
	}
	if s.CQ != nil {
		err = errors.Join(err, s.CQ.Destroy())
	}
	if s.channel != nil {
		err = errors.Join(err, s.channel.Destroy())
	}
	if s.MR != nil {
		err = errors.Join(err, s.MR.Dereg())
	}
	if s.PD != nil {
		err = errors.Join(err, s.PD.Dealloc())
	}
	return err
}

func (s *Side) addQP(c Config) error {
	q, err := s.PD.CreateQP(verbs.QPInitAttr{SendCQ: s.CQ, RecvCQ: s.CQ, Caps: verbs.Caps{
		MaxSendWR: c.Depth, MaxRecvWR: c.Depth, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: c.Inline}})
	if err != nil {
		return err
	}
	s.QPs = append(s.QPs, q)
	return q.ToInit(verbs.ConnectOptions{PKeyIndex: c.PKeyIndex, Access: allRights &^ verbs.LocalWrite})
}

// Address is what the other side has to know of this one.
type Address struct {
	QPs  []verbs.Endpoint `json:"qps"`
	Addr uint64           `json:"addr"` // of the first byte of the buffer
	RKey uint32           `json:"rkey"`
	Size int              `json:"size"` // of the buffer, in bytes
}

// Address returns the address of the side by the GID at an index.
func (s *Side) Address(gid int) (a Address, err error) {
	a = Address{Addr: s.MR.IOVA(), RKey: s.MR.RKey(), Size: len(s.Buf)}
	for _, q := range s.QPs {
		e, err := q.Endpoint(gid)
		if err != nil {
			return a, err
		}
		a.QPs = append(a.QPs, e)
	}
	return a, nil
}

// Connect connects each QP with the one of the same place at the other side.
func (s *Side) Connect(remote Address, o verbs.ConnectOptions) error {
	if len(remote.QPs) != len(s.QPs) {
		return fmt.Errorf("the peer has %d QPs, this side %d", len(remote.QPs), len(s.QPs))
	}
	for i, q := range s.QPs {
		if err := q.Connect(remote.QPs[i], o); err != nil {
			return err
		}
	}
	return nil
}
