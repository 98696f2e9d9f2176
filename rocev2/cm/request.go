package cm

import (
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// How much private data a consumer may send with which message; the IP CM service takes IPHeaderLen of it in a REQ and a
// SIDR_REQ (IBA 12.6, 12.11).
const (
	MaxREQPrivate     = 92
	MaxMRAPrivate     = 222
	MaxREJPrivate     = 148
	MaxREPPrivate     = 196
	MaxRTUPrivate     = 224
	MaxDREQPrivate    = 220
	MaxSIDRREQPrivate = 216
	MaxSIDRREPPrivate = 136

	// MaxREJInfo is how much additional information a REJ has room for.
	MaxREJInfo = 72
)

// Request is what a REQ asks for: of Connect, and of the event at the other end. For a SIDR_REQ (Resolve) it is Service,
// Local, Remote, SGIDIndex, TrafficClass, FlowLabel, PKey, the timeouts and Private only. The zero values of PKey, PathMTU
// and the timeouts stand for the defaults that they name.
type Request struct {
	Service       ServiceID
	Local, Remote ib.GID // of the sender of the REQ, and of its receiver

	Transport Transport
	QPN       ib.QPN // 24 bits
	PSN       ib.PSN // 24 bits: of the first packet that the sender's QP expects, the receiver's begins with it (IBA 12.7.31)
	QKey      ib.QKey
	SRQ       bool // the sender's QP has a shared receive queue
	// FlowControl: the sender's QP gives end-to-end credits (IBA 9.7.7.2), which one with an SRQ doesn't.
	FlowControl bool

	ResponderResources uint8 // READs and atomics that the receiver may have outstanding at the sender
	InitiatorDepth     uint8 // … and that the sender wants to have outstanding at the receiver
	RetryCount         uint8 // of both QPs: 0 to 7
	RNRRetry           uint8 // of the receiver's QP: 0 to 7, and 7 is for ever
	MinRNRRetry        uint8 // of Connect: the least RNRRetry that the REP may have, 0 to 7; less is refused with REJ 29

	PathMTU      ib.MTU  // 0: 1024
	PKey         ib.PKey // of Connect and Resolve an entry of Config.PKeys; 0: the first
	SGIDIndex    uint8   // of Connect and Resolve: of Local, see Path
	FlowLabel    uint32  // 20 bits, of the packets of both QPs, and of the messages about them
	TrafficClass uint8   // … too
	HopLimit     uint8   // 0: ib.DefaultHopLimit

	PacketLifetime  uint8 // the longest time of a packet on its way: 4.096 µs × 2^n; 0: 16, 268 ms, as Linux has it
	ResponseTimeout uint8 // in which an answer is expected from the other CM, and promised to it: 4.096 µs × 2^n; 0: 20, 4.3 s
	MaxRetries      uint8 // how often a message is sent again: 1 to 15; 0: 15
	LocalACKTimeout uint8 // of a REQ that came: how long the receiver's QP is to wait for an acknowledgement, 4.096 µs × 2^n

	VendorID uint32 // of a REQ that came: whose vendor's options the sender knows (IBA 12.7.37); 0: nobody's

	Private []byte // at most MaxREQPrivate bytes, of SIDR MaxSIDRREQPrivate; of a message that came, all of those
}

// The conventions of Linux, which everyone has (rdma_cm).
const (
	defaultLifetime = 16
	defaultResponse = 20
	defaultRetries  = 15
)

func (r *Request) defaults() {
	for _, d := range []struct {
		v *uint8
		n uint8
	}{{&r.PacketLifetime, defaultLifetime}, {&r.ResponseTimeout, defaultResponse}, {&r.MaxRetries, defaultRetries}, {&r.HopLimit, ib.DefaultHopLimit}} {
		if *d.v == 0 {
			*d.v = d.n
		}
	}
	if r.PathMTU == 0 {
		r.PathMTU = ib.MTU1024
	}
}

// check says whether the fields fit into a REQ.
func (r *Request) check(private int) error {
	for _, f := range []struct {
		name     string
		v, limit uint64
	}{
		{"RetryCount", uint64(r.RetryCount), 7}, {"RNRRetry", uint64(r.RNRRetry), 7}, {"MaxRetries", uint64(r.MaxRetries), 15},
		{"PacketLifetime", uint64(r.PacketLifetime), 31}, {"ResponseTimeout", uint64(r.ResponseTimeout), 31},
		{"FlowLabel", uint64(r.FlowLabel), 0xfffff}, {"QPN", uint64(r.QPN), 0xffffff}, {"PSN", uint64(r.PSN), 0xffffff}, {"Transport", uint64(r.Transport), uint64(UC)},
		{"PathMTU", uint64(r.PathMTU), uint64(ib.MTU4096)}, {"bytes of private data", uint64(len(r.Private)), uint64(private)},
	} {
		if f.v > f.limit {
			return fmt.Errorf("%s %d (allowed: at most %d)", f.name, f.v, f.limit)
		}
	}
	return nil
}

// put writes r into a REQ (IBA 12.6.5).
func (r *Request) put(v mad.REQ, guid ib.GUID, ackDelay uint8) {
	v.SetServiceID(uint64(r.Service))
	v.SetLocalCAGUID(guid)
	v.SetLocalQKey(r.QKey)
	v.SetLocalQPN(r.QPN)
	v.SetResponderResources(r.ResponderResources)
	v.SetInitiatorDepth(r.InitiatorDepth)
	v.SetRemoteCMResponseTimeout(r.ResponseTimeout)
	v.SetTransportServiceType(uint8(r.Transport))
	v.SetEndToEndFlowControl(r.FlowControl)
	v.SetStartingPSN(uint32(r.PSN))
	v.SetLocalCMResponseTimeout(r.ResponseTimeout)
	v.SetRetryCount(r.RetryCount)
	v.SetPKey(r.PKey)
	v.SetPathMTU(r.PathMTU)
	v.SetRNRRetryCount(r.RNRRetry)
	v.SetMaxCMRetries(r.MaxRetries)
	v.SetSRQ(r.SRQ)
	r.putPath(v.Primary(), ackDelay)
	copy(v.PrivateData(), r.Private)
}

func (r *Request) putPath(p mad.CMPath, ackDelay uint8) {
	p.SetLocalLID(pathLocal)
	p.SetRemoteLID(pathLocal)
	p.SetLocalGID(r.Local)
	p.SetRemoteGID(r.Remote)
	p.SetFlowLabel(r.FlowLabel)
	p.SetTrafficClass(r.TrafficClass)
	p.SetHopLimit(r.HopLimit)
	p.SetLocalACKTimeout(ackTimeout(r.PacketLifetime, ackDelay))
}

// requestOf reads a REQ.
func requestOf(v mad.REQ) *Request {
	p := v.Primary()
	return &Request{
		Service: ServiceID(v.ServiceID()), Local: p.LocalGID(), Remote: p.RemoteGID(),
		Transport: Transport(v.TransportServiceType()), QPN: v.LocalQPN(), PSN: ib.PSN(v.StartingPSN()), QKey: v.LocalQKey(),
		SRQ: v.SRQ(), FlowControl: v.EndToEndFlowControl(),
		ResponderResources: v.ResponderResources(), InitiatorDepth: v.InitiatorDepth(), RetryCount: v.RetryCount(), RNRRetry: v.RNRRetryCount(),
		PathMTU: v.PathMTU(), PKey: v.PKey(), FlowLabel: p.FlowLabel(), TrafficClass: p.TrafficClass(), HopLimit: p.HopLimit(),
		ResponseTimeout: v.LocalCMResponseTimeout(), MaxRetries: v.MaxCMRetries(), LocalACKTimeout: p.LocalACKTimeout(),
		VendorID: v.VendorID(), Private: clone(v.PrivateData()),
	}
}

// Reply is what a REP says: of Accept. ResponderResources and InitiatorDepth are cut to what the REQ allows.
type Reply struct {
	QPN                ib.QPN // 24 bits
	PSN                ib.PSN // 24 bits: of the first packet that the QP expects, the peer's begins with it
	QKey               ib.QKey
	SRQ                bool   // the QP has a shared receive queue
	FlowControl        bool   // it gives end-to-end credits
	ResponderResources uint8  // READs and atomics that the peer may have outstanding here
	InitiatorDepth     uint8  // … and that this side may have outstanding at the peer
	RNRRetry           uint8  // of the peer's QP: 0 to 7, and 7 is for ever
	Private            []byte // at most MaxREPPrivate bytes
}

func (r *Reply) check() error {
	switch {
	case !r.QPN.Valid():
		return fmt.Errorf("QPN 0x%x (allowed: 24 bits)", uint32(r.QPN))
	case !r.PSN.Valid():
		return fmt.Errorf("PSN 0x%x (allowed: 24 bits)", uint32(r.PSN))
	case r.RNRRetry > 7:
		return fmt.Errorf("RNRRetry %d (allowed: at most 7)", r.RNRRetry)
	}
	return checkPrivate(r.Private, MaxREPPrivate)
}

func (r *Reply) put(v mad.REP, guid ib.GUID, ackDelay uint8) {
	v.SetLocalQKey(r.QKey)
	v.SetLocalQPN(r.QPN)
	v.SetStartingPSN(uint32(r.PSN))
	v.SetResponderResources(r.ResponderResources)
	v.SetInitiatorDepth(r.InitiatorDepth)
	v.SetTargetACKDelay(ackDelay)
	v.SetFailoverAccepted(1) // 1: failover isn't supported, there are no alternate paths (IBA 12.7.22)
	v.SetEndToEndFlowControl(r.FlowControl)
	v.SetRNRRetryCount(r.RNRRetry)
	v.SetSRQ(r.SRQ)
	v.SetLocalCAGUID(guid)
	copy(v.PrivateData(), r.Private)
}

func checkPrivate(b []byte, limit int) error {
	if len(b) > limit {
		return fmt.Errorf("%d bytes of private data (allowed: at most %d)", len(b), limit)
	}
	return nil
}

// Peer is what a Conn knows of the other end, and agreed on with it: what its QP is moved to RTR and RTS with, besides Path.
type Peer struct {
	QPN                ib.QPN
	PSN                ib.PSN // of the first packet that it expects, so that this side's QP begins with it (sq_psn)
	QKey               ib.QKey
	SRQ                bool // the peer's QP has a shared receive queue
	FlowControl        bool // it gives end-to-end credits
	Transport          Transport
	PathMTU            ib.MTU // IBA code, of both directions
	InitiatorDepth     uint8  // READs and atomics that this side may have outstanding there (max_rd_atomic)
	ResponderResources uint8  // … and that it may have outstanding here (max_dest_rd_atomic)
	RetryCount         uint8  // of this side's QP: 0 to 7
	RNRRetry           uint8  // of this side's QP: 0 to 7, and 7 is for ever
	ACKTimeout         uint8  // of this side's QP: 4.096 µs × 2^n; 0: none
	HopLimit           uint8  // of packets there
}

// peerOf is what a REQ tells the end that it came to.
func peerOf(r *Request) Peer {
	return Peer{
		QPN: r.QPN, PSN: r.PSN, QKey: r.QKey, SRQ: r.SRQ, FlowControl: r.FlowControl, Transport: r.Transport, PathMTU: r.PathMTU,
		InitiatorDepth: r.ResponderResources, ResponderResources: r.InitiatorDepth, RetryCount: r.RetryCount, RNRRetry: r.RNRRetry,
		ACKTimeout: r.LocalACKTimeout, HopLimit: r.HopLimit,
	}
}

// takeREP adds what the REP to r tells.
func (p *Peer) takeREP(r *Request, v mad.REP) {
	*p = Peer{
		QPN: v.LocalQPN(), PSN: ib.PSN(v.StartingPSN()), QKey: v.LocalQKey(), SRQ: v.SRQ(), FlowControl: v.EndToEndFlowControl(),
		Transport: r.Transport, PathMTU: r.PathMTU, RetryCount: r.RetryCount, RNRRetry: v.RNRRetryCount(),
		// The peer may have asked for less than it was offered, and not for more (IBA 12.7.29, 12.7.30).
		InitiatorDepth:     min(r.InitiatorDepth, v.ResponderResources()),
		ResponderResources: min(r.ResponderResources, v.InitiatorDepth()),
		ACKTimeout:         ackTimeout(r.PacketLifetime, v.TargetACKDelay()),
		HopLimit:           r.HopLimit,
	}
}

func clone(b []byte) []byte { return append([]byte(nil), b...) }
