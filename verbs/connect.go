package verbs

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"

	"github.com/urxe/urxe/ib"
)

// Endpoint is what the peer of a QP has to know of it. Programs exchange it by any means they like, over TCP for instance.
type Endpoint struct {
	LID ib.LID // 0 on Ethernet
	QPN ib.QPN // 24 bits
	PSN ib.PSN // of the first packet that the QP sends; 24 bits
	GID ib.GID // by which it is reached
}

func (e Endpoint) String() string {
	return fmt.Sprintf("LID 0x%04x, QPN %v, PSN %v, GID %v", uint16(e.LID), e.QPN, e.PSN, e.GID)
}

// Zero asks for a 0 in a field of ConnectOptions whose 0 stands for something else, and which says so.
const Zero = 0xff

// ConnectOptions are the attributes of a connection. The zero value gives what ibv_rc_pingpong uses, with more READs and
// atomics in flight, and no rights for the peer. Each QP heeds those that its type has.
type ConnectOptions struct {
	QKey            ib.QKey // of a UD QP, for ToInit and Start: what senders must give; a GSI QP has its own
	PKeyIndex       uint16  // of the QP's P_Key in PortAttr.PKeyTable, for ToInit
	GIDIndex        int     // of this side's GID, in Device.GIDs; at most 255
	Access          Access  // what the peer may do, for ToInit: RemoteWrite, RemoteRead, RemoteAtomic, FlushGlobal
	PathMTU         ib.MTU  // 0: 1024, or the active MTU when that is less; both sides must agree
	MaxRdAtomic     uint8   // READs and atomics outstanding at the peer, up to 128; 0: 16; Zero: none, they fail with LocQPOpErr
	MaxDestRdAtomic uint8   // READs and atomics that the peer may have outstanding here, up to 128; 0: 16; Zero: it may have none
	MinRNRTimer     uint8   // how long a peer is asked to wait for a receive: code 1 to 31 (IBA 9.7.5.2.8); 0: 12, 0.64 ms; Zero: code 0, 655.36 ms
	Timeout         uint8   // for an acknowledgement: 4.096 µs × 2^n, n up to 31; 0: 14, 67 ms; Zero: none, what is lost is waited for without end
	RetryCnt        uint8   // how often a PSN is tried again: up to 7; 0: 7; Zero: its first timeout or NAK is the end
	RNRRetry        uint8   // the same for want of a receive: up to 6; 0 and 7: for ever; Zero: the first RNR NAK is the end
	TClass          uint8   // DSCP and ECN of the packets
	SL              uint8   // 0 to 15; its low three bits are the priority of frames in a VLAN, and no other packet carries it
	FlowLabel       uint32  // 20 bits; of IPv6 packets, and what UDP source ports are made from unless it is 0
	RxeFlush        bool    // the peer is a Linux rxe, whose FLUSH has an ICRC of its own; see AV
}

// WithDefaults returns o with what its fields stand for on device d in their places: a 0 of the result is a 0, and so the
// result is for Modify, and no ConnectOptions to connect with.
func (o ConnectOptions) WithDefaults(d *Device) ConnectOptions {
	for _, d := range []struct {
		v *uint8
		n uint8
	}{
		{&o.MaxRdAtomic, 16}, {&o.MaxDestRdAtomic, 16}, {&o.MinRNRTimer, 12}, {&o.Timeout, 14}, {&o.RetryCnt, 7}, {&o.RNRRetry, 7},
	} {
		switch *d.v {
		case 0:
			*d.v = d.n
		case Zero:
			*d.v = 0
		}
	}
	if o.PathMTU == 0 {
		o.PathMTU = min(ib.MTU1024, d.engine.ActiveMTU())
	}
	return o
}

// newPSN chooses a first PSN that can't be guessed, and that packets of an earlier connection of the QP don't fit.
func (q *QP) newPSN() {
	var b [4]byte
	rand.Read(b[:])
	q.psn.Store(binary.NativeEndian.Uint32(b[:]) & 0xffffff)
}

// Endpoint returns what the peer has to know when it reaches this QP by the GID at the index. After RESET the PSN is
// another one. The error wraps ErrInvalid: there is no such GID.
func (q *QP) Endpoint(gidIndex int) (Endpoint, error) {
	g, err := q.dev.QueryGID(gidIndex)
	return Endpoint{QPN: q.num, PSN: ib.PSN(q.psn.Load()), GID: g}, err
}

// ToInit moves the QP from RESET to INIT, where receives may be posted. Its errors are those of Modify.
func (q *QP) ToInit(o ConnectOptions) error {
	if q.init.Type == GSI {
		o.QKey = ib.QKeyGSI
	}
	return q.Modify(QPAttr{State: StateInit, PKeyIndex: o.PKeyIndex, Port: 1, QKey: o.QKey, Access: o.Access}, q.init.Type.Required(StateReset, StateInit))
}

// Start moves a UD or GSI QP from RESET or INIT to RTS, where it sends and receives. A message may come at once: post
// receives in INIT (ToInit) when the first must not be lost. Its errors are those of Modify.
func (q *QP) Start(o ConnectOptions) error {
	if QPState(q.state.Load()) == StateReset {
		if err := q.ToInit(o); err != nil {
			return err
		}
	}
	if err := q.Modify(QPAttr{State: StateRTR}, AttrState); err != nil {
		return err
	}
	return q.Modify(QPAttr{State: StateRTS, SQPSN: ib.PSN(q.psn.Load())}, AttrState|AttrSQPSN)
}

// ToRTR moves an RC or UC QP from INIT to RTR, where it answers its peer. Its errors are those of Modify:
// ErrInvalid also for a path MTU above the port's active one, or a GID of another version of IP than the peer's.
func (q *QP) ToRTR(peer Endpoint, o ConnectOptions) error {
	if o.GIDIndex < 0 || o.GIDIndex > 255 {
		return q.errorf("connect: %w: GID index %d (allowed: 0 to 255)", ErrInvalid, o.GIDIndex)
	}
	o = o.WithDefaults(q.dev)
	return q.Modify(QPAttr{
		State: StateRTR, PathMTU: o.PathMTU, DestQPN: peer.QPN, RQPSN: peer.PSN,
		MaxDestRdAtomic: o.MaxDestRdAtomic, MinRNRTimer: o.MinRNRTimer,
		AV: AV{DGID: peer.GID, SGIDIndex: uint8(o.GIDIndex), Port: 1, TClass: o.TClass, SL: o.SL, FlowLabel: o.FlowLabel, RxeFlush: o.RxeFlush},
	}, q.init.Type.Required(StateInit, StateRTR)|AttrAV) // which a datagram QP refuses
}

// ToRTS moves an RC or UC QP from RTR to RTS, where it sends too. Its first PSN is the one that Endpoint tells. Its errors
// are those of Modify.
func (q *QP) ToRTS(o ConnectOptions) error {
	o = o.WithDefaults(q.dev)
	return q.Modify(QPAttr{
		State: StateRTS, SQPSN: ib.PSN(q.psn.Load()), Timeout: o.Timeout, RetryCnt: o.RetryCnt, RNRRetry: o.RNRRetry, MaxRdAtomic: o.MaxRdAtomic,
	}, q.init.Type.Required(StateRTR, StateRTS))
}

// Connect moves an RC or UC QP from RESET or INIT to RTS, connected with peer. A peer may send as soon as its own side is in
// RTS: post receives in INIT (ToInit) when the first message must not wait for them. Its errors are those of Modify.
func (q *QP) Connect(peer Endpoint, o ConnectOptions) error {
	if QPState(q.state.Load()) == StateReset {
		if err := q.ToInit(o); err != nil {
			return err
		}
	}
	if err := q.ToRTR(peer, o); err != nil {
		return err
	}
	return q.ToRTS(o)
}
