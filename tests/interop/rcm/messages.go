package rcm

import (
	"fmt"
	"net/netip"

	"github.com/urxe/urxe/verbs"
	"github.com/urxe/urxe/verbs/rdmacm"
)

// What ucmatose and udaddy send by default.
const messageLen = 100

// serveUcmatose is ucmatose without -s: it sends n messages, takes n, and disconnects.
func serveUcmatose(s *side, at netip.AddrPort, n int) error {
	c, err := s.accept(at, n, messageLen)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := s.exchange(c.QP(), n, verbs.SendWR{Opcode: verbs.OpSend}); err != nil {
		return err
	}
	return c.Disconnect(s.ctx, nil)
}

// ucmatose is ucmatose -s: it takes n messages, sends n, and waits for the end.
func ucmatose(s *side, to netip.AddrPort, n int) error {
	c, err := s.dial(to, n, messageLen)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := s.exchange(c.QP(), n, verbs.SendWR{Opcode: verbs.OpSend}); err != nil {
		return err
	}
	return s.ended(c)
}

// exchange sends n messages and takes n.
func (s *side) exchange(q *verbs.QP, n int, w verbs.SendWR) error {
	w.SGEs = []verbs.SGE{s.mr.SGE(bufLen-messageLen, messageLen)}
	for range n {
		if _, err := q.PostSend(w); err != nil {
			return err
		}
	}
	return s.complete(n, n, messageLen)
}

// complete waits for n sends and m receives, each of that length.
func (s *side) complete(n, m, length int) error {
	for n+m > 0 {
		wc, err := s.next()
		switch {
		case err != nil:
			return fmt.Errorf("%d sends and %d receives are missing: %w", n, m, err)
		case wc.Opcode != verbs.WCRecv:
			n--
		case int(wc.ByteLen) != length:
			return fmt.Errorf("a message of %d bytes, want %d", wc.ByteLen, length)
		default:
			m--
		}
	}
	return nil
}

// serveUdaddy is udaddy without -s: it takes n datagrams, and answers each. Their immediate data is the sender's QPN.
func serveUdaddy(s *side, at netip.AddrPort, n int) error {
	l, err := rdmacm.ListenUD(s.dev, at, rdmacm.ListenOptions{})
	if err != nil {
		return err
	}
	defer l.Close()
	fmt.Fprintln(s.out, Ready)
	r, err := l.Accept(s.ctx)
	if err != nil {
		return err
	}
	q, err := s.startUD(n)
	if err != nil {
		return err
	}
	if err := r.AcceptUD(q, rdmacm.QKeyUDP, nil); err != nil {
		return err
	}
	for n > 0 { // until all answers have gone
		wc, err := s.next()
		switch {
		case err != nil:
			return err
		case wc.Opcode != verbs.WCRecv:
			n--
		default:
			if err := s.answer(q, wc); err != nil {
				return err
			}
		}
	}
	return nil
}

// answer answers a datagram.
func (s *side) answer(q *verbs.QP, wc verbs.WC) error {
	if wc.ByteLen != verbs.GRHLen+messageLen || wc.Imm != uint32(wc.SrcQP) {
		return fmt.Errorf("%d bytes from QP %v, which says it is 0x%x", wc.ByteLen, wc.SrcQP, wc.Imm)
	}
	av, err := s.dev.AVFromWC(&wc, s.mr.Bytes()[wc.ID:][:verbs.GRHLen])
	if err != nil {
		return err
	}
	return s.datagram(q, rdmacm.Destination{AV: av, QPN: wc.SrcQP, QKey: rdmacm.QKeyUDP})
}

func (s *side) startUD(n int) (*verbs.QP, error) {
	q, err := s.qp(verbs.UD, n, verbs.GRHLen+messageLen)
	if err != nil {
		return nil, err
	}
	return q, q.Start(verbs.ConnectOptions{QKey: rdmacm.QKeyUDP})
}

func (s *side) datagram(q *verbs.QP, to rdmacm.Destination) error {
	h, err := s.pd.CreateAH(to.AV)
	if err != nil {
		return err
	}
	defer h.Destroy()
	_, err = q.PostSend(verbs.SendWR{Opcode: verbs.OpSendImm, Imm: uint32(q.Number()), SGEs: []verbs.SGE{s.mr.SGE(bufLen-messageLen, messageLen)},
		AH: h, RemoteQPN: to.QPN, RemoteQKey: to.QKey})
	return err
}

// udaddy is udaddy -s: it sends n datagrams, and takes n.
func udaddy(s *side, to netip.AddrPort, n int) error {
	q, err := s.startUD(n)
	if err != nil {
		return err
	}
	d, err := rdmacm.ResolveUD(s.ctx, s.dev, to, rdmacm.ResolveOptions{})
	if err != nil {
		return err
	}
	for range n {
		if err := s.datagram(q, d); err != nil {
			return err
		}
	}
	return s.complete(n, n, verbs.GRHLen+messageLen)
}

// serveCmtime is cmtime without -s: it takes n connections, and waits for their ends.
func serveCmtime(s *side, at netip.AddrPort, n int) error {
	l, err := s.listen(at)
	if err != nil {
		return err
	}
	defer l.Close()
	ends := make(chan error, n)
	for range n {
		r, err := l.Accept(s.ctx)
		if err != nil {
			return err
		}
		go func() { ends <- s.serveOne(r) }()
	}
	for range n {
		if err := <-ends; err != nil {
			return err
		}
	}
	return nil
}

// serveOne has one connection come and go.
func (s *side) serveOne(r *rdmacm.Request) error {
	q, err := s.qp(r.Type(), 0, 0)
	if err != nil {
		return err
	}
	c, err := r.Accept(s.ctx, rdmacm.Options{QP: q})
	if err != nil {
		return err
	}
	defer c.Close()
	return s.ended(c)
}
