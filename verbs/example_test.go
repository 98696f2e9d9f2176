package verbs_test

import (
	"fmt"
	"log"

	"github.com/urxe/urxe/verbs"
)

// peer is one side: a QP with its CQ and a registered buffer.
type peer struct {
	cq *verbs.CQ
	qp *verbs.QP
	mr *verbs.MR
}

func newPeer(d *verbs.Device) (*peer, error) {
	pd, err := d.AllocPD()
	if err != nil {
		return nil, err
	}
	mr, err := pd.RegMR(make([]byte, 4096), verbs.LocalWrite|verbs.RemoteWrite)
	if err != nil {
		return nil, err
	}
	cq, err := d.CreateCQ(256, nil)
	if err != nil {
		return nil, err
	}
	qp, err := pd.CreateQP(verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq})
	return &peer{cq, qp, mr}, err
}

// connect tells p of its peer, which on two machines goes over TCP, say.
func (p *peer) connect(to *peer) error {
	remote, err := to.qp.Endpoint(0)
	if err != nil {
		return err
	}
	return p.qp.Connect(remote, verbs.ConnectOptions{Access: verbs.RemoteWrite})
}

// next waits for a completion.
func (p *peer) next() verbs.WC {
	var wcs [1]verbs.WC
	for p.cq.Poll(wcs[:]) == 0 {
	}
	if err := wcs[0].Err(); err != nil {
		log.Fatal(err)
	}
	return wcs[0]
}

// Two devices joined in memory; verbs.Open("eth0", verbs.Options{}) opens a real one.
func Example() {
	d0, d1, err := verbs.OpenPair(verbs.PairOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer d0.Close()
	defer d1.Close()
	alice, err := newPeer(d0)
	if err != nil {
		log.Fatal(err)
	}
	bob, err := newPeer(d1)
	if err != nil {
		log.Fatal(err)
	}
	if err := alice.connect(bob); err != nil {
		log.Fatal(err)
	}
	if err := bob.connect(alice); err != nil {
		log.Fatal(err)
	}

	// Two-sided: bob posts a receive, alice sends.
	bob.qp.PostRecv(verbs.RecvWR{ID: 1, SGEs: []verbs.SGE{bob.mr.SGE(0, 100)}})
	n := copy(alice.mr.Bytes(), "hello")
	alice.qp.PostSend(verbs.SendWR{ID: 2, Opcode: verbs.OpSend, Flags: verbs.Signaled, SGEs: []verbs.SGE{alice.mr.SGE(0, n)}})
	wc := bob.next()
	fmt.Printf("bob: %v, wr_id %d: %q\n", wc.Opcode, wc.ID, bob.mr.Bytes()[:wc.ByteLen])
	wc = alice.next()
	fmt.Printf("alice: %v, wr_id %d\n", wc.Opcode, wc.ID)

	// One-sided: alice writes into bob's memory, and bob learns of it by the immediate data.
	bob.qp.PostRecv(verbs.RecvWR{ID: 3})
	alice.qp.PostSend(verbs.SendWR{Opcode: verbs.OpWriteImm, InlineData: []byte("written"), Imm: 7,
		RemoteAddr: bob.mr.IOVA() + 200, RKey: bob.mr.RKey()})
	wc = bob.next()
	fmt.Printf("bob: %v, immediate %d: %q\n", wc.Opcode, wc.Imm, bob.mr.Bytes()[200:200+wc.ByteLen])
	// Output:
	// bob: RECV, wr_id 1: "hello"
	// alice: SEND, wr_id 2
	// bob: RECV_WRITE_IMM, immediate 7: "written"
}
