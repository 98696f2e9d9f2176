package umad

import (
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/ib/fabric"
	"github.com/urxe/urxe/ib/internal/inbox"
	"github.com/urxe/urxe/ib/internal/porttest"
	"github.com/urxe/urxe/ib/mad"
)

// fakeKernel does behind a device file what ib_umad does, over a port of a
// fabric in memory: it tells answers by the high half of the TID, which it
// sets, repeats requests, and returns the header of those without answer.
type fakeKernel struct {
	t    *testing.T
	far  *os.File
	end  *fabric.Endpoint
	in   *inbox.Inbox
	mu   sync.Mutex
	sent map[uint32]uint32 // Agents by the low half of the TID.
	busy map[uint32]bool   // Requests under way, likewise.
	done chan struct{}     // Closed when the program has closed its end.
}

// tag is the high half of the TIDs of an agent's requests. The fabric keeps 16
// bits of it for itself.
func tag(agent uint32) uint64 { return uint64(agent) << 32 }

func newFakeKernel(t *testing.T, far *os.File, f *fabric.Fabric, node string) *fakeKernel {
	k := &fakeKernel{t: t, far: far, sent: map[uint32]uint32{}, busy: map[uint32]bool{}, done: make(chan struct{})}
	k.in = inbox.New(1000, func(p *mad.Packet) { _ = k.end.Inject(p) })
	end, err := f.Attach(f.Node(node), 1, k.in.Deliver)
	if err != nil {
		t.Fatal(err)
	}
	k.end = end
	t.Cleanup(end.Detach)
	go k.write()
	go k.read()
	return k
}

// read takes messages from the program.
func (k *fakeKernel) read() {
	var b [messageSize]byte
	for {
		n, err := k.far.Read(b[:])
		if err != nil || n == 0 {
			k.in.Close(mad.ErrClosed)
			k.end.Detach()
			close(k.done)
			return
		}
		var p mad.Packet
		host.PutUint32(b[offStatus:], 0)
		if err := parseMessage(b[:n], &p); err != nil {
			k.t.Errorf("the kernel was given %v", err)
			continue
		}
		p.Timeout = time.Duration(host.Uint32(b[offTimeout:])) * time.Millisecond
		p.Retries = int(host.Uint32(b[offRetries:]))
		agent := host.Uint32(b[offAgent:])
		if !p.MAD().IsResponse() {
			p.MAD().SetTID(tag(agent) | uint64(p.Key()))
			k.mu.Lock()
			k.sent[p.Key()] = agent
			k.mu.Unlock()
		}
		if err := k.in.Begin(&p); err != nil {
			k.t.Errorf("%v", err)
			continue
		}
		_ = k.end.Inject(&p)
	}
}

// write hands packets to the program.
func (k *fakeKernel) write() {
	ps := make([]mad.Packet, 16)
	for {
		n, err := k.in.Recv(ps)
		if err != nil {
			return
		}
		for i := range ps[:n] {
			var b [messageSize]byte
			p := &ps[i]
			k.mu.Lock()
			putMessage(&b, p, k.sent[p.Key()])
			delete(k.busy, p.Key())
			k.mu.Unlock()
			out := b[:]
			if p.Err != nil {
				host.PutUint32(b[offStatus:], statusTimedOut)
				out = b[:headerSize+mad.HeaderSize]
			}
			if _, err := k.far.Write(out); err != nil {
				return
			}
		}
	}
}

// The promises of a mad.Port hold for umad too, as far as a kernel keeps its own.
func TestPortContract(t *testing.T) {
	f := fabric.New(fabric.Defaults{})
	if err := f.BuildTorus(2, 4); err != nil {
		t.Fatal(err)
	}
	node := f.Node("h3")
	h := newFakeHost(t, fakePort{"umad0", "h3", "1", "fe80:0000:0000:0000:" + full(uint64(node.PortGUID(1))), "InfiniBand", "4: ACTIVE", "5: LinkUp", "0x0"})
	h.write("class/infiniband/h3/node_guid", full(uint64(node.GUID())))
	if err := os.Remove(h.root.sys + "/class/infiniband/h3/ports/1/pkeys/1"); err != nil {
		t.Fatal(err)
	}
	porttest.Run(t, porttest.Setup{
		Open: func(t *testing.T) mad.Port {
			p, err := h.port(Options{})
			if err != nil {
				t.Fatal(err)
			}
			k := newFakeKernel(t, h.far["umad0"], f, "h3")
			return &watched{Port: p, k: k}
		},
		Nowhere: []byte{1, 8},
	})
}

func full(v uint64) string {
	const hex = "0123456789abcdef"
	s := ""
	for i := range 16 {
		if i > 0 && i%4 == 0 {
			s += ":"
		}
		s += string(hex[v>>(60-4*i)&15])
	}
	return s
}

// watched makes the fake kernel do at once what the real one does in a call:
// refuse TIDs that are under way, set IsSM, and clean up at close.
type watched struct {
	*Port
	k *fakeKernel
}

func (w *watched) Send(p *mad.Packet) error {
	if p.Timeout > 0 {
		w.k.mu.Lock()
		dup := w.k.busy[p.Key()]
		w.k.busy[p.Key()] = true
		w.k.mu.Unlock()
		if dup {
			return unix.EINVAL
		}
	}
	return w.Port.Send(p)
}

func (w *watched) SetSM(on bool) error {
	if err := w.Port.SetSM(on); err != nil {
		return err
	}
	return w.k.end.SetSM(on)
}

func (w *watched) Close() error {
	err := w.Port.Close()
	<-w.k.done
	return err
}
