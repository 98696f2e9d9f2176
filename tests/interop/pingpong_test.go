package interop

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/tests/interop/guest"
)

// pingpong is a run of ibv_SERVICE_pingpong with urxe pingpong SERVICE.
type pingpong struct {
	service                   string // rc, uc, ud or srq
	size, pathMTU, gid, iters int
	loses                     guest.Direction // of the guest: packets are lost on purpose; "": none
	flags                     string          // of urxe alone
}

func (p pingpong) String() string {
	return fmt.Sprintf("%s, %d bytes, path MTU %d, gid %d", p.service, p.size, p.pathMTU, p.gid)
}

func (p pingpong) program() string { return "ibv_" + p.service + "_pingpong" }

// args are the options, which both programs have.
func (p pingpong) args(device string) []string {
	args := []string{"-d", device, "-e", "-c", "-g", fmt.Sprint(p.gid), "-s", fmt.Sprint(p.size), "-n", fmt.Sprint(p.iters)}
	if p.service != "ud" { // whose path MTU is the port's
		args = append(args, "-m", fmt.Sprint(p.pathMTU))
	}
	return args
}

// ours are the options of urxe.
func (p pingpong) ours() []string { return append(p.args(guest.Iface), strings.Fields(p.flags)...) }

const pingpongPort = 18515

// bothWays runs p with urxe as the client and as the server of a guest.
func (p pingpong) bothWays(t *testing.T, g *guest.Guest) {
	t.Run(p.String()+", urxe is the client", func(t *testing.T) { p.toGuest(t, g) })
	t.Run(p.String()+", urxe is the server", func(t *testing.T) { p.fromGuest(t, g) })
}

func (p pingpong) toGuest(t *testing.T, g *guest.Guest) {
	c := g.Lab.Capture(t, "udp port 4791")
	server := g.Background(t, append([]string{p.program()}, p.args(guest.Device)...)...)
	g.WaitListen(t, pingpongPort)
	client := startUrxe(t, g.Lab, p.service, append(p.ours(), g.IP4))
	p.finish(t, g, c, client, server)
}

func (p pingpong) fromGuest(t *testing.T, g *guest.Guest) {
	c := g.Lab.Capture(t, "udp port 4791")
	server := startUrxe(t, g.Lab, p.service, p.ours())
	g.Lab.WaitListen(t, pingpongPort)
	client := g.Background(t, append([]string{p.program()}, append(p.args(guest.Device), guest.HostIP4)...)...)
	p.finish(t, g, c, server, client)
}

// lastWords is how long a guest may take to end after urxe has: it has nothing to
// wait for but its own processor.
const lastWords = 30 * time.Second

// end is how one end of a run ended.
type end struct {
	out, errs string
	err       error
}

func ofGuest(r guest.Result, err error) end {
	if err == nil && r.Status != 0 {
		err = fmt.Errorf("ibv_*_pingpong: exit status %d", r.Status)
	}
	return end{r.Stdout, r.Stderr, err}
}

// finish waits until both ends have ended, and checks how.
func (p pingpong) finish(t *testing.T, g *guest.Guest, c *guest.Capture, urxe *host, rxe *guest.Cmd) {
	t.Helper()
	ours := urxe.wait()
	ctx, cancel := context.WithTimeout(t.Context(), lastWords)
	defer cancel()
	theirs := ofGuest(rxe.Wait(ctx))
	if p.lastAckLost(t, c, ours, theirs) {
		t.Log("the last acknowledgement was lost: its sender had ended when it was asked again")
		return
	}
	if ours.err != nil || theirs.err != nil {
		t.Errorf("urxe's counters:\n%s\nrxe's, of all that it did:\n%s\nthe guest's console:\n%s\nthe last packets:\n%s",
			urxe.stats, counters(t, g), g.Console(), tail(t, c))
	}
	p.check(t, ours, theirs)
}

// check checks that both ends succeeded, saw the same connection and moved the
// same.
func (p pingpong) check(t *testing.T, server, client end) {
	t.Helper()
	for _, e := range []end{server, client} {
		if e.err != nil {
			t.Errorf("%v\n%s\n%s", e.err, e.out, e.errs)
		}
	}
	if t.Failed() {
		return
	}
	for _, ends := range [][2]end{{server, client}, {client, server}} {
		local, remote := find(t, localAddress, ends[0].out), find(t, remoteAddress, ends[1].out)
		if local != remote {
			t.Errorf("one end is %q, the other sees %q", local, remote)
		}
		if !p.complete(ends[0]) {
			t.Errorf("want %d bytes in %d iterations:\n%s", 2*p.size*p.iters, p.iters, ends[0].out)
		}
	}
}

// counters returns those of a guest's device that aren't 0.
func counters(t *testing.T, g *guest.Guest) string {
	r, err := g.Exec(t.Context(), "sh", "-c", "cd /sys/class/infiniband/"+guest.Device+"/ports/1/hw_counters && grep -v '^0$' *")
	if err != nil {
		return err.Error()
	}
	return r.Stdout + r.Stderr
}

// tail returns the last packets of a capture, one a line; of equal ones, the last.
func tail(t *testing.T, c *guest.Capture) string {
	out, err := exec.Command(urxe(t), "decode", c.Stop()).CombinedOutput()
	if err != nil {
		return err.Error() + string(out)
	}
	seen := map[string]bool{}
	var last []string
	for _, line := range slices.Backward(strings.SplitAfter(string(out), "\n")) {
		if _, packet, _ := strings.Cut(line, " > "); !seen[packet] && len(last) < 40 {
			seen[packet] = true
			last = append(last, line)
		}
	}
	slices.Reverse(last)
	return strings.Join(last, "")
}

// complete reports whether an end moved everything.
func (p pingpong) complete(e end) bool {
	bytes, iters := total.FindStringSubmatch(e.out), iterations.FindStringSubmatch(e.out)
	return e.err == nil && bytes != nil && bytes[1] == fmt.Sprint(2*p.size*p.iters) && iters != nil && iters[1] == fmt.Sprint(p.iters)
}

// lastAckLost reports whether all messages came through both ways, and just the
// acknowledgement of the last one didn't. No end can know that its last ACK
// arrived, and neither program stays to repeat it. urxe gives up asking; rxe, which
// takes 7 retries for endless, never does.
func (p pingpong) lastAckLost(t *testing.T, c *guest.Capture, ours, theirs end) bool {
	switch p.loses {
	case guest.Egress:
		return p.complete(theirs) && ours.err != nil && strings.Contains(ours.errs, "transport retry counter exceeded (12)")
	case guest.Ingress:
		return p.complete(ours) && errors.Is(theirs.err, context.DeadlineExceeded) && askedAgain(t, c.Stop())
	}
	return false
}

// sendFields are what a conversation of SENDs is judged by.
var sendFields = []string{"ip.dst", "ipv6.dst", "infiniband.bth.opcode", "infiniband.bth.psn", "infiniband.aeth.syndrome.opcode"}

// askedAgain reports whether the last SEND to urxe was acknowledged, and came again
// after that.
func askedAgain(t *testing.T, file string) (again bool) {
	var psn string // of the last packet of the last SEND
	var answered bool
	for _, r := range guest.Fields(t, file, sendFields...) {
		switch {
		case toUrxe(r) && endsSend(r):
			answered = answered && r[3] == psn
			again, psn = answered, r[3]
		case !toUrxe(r) && isAck(r) && r[3] == psn:
			answered = true
		}
	}
	return again
}

func toUrxe(r []string) bool { return r[0]+r[1] == guest.HostIP4 || r[0]+r[1] == guest.HostIP6 }

func endsSend(r []string) bool { return r[2] == "2" || r[2] == "4" } // SEND LAST, SEND ONLY

func isAck(r []string) bool { return r[2] == "17" && r[4] == "0" } // ACKNOWLEDGE

// What ibv_*_pingpong prints: the addresses of both ends, and what was moved.
var (
	localAddress  = regexp.MustCompile(`(?m)^  local address:  (.*)$`)
	remoteAddress = regexp.MustCompile(`(?m)^  remote address: (.*)$`)
	total         = regexp.MustCompile(`(?m)^(\d+) bytes in [0-9.]+ seconds = [0-9.]+ Mbit/sec$`)
	iterations    = regexp.MustCompile(`(?m)^(\d+) iters in [0-9.]+ seconds = [0-9.]+ usec/iter$`)
)

func find(t *testing.T, re *regexp.Regexp, text string) string {
	t.Helper()
	m := re.FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("no line like %s in\n%s", re, text)
	}
	return strings.Replace(m[1], ": GID", ", GID", 1) // as ibv_ud_pingpong has it on one side
}

// host is a urxe command that runs in the lab's namespace.
type host struct {
	out, errs bytes.Buffer
	stats     []byte // when it was late
	done      chan error
}

// startUrxe starts a urxe command. After two minutes it is asked for its counters,
// and interrupted: then it says how far it got.
func startUrxe(t *testing.T, l *guest.Lab, service string, args []string) *host {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	h := &host{done: make(chan error, 1)}
	cmd := l.Command(ctx, urxe(t), append([]string{"pingpong", service}, args...)...)
	cmd.Stdout, cmd.Stderr = &h.out, &h.errs
	cmd.Cancel = func() error {
		h.stats, _ = l.Command(context.WithoutCancel(ctx), urxe(t), "stats", guest.Iface).CombinedOutput()
		return cmd.Process.Signal(os.Interrupt)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer cancel()
		h.done <- cmd.Wait()
	}()
	return h
}

func (h *host) wait() end {
	err := <-h.done
	if err != nil {
		err = fmt.Errorf("urxe pingpong: %w", err)
	}
	return end{h.out.String(), h.errs.String(), err}
}

// Every size of message from one byte to many packets, with every pad. (ibv_rc_pingpong can register no memory of none;
// TestCT has messages of none.)
func TestPingpongSizes(t *testing.T) {
	for _, k := range guest.Kernels {
		t.Run(string(k), func(t *testing.T) {
			g := guest.Start(t, k, guest.Options{})
			g.Lab.SetMTU(t, 1500)
			for _, size := range []int{1, 2, 3, 33, 1024, 1025, 5002, 65533, 65536} {
				pingpong{"rc", size, 1024, guest.GIDIPv4, 20, "", ""}.bothWays(t, g)
			}
		})
	}
}

// Every path MTU, over either version of IP, at the link MTUs that people use.
// (TestCT has the other combinations.)
func TestPingpongPathMTUs(t *testing.T) {
	for _, k := range guest.Kernels {
		for _, c := range []struct {
			linkMTU    int
			ipv4, ipv6 int // path MTUs
		}{{1500, 256, 512}, {1500, 1024, 1024}, {4200, 2048, 4096}, {9000, 4096, 2048}} {
			t.Run(fmt.Sprintf("%s, link MTU %d", k, c.linkMTU), func(t *testing.T) {
				g := guest.Start(t, k, guest.Options{MTU: c.linkMTU})
				g.Lab.SetMTU(t, c.linkMTU)
				pingpong{"rc", 10001, c.ipv4, guest.GIDIPv4, 10, "", ""}.bothWays(t, g)
				pingpong{"rc", 10001, c.ipv6, guest.GIDIPv6, 10, "", ""}.bothWays(t, g)
			})
		}
	}
}

// UC and UD, over either version of IP, with every pad.
func TestPingpongUnreliable(t *testing.T) {
	for _, k := range guest.Kernels {
		for _, c := range []struct{ linkMTU, pathMTU int }{{1500, 1024}, {4200, 4096}} {
			t.Run(fmt.Sprintf("%s, link MTU %d", k, c.linkMTU), func(t *testing.T) {
				g := guest.Start(t, k, guest.Options{MTU: c.linkMTU})
				g.Lab.SetMTU(t, c.linkMTU)
				for _, gid := range []int{guest.GIDIPv4, guest.GIDIPv6} {
					for _, size := range []int{1, 2, 33, c.pathMTU} {
						pingpong{"ud", size, c.pathMTU, gid, 20, "", ""}.bothWays(t, g)
					}
					for _, size := range []int{1, 1027, 5002} {
						pingpong{"uc", size, c.pathMTU, gid, 20, "", ""}.bothWays(t, g)
					}
				}
			})
		}
	}
}

// SRQs, of 16 QPs of RC, on one side urxe's and on the other rxe's.
func TestPingpongSRQ(t *testing.T) {
	for _, k := range guest.Kernels {
		t.Run(string(k), func(t *testing.T) {
			g := guest.Start(t, k, guest.Options{})
			g.Lab.SetMTU(t, 1500)
			for _, size := range []int{1, 1027, 5002} { // of each, 16 are under way
				pingpong{"srq", size, 1024, guest.GIDIPv4, 500, "", ""}.bothWays(t, g)
			}
			pingpong{"srq", 1027, 1024, guest.GIDIPv6, 500, "", ""}.bothWays(t, g)
		})
	}
}

// One in twenty packets is lost, on the way to the guest or from it.
func TestPingpongLoss(t *testing.T) {
	for _, k := range guest.Kernels {
		for _, d := range []guest.Direction{guest.Ingress, guest.Egress} {
			for _, gid := range []int{guest.GIDIPv4, guest.GIDIPv6} {
				t.Run(fmt.Sprintf("%s, guest %s", k, d), func(t *testing.T) {
					g := guest.Start(t, k, guest.Options{})
					g.Lab.SetMTU(t, 1500)
					g.Lose(t, d, 20)
					pingpong{"rc", 6001, 1024, gid, 100, d, ""}.bothWays(t, g)
					if n := g.Lost(t, d); n < 20 {
						t.Errorf("only %d packets were lost", n)
					}
				})
			}
		}
	}
}

// What passes the wire has the shape of a conversation between two rxe.
func TestPingpongOnTheWire(t *testing.T) {
	const iters = 10
	for _, k := range guest.Kernels {
		t.Run(string(k), func(t *testing.T) {
			g := guest.Start(t, k, guest.Options{})
			g.Lab.SetMTU(t, 1500)
			c := g.Lab.Capture(t, "udp port 4791")
			pingpong{"rc", 4096, 1024, guest.GIDIPv4, iters, "", ""}.toGuest(t, g)
			file := c.Stop()
			rows := guest.Fields(t, file, "ip.src", "infiniband.bth.opcode", "infiniband.bth.a", "infiniband.bth.psn")
			checkICRCs(t, file, len(rows))
			for _, src := range []string{guest.HostIP4, g.IP4} {
				checkShape(t, src, requestsFrom(rows, src), iters)
			}
		})
	}
}

// checkICRCs has urxe decode find every packet of both ends right.
func checkICRCs(t *testing.T, file string, packets int) {
	t.Helper()
	out, err := exec.Command(urxe(t), "decode", file).CombinedOutput()
	if n := bytes.Count(out, []byte("icrc ok")); err != nil || n != packets {
		t.Errorf("urxe decode: %v, %d of %d packets have a right ICRC\n%s", err, n, packets, out)
	}
}

// requestsFrom lists the opcodes of the requests from an address, each with its
// AckReq bit. What a slow machine had sent twice counts once.
func requestsFrom(rows [][]string, src string) (ops []string) {
	seen := map[string]bool{}
	for _, r := range rows {
		if r[0] == src && r[1] != "17" && !seen[r[3]] { // 17: ACKNOWLEDGE
			seen[r[3]] = true
			ops = append(ops, r[1]+" "+r[2])
		}
	}
	return ops
}

// checkShape wants n messages of SEND FIRST, MIDDLE, MIDDLE, LAST, the last with
// AckReq.
func checkShape(t *testing.T, src string, ops []string, n int) {
	t.Helper()
	want := slices.Repeat([]string{"0 0", "1 0", "1 0", "2 1"}, n)
	if !slices.Equal(ops, want) {
		t.Errorf("from %s: opcode and AckReq %q, want %q", src, ops, want)
	}
}
