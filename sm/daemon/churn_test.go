package daemon

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/fabric"
	"github.com/urxe/urxe/ib/ibsim"
	"github.com/urxe/urxe/ib/ibsim/ibsimtest"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/internal/seeded"
	"github.com/urxe/urxe/sm"
	"github.com/urxe/urxe/sm/check"
	"github.com/urxe/urxe/sm/subnet"
	"github.com/urxe/urxe/sm/topo"
)

// churn is a manager at host h0 of the simulator, and what must become of the
// subnet: the same fabric in memory, to which the same things happen.
type churn struct {
	t     *testing.T
	r     *rand.Rand
	sim   *ibsimtest.Server
	model *fabric.Fabric
	eye   *mad.Client // a second client of the simulator, to read what switches hold
	cut   []string    // what console commands ReLink

	mu   sync.Mutex
	snap *subnet.Snapshot
	said []string
}

func newChurn(t *testing.T, netfile string, r *rand.Rand) *churn {
	c := &churn{t: t, r: r, sim: ibsimtest.Start(t, netfile), model: fabric.New(fabric.Defaults{})}
	if err := c.model.Load(netfile); err != nil {
		t.Fatal(err)
	}
	at := ibsim.Options{SockName: c.sim.Name, Node: "h0"}
	watch, err := ibsim.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	c.eye = mad.NewClient(watch, mad.ClientOptions{Timeout: 100 * time.Millisecond, Retries: 5})
	port, err := ibsim.Open(at)
	if err != nil {
		t.Fatal(err)
	}
	local, err := port.Local()
	if err != nil {
		t.Fatal(err)
	}
	m := sm.New(sm.Config{Report: c.heard, Changed: c.published, SweepInterval: 2 * time.Second}, local)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- sm.NewRunner(port, m, nil).Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		port.Close()
		c.eye.Close()
	})
	return c
}

func (c *churn) heard(e sm.Event) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.said = append(c.said, e.Where+": "+e.Text)
}

func (c *churn) published(s *subnet.Snapshot) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.snap = s
}

func (c *churn) state() (*subnet.Snapshot, []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.snap, c.said
}

// reachable returns what is still connected to h0, and how many links that has.
func (c *churn) reachable() (nodes map[string]bool, links int) {
	h0 := c.model.Node("h0")
	nodes = map[string]bool{"h0": true}
	for queue := []*fabric.Node{h0}; len(queue) > 0; queue = queue[1:] {
		n := queue[0]
		for p := 1; p <= n.NumPorts(); p++ {
			peer, _ := n.Peer(p)
			if peer == nil || n.Info(p).PortState() == ib.PortDown {
				continue
			}
			links++
			if !nodes[peer.ID()] {
				nodes[peer.ID()] = true
				queue = append(queue, peer)
			}
		}
	}
	return nodes, links / 2
}

// differs tells what a snapshot has otherwise than the model; empty is nothing.
func (c *churn) differs(s *subnet.Snapshot) string {
	if s == nil {
		return "no snapshot"
	}
	want, links := c.reachable()
	have := map[string]bool{}
	ends := 0
	for i := range s.Fabric.Nodes {
		have[s.Fabric.Nodes[i].Desc] = true
		for _, p := range s.Fabric.NodePorts(int32(i)) {
			if p.Peer >= 0 {
				ends++
			}
		}
	}
	switch {
	case !maps.Equal(have, want):
		return fmt.Sprintf("nodes %v: want %v", sorted(have, want), sorted(want, have))
	case ends/2 != links:
		return fmt.Sprintf("%d links: want %d", ends/2, links)
	case len(s.Missing) > 0:
		return fmt.Sprintf("missing %v", s.Missing)
	case s.Routing == nil:
		return "no routing"
	}
	if err := s.Routing.Report.Err(); err != nil {
		return err.Error()
	}
	return ""
}

// sorted returns what is in a and not in b.
func sorted(a, b map[string]bool) []string {
	only := maps.Clone(a)
	maps.DeleteFunc(only, func(k string, _ bool) bool { return b[k] })
	return slices.Sorted(maps.Keys(only))
}

// settle waits until the subnet is what the model is, and what the switches hold
// stands the check.
func (c *churn) settle(what string, before map[string]bool, heard int) {
	c.t.Helper()
	why := ""
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		s, said := c.state()
		if why = c.differs(s); why != "" {
			continue
		}
		if why = c.audit(s); why != "" {
			continue // or the next sweep has begun
		}
		now, _ := c.reachable()
		for _, n := range sorted(before, now) {
			if !slices.ContainsFunc(said[heard:], func(l string) bool {
				return strings.Contains(l, fmt.Sprintf("%q", n)) && strings.Contains(l, "left the subnet")
			}) {
				c.t.Errorf("after %s: the report does not say that %s is cut off", what, n)
			}
		}
		return
	}
	_, said := c.state()
	c.t.Fatalf("after %s: %s\n%s", what, why, strings.Join(said[max(0, heard-10):], "\n"))
}

// audit reads the forwarding tables back, over the routes that they make, and
// checks them.
func (c *churn) audit(s *subnet.Snapshot) string {
	g, r := topo.NewGraph(s.Fabric), s.Routing
	lft := make([][]uint8, g.Switches())
	number := make([]int32, g.Switches()) // in the routing's graph, which may know more
	for i := range lft {
		number[i] = r.Graph.Switch(g.GUID[i])
		lid := s.Fabric.NodePorts(g.Node[i])[0].LID
		for b := 0; b*mad.LinearForwardingTableSize <= int(g.MaxLID); b++ {
			p := mad.Packet{Addr: mad.Addr{LID: lid}}
			p.MAD().Init(mad.ClassSubnLID, mad.MethodGet, mad.AttrLinearFT, uint32(b))
			m, err := c.eye.Do(context.Background(), &p)
			if err != nil {
				return fmt.Sprintf("%s: %v", g.Desc(int32(i)), err)
			}
			lft[i] = append(lft[i], m.MAD().Data()...)
		}
	}
	lane := func(a, b int32) uint8 { return r.Lane(number[a], number[b]) }
	if err := check.Run(check.Tables{Graph: g, LFT: lft, Lane: lane, Lanes: r.Lanes}).Err(); err != nil {
		return err.Error()
	}
	return ""
}

// breakOrMend does the next thing to both fabrics and says what it was.
func (c *churn) breakOrMend() string {
	if len(c.cut) > 0 && c.r.IntN(2) == 0 {
		i := c.r.IntN(len(c.cut))
		target := c.cut[i]
		c.cut = slices.Delete(c.cut, i, i+1)
		return c.do("ReLink", target)
	}
	nodes := c.model.Nodes()
	for {
		n := nodes[c.r.IntN(len(nodes))]
		own, _ := c.model.Node("h0").Peer(1)
		if n.ID() == "h0" || n.ID() == own.ID() {
			continue
		}
		target := fmt.Sprintf("%q", n.ID())
		if n.Type() != mad.NodeSwitch || c.r.IntN(5) > 0 {
			p := 1 + c.r.IntN(n.NumPorts())
			if peer, _ := n.Peer(p); peer == nil {
				continue
			}
			target = fmt.Sprintf("%s[%d]", target, p)
		}
		if !slices.Contains(c.cut, target) {
			c.cut = append(c.cut, target)
			return c.do("Unlink", target)
		}
	}
}

// do types a command at the simulator's console, and does the same to the model.
func (c *churn) do(verb, target string) string {
	c.sim.Console("%s %s", verb, target)
	var name string
	port := 0
	if i := strings.IndexByte(target, '['); i > 0 {
		fmt.Sscanf(target[i:], "[%d]", &port)
		target = target[:i]
	}
	fmt.Sscanf(target, "%q", &name)
	n := c.model.Node(name)
	for p := 1; p <= n.NumPorts(); p++ {
		if peer, _ := n.Peer(p); peer == nil || port != 0 && p != port {
			continue
		}
		change := n.Relink
		if verb == "Unlink" {
			change = n.Unlink
		}
		if err := change(p); err != nil {
			c.t.Fatal(err)
		}
	}
	return fmt.Sprintf("%s %s[%d]", verb, name, port)
}

// TestChurn: random links and switches of the stock simulator fail and return,
// several at a time. After each the manager has found what is left and no more,
// its report names what is cut off, and the tables that the switches hold
// reach everything without a credit loop.
func TestChurn(t *testing.T) {
	seed := seeded.Seed(t)
	for i, c := range []struct {
		net    string
		rounds int
	}{{"kfat8", 50}, {"torus4x4", 30}, {"random20", 20}} {
		t.Run(c.net, func(t *testing.T) {
			rounds := c.rounds
			if *long {
				rounds *= 10
			} else if testing.Short() {
				rounds = 5
			}
			runChurn(t, newChurn(t, "../testdata/"+c.net+".net", rand.New(rand.NewPCG(seed, uint64(i)))), rounds)
		})
	}
}

func runChurn(t *testing.T, c *churn, rounds int) {
	c.settle("the first sweep", nil, 0)
	var slowest, sum time.Duration
	for range rounds {
		before, _ := c.reachable()
		_, said := c.state()
		start := time.Now()
		what := c.breakOrMend()
		c.settle(what, before, len(said))
		took := time.Since(start)
		slowest, sum = max(slowest, took), sum+took
	}
	t.Logf("%d rounds: %v each, audit included, %v at most", rounds, (sum / time.Duration(rounds)).Round(time.Millisecond), slowest.Round(time.Millisecond))
}
