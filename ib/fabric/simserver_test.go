package fabric

import (
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// simServer speaks ibsim's protocol with the programs that ibsim's library is
// preloaded to, over a fabric in memory: so stock opensm and the stock tools
// judge whether it is a subnet like others. Package ibsim documents the protocol.
type simServer struct {
	t    *testing.T
	f    *Fabric
	name string
	ctl  *net.UnixConn
	last int
	all  map[uint32]*simClient
}

// simClient is a program at a node.
type simClient struct {
	id   uint32 // The program's own choice.
	end  *Endpoint
	node *Node
	port *port
	data *net.UnixConn
	out  chan [288]byte
}

var simCount atomic.Uint32

func serveSim(t *testing.T, f *Fabric) *simServer {
	s := &simServer{t: t, f: f, name: fmt.Sprintf("urxefab%d.%d", os.Getpid(), simCount.Add(1)), all: map[uint32]*simClient{}}
	var err error
	if s.ctl, err = net.ListenUnixgram("unixgram", s.addr("ctl")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.ctl.Close()
		for _, c := range s.all {
			c.close()
		}
	})
	go s.run()
	return s
}

func (s *simServer) addr(suffix string) *net.UnixAddr {
	return &net.UnixAddr{Name: "@" + s.name + ":" + suffix + "\x00", Net: "unixgram"}
}

func (s *simServer) run() {
	host := binary.NativeEndian
	var b [80]byte
	for {
		n, err := s.ctl.Read(b[:])
		if err != nil {
			return
		}
		if n != 80 || host.Uint32(b[:]) != 0xdeadbeef {
			continue
		}
		// The sender's name ends in a NUL, which package net would cut off.
		from := host.Uint32(b[16:])
		if c := s.all[host.Uint32(b[4:])]; c != nil && host.Uint32(b[8:]) != 1 {
			from = c.id
		}
		if !s.control(host.Uint32(b[4:]), host.Uint32(b[8:]), b[16:]) {
			host.PutUint32(b[8:], 0)
		}
		if _, err := s.ctl.WriteToUnix(b[:], s.addr(fmt.Sprintf("ctl%d", from))); err != nil {
			s.t.Log(err)
		}
	}
}

// control does what a control message asks, and puts the answer into d.
func (s *simServer) control(client, typ uint32, d []byte) bool {
	host := binary.NativeEndian
	if typ == 1 {
		return s.connect(d)
	}
	c := s.all[client]
	if c == nil {
		return false
	}
	switch typ {
	case 2:
		c.close()
		delete(s.all, client)
	case 3:
		host.PutUint16(d, uint16(c.end.Local().LID))
		d[2] = byte(c.end.Local().State)
	case 4:
		clear(d)
	case 5:
		binary.BigEndian.PutUint64(d, c.end.Local().GIDPrefix)
		host.PutUint64(d[8:], uint64(c.node.GUID()))
	case 6:
		host.PutUint64(d, uint64(c.node.GUID()))
	case 7:
		clear(d)
		copy(d, c.node.info[:])
		mad.NodeInfo(d).SetPortGUID(c.node.PortGUID(int(c.port.num)))
		mad.NodeInfo(d).SetLocalPortNum(c.port.num)
	case 8:
		num := int(d[0])
		if num == 0 {
			num = int(c.port.num)
		}
		copy(d, c.node.Info(num))
		mad.PortInfo(d).SetLocalPortNum(uint8(num))
	case 9:
		return c.end.SetSM(host.Uint32(d) != 0) == nil
	case 10:
		clear(d)
		for i, k := range c.end.Local().PKeys {
			mad.PKeyTable(d).SetPKey(i, k)
		}
	}
	return true
}

func (s *simServer) connect(d []byte) bool {
	host := binary.NativeEndian
	id, sm := host.Uint32(d), host.Uint32(d[8:]) != 0
	node := s.f.Nodes()[0]
	if name := mad.NodeDescription(append(append([]byte(nil), d[12:44]...), make([]byte, 32)...)).Description(); name != "" {
		node = s.f.Node(name)
	}
	if node == nil {
		return false
	}
	num := 1
	if node.isSwitch() {
		num = 0
	}
	c := &simClient{id: id, node: node, port: node.port(num), out: make(chan [288]byte, 1<<16)}
	end, err := s.f.Attach(node, num, c.deliver)
	if err != nil || sm && end.SetSM(true) != nil {
		return false
	}
	c.end = end
	slot := s.last
	s.last++
	if c.data, err = net.DialUnix("unixgram", s.addr(fmt.Sprintf("out%d", slot)), s.addr(fmt.Sprintf("in%d", id))); err != nil {
		s.t.Log(err)
		return false
	}
	s.all[uint32(slot)] = c
	go c.read(s.f)
	go c.write()
	host.PutUint32(d, uint32(slot))
	copy(d[12:44], node.ID()+"\x00")
	return true
}

func (c *simClient) close() {
	c.end.Detach()
	c.data.Close()
}

func (c *simClient) deliver(p *mad.Packet) {
	var b [288]byte
	binary.BigEndian.PutUint16(b[0:], uint16(mad.PortInfo(c.port.info[:]).LID()))
	binary.BigEndian.PutUint16(b[4:], uint16(p.Addr.LID))
	binary.BigEndian.PutUint32(b[8:], uint32(p.MAD().Class().QPN()))
	binary.BigEndian.PutUint32(b[12:], uint32(p.Addr.QPN))
	binary.BigEndian.PutUint64(b[24:], mad.Size)
	copy(b[32:], p.Data[:])
	select {
	case c.out <- b:
	default:
	}
}

func (c *simClient) write() {
	for b := range c.out {
		if _, err := c.data.Write(b[:]); err != nil {
			return
		}
	}
}

// read carries what the program sends. As ibsim does, it sends back at once
// what was lost, since the program has no timers.
func (c *simClient) read(f *Fabric) {
	var b [288]byte
	for {
		if n, err := c.data.Read(b[:]); err != nil || n != len(b) {
			return
		}
		p := &mad.Packet{Addr: mad.Addr{LID: ib.LID(binary.BigEndian.Uint16(b[0:])), QPN: ib.QPN(binary.BigEndian.Uint32(b[8:]))}}
		copy(p.Data[:], b[32:])
		f.mu.Lock()
		before := f.stats.Dropped + f.stats.Lost
		f.mu.Unlock()
		if err := c.end.Inject(p); err != nil {
			return
		}
		f.mu.Lock()
		lost := f.stats.Dropped+f.stats.Lost > before
		f.mu.Unlock()
		if lost && !p.MAD().IsResponse() {
			b[19] = 110
			c.out <- b
		}
	}
}
