// Package pingpong is the ping-pong of ibv_rc_pingpong, ibv_uc_pingpong,
// ibv_ud_pingpong and ibv_srq_pingpong: the same exchange of addresses, the same
// traffic and the same output, so that either may be the other's peer.
package pingpong

import (
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/urxe/urxe/cmd/urxe/internal/rig"
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/internal/clock"
	"github.com/urxe/urxe/verbs"
)

// Options are those of ibv_*_pingpong.
type Options struct {
	Type      verbs.QPType // RC, UC or UD
	SRQ       bool         // QPs of type RC take their receives from an SRQ
	QPs       int          // with an SRQ: 1 to MaxQPs
	PKeyIndex uint16       // of the QPs
	Host      string       // of the server; empty: be the server
	Port      int          // TCP
	IBPort    int
	Size      int    // bytes of a message
	MTU       ib.MTU // of the path; not of UD
	RxDepth   int    // receives to post at a time
	Iters     int
	SL        uint8
	Events    bool      // sleep on completions
	GID       int       // index of the local GID; negative: one that fits the peer's
	Check     bool      // validate the received buffer
	Notes     io.Writer // what the user is told meanwhile; nil: nothing
}

// Run plays one game and writes its result to out.
func Run(ctx context.Context, d *verbs.Device, o Options, out io.Writer) error {
	if o.IBPort != 1 {
		return fmt.Errorf("IB port %d: device %s has port 1 only", o.IBPort, d.Name())
	}
	if err := checkSize(d, &o); err != nil {
		return err
	}
	if o.Notes == nil {
		o.Notes = io.Discard
	}
	g := &game{o: o, dev: d, out: out}
	if o.Type == verbs.UD {
		g.at = verbs.GRHLen
	}
	if err := g.prepare(); err != nil {
		return err
	}
	if err := g.meet(ctx); err != nil {
		return err
	}
	defer g.conn.Close()
	return g.play(ctx)
}

// checkSize says whether the interface has room for the packets.
func checkSize(d *verbs.Device, o *Options) error {
	active := d.QueryPort().ActiveMTU.Bytes()
	if o.Type == verbs.UD && o.Size > active {
		return fmt.Errorf("messages of %d bytes: a datagram of %s has at most %d: choose a smaller size (-s)", o.Size, d.Name(), active)
	}
	return rig.CheckMTU(d, o.MTU)
}

// MaxQPs is how many QPs a game with an SRQ may have: as many addresses are exchanged.
const MaxQPs = 256

// qkey is that of the UD QPs of ibv_ud_pingpong.
const qkey = 0x11111111

// Work request ids, as bits: what a side waits for before it sends again.
const (
	recvWR = 1
	sendWR = 2
)

type game struct {
	o    Options
	dev  *verbs.Device
	pd   *verbs.PD
	out  io.Writer
	buf  []byte // of a message; UD has room for the GRH before it
	at   int    // where the message begins
	mr   *verbs.MR
	srq  *verbs.SRQ // nil: receives are posted to the one QP
	done rig.Completions

	conn  net.Conn     // with the peer
	moves atomic.Int64 // completions

	players    []*player // one, but with an SRQ
	posted     int       // receives
	sent, rcvd int
	gid        int
	told       bool // the local addresses have been printed
}

// player is a QP.
type player struct {
	qp      *verbs.QP
	send    verbs.SendWR
	pending uint64 // what is waited for before the next send
}

// prepare makes the QP and posts receives.
func (g *game) prepare() (err error) {
	if g.pd, err = g.dev.AllocPD(); err != nil {
		return err
	}
	g.buf = make([]byte, max(g.at+g.o.Size, 1))
	g.fill()
	if g.mr, err = g.pd.RegMR(g.buf, verbs.LocalWrite); err != nil {
		return err
	}
	var ch *verbs.CompChannel
	if g.o.Events {
		if ch, err = g.dev.CreateCompChannel(); err != nil {
			return err
		}
	}
	if g.done.CQ, err = g.dev.CreateCQ(g.o.RxDepth+g.qps(), ch); err != nil {
		return err
	}
	if g.o.SRQ {
		if g.srq, err = g.pd.CreateSRQ(verbs.SRQAttr{MaxWR: g.o.RxDepth, MaxSGE: 1}); err != nil {
			return err
		}
	}
	for range g.qps() {
		if err := g.addPlayer(); err != nil {
			return err
		}
	}
	return g.postRecv()
}

// qps returns how many QPs there are.
func (g *game) qps() int {
	if g.o.SRQ {
		return g.o.QPs
	}
	return 1
}

// addPlayer makes a QP in INIT.
func (g *game) addPlayer() error {
	q, err := g.pd.CreateQP(verbs.QPInitAttr{Type: g.o.Type, SendCQ: g.done.CQ, RecvCQ: g.done.CQ, SRQ: g.srq, Caps: verbs.Caps{
		MaxSendWR: 1, MaxRecvWR: g.o.RxDepth, MaxSendSGE: 1, MaxRecvSGE: 1}})
	if err != nil {
		return err
	}
	g.players = append(g.players, &player{qp: q, send: verbs.SendWR{
		ID: sendWR, Opcode: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{g.mr.SGE(g.at, g.o.Size)}}})
	return q.ToInit(verbs.ConnectOptions{QKey: qkey, PKeyIndex: g.o.PKeyIndex})
}

// pageSize is the distance of the bytes that are validated.
const pageSize = 4096

// fill makes the messages' contents: those of the client and of the server differ, but for the bytes that are validated.
func (g *game) fill() {
	msg := g.buf[g.at:]
	for i := range msg {
		msg[i] = 0x7b
		if g.o.Host == "" {
			msg[i]++
		}
		if g.o.Check && g.o.Host != "" && i%pageSize == 0 {
			msg[i] = 0
		}
	}
}

// postRecv fills the receive queue.
func (g *game) postRecv() error {
	post := g.players[0].qp.PostRecv
	if g.srq != nil {
		post = g.srq.PostRecv
	}
	for ; g.posted < g.o.RxDepth; g.posted++ {
		if _, err := post(verbs.RecvWR{ID: recvWR, SGEs: []verbs.SGE{g.mr.SGE(0, g.at+g.o.Size)}}); err != nil {
			return err
		}
	}
	return nil
}

func (p *player) postSend() error {
	_, err := p.qp.PostSend(p.send)
	p.pending = recvWR | sendWR
	return err
}

// meet finds the peer and connects with it.
func (g *game) meet(ctx context.Context) (err error) {
	if g.o.GID >= 0 {
		if err := g.useGID(ib.GID{}); err != nil {
			return err
		}
	}
	with := g.askServer
	if g.o.Host == "" {
		with = g.answerClient
		g.conn, err = listen(ctx, g.o.Port)
	} else {
		g.conn, err = dial(ctx, g.o.Host, g.o.Port)
	}
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { g.conn.Close() })()
	if err := with(); err != nil {
		g.conn.Close()
		return err
	}
	return nil
}

func (g *game) askServer() error {
	if err := g.useGID(rig.PeerGID(g.conn)); err != nil {
		return err
	}
	local, err := g.addresses()
	if err != nil {
		return err
	}
	remote, err := asClient(g.conn, local)
	if err != nil {
		return err
	}
	return g.connect(remote)
}

func (g *game) answerClient() error {
	return asServer(g.conn, g.exchanged(), func(remote []verbs.Endpoint) ([]verbs.Endpoint, error) {
		if err := g.useGID(remote[0].GID); err != nil {
			return nil, err
		}
		if err := g.connect(remote); err != nil {
			return nil, err
		}
		return g.addresses()
	})
}

// exchanged returns how many addresses each side tells: ibv_srq_pingpong those too that it doesn't use.
func (g *game) exchanged() int {
	if g.o.SRQ {
		return MaxQPs
	}
	return 1
}

// addresses returns what the peer is told.
func (g *game) addresses() (list []verbs.Endpoint, err error) {
	list = make([]verbs.Endpoint, g.exchanged())
	for i, p := range g.players {
		if list[i], err = p.qp.Endpoint(g.gid); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// useGID settles by which GID the peer is reached, and tells the addresses.
func (g *game) useGID(peer ib.GID) (err error) {
	if g.told {
		return nil
	}
	if g.gid, err = rig.PickGID(g.dev, g.o.GID, peer); err != nil {
		return err
	}
	local, err := g.addresses()
	for i := range g.players {
		fmt.Fprintf(g.out, "  local address:  %v\n", local[i])
	}
	g.told = true
	return err
}

// connect takes the QPs to RTS.
func (g *game) connect(remote []verbs.Endpoint) error {
	for i, p := range g.players {
		fmt.Fprintf(g.out, "  remote address: %v\n", remote[i])
		if err := g.connectOne(p, remote[i]); err != nil {
			return err
		}
	}
	return nil
}

func (g *game) connectOne(p *player, remote verbs.Endpoint) error {
	switch {
	case g.o.SRQ && remote.QPN == 0:
		return fmt.Errorf("the peer has fewer QPs than the %d of this side: both need the same number (-q)", len(g.players))
	case remote.GID.IsZero():
		return fmt.Errorf("the peer told no GID, which RoCE needs: give it one, ibv_*_pingpong -g INDEX")
	case g.o.Type == verbs.UD:
		return g.start(p, remote)
	}
	return p.qp.Connect(remote, verbs.ConnectOptions{
		GIDIndex: g.gid, PathMTU: g.o.MTU, SL: g.o.SL, MaxRdAtomic: 1, MaxDestRdAtomic: 1,
	})
}

// start readies a datagram QP to talk to a peer.
func (g *game) start(p *player, remote verbs.Endpoint) (err error) {
	if err := p.qp.Start(verbs.ConnectOptions{}); err != nil {
		return err
	}
	p.send.RemoteQPN, p.send.RemoteQKey = remote.QPN, qkey
	p.send.AH, err = g.pd.CreateAH(verbs.AV{DGID: remote.GID, SGIDIndex: uint8(g.gid), SL: g.o.SL})
	return err
}

// play exchanges the messages. The client sends first.
func (g *game) play(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { g.watch(ctx, end) })
	defer watching.Wait()
	defer end(nil)
	start := clock.Now()
	for _, p := range g.players {
		p.pending = recvWR
		if g.o.Host == "" {
			continue
		}
		if err := p.postSend(); err != nil {
			return err
		}
	}
	var wcs [16]verbs.WC
	for g.sent < g.o.Iters || g.rcvd < g.o.Iters {
		n, err := g.done.Wait(ctx, wcs[:])
		if err != nil {
			return fmt.Errorf("after %d of %d exchanges: %w", min(g.sent, g.rcvd), g.o.Iters, err)
		}
		for i := range wcs[:n] {
			if err := g.completed(&wcs[i]); err != nil {
				return err
			}
		}
	}
	g.report(float64(clock.Now().Sub(start).Nanoseconds()) / 1e3)
	return g.validate()
}

func (g *game) completed(wc *verbs.WC) error {
	if wc.Status != verbs.Success {
		return fmt.Errorf("failed status %v (%d) for wr_id %d, after %d of %d exchanges", wc.Status, wc.Status, wc.ID, min(g.sent, g.rcvd), g.o.Iters)
	}
	g.moves.Add(1)
	if wc.ID == sendWR {
		g.sent++
	} else {
		g.rcvd++
		if g.posted--; g.posted <= len(g.players) {
			if err := g.postRecv(); err != nil {
				return err
			}
		}
	}
	p := g.player(wc.QPN)
	if p.pending &^= wc.ID; p.pending == 0 && g.sent < g.o.Iters {
		return p.postSend()
	}
	return nil
}

// player returns that of a QP.
func (g *game) player(num ib.QPN) *player {
	return g.players[slices.IndexFunc(g.players, func(p *player) bool { return p.qp.Number() == num })]
}

func (g *game) report(usec float64) {
	bytes := 2 * g.o.Size * g.o.Iters
	fmt.Fprintf(g.out, "%d bytes in %.2f seconds = %.2f Mbit/sec\n", bytes, usec/1e6, float64(bytes)*8/usec)
	fmt.Fprintf(g.out, "%d iters in %.2f seconds = %.2f usec/iter\n", g.o.Iters, usec/1e6, usec/float64(g.o.Iters))
}

// validate checks what was received last: the client's first message has gone to and fro ever since.
func (g *game) validate() error {
	if !g.o.Check {
		return nil
	}
	for i := 0; i < g.o.Size; i += pageSize {
		if b := g.mr.Load8(g.at + i); b != 0 {
			return fmt.Errorf("invalid data in page %d: 0x%02x", i/pageSize, b)
		}
	}
	return nil
}
