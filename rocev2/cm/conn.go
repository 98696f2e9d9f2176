package cm

import (
	"container/list"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
)

// ErrState is the cause of a call that a Conn's state doesn't allow; ErrInvalid of arguments that are never allowed;
// ErrInUse of a service that is listened for already; ErrLimit of more connections than Config allows.
var (
	ErrState   = errors.New("wrong state")
	ErrInvalid = errors.New("invalid argument")
	ErrInUse   = errors.New("in use")
	ErrLimit   = errors.New("too many connections")
)

// Conn is a connection that is made, is there, or ends; or one request of SIDR. It is of its Manager, and no more safe to
// use by several goroutines than that. Errors of its calls wrap ErrInvalid for arguments that don't fit into the message, and
// ErrState when the connection isn't where the call means something; nothing has happened then.
type Conn struct {
	User any // the consumer's own

	m            *Manager
	id, remoteID uint32
	state        State
	active       bool
	path         Path
	guid         ib.GUID // of the peer's CA, once it is known
	localQPN     ib.QPN
	req          *Request
	peer         Peer
	listener     *Listener
	byPeer       peerID // its key in m.peers and m.peerQPs, once it has one
	byQP         peerQP

	tid      uint64
	msg      [mad.Size]byte // what is sent again
	kept     *list.Element  // of m.kept, nil if it isn't there
	open     *list.Element  // of m.halfOpen while the state is one of that
	timer    clock.Timer[*Conn]
	tries    int           // how often the message may be sent again
	wait     time.Duration // between
	timewait time.Duration
}

// ID returns the local communication id, or that of the SIDR request this side has made. It is never 0.
func (c *Conn) ID() uint32 { return c.id }

// State returns the state.
func (c *Conn) State() State { return c.state }

// Waits reports whether the peer waits for the consumer to accept or reject what it asks for.
func (c *Conn) Waits() bool { return c.state.waiting() }

// Active reports whether this side asked for the connection.
func (c *Conn) Active() bool { return c.active }

// Path returns the path of the connection's messages, which its QPs have, too.
func (c *Conn) Path() Path { return c.path }

// Peer returns what is known of the peer: all of it from the event Request or Reply on, and of SIDR its QPN and QKey from
// SIDRReply on.
func (c *Conn) Peer() Peer { return c.peer }

// input is one thing that happens to a Conn.
type input struct {
	what    inputKind
	now     clock.Time
	mad     mad.MAD // of messages
	reply   *Reply  // of calls, what they were given
	reason  Reason
	qpn     ib.QPN
	qkey    ib.QKey
	status  SIDRStatus
	code    uint8
	info    []byte
	private []byte
}

// feed takes the step that the table has for an input, and says whether there is one.
func (c *Conn) feed(in *input) bool {
	s, ok := transitions[on{c.state, in.what}]
	if !ok {
		c.m.Counters.Unexpected++
		return false
	}
	next := s.otherwise
	if s.do(c, in) {
		next = s.then
	}
	if next != c.state {
		c.enter(next, in.now)
	}
	return true
}

// call is feed for the consumer's calls.
func (c *Conn) call(in *input) error {
	if was := c.state; !c.feed(in) {
		return fmt.Errorf("cm: connection 0x%08x: %v: %w: %v", c.id, in.what, ErrState, was)
	}
	return nil
}

// invalid makes the error of a call with a wrong argument, nil when err is.
func invalid(what inputKind, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("cm: %v: %w: %w", what, ErrInvalid, err)
}

// waiting reports whether the consumer has to decide.
func (s State) waiting() bool { return s == ReqRcvd || s == MRAReqSent || s == SidrReqRcvd }

// halfOpen reports whether nothing shows that the peer has got this side's REP. An MRA does.
func (s State) halfOpen() bool { return s == RepSent }

func (c *Conn) enter(next State, now clock.Time) {
	if c.listener != nil && c.state.waiting() && !next.waiting() {
		c.listener.waiting--
	}
	if c.state.halfOpen() && !next.halfOpen() {
		c.m.halfOpen.Remove(c.open)
	}
	c.state = next
	switch next {
	case RepSent:
		c.m.holdOpen(c, now)
	case RepRcvd, Established:
		c.setDeadline(clock.Never)
	case TimeWait: // until no old packet of the QPs can be under way (IBA 12.9.8.4)
		c.setDeadline(now.Add(c.timewait))
	case Refused, SidrRepSent:
		c.m.keep(c, now)
	case Idle:
		c.m.forget(c)
	}
}

func (c *Conn) setDeadline(t clock.Time) { c.m.timers.Set(&c.timer, t) }

// begin makes c.msg a new message with the communication ids of the connection.
func (c *Conn) begin(a mad.AttributeID) mad.MAD {
	m := mad.MAD(c.msg[:])
	m.Init(mad.ClassCM, mad.MethodSend, a, 0)
	m.SetTID(c.tid)
	ids(m.Data(), c.id, c.remoteID)
	return m
}

// ids writes what all messages but those of SIDR begin with.
func ids(b []byte, local, remote uint32) {
	v := mad.RTU(b)
	v.SetLocalCommID(local)
	v.SetRemoteCommID(remote)
}

func (c *Conn) send() { c.m.send(c.path, c.msg[:]) }

// sendFirst sends c.msg, to be sent again when no answer comes.
func (c *Conn) sendFirst(in *input) bool {
	c.send()
	c.tries = int(c.req.MaxRetries)
	c.setDeadline(in.now.Add(c.wait))
	return true
}

// again sends the last message again, as its answer, or what it answers, came again.
func (c *Conn) again(*input) bool {
	c.send()
	c.m.Counters.Repeated++
	return true
}

// retry sends the last message again, and says whether it might.
func (c *Conn) retry(in *input) bool {
	if c.tries == 0 {
		return false
	}
	c.tries--
	c.setDeadline(in.now.Add(c.wait))
	return c.again(in)
}

// known does nothing: what was to come is there.
func (c *Conn) known(*input) bool { return true }

func (c *Conn) event(e Event) {
	e.Conn = c
	c.m.events = append(c.m.events, e)
}

// sendREJ makes c.msg a REJ, sends it, and keeps it for who asks again.
func (c *Conn) sendREJ(about message, r Reason, info, private []byte) {
	v := mad.REJ(c.begin(mad.AttrREJ).Data())
	v.SetMessageRejected(uint8(about))
	v.SetReason(uint16(r))
	v.SetInfoLength(uint8(copy(v.Info(), info)))
	copy(v.PrivateData(), private)
	c.send()
}

// about says which message of the peer a REJ in this state is about.
func (c *Conn) about() message {
	switch c.state {
	case ReqRcvd, MRAReqSent, ReqSent, ReqMRA: // of a REQ that wasn't answered, too
		return aboutREQ
	case RepRcvd, MRARepSent, RepSent, RepMRA:
		return aboutREP
	}
	return aboutOther
}

// timedOut tells the peer that it took too long. Who never heard of it knows its communication id by the GUID in the
// additional information (IBA 12.6.7.2, code 4).
func (c *Conn) timedOut() {
	c.sendREJ(c.about(), RejTimeout, binary.BigEndian.AppendUint64(nil, uint64(c.m.cfg.GUID)), nil)
}

// Reject refuses a REQ, after the event Request, or a REP, after Reply, for a reason. info is what the reason adds, at most
// MaxREJInfo bytes; private at most MaxREJPrivate bytes. No event follows.
func (c *Conn) Reject(r Reason, info, private []byte, now clock.Time) error {
	if err := errors.Join(checkPrivate(private, MaxREJPrivate), checkPrivate(info, MaxREJInfo)); err != nil {
		return invalid(callReject, err)
	}
	return c.call(&input{what: callReject, now: now, reason: r, info: info, private: private})
}

func (c *Conn) reject(in *input) bool {
	c.sendREJ(c.about(), in.reason, in.info, in.private)
	return true
}

// Abandon ends the connection in whichever state it is: by a REJ of reason timeout, as Linux does for a program that went
// away, or by a DREQ. It may be called at any time, and no event but TimewaitExit has to be waited for.
func (c *Conn) Abandon(now clock.Time) {
	c.feed(&input{what: callAbandon, now: now})
}

func (c *Conn) abandon(*input) bool {
	c.timedOut()
	return true
}

// rejected takes a REJ. Whatever it is about, the peer has no such connection any more.
func (c *Conn) rejected(in *input) bool {
	v := mad.REJ(in.mad.Data())
	c.event(Event{Type: EventRejected, Reason: Reason(v.Reason()), Info: clone(v.Info()[:min(int(v.InfoLength()), MaxREJInfo)]),
		Private: clone(v.PrivateData())})
	return true
}

// Extend tells the peer, by an MRA, that the answer to its REQ or REP takes longer: by 4.096 µs × 2^code, code up to 31 (a
// Manager waits for 24, 69 s, at most); with at most MaxMRAPrivate bytes of private data. A peer that repeats its message is
// told so without that.
func (c *Conn) Extend(code uint8, private []byte, now clock.Time) error {
	if code > 31 {
		return invalid(callExtend, fmt.Errorf("timeout code %d (allowed: 0 to 31)", code))
	}
	if err := checkPrivate(private, MaxMRAPrivate); err != nil {
		return invalid(callExtend, err)
	}
	return c.call(&input{what: callExtend, now: now, code: code, private: private})
}

// sendMRA sends an MRA: the consumer's, or one of the longest time when the peer asks again.
func (c *Conn) sendMRA(in *input) bool {
	code := uint8(maxService)
	if in.what == callExtend {
		code = in.code
	}
	v := mad.MRA(c.begin(mad.AttrMRA).Data())
	v.SetMessageMRAed(uint8(c.about()))
	v.SetServiceTimeout(code)
	copy(v.PrivateData(), in.private)
	c.send()
	if !c.active {
		c.setDeadline(max(c.timer.At(), in.now.Add(Timeout(code)+c.wait)))
	}
	return true
}

// extended takes an MRA about the message that c waits for an answer to: the time for it begins anew (IBA 12.9.8.1).
// A second one has no effect, else a peer could make this side wait for ever.
func (c *Conn) extended(in *input) bool {
	v := mad.MRA(in.mad.Data())
	if message(v.MessageMRAed()) != c.about() {
		return false
	}
	c.setDeadline(in.now.Add(Timeout(min(v.ServiceTimeout(), maxService)) + c.wait))
	return true
}
