package rdmacm

import (
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2/cm"
	"github.com/urxe/urxe/verbs"
)

// prepare checks the QP, takes it to INIT, and returns its attributes, with those that the options leave open.
func (o *Options) prepare(d *verbs.Device) (c verbs.ConnectOptions, err error) {
	q := o.QP
	switch {
	case q == nil:
		return c, fmt.Errorf("%w: Options.QP must be set", verbs.ErrInvalid)
	case q.Device() != d:
		return c, fmt.Errorf("%w: a QP of device %s", verbs.ErrInvalid, q.Device().Name())
	case q.Type() != verbs.RC && q.Type() != verbs.UC:
		return c, fmt.Errorf("%w: a QP of type %v (allowed: RC, UC)", verbs.ErrInvalid, q.Type())
	}
	c = o.Connect.WithDefaults(d)
	a, err := q.Query()
	if err == nil && a.State == verbs.StateReset {
		err = q.ToInit(c)
	}
	return c, err
}

func hasSRQ(q *verbs.QP) bool { return q.InitAttr().SRQ != nil }

// givesCredits reports whether a QP's acknowledgements tell how many receives there are (IBA 9.7.7.2).
func givesCredits(q *verbs.QP) bool { return q.Type() == verbs.RC && !hasSRQ(q) }

func transport(q *verbs.QP) cm.Transport {
	if q.Type() == verbs.UC {
		return cm.UC
	}
	return cm.RC
}

// connect moves the QP from INIT to RTS, by the path of a connection to its peer, whose first packet has the PSN that it was
// told. What was agreed on is set as it is: 0 is 0 here.
func (o *Options) connect(path cm.Path, p cm.Peer, psn ib.PSN) error {
	c := o.Connect.WithDefaults(o.QP.Device())
	if o.Connect.Timeout == 0 {
		c.Timeout = p.ACKTimeout
	}
	typ := o.QP.Type()
	err := o.QP.Modify(verbs.QPAttr{
		State: verbs.StateRTR, PathMTU: p.PathMTU, DestQPN: p.QPN, RQPSN: psn, MaxDestRdAtomic: p.ResponderResources, MinRNRTimer: c.MinRNRTimer, PKeyIndex: path.PKeyIndex,
		AV: verbs.AV{DGID: path.Remote, SGIDIndex: path.SGIDIndex, Port: 1, TClass: path.TrafficClass, HopLimit: p.HopLimit, SL: c.SL, FlowLabel: path.FlowLabel, RxeFlush: c.RxeFlush},
	}, typ.Required(verbs.StateInit, verbs.StateRTR)|verbs.AttrPKeyIndex)
	if err != nil {
		return err
	}
	return o.QP.Modify(verbs.QPAttr{State: verbs.StateRTS, SQPSN: p.PSN, Timeout: c.Timeout, RetryCnt: p.RetryCount, RNRRetry: p.RNRRetry,
		MaxRdAtomic: p.InitiatorDepth}, typ.Required(verbs.StateRTR, verbs.StateRTS))
}
