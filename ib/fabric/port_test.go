package fabric

import (
	"testing"
	"time"

	"github.com/urxe/urxe/ib/internal/porttest"
	"github.com/urxe/urxe/ib/mad"
)

func TestPortContract(t *testing.T) {
	f := load(t, "ring8.net")
	porttest.Run(t, porttest.Setup{
		Open: func(t *testing.T) mad.Port {
			p, err := f.Open("h3", 0)
			if err != nil {
				t.Fatal(err)
			}
			return p
		},
		Nowhere: []byte{1, 8},
	})
}

// Long answers come through, with a tenth of all MADs lost too.
func TestClientAndRMPP(t *testing.T) {
	for _, loss := range []float64{0, 0.1} {
		f := load(t, "ring8.net")
		lids := bringUp(attach(t, f, "h0", 1))
		server, err := f.Open("h5", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		if err := server.SetSM(true); err != nil {
			t.Fatal(err)
		}
		table := porttest.Table(400, 112)
		go porttest.ServeTable(server, 112, table)
		f.SetLosses(Loss{Requests: loss, Answers: loss})
		p, err := f.Open("h3", 0)
		if err != nil {
			t.Fatal(err)
		}
		porttest.Query(t, p, lids[f.Node("h5")], 112, table)
	}
}

// What a subnet manager does most takes no memory.
func TestSendAndRecvDoNotAllocate(t *testing.T) {
	f := load(t, "ring8.net")
	p, err := f.Open("h3", 0)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	pkt := &mad.Packet{Addr: mad.Direct, Timeout: time.Minute}
	if err := pkt.MAD().InitSMP(mad.MethodSet, mad.AttrLinearFT, 3, []byte{1}); err != nil {
		t.Fatal(err)
	}
	ps := make([]mad.Packet, 4)
	if n := testing.AllocsPerRun(1000, func() {
		pkt.MAD().SetTID(pkt.MAD().TID() + 1)
		if err := p.Send(pkt); err != nil {
			t.Fatal(err)
		}
		if n, err := p.Recv(ps); n != 1 || err != nil {
			t.Fatal(n, err)
		}
	}); n != 0 {
		t.Errorf("%v allocations a request", n)
	}
}
