package golden

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/rocev2/mem"
	"github.com/urxe/urxe/rocev2/qp"
	"github.com/urxe/urxe/rocev2/qptest"
	"github.com/urxe/urxe/rocev2/wire"
)

// asker is the other end of a talk: a QP of ours that gets the work requests
// whose packets the capture has, and the answers that it has.
type asker struct {
	*bench
	*talk
	qp     *rocev2.QP
	mtu    ib.MTU
	sq     qptest.SendQueue
	rq     qptest.RecvQueue
	cq     completions
	memory []byte // what the messages carry, one behind the other; where answers go
	mr     *mem.MR
	used   int
	sent   []*packet
}

// TestReplayRequester has QPs of ours ask what the QPs of rxe asked, and compares
// the packets, each as it was sent first.
func TestReplayRequester(t *testing.T) {
	table, packets := newAccount(t, requests), 0
	for _, file := range files(t) {
		name := strings.TrimSuffix(file, ".pcap")
		if notTalks[name] != "" {
			continue
		}
		t.Run(name, func(t *testing.T) {
			found := map[string]int{}
			for _, k := range talks(t, name, load(t, file)) {
				if k.transport == wire.UD {
					t.Logf("%v: %d packets; TestReplay has them", k, len(k.packets))
					continue
				}
				a := newAsker(t, name, k)
				want := a.ask()
				packets += len(want)
				for what, n := range differences(want, firsts(a.sent)) {
					found[what] += n
				}
			}
			table.settle(t, name, found)
		})
	}
	table.close()
	t.Logf("%d request packets", packets)
	if packets < 2000 {
		t.Errorf("%d request packets: captures are missing", packets)
	}
}

// firsts leaves out what is sent again.
func firsts(packets []*packet) (list []*packet) {
	seen := map[ib.PSN]bool{}
	for _, p := range packets {
		if !seen[p.PSN] {
			seen[p.PSN] = true
			list = append(list, p)
		}
	}
	return list
}

func newAsker(t *testing.T, name string, k *talk) *asker {
	t.Helper()
	first := k.requests()[0]
	a := &asker{bench: newBench(t, first.flow), talk: k, mtu: k.mtu(), memory: make([]byte, 1<<20)}
	pd := new(mem.PD)
	var err error
	a.mr, err = a.port.Keys().Register(pd, mem.NewBytes(a.memory, 0), 0, 0, uint64(len(a.memory)), mem.LocalWrite)
	if err != nil {
		t.Fatal(err)
	}
	a.qp, err = a.port.CreateQP(rocev2.QPInit{Type: typeOf[k.transport], PD: pd, SQ: &a.sq, RQ: &a.rq, SendCQ: &a.cq, RecvCQ: &a.cq,
		Caps: qp.Caps{MaxSendWR: 256, MaxRecvWR: 1, MaxSendSGE: 1, MaxRecvSGE: 1}, Number: k.asker()})
	if err != nil {
		t.Fatal(err)
	}
	// Timeout 0: time passes to end RNR waits only.
	err = start(a.qp, typeOf[k.transport], qp.Attr{Port: 1, PathMTU: a.mtu, DestQPN: k.qpn, SQPSN: first.PSN,
		MaxRdAtomic: qp.MaxRdAtomic, RetryCnt: 7, RNRRetry: 7, AV: k.vector(first.flow, sceneOf(name))})
	if err != nil {
		t.Fatal(err)
	}
	return a
}

// asker returns the QPN that the requests come from. Where no packet tells, as
// nothing is answered, it is one that makes their UDP source port.
func (k *talk) asker() ib.QPN {
	n := k.peerQPN
	for f := k.packets[0].flow; k.peerQPN == 0 && (n < 2 || wire.SourcePort(0, n, k.qpn) != f.SrcPort); n++ {
	}
	return n
}

// ask makes the requests of the talk, and returns those of the capture.
func (a *asker) ask() (want []*packet) {
	a.t.Helper()
	next := a.requests()[0].PSN
	want = firsts(a.requests())
	for _, p := range a.packets {
		switch {
		case !p.request():
			a.answer(p)
		case p.PSN == next:
			n := slices.Index(want, p)
			m := message(want[n:])
			a.post(m)
			last := m[len(m)-1]
			next = last.PSN.Add(psns(last, a.mtu))
		}
	}
	return want
}

// message returns the packets of the message that begins a list.
func message(packets []*packet) []*packet {
	n := slices.IndexFunc(packets, func(p *packet) bool { return p.Opcode.Info().Place.Ends() })
	return packets[:n+1]
}

// answer hands the QP an answer of the capture. After an RNR NAK the wait passes.
func (a *asker) answer(p *packet) {
	_, sent := a.give(p)
	a.sent = append(a.sent, sent...)
	if p.Syndrome.IsRNR() {
		a.now = a.now.Add(time.Second)
		a.sent = append(a.sent, a.step()...)
	}
}

// operations are the work requests that make the packets.
var operations = map[wire.Operation]qp.WROpcode{
	wire.OpSend: qp.WRSend, wire.OpWrite: qp.WRWrite, wire.OpReadRequest: qp.WRRead, wire.OpCompareSwap: qp.WRCompareSwap,
	wire.OpFetchAdd: qp.WRFetchAdd, wire.OpFlush: qp.WRFlush, wire.OpAtomicWrite: qp.WRAtomicWrite,
}

// withImm are those with immediate data.
var withImm = map[qp.WROpcode]qp.WROpcode{qp.WRSend: qp.WRSendImm, qp.WRWrite: qp.WRWriteImm}

// post posts the work request that a message is of.
func (a *asker) post(m []*packet) {
	first, last := m[0], m[len(m)-1]
	w := &qp.SendWQE{Opcode: operations[first.Opcode.Info().Operation], RKey: first.RKey, RemoteAddr: first.VA, Imm: last.Imm,
		InvKey: last.InvKey, Flush: qp.Flush(first.Flush), CompareAdd: first.Compare, Swap: first.Swap}
	if last.SE {
		w.Flags |= qp.Solicited
	}
	switch ext := last.Opcode.Info().Ext; {
	case ext.Has(wire.ExtImmDt):
		w.Opcode = withImm[w.Opcode]
	case ext.Has(wire.ExtIETH):
		w.Opcode = qp.WRSendInv
	}
	n := a.fill(m)
	switch w.Opcode {
	case qp.WRRead:
		n = int(first.Length)
	case qp.WRFlush:
		w.Length = first.Length
	case qp.WRFetchAdd:
		n, w.CompareAdd, w.Swap = 8, first.Swap, 0
	case qp.WRCompareSwap:
		n = 8
	}
	if n > 0 {
		w.SGEs = []qp.SGE{{Addr: uint64(a.used), Length: uint32(n), LKey: a.mr.Key}}
	}
	a.used = (a.used + n + 7) &^ 7
	a.sq.Post(w)
	a.qp.Doorbell()
	a.sent = append(a.sent, a.step()...)
}

// fill puts the bytes of a message where they are sent from.
func (a *asker) fill(m []*packet) (n int) {
	for _, p := range m {
		n += copy(a.memory[a.used+n:], p.payload)
	}
	return n
}
