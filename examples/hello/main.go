// Hello sends a message from one RDMA device to another, and then writes into
// the other's memory behind its back.
package main

import (
	"fmt"
	"log"

	"github.com/urxe/urxe/verbs"
)

// side is what either end needs: a queue pair, its completions, and memory.
type side struct {
	cq *verbs.CQ
	qp *verbs.QP
	mr *verbs.MR
}

func newSide(d *verbs.Device) side {
	pd := must(d.AllocPD())
	cq := must(d.CreateCQ(16, nil))
	mr := must(pd.RegMR(make([]byte, 4096), verbs.LocalWrite|verbs.RemoteWrite))
	qp := must(pd.CreateQP(verbs.QPInitAttr{SendCQ: cq, RecvCQ: cq}))
	return side{cq, qp, mr}
}

// wait polls until a work request has completed.
func (s side) wait() verbs.WC {
	var wc [1]verbs.WC
	for s.cq.Poll(wc[:]) == 0 {
	}
	return wc[0]
}

func main() {
	// On two machines, each opens its interface, verbs.Open("eth0", verbs.Options{}),
	// and they tell each other their Endpoint over TCP.
	d0, d1, err := verbs.OpenPair(verbs.PairOptions{})
	if err != nil {
		log.Fatal(err)
	}
	defer d0.Close()
	defer d1.Close()
	a, b := newSide(d0), newSide(d1)
	allow := verbs.ConnectOptions{Access: verbs.RemoteWrite}
	check(a.qp.Connect(must(b.qp.Endpoint(0)), allow))
	check(b.qp.Connect(must(a.qp.Endpoint(0)), allow))

	must(b.qp.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{b.mr.SGE(0, 100)}}))
	must(a.qp.PostSend(verbs.SendWR{Opcode: verbs.OpSend, InlineData: []byte("hello")}))
	wc := b.wait()
	fmt.Printf("%v of %d bytes: %s\n", wc.Opcode, wc.ByteLen, b.mr.Bytes()[:wc.ByteLen])

	must(a.qp.PostSend(verbs.SendWR{
		Opcode: verbs.OpWrite, Flags: verbs.Signaled, InlineData: []byte("written"),
		RemoteAddr: b.mr.IOVA() + 1000, RKey: b.mr.RKey(),
	}))
	wc = a.wait()
	fmt.Printf("%v: %v, first byte there %q\n", wc.Opcode, wc.Status, b.mr.Load8(1000))
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
