package rdmacm_test

import (
	"context"
	"fmt"
	"log"
	"net/netip"

	"github.com/urxe/urxe/verbs"
	"github.com/urxe/urxe/verbs/rdmacm"
)

// peer is what an end needs: a QP, its completions, and memory.
type peer struct {
	cq *verbs.CQ
	mr *verbs.MR
	qp *verbs.QP
}

func newPeer(d *verbs.Device) (p peer, err error) {
	pd, err := d.AllocPD()
	if err != nil {
		return p, err
	}
	if p.cq, err = d.CreateCQ(16, nil); err != nil {
		return p, err
	}
	if p.mr, err = pd.RegMR(make([]byte, 4096), verbs.LocalWrite); err != nil {
		return p, err
	}
	p.qp, err = pd.CreateQP(verbs.QPInitAttr{SendCQ: p.cq, RecvCQ: p.cq})
	return p, err
}

// wait polls until a work request has completed.
func (p peer) wait() (wc [1]verbs.WC) {
	for p.cq.Poll(wc[:]) == 0 {
	}
	return wc
}

// serve accepts one connection, and prints the message that comes.
func serve(d *verbs.Device, l *rdmacm.Listener) error {
	r, err := l.Accept(context.Background())
	if err != nil {
		return err
	}
	p, err := newPeer(d)
	if err != nil {
		return err
	}
	// A message may come as soon as the request is accepted: its receive is posted before.
	if err := p.qp.ToInit(verbs.ConnectOptions{}); err != nil {
		return err
	}
	if _, err := p.qp.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{p.mr.SGE(0, 100)}}); err != nil {
		return err
	}
	c, err := r.Accept(context.Background(), rdmacm.Options{QP: p.qp})
	if err != nil {
		return err
	}
	defer c.Close()
	wc := p.wait()
	fmt.Printf("server: %v of %q\n", wc[0].Opcode, p.mr.Bytes()[:wc[0].ByteLen])
	<-c.Done()
	fmt.Println("server: disconnected")
	return nil
}

// Two devices joined in memory; verbs.Open("eth0", verbs.Options{}) opens a real one, whose peer may be any program that
// uses librdmacm.
func Example() {
	d0, d1, err := verbs.OpenPair(verbs.PairOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer d0.Close()
	defer d1.Close()
	l, err := rdmacm.Listen(d1, netip.MustParseAddrPort("192.0.2.2:18515"), rdmacm.ListenOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()
	served := make(chan error)
	go func() { served <- serve(d1, l) }()

	p, err := newPeer(d0)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	c, err := rdmacm.Dial(ctx, d0, l.Addr(), rdmacm.DialOptions{Options: rdmacm.Options{QP: p.qp}})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	p.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, Flags: verbs.Signaled, InlineData: []byte("hello")})
	p.wait()
	if err := c.Disconnect(ctx, nil); err != nil {
		log.Fatal(err)
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	// Output:
	// server: RECV of "hello"
	// server: disconnected
}
