// Package ct is one end of a connection, or of an exchange of datagrams, which
// runs a test against the other end. It does over verbs what testdata/ct.c does
// over libibverbs: the same exchange over TCP, the same work requests, the same
// lines of output. So each can be either end of a test, and what they print can be
// compared.
package ct

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"slices"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/verbs"
)

const (
	// Port is the TCP port on which the server listens.
	Port = 18516

	bufSize = 65536
	remote  = verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic
	// patience is how long an end waits for a completion or for its peer.
	patience = 20 * time.Second
)

// Config says which end of which test to be.
type Config struct {
	Test     string
	Server   bool
	GIDIndex int
	PathMTU  int // in bytes
}

// info is what the ends tell each other; the layout is that of struct info.
type info struct {
	QPN, PSN, RKey, _ uint32
	Addr              uint64
	GID               ib.GID
}

// end is a running end. After its first error its methods do nothing.
type end struct {
	Config
	test    program
	conn    net.Conn
	out     io.Writer
	err     error
	dev     *verbs.Device
	channel *verbs.CompChannel
	cq      *verbs.CQ
	qp      *verbs.QP
	mr      *verbs.MR
	pd      *verbs.PD
	ah      *verbs.AH // to the peer, of datagrams
	gid     ib.GID
	peer    info
	made    []func() error // how to destroy what was made
}

// Run runs one end of a test on dev, with the peer at the other end of conn, and
// writes what happens to out.
func Run(dev *verbs.Device, conn net.Conn, c Config, out io.Writer) error {
	test, ok := programs[c.Test]
	if !ok {
		test, ok = placed[c.Test]
	}
	if !ok {
		return fmt.Errorf("no test %q", c.Test)
	}
	e := &end{Config: c, test: test, conn: conn, out: out, dev: dev}
	e.open()
	e.connect()
	if c.Server {
		test.server(e)
	} else {
		test.client(e)
	}
	e.barrier()
	e.printf("buf %08x\n", e.checksum())
	e.close()
	return e.err
}

// close destroys what open made, in the order that it allows, also after a
// failure.
func (e *end) close() {
	for _, o := range slices.Backward(e.made) {
		if err := o(); err != nil && e.err == nil {
			e.err = err
		}
	}
}

func (e *end) printf(format string, args ...any) {
	if e.err == nil {
		fmt.Fprintf(e.out, format, args...)
	}
}

// try runs a step unless one has failed before.
func (e *end) try(step func() error) {
	if e.err == nil {
		e.err = step()
	}
}

func (e *end) open() {
	e.make(func() (_ func() error, err error) { e.pd, err = e.dev.AllocPD(); return e.pd.Dealloc, err })
	e.make(func() (_ func() error, err error) {
		e.channel, err = e.dev.CreateCompChannel()
		return e.channel.Destroy, err
	})
	e.make(func() (_ func() error, err error) {
		e.cq, err = e.dev.CreateCQ(256, e.channel)
		return e.cq.Destroy, err
	})
	e.make(func() (_ func() error, err error) {
		e.mr, err = e.pd.RegMR(e.memory(), e.test.mrAccess())
		return e.mr.Dereg, err
	})
	e.make(func() (_ func() error, err error) {
		e.qp, err = e.pd.CreateQP(verbs.QPInitAttr{Type: e.test.typ, SendCQ: e.cq, RecvCQ: e.cq,
			Caps: verbs.Caps{MaxSendWR: 64, MaxRecvWR: 64, MaxSendSGE: 4, MaxRecvSGE: 4, MaxInline: 64}})
		return e.qp.Destroy, err
	})
}

// make makes an object and keeps how to destroy it.
func (e *end) make(create func() (destroy func() error, err error)) {
	e.try(func() error {
		destroy, err := create()
		if err == nil {
			e.made = append(e.made, destroy)
		}
		return err
	})
}

// memory returns the memory of this end as it is before the test.
func (e *end) memory() []byte {
	buf := make([]byte, bufSize)
	for i := range buf {
		buf[i] = byte(i ^ i>>8)
		if e.Server {
			buf[i] = 0x55
		}
	}
	return buf
}

// checksum reads word by word: the peer could still be writing.
func (e *end) checksum() uint32 {
	if e.err != nil {
		return 0
	}
	var sum uint32
	for off := 0; off < bufSize; off += 8 {
		sum = crc32.Update(sum, crc32.IEEETable, binary.NativeEndian.AppendUint64(nil, e.mr.Load64(off)))
	}
	return sum
}

func (e *end) connect() {
	e.try(e.exchangeInfo)
	if e.test.typ == verbs.UD {
		e.startDatagrams()
	} else {
		e.try(e.toRTS)
	}
	e.barrier()
}

func (e *end) exchangeInfo() error {
	gid, err := e.dev.QueryGID(e.GIDIndex)
	if err != nil {
		return err
	}
	e.gid = gid
	me := info{QPN: uint32(e.qp.Number()), PSN: uint32(e.firstPSN()), RKey: e.mr.RKey(), Addr: e.mr.IOVA(), GID: gid}
	e.conn.SetDeadline(time.Now().Add(patience))
	if err := binary.Write(e.conn, binary.LittleEndian, me); err != nil {
		return err
	}
	return binary.Read(e.conn, binary.LittleEndian, &e.peer)
}

func (e *end) firstPSN() ib.PSN {
	switch {
	case e.test.firstPSN != 0:
		return e.test.firstPSN
	case e.Server:
		return 0x200000
	}
	return 0x100000
}

// qkey is that of datagrams.
const qkey = 0x11223344

func (e *end) startDatagrams() {
	e.try(func() error { return e.qp.Start(verbs.ConnectOptions{QKey: qkey}) })
	e.make(func() (_ func() error, err error) {
		e.ah, err = e.pd.CreateAH(verbs.AV{DGID: e.peer.GID, SGIDIndex: uint8(e.GIDIndex), HopLimit: 64, Port: 1})
		return e.ah.Destroy, err
	})
}

// reliable are the attributes that only RC has.
const reliable = verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer | verbs.AttrTimeout | verbs.AttrRetryCnt |
	verbs.AttrRNRRetry | verbs.AttrMaxRdAtomic

func (e *end) toRTS() error {
	pathMTU, err := ib.MTUFromBytes(e.PathMTU)
	if err != nil {
		return err
	}
	retry, timer := uint8(3), uint8(12)
	if e.test.waitsForReceive {
		retry, timer = 7, 20 // for ever, 10.24 ms
	}
	a := verbs.QPAttr{
		Port: 1, Access: e.test.qpAccess(), PathMTU: pathMTU, DestQPN: ib.QPN(e.peer.QPN), RQPSN: ib.PSN(e.peer.PSN),
		MaxRdAtomic: 16, MaxDestRdAtomic: 16, MinRNRTimer: timer, SQPSN: e.firstPSN(), Timeout: 16, RetryCnt: 7, RNRRetry: retry,
		AV: verbs.AV{DGID: e.peer.GID, SGIDIndex: uint8(e.GIDIndex), HopLimit: 64, Port: 1, RxeFlush: e.test.peerIsRxe},
	}
	for _, step := range []struct {
		to   verbs.QPState
		mask verbs.AttrMask
	}{
		{verbs.StateInit, verbs.AttrPKeyIndex | verbs.AttrPort | verbs.AttrAccess},
		{verbs.StateRTR, verbs.AttrAV | verbs.AttrPathMTU | verbs.AttrDestQPN | verbs.AttrRQPSN | verbs.AttrMaxDestRdAtomic | verbs.AttrMinRNRTimer},
		{verbs.StateRTS, verbs.AttrSQPSN | verbs.AttrTimeout | verbs.AttrRetryCnt | verbs.AttrRNRRetry | verbs.AttrMaxRdAtomic},
	} {
		a.State = step.to
		if e.test.typ == verbs.UC {
			step.mask &^= reliable
		}
		if err := e.qp.Modify(a, step.mask|verbs.AttrState); err != nil {
			return err
		}
	}
	return nil
}

// barrier waits until the peer has come as far.
func (e *end) barrier() {
	e.try(func() error {
		e.conn.SetDeadline(time.Now().Add(patience))
		b := []byte{1}
		if _, err := e.conn.Write(b); err != nil {
			return err
		}
		_, err := io.ReadFull(e.conn, b)
		return err
	})
}

// wait takes one completion and prints it.
func (e *end) wait(what string) {
	e.try(func() error {
		wc, err := e.next()
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		e.printf("%s: %s\n", what, describe(wc))
		return nil
	})
}

func (e *end) next() (verbs.WC, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var wc [1]verbs.WC
	for {
		if err := e.cq.ReqNotify(false); err != nil {
			return wc[0], err
		}
		if e.cq.Poll(wc[:]) == 1 {
			return wc[0], nil
		}
		if _, err := e.channel.Wait(ctx); err != nil {
			return wc[0], err
		}
	}
}

// describe says of a completion what any implementation must agree on.
func describe(wc verbs.WC) string {
	s := fmt.Sprintf("status %d", wc.Status)
	if wc.Status != verbs.Success {
		return s
	}
	s += fmt.Sprintf(" opcode %d", wc.Opcode)
	if wc.Opcode >= verbs.WCRecv {
		s += fmt.Sprintf(" len %d", wc.ByteLen)
		if wc.Flags&verbs.WCWithImm != 0 {
			s += fmt.Sprintf(" imm 0x%x", wc.Imm)
		}
	}
	return s
}
