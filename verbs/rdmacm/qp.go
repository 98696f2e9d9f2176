package rdmacm

import (
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/verbs"
)

// prepare checks the QP, takes it to INIT, and fills in what the options leave open.
func (o *Options) prepare(d *verbs.Device) error {
	q := o.QP
	switch {
	case q == nil:
		return fmt.Errorf("%w: Options.QP must be set", verbs.ErrInvalid)
	case q.Device() != d:
		return fmt.Errorf("%w: a QP of device %s", verbs.ErrInvalid, q.Device().Name())
	case q.Type() != verbs.RC && q.Type() != verbs.UC:
		return fmt.Errorf("%w: a QP of type %v (allowed: RC, UC)", verbs.ErrInvalid, q.Type())
	}
	c := &o.Connect
	for _, f := range []struct {
		v *uint8
		n uint8
	}{{&c.MaxRdAtomic, 16}, {&c.MaxDestRdAtomic, 16}, {&c.MinRNRTimer, 12}, {&c.RetryCnt, 7}, {&c.RNRRetry, 7}} {
		switch *f.v {
		case 0:
			*f.v = f.n
		case verbs.Zero:
			*f.v = 0
		}
	}
	if c.PathMTU == 0 {
		c.PathMTU = min(ib.MTU1024, d.QueryPort().ActiveMTU)
	}
	a, err := q.Query()
	if err == nil && a.State == verbs.StateReset {
		err = q.ToInit(*c)
	}
	return err
}

func transport(q *verbs.QP) cm.Transport {
	if q.Type() == verbs.UC {
		return cm.UC
	}
	return cm.RC
}

// What a move to RTR and RTS says of every connection, and of a reliable one.
const (
	rtrMask   = verbs.AttrState | verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN
	rtrRCMask = rtrMask | verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer
	rtsMask   = verbs.AttrState | verbs.AttrSQPSN
	rtsRCMask = rtsMask | verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrMaxRdAtomic
)

// connect moves the QP from INIT to RTS, to the peer of a connection, whose first packet has the PSN that it was told.
// What was agreed on is set as it is: 0 is 0 here.
func (o *Options) connect(gidIndex int, remote ib.GID, p cm.Peer, psn ib.PSN) error {
	c := &o.Connect
	rtr, rts := verbs.AttrMask(rtrRCMask), verbs.AttrMask(rtsRCMask)
	if p.Transport == cm.UC {
		rtr, rts = rtrMask, rtsMask
	}
	switch c.Timeout {
	case 0:
		c.Timeout = p.ACKTimeout
	case verbs.Zero:
		c.Timeout = 0
	}
	err := o.QP.Modify(verbs.QPAttr{
		State: verbs.StateRTR, PathMTU: p.PathMTU, DestQPN: p.QPN, RQPSN: psn, MaxDestRdAtomic: p.ResponderResources, MinRNRTimer: c.MinRNRTimer,
		AV: verbs.AV{DGID: remote, SGIDIndex: uint8(gidIndex), Port: 1, TClass: p.TrafficClass, HopLimit: p.HopLimit, SL: c.SL, FlowLabel: c.FlowLabel, RxeFlush: c.RxeFlush},
	}, rtr)
	if err != nil {
		return err
	}
	return o.QP.Modify(verbs.QPAttr{State: verbs.StateRTS, SQPSN: p.PSN, Timeout: c.Timeout, RetryCnt: p.RetryCount, RNRRetry: p.RNRRetry,
		MaxRdAtomic: p.InitiatorDepth}, rts)
}
