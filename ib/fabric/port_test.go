package fabric

import (
	"testing"

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
