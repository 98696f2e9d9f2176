package rcm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/urxe/urxe/verbs"
	"github.com/urxe/urxe/verbs/rdmacm"
)

// What rping's ends tell each other: an address, a key and a length, big endian.
const infoLen = 16

// pingAt is where data lies in the region, behind the receive.
const pingAt = 4096

// serveRping is rping -s: of each message it READs what it says, and WRITEs that to where the next one says.
func serveRping(s *side, at netip.AddrPort, n int) error {
	c, err := s.accept(at, 1, infoLen)
	if err != nil {
		return err
	}
	defer c.Close()
	for i := range n {
		for _, op := range []verbs.Opcode{verbs.OpRead, verbs.OpWrite} {
			if err := s.servePing(c.QP(), op, i == n-1 && op == verbs.OpWrite); err != nil {
				return fmt.Errorf("ping %d: %w", i, err)
			}
		}
		fmt.Fprintf(s.out, "ping data: %s\n", bytes.TrimRight(s.mr.Bytes()[pingAt:][:40], "\x00"))
	}
	return s.ended(c)
}

// servePing takes a message, does what it is for, and answers.
func (s *side) servePing(q *verbs.QP, op verbs.Opcode, last bool) error {
	if _, err := s.await(verbs.WCRecv); err != nil {
		return err
	}
	b := s.mr.Bytes()[:infoLen]
	addr, rkey, size := binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:]), binary.BigEndian.Uint32(b[12:])
	if !last { // the last one waits for nothing more
		if err := s.receive(q, 0, infoLen); err != nil {
			return err
		}
	}
	if _, err := q.PostSend(verbs.SendWR{Opcode: op, SGEs: []verbs.SGE{s.mr.SGE(pingAt, int(size))}, RemoteAddr: addr, RKey: rkey}); err != nil {
		return err
	}
	done := verbs.WCRead
	if op == verbs.OpWrite {
		done = verbs.WCWrite
	}
	if _, err := s.await(done); err != nil {
		return err
	}
	return s.message(q, 0)
}

// message sends an address of the region.
func (s *side) message(q *verbs.QP, size int) error {
	b := binary.BigEndian.AppendUint64(nil, s.mr.IOVA()+pingAt)
	b = binary.BigEndian.AppendUint32(b, s.mr.RKey())
	b = binary.BigEndian.AppendUint32(b, uint32(size))
	_, err := q.PostSend(verbs.SendWR{Opcode: verbs.OpSend, InlineData: b})
	return err
}

// pingLen is the length of our data, which spans packets.
const pingLen = 3001

// rping is rping -c: the other end READs our data, and WRITEs it back.
func rping(s *side, to netip.AddrPort, n int) error {
	c, err := s.dial(to, 1, infoLen)
	if err != nil {
		return err
	}
	defer c.Close()
	data := s.mr.Bytes()[pingAt:][:pingLen]
	for i := range n {
		want := bytes.Repeat([]byte(fmt.Sprintf("rdma-ping-%d: ", i)), pingLen)[:pingLen]
		want[pingLen-1] = 0 // rping WRITEs a string
		copy(data, want)
		for _, what := range []string{"READ", "WRITE"} {
			if err := s.ask(c.QP()); err != nil {
				return fmt.Errorf("ping %d, %s: %w", i, what, err)
			}
			if what == "WRITE" && !bytes.Equal(data, want) {
				return fmt.Errorf("ping %d: other data came back", i)
			}
			clear(data) // it has been read: what is there then was written
		}
	}
	return c.Disconnect(s.ctx, nil)
}

// ask tells the other end where the data is, and waits for its answer.
func (s *side) ask(q *verbs.QP) error {
	if err := s.message(q, pingLen); err != nil {
		return err
	}
	if _, err := s.await(verbs.WCRecv); err != nil {
		return err
	}
	return s.receive(q, 0, infoLen)
}

// serveReject rejects one request, with private data.
func serveReject(s *side, at netip.AddrPort, _ int) error {
	l, err := s.listen(at)
	if err != nil {
		return err
	}
	defer l.Close()
	r, err := l.Accept(s.ctx)
	if err != nil {
		return err
	}
	return r.Reject(rdmacm.ConsumerReject, []byte("not today"))
}
