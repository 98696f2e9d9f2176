// Package sa is the subnet administrator: it answers queries about the subnet
// from the snapshot that the last sweep left, so that a sweep under way, or a
// slow client, holds up nobody.
//
// It answers ClassPortInfo, NodeRecord, PortInfoRecord, SwitchInfoRecord,
// LinkRecord, SMInfoRecord, LinearForwardingTableRecord and PathRecord, with
// Get and GetTable. Everything else is refused with the status that says so.
//
// Server is a state machine without clock or socket, as package mad's are.
package sa

import (
	"sync/atomic"

	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/sm/subnet"
)

// Server answers queries. Only SetSnapshot may be called while another method
// runs.
type Server struct {
	snapshot atomic.Pointer[subnet.Snapshot]
	rmpp     mad.RMPP
	out      []mad.Packet

	// Answered and Refused count queries by how they ended.
	Answered, Refused uint64
	// Undelivered counts long answers that the client did not take.
	Undelivered uint64
}

// SetSnapshot changes what queries are answered from.
func (s *Server) SetSnapshot(snap *subnet.Snapshot) { s.snapshot.Store(snap) }

// maxRecords bounds the answer to one query.
const maxRecords = 1 << 18

// Handle takes a packet of the class of subnet administration.
func (s *Server) Handle(p *mad.Packet, now clock.Time) {
	if p.Err != nil {
		return
	}
	m, err := mad.Parse(p.Data[:])
	if err != nil || m.Class() != mad.ClassSubnAdm {
		return
	}
	if s.rmpp.Handle(p, now) {
		s.ended()
		return
	}
	if !m.IsResponse() {
		s.query(p, now)
	}
}

// ended takes the long messages that came in, or could not be delivered.
func (s *Server) ended() {
	for msg, ok := s.rmpp.Message(); ok; msg, ok = s.rmpp.Message() {
		switch {
		case msg.MAD().IsResponse():
			if msg.Err != nil {
				s.Undelivered++
			}
		case msg.Err == nil:
			s.reply(&msg.Packet, mad.StatusUnsupportedAttribute) // GetMulti
		}
	}
}

// query answers one request.
func (s *Server) query(p *mad.Packet, now clock.Time) {
	m := p.MAD()
	if m.ClassVersion() != mad.ClassSubnAdm.Version() {
		s.reply(p, mad.StatusBadVersion)
		return
	}
	snap := s.snapshot.Load()
	attr, known := attributes[m.Attribute()]
	switch {
	case !known || m.Method() != mad.MethodGet && m.Method() != mad.MethodGetTable || m.Method() == mad.MethodGetTable && !attr.table:
		s.reply(p, mad.StatusUnsupportedAttribute)
	case snap == nil:
		s.reply(p, mad.StatusBusy)
	default:
		q := &query{m: m, snap: snap, mask: m.ComponentMask(), layout: attr.layout, single: m.Method() == mad.MethodGet, from: p.Addr.LID}
		s.answer(p, q, attr.fill(q), now)
	}
}

// answer sends what a query found.
func (s *Server) answer(p *mad.Packet, q *query, status mad.Status, now clock.Time) {
	switch {
	case status != mad.StatusOK:
		s.reply(p, status)
	case q.single && q.count == 0:
		s.reply(p, mad.StatusSANoRecords)
	case q.single && q.count > 1:
		// Get is for one record (IBA 15.4.4).
		s.reply(p, mad.StatusSATooManyRecords)
	case q.single:
		s.Answered++
		r := response(p, mad.StatusOK)
		clear(r.MAD().Data())
		copy(r.MAD().Data(), q.data)
		s.out = append(s.out, r)
	default:
		s.Answered++
		r := response(p, mad.StatusOK)
		r.MAD().SetRecordStride(q.stride())
		if s.rmpp.Send(&r, q.data, now) != nil {
			s.Refused++ // the same query is being answered already
		}
	}
}

// reply refuses a request.
func (s *Server) reply(p *mad.Packet, status mad.Status) {
	s.Refused++
	s.out = append(s.out, response(p, status))
}

func response(p *mad.Packet, status mad.Status) mad.Packet {
	r := *p
	r.Timeout, r.Retries, r.Err = 0, 0, nil
	r.MAD().Respond(status)
	return r
}

// Next fills p with a packet that is to be sent now, and reports false when
// there is none.
func (s *Server) Next(p *mad.Packet) bool {
	if len(s.out) > 0 {
		*p = s.out[0]
		s.out = s.out[1:]
		return true
	}
	return s.rmpp.Next(p)
}

// Deadline returns when Expire has work; clock.Never while nothing waits.
func (s *Server) Deadline() clock.Time { return s.rmpp.Deadline() }

// Expire does what is due.
func (s *Server) Expire(now clock.Time) {
	s.rmpp.Expire(now)
	s.ended()
}
