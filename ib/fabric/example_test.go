package fabric_test

import (
	"fmt"
	"log"
	"time"

	"github.com/urxe/urxe/ib/fabric"
	"github.com/urxe/urxe/ib/mad"
)

// A host asks the switch that it is cabled to who it is. The same code runs on
// a port of package umad or ibsim.
func Example() {
	f := fabric.New(fabric.Defaults{})
	if err := f.BuildTree(2, 2, 4, 1); err != nil {
		log.Fatal(err)
	}
	port, err := f.Open("h0", 1)
	if err != nil {
		log.Fatal(err)
	}
	defer port.Close()
	ask := &mad.Packet{Addr: mad.Direct, Timeout: time.Second, Retries: 3}
	if err := ask.MAD().InitSMP(mad.MethodGet, mad.AttrNodeInfo, 0, []byte{1}); err != nil {
		log.Fatal(err)
	}
	if err := port.Send(ask); err != nil {
		log.Fatal(err)
	}
	var got [1]mad.Packet
	if _, err := port.Recv(got[:]); err != nil || got[0].Err != nil {
		log.Fatal(err, got[0].Err)
	}
	node := mad.NodeInfo(got[0].MAD().Data())
	fmt.Println(node.NodeType(), node.NodeGUID(), "has", node.NumPorts(), "ports; we are at", node.LocalPortNum())
	// Output: Switch 0000:0000:0020:0000 has 6 ports; we are at 1
}
