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
