// Remotemem shares a piece of memory between machines. The server offers it and
// then does nothing; its clients write, read and count in it by one-sided
// operations.
//
//	remotemem eth0                     offer memory to one client after the other
//	remotemem eth0 10.0.0.1 "a text"   put a text into the memory of 10.0.0.1
//
// Both ends need root, or the capabilities that verbs.Open names.
package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"os"
	"time"

	"github.com/urxe/urxe/verbs"
)

const (
	tcpPort = ":7471"
	size    = 1 << 20
	// the layout of the memory: how many texts were put, then the last one
	counterAt, textAt = 0, 8
)

// hello is what the ends tell each other over TCP before they use RDMA.
type hello struct {
	Endpoint verbs.Endpoint
	Addr     uint64 // of the memory that the sender offers
	RKey     uint32
}

// host is a device with what all sessions share.
type host struct {
	pd *verbs.PD
	cq *verbs.CQ
}

func newHost(dev *verbs.Device) (h host, err error) {
	if h.pd, err = dev.AllocPD(); err == nil {
		h.cq, err = dev.CreateCQ(16, nil)
	}
	return h, err
}

// session is a connection to a peer, and memory that either may use.
type session struct {
	cq   *verbs.CQ
	qp   *verbs.QP
	mr   *verbs.MR
	peer hello
}

const all = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

// open makes a session with the peer at the other end of conn.
func (h host) open(conn net.Conn, mem []byte) (*session, error) {
	mr, err := h.pd.RegMR(mem, all)
	if err != nil {
		return nil, err
	}
	qp, err := h.pd.CreateQP(verbs.QPInitAttr{SendCQ: h.cq, RecvCQ: h.cq})
	if err != nil {
		return nil, errors.Join(err, mr.Dereg())
	}
	s := &session{cq: h.cq, qp: qp, mr: mr}
	if err := s.meet(conn); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

func (s *session) close() error { return errors.Join(s.qp.Destroy(), s.mr.Dereg()) }

// meet connects the QP with that of the peer, who has some seconds to tell of it. A
// GID at index 1 is the first IP address of an interface.
func (s *session) meet(conn net.Conn) error {
	o := verbs.ConnectOptions{GIDIndex: 1, Access: all &^ verbs.LocalWrite}
	me, err := s.qp.Endpoint(o.GIDIndex)
	if err != nil {
		return err
	}
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	defer conn.SetDeadline(time.Time{})
	out := binary.Write(conn, binary.BigEndian, hello{me, s.mr.IOVA(), s.mr.RKey()})
	in := binary.Read(conn, binary.BigEndian, &s.peer)
	if err := errors.Join(out, in); err != nil {
		return err
	}
	return s.qp.Connect(s.peer.Endpoint, o)
}

// do runs one work request to its end.
func (s *session) do(w verbs.SendWR) error {
	w.Flags |= verbs.Signaled
	w.RemoteAddr, w.RKey = w.RemoteAddr+s.peer.Addr, s.peer.RKey
	if _, err := s.qp.PostSend(w); err != nil {
		return err
	}
	var wc [1]verbs.WC
	for s.cq.Poll(wc[:]) == 0 {
	}
	return wc[0].Err()
}

// serve offers mem to one client, until that hangs up.
func (h host) serve(conn net.Conn, mem []byte, out io.Writer) error {
	s, err := h.open(conn, mem)
	if err != nil {
		return err
	}
	conn.Write([]byte{0})     // ready
	io.Copy(io.Discard, conn) // until the client hangs up
	fmt.Fprintf(out, "%d texts, the last one from %v: %s\n", s.mr.Load64(counterAt), s.peer.Endpoint.GID, s.text())
	return s.close()
}

// text returns the text in the memory: a byte with its length, then its bytes.
// What a peer WRITEs is read by accessors.
func (s *session) text() []byte {
	text := make([]byte, s.mr.Load8(textAt))
	for i := range text {
		text[i] = s.mr.Load8(textAt + 1 + i)
	}
	return text
}

// put writes a text into the server's memory, reads it back and counts it.
func (h host) put(conn net.Conn, text string, out io.Writer) error {
	s, err := h.open(conn, make([]byte, size))
	if err != nil {
		return err
	}
	defer s.close()
	if _, err := io.ReadFull(conn, make([]byte, 1)); err != nil {
		return err
	}
	message := append([]byte{byte(len(text))}, text...)
	if err := s.do(verbs.SendWR{Opcode: verbs.OpWrite, InlineData: message, RemoteAddr: textAt}); err != nil {
		return err
	}
	back := s.mr.SGE(64, len(message))
	if err := s.do(verbs.SendWR{Opcode: verbs.OpRead, SGEs: []verbs.SGE{back}, RemoteAddr: textAt}); err != nil {
		return err
	}
	count := s.mr.SGE(0, 8)
	if err := s.do(verbs.SendWR{Opcode: verbs.OpFetchAdd, SGEs: []verbs.SGE{count}, RemoteAddr: counterAt, CompareAdd: 1}); err != nil {
		return err
	}
	fmt.Fprintf(out, "text %d is there: %s\n", s.mr.Load64(0)+1, s.mr.Bytes()[65:64+len(message)])
	return nil
}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 && len(os.Args) != 4 {
		log.Fatal("usage: remotemem INTERFACE [SERVER TEXT]")
	}
	dev, err := verbs.Open(os.Args[1], verbs.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	h, err := newHost(dev)
	switch {
	case err != nil:
	case len(os.Args) == 4:
		err = h.client(os.Args[2], os.Args[3])
	default:
		err = h.server()
	}
	if err != nil {
		log.Fatal(errors.Join(err, dev.Close()))
	}
}

func (h host) client(server, text string) error {
	if len(text) > 255 {
		return errors.New("a text has at most 255 bytes")
	}
	conn, err := net.Dial("tcp", server+tcpPort)
	if err != nil {
		return err
	}
	defer conn.Close()
	return h.put(conn, text, os.Stdout)
}

func (h host) server() error {
	l, err := net.Listen("tcp", tcpPort)
	if err != nil {
		return err
	}
	mem := make([]byte, size)
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		if err := h.serve(conn, mem, os.Stdout); err != nil {
			log.Print(err)
		}
		conn.Close()
	}
}
