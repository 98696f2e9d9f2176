package netns

import (
	"errors"
	"os"
	"testing"

	"github.com/cilium/ebpf/link"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/verbs"
	"github.com/urxe/urxe/xdp"
)

// Who takes our program off the interface can't do so by ip link; one who forces its link off cuts the port from its
// packets, as if the interface were removed: the port is down and its QPs end, also those that send nothing. The device
// closes, and can be opened again.
func TestProgramTakenAway(t *testing.T) {
	p := nettest.New(t, nettest.Config{})
	before := takeStock(t)
	devs := [2]*verbs.Device{open(t, p.Ends[0]), open(t, p.Ends[1])}
	a, b := newSide(devs[0], chunks*chunk, p.Ends[0].V4), newSide(devs[1], chunks*chunk, p.Ends[1].V4)
	l := loaded(t, a, b, quick)
	if out, err := p.Ends[1].NS.Output("ip", "link", "set", "dev", p.Ends[1].Name, "xdp", "off"); err == nil || !hasProgram(t, p.Ends[1]) {
		t.Errorf("ip link took the program off: %s", out)
	}
	l.progresses(t, 20)
	must(b.qp.PostRecv(verbs.RecvWR{SGEs: []verbs.SGE{b.mr.SGE(0, 100)}}))
	detach(t, p.Ends[1])
	wantEvent(t, devs[1], verbs.EventDeviceFatal)
	wantEvent(t, devs[1], verbs.EventPortErr)
	if wc := b.wait(t, 1)[0]; wc.Status != verbs.WRFlushErr {
		t.Errorf("a receive of the port without a program: %+v", wc)
	}
	if _, err := b.pd.CreateQP(verbs.QPInitAttr{SendCQ: b.cq, RecvCQ: b.cq}); !errors.Is(err, xdp.ErrDetached) {
		t.Errorf("a new QP: %v", err)
	}
	if s := l.fails(t); s != verbs.RetryExcErr {
		t.Errorf("status %v, want %v", s, verbs.RetryExcErr)
	}
	if err := errors.Join(devs[0].Close(), devs[1].Close()); err != nil {
		t.Error(err)
	}
	before.compare(t)
	for i, e := range p.Ends {
		devs[i] = open(t, e)
	}
	x, y := newSides(t, p, devs, 1<<16, verbs.ConnectOptions{})
	everyOperation(t, x, y, 5001, 1, nil)
}

// detach forces the link of our program off an end, as bpftool link detach does.
func detach(t *testing.T, e *nettest.End) {
	t.Helper()
	for _, id := range bpfHeldBy(t, os.Getpid()) {
		if id.kind != "link" {
			continue
		}
		k, err := link.NewFromID(link.ID(id.id))
		if err != nil {
			t.Fatal(err)
		}
		defer k.Close()
		info, err := k.Info()
		if err != nil {
			t.Fatal(err)
		}
		if x := info.XDP(); x != nil && int(x.Ifindex) == e.Index {
			if err := k.Detach(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if hasProgram(t, e) {
		t.Fatal("the program is still there")
	}
}
