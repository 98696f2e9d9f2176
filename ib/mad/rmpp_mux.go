package mad

import (
	"fmt"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
)

// Message is what came over RMPP: the packet of its first segment, whose MAD
// has the headers, and all data. With Err set it is a transfer of either
// direction that failed: the packet is then what was received first, or given
// to Send, and the data is gone.
type Message struct {
	Packet
	Bytes []byte
}

// RMPP carries the long messages of one Port, in both directions. It is a
// state machine that is not safe for concurrent use: after each Send, Handle
// and Expire, send what Next gives and take what Message gives.
type RMPP struct {
	transfers map[rmppKey]*transfer
	deadlines clock.Timers[*transfer]
	ready     []*transfer // May have packets to send.
	messages  []Message
	// Failed counts transfers that were given up.
	Failed uint64
}

// rmppKey names a transfer by what its incoming packets have in common. The
// method tells directions apart: answers of a receiver have its R bit inverted.
type rmppKey struct {
	lid    ib.LID
	gid    ib.GID
	tid    uint64
	class  Class
	method Method
}

// transfer is one message on its way; one of sender and receiver is set.
type transfer struct {
	key      rmppKey
	sender   *Sender
	receiver *Receiver
	timer    clock.Timer[*transfer]
	queued   bool
	reported bool
}

func keyOf(a *Addr, m MAD, method Method) rmppKey {
	k := rmppKey{lid: a.LID, tid: m.TID(), class: m.Class(), method: method}
	if a.GRH.Present {
		k.gid = a.GRH.GID
	}
	return k
}

// Send begins to send data with the address and headers of head.
func (r *RMPP) Send(head *Packet, data []byte, now clock.Time) error {
	m := head.MAD()
	k := keyOf(&head.Addr, m, m.Method()^Response)
	switch {
	case !m.Class().RMPP():
		return fmt.Errorf("class 0x%02x has no RMPP", uint8(m.Class()))
	case len(data) > rmppMaxBytes:
		return fmt.Errorf("RMPP message of %d bytes: want at most %d", len(data), rmppMaxBytes)
	case len(r.transfers) >= rmppMaxTransfers:
		return fmt.Errorf("RMPP: %d transfers are under way already", len(r.transfers))
	case r.busy(k):
		return fmt.Errorf("RMPP: TID 0x%016x to LID %d is under way already", m.TID(), head.Addr.LID)
	}
	r.add(&transfer{key: k, sender: NewSender(head, data, now)})
	return nil
}

// busy reports whether a transfer is under way. The request that an answer is
// for has ended; its receiver only lingers.
func (r *RMPP) busy(k rmppKey) bool {
	x := r.transfers[k]
	if x != nil && x.receiver != nil && x.reported {
		r.remove(x)
		return false
	}
	return x != nil
}

// Handle takes a packet that came in, and reports whether it was one of RMPP.
func (r *RMPP) Handle(p *Packet, now clock.Time) bool {
	m := p.MAD()
	if p.Err != nil || !m.IsRMPP() {
		return false
	}
	k := keyOf(&p.Addr, m, m.Method())
	x := r.transfers[k]
	if x != nil && x.sender != nil && m.RMPPType() == RMPPData {
		if !m.IsResponse() {
			return true // Of the request that is being answered: its last ACK was lost.
		}
		// The answer to a request that was itself long: it says that all of the
		// request came, should the last ACK be lost (IBA 13.6.3.3).
		r.remove(x)
		x = nil
	}
	if x == nil {
		if x = r.accept(k, p, now); x == nil {
			return true // A leftover of a transfer that has ended.
		}
	}
	if x.sender != nil {
		x.sender.Handle(m, now)
	} else {
		x.receiver.Handle(m, now)
	}
	r.update(x, now)
	return true
}

// accept makes the receiver of a transfer that p begins, or returns nil.
func (r *RMPP) accept(k rmppKey, p *Packet, now clock.Time) *transfer {
	if p.MAD().RMPPType() != RMPPData || len(r.transfers) >= rmppMaxTransfers {
		return nil
	}
	x := &transfer{key: k, receiver: NewReceiver(p, now)}
	r.add(x)
	return x
}

// Next fills p with a packet that is to be sent now; it reports false when none is.
func (r *RMPP) Next(p *Packet) bool {
	for len(r.ready) > 0 {
		x := r.ready[0]
		if r.transfers[x.key] != x {
			r.ready = r.ready[1:]
			continue
		}
		if x.sender != nil && x.sender.Next(p) || x.receiver != nil && x.receiver.Next(p) {
			return true
		}
		x.queued = false
		r.ready = r.ready[1:]
		if x.sender != nil && x.sender.done {
			r.remove(x)
		}
	}
	return false
}

// Message returns a message that came in whole, or that a transfer failed.
func (r *RMPP) Message() (Message, bool) {
	if len(r.messages) == 0 {
		return Message{}, false
	}
	msg := r.messages[0]
	r.messages[0] = Message{}
	r.messages = r.messages[1:]
	return msg, true
}

// Deadline returns when Expire has work.
func (r *RMPP) Deadline() clock.Time { return r.deadlines.Next() }

// Expire handles what is due at now.
func (r *RMPP) Expire(now clock.Time) {
	for x, due := r.deadlines.Due(now); due; x, due = r.deadlines.Due(now) {
		switch {
		case x.sender != nil:
			x.sender.Expire(now)
		case x.reported:
			r.remove(x) // It has lingered to confirm last segments again.
			continue
		default:
			x.receiver.Expire(now)
		}
		r.update(x, now)
	}
}

// update follows a transfer's state after an event.
func (r *RMPP) update(x *transfer, now clock.Time) {
	if x.receiver != nil {
		r.report(x, now)
	} else {
		r.deadlines.Set(&x.timer, x.sender.Deadline())
		if done, err := x.sender.Done(); done && err != nil && !x.reported {
			x.reported = true
			r.fail(&x.sender.head, err)
		}
	}
	r.enqueue(x)
}

// report hands a message over once it has ended.
func (r *RMPP) report(x *transfer, now clock.Time) {
	done, err := x.receiver.Done()
	switch {
	case !done:
		r.deadlines.Set(&x.timer, x.receiver.Deadline())
	case !x.reported:
		x.reported = true
		r.deadlines.Set(&x.timer, now.Add(rmppLinger))
		if err != nil {
			r.fail(&x.receiver.head, err)
		} else {
			r.messages = append(r.messages, Message{Packet: x.receiver.head, Bytes: x.receiver.data})
		}
		x.receiver.data = nil
	}
}

// fail hands over that a transfer was given up.
func (r *RMPP) fail(head *Packet, err error) {
	msg := Message{Packet: *head}
	msg.Err = err
	r.messages = append(r.messages, msg)
	r.Failed++
}

func (r *RMPP) enqueue(x *transfer) {
	if !x.queued {
		x.queued = true
		r.ready = append(r.ready, x)
	}
}

func (r *RMPP) add(x *transfer) {
	if r.transfers == nil {
		r.transfers = map[rmppKey]*transfer{}
	}
	r.transfers[x.key] = x
	x.timer.Of = x
	if x.sender != nil {
		r.deadlines.Set(&x.timer, x.sender.Deadline())
	} else {
		r.deadlines.Set(&x.timer, x.receiver.Deadline())
	}
	r.enqueue(x)
}

func (r *RMPP) remove(x *transfer) {
	if r.transfers[x.key] == x {
		delete(r.transfers, x.key)
		r.deadlines.Set(&x.timer, clock.Never)
	}
}
