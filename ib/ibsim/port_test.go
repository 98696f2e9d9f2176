package ibsim

import (
	"testing"

	"github.com/urxe/urxe/ib/ibsim/ibsimtest"
	"github.com/urxe/urxe/ib/internal/porttest"
	"github.com/urxe/urxe/ib/mad"
)

func TestPortContract(t *testing.T) {
	s := ibsimtest.Start(t, "testdata/ft32.net")
	porttest.Run(t, porttest.Setup{
		Open:    func(t *testing.T) mad.Port { return open(t, Options{SockName: s.Name, Node: "h3"}) },
		Nowhere: []byte{1, 99},
	})
}

func TestPortContractOverUDP(t *testing.T) {
	s := ibsimtest.StartRemote(t, "testdata/ft32.net")
	porttest.Run(t, porttest.Setup{
		Open:    func(t *testing.T) mad.Port { return open(t, Options{Server: s.Addr, Node: "h3"}) },
		Nowhere: []byte{1, 99},
	})
}
