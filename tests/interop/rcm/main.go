package rcm

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strconv"
	"time"

	"github.com/urxe/urxe/verbs"
	"github.com/urxe/urxe/verbs/rdmacm"
)

// patience is how long an end waits for the other at most.
const patience = time.Minute

// Ready is what a server prints when it listens.
const Ready = "listening"

// programs are the ends, by name: what they do with a device, an address, and a count of rounds, messages or connections.
var programs = map[string]func(*side, netip.AddrPort, int) error{
	"serve-rping": serveRping, "rping": rping,
	"serve-ucmatose": serveUcmatose, "ucmatose": ucmatose,
	"serve-udaddy": serveUdaddy, "udaddy": udaddy,
	"serve-cmtime": serveCmtime,
	"serve-reject": serveReject,
}

// Main is a program that is one end of another:
//
//	rcm PROGRAM INTERFACE ADDRESS:PORT COUNT
//
// ADDRESS is its own for a server, and the server's for a client. It returns the exit status.
func Main(args []string) int {
	if err := run(args, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rcm:", err)
		return 1
	}
	return 0
}

func run(args []string, out io.Writer) error {
	if len(args) != 4 || programs[args[0]] == nil {
		return fmt.Errorf("usage: PROGRAM INTERFACE ADDRESS:PORT COUNT, not %q", args)
	}
	addr, err := netip.ParseAddrPort(args[2])
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	dev, err := verbs.Open(args[1], verbs.Options{})
	if err != nil {
		return err
	}
	defer dev.Close()
	s, err := newSide(dev, out)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.ctx = ctx
	// A device that is closed takes its last answers along, and a peer whose DREQ isn't answered asks for a minute.
	defer time.Sleep(time.Second)
	return programs[args[0]](s, addr, n)
}

// side is a device with what one QP needs: an end has one at a time.
type side struct {
	ctx     context.Context
	out     io.Writer
	dev     *verbs.Device
	pd      *verbs.PD
	channel *verbs.CompChannel
	cq      *verbs.CQ
	mr      *verbs.MR
}

const bufLen = 1 << 20

func newSide(d *verbs.Device, out io.Writer) (s *side, err error) {
	s = &side{dev: d, out: out}
	if s.pd, err = d.AllocPD(); err != nil {
		return nil, err
	}
	if s.channel, err = d.CreateCompChannel(); err != nil {
		return nil, err
	}
	if s.cq, err = d.CreateCQ(512, s.channel); err != nil {
		return nil, err
	}
	s.mr, err = s.pd.RegMR(make([]byte, bufLen), verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead)
	return s, err
}

const access = verbs.RemoteWrite | verbs.RemoteRead

// qp makes a QP in INIT with n receives of size bytes, at multiples of that.
func (s *side) qp(typ verbs.QPType, n, size int) (*verbs.QP, error) {
	q, err := s.pd.CreateQP(verbs.QPInitAttr{Type: typ, SendCQ: s.cq, RecvCQ: s.cq, SigAll: true})
	if err != nil {
		return nil, err
	}
	if err := q.ToInit(verbs.ConnectOptions{QKey: rdmacm.QKeyUDP, Access: access}); err != nil {
		return nil, err
	}
	for i := range n {
		if err := s.receive(q, i*size, size); err != nil {
			return nil, err
		}
	}
	return q, nil
}

func (s *side) receive(q *verbs.QP, at, size int) error {
	_, err := q.PostRecv(verbs.RecvWR{ID: uint64(at), SGEs: []verbs.SGE{s.mr.SGE(at, size)}})
	return err
}

// next waits for a completion, which is a success.
func (s *side) next() (verbs.WC, error) {
	var wc [1]verbs.WC
	for {
		if err := s.cq.ReqNotify(false); err != nil {
			return wc[0], err
		}
		if s.cq.Poll(wc[:]) == 1 {
			return wc[0], wc[0].Err()
		}
		if _, err := s.channel.Wait(s.ctx); err != nil {
			return wc[0], err
		}
	}
}

// await waits for completions until one is of that kind.
func (s *side) await(o verbs.WCOpcode) (verbs.WC, error) {
	for {
		if wc, err := s.next(); err != nil || wc.Opcode == o {
			return wc, err
		}
	}
}

// accept takes one request with a new QP.
func (s *side) accept(at netip.AddrPort, recvs, size int) (*rdmacm.Conn, error) {
	l, err := s.listen(at)
	if err != nil {
		return nil, err
	}
	defer l.Close()
	r, err := l.Accept(s.ctx)
	if err != nil {
		return nil, err
	}
	q, err := s.qp(r.Type(), recvs, size)
	if err != nil {
		return nil, err
	}
	return r.Accept(s.ctx, rdmacm.Options{QP: q})
}

func (s *side) listen(at netip.AddrPort) (*rdmacm.Listener, error) {
	l, err := rdmacm.Listen(s.dev, at, rdmacm.ListenOptions{})
	if err == nil {
		fmt.Fprintln(s.out, Ready)
	}
	return l, err
}

func (s *side) dial(to netip.AddrPort, recvs, size int) (*rdmacm.Conn, error) {
	q, err := s.qp(verbs.RC, recvs, size)
	if err != nil {
		return nil, err
	}
	return rdmacm.Dial(s.ctx, s.dev, to, rdmacm.DialOptions{Options: rdmacm.Options{QP: q}})
}

// ended waits until the other end has disconnected.
func (s *side) ended(c *rdmacm.Conn) error {
	select {
	case <-c.Done():
		return c.Err()
	case <-s.ctx.Done():
		return fmt.Errorf("no DREQ: %w", s.ctx.Err())
	}
}
