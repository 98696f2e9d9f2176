package interop

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/tests/conform"
	"github.com/urxe/urxe/tests/interop/ct"
	"github.com/urxe/urxe/tests/interop/guest"
)

var update = flag.Bool("update", false, "write testdata/ct: what rxe does with rxe")

// What rxe does with rxe is what the golden files say, whichever kernel is the
// server, but for what was mended in the later one. Run with -update to write
// them.
func TestCTReference(t *testing.T) {
	for _, b := range batches() {
		o := guest.Options{MTU: b.linkMTU}
		x, y := guest.Start(t, guest.Kernel612, o), guest.Start(t, guest.Kernel61, o)
		for _, pair := range [][2]*guest.Guest{{x, y}, {y, x}} {
			runBatch(t, b, guestSide(t, pair[0]), guestSide(t, pair[1]))
		}
	}
	self := guestSide(t, guest.Start(t, guest.Kernel612, guest.Options{MTU: 1500}))
	runBatch(t, batch{ct.Since62(), guest.GIDIPv4, 1024, 1500}, self, self)
}

// urxe and rxe, either of them the server, print what rxe and rxe do; but where
// urxe keeps to the specification and rxe doesn't, what ct.Expect says.
func TestCT(t *testing.T) {
	for _, k := range guest.Kernels {
		all := batches()
		if k == guest.Kernel612 {
			for _, gid := range []int{guest.GIDIPv4, guest.GIDIPv6} {
				all = append(all, batch{ct.Since62(), gid, 1024, 1500})
			}
		}
		for _, b := range all {
			g := guest.Start(t, k, guest.Options{MTU: b.linkMTU})
			g.Lab.SetMTU(t, b.linkMTU)
			runBatch(t, b, guestSide(t, g), urxeSide(g.Lab))
			runBatch(t, b, urxeSide(g.Lab), guestSide(t, g))
		}
	}
}

// The same with one packet in twenty lost, on the way to the guest or from it:
// nothing is done twice, nothing is left out.
func TestCTLoss(t *testing.T) {
	b := batch{[]string{"send_imm", "sizes", "big_wrap", "reads", "atomics", "rnr"}, guest.GIDIPv4, 1024, 1500}
	for _, k := range guest.Kernels {
		for _, d := range []guest.Direction{guest.Ingress, guest.Egress} {
			t.Run(fmt.Sprintf("%s, guest %s", k, d), func(t *testing.T) {
				g := guest.Start(t, k, guest.Options{MTU: b.linkMTU})
				g.Lab.SetMTU(t, b.linkMTU)
				g.Lose(t, d, 20)
				runBatch(t, b, guestSide(t, g), urxeSide(g.Lab))
				runBatch(t, b, urxeSide(g.Lab), guestSide(t, g))
				if n := g.Lost(t, d); n < 10 {
					t.Errorf("only %d packets were lost", n)
				}
			})
		}
	}
}

// Datagrams to multicast groups of either version of IP, between rxe of either
// kernel and urxe, either of them the member, and between the two rxe.
func TestMulticast(t *testing.T) {
	conform.Row(t, "bug/57", "5.6/multicast-qpn", "5.6/multicast-v4", "5.6/multicast-v6")
	o := guest.Options{MTU: 1500}
	x, y := guest.Start(t, guest.Kernel612, o), guest.Start(t, guest.Kernel61, o)
	x.Lab.SetMTU(t, o.MTU)
	a, b, own := guestSide(t, x), guestSide(t, y), urxeSide(x.Lab)
	for _, gid := range []int{guest.GIDIPv4, guest.GIDIPv6} {
		c := batch{[]string{"mcast"}, gid, 1024, o.MTU}
		for _, p := range [][2]side{{a, b}, {b, a}, {own, a}, {a, own}, {own, b}, {b, own}} {
			runBatch(t, c, p[0], p[1])
		}
	}
}

// batch is tests that run one after the other, in one process on either side.
type batch struct {
	tests                 []string
	gid, pathMTU, linkMTU int
}

func (b batch) String() string { return fmt.Sprintf("gid %d, path MTU %d", b.gid, b.pathMTU) }

// batches are all tests that every kernel can run over IPv4 at path MTU 1024,
// and those in which sizes matter at the other path MTUs too, over either
// version of IP.
func batches() []batch {
	all := []batch{{ct.Tests(), guest.GIDIPv4, 1024, 1500}}
	all = append(all, batch{[]string{"uc", "uc_lost", "ud", "ud_lost", "mcast"}, guest.GIDIPv6, 1024, 1500})
	for _, gid := range []int{guest.GIDIPv4, guest.GIDIPv6} {
		for _, mtu := range []int{256, 512, 2048, 4096} {
			all = append(all, batch{[]string{"sizes", "big_wrap"}, gid, mtu, 4200})
		}
	}
	return all
}

// side is one that can run ct.
type side struct {
	name string
	urxe bool
	ip4  string
	// start starts ct; the function that it returns waits for its output
	start func(t *testing.T, args ...string) (wait func(context.Context) (string, error))
}

func guestSide(t *testing.T, g *guest.Guest) side {
	bin := putCT(t, g)
	start := func(t *testing.T, args ...string) func(context.Context) (string, error) {
		c := g.Background(t, append([]string{bin}, args...)...)
		return func(ctx context.Context) (string, error) {
			r, err := c.Wait(ctx)
			if err == nil && r.Status != 0 {
				err = fmt.Errorf("exit status %d: %s", r.Status, r.Stderr)
			}
			return r.Stdout, err
		}
	}
	return side{"rxe " + string(g.Kernel), false, g.IP4, start}
}

// urxeSide runs ct.Main in the lab's namespace: this very program, which
// TestMain turns into it.
func urxeSide(l *guest.Lab) side {
	start := func(t *testing.T, args ...string) func(context.Context) (string, error) {
		// like ct.c, but for the interface behind the third argument
		args = append(args[:3:3], append([]string{guest.Iface}, args[3:]...)...)
		ctx, cancel := context.WithCancel(t.Context())
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		cmd := l.Command(ctx, self, args...)
		cmd.Env = append(os.Environ(), asCT+"=1")
		var out, errs bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &errs
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return func(wait context.Context) (string, error) {
			defer cancel()
			defer context.AfterFunc(wait, cancel)()
			err := cmd.Wait()
			if err != nil {
				err = fmt.Errorf("%w: %s", err, errs.String())
			}
			return out.String(), err
		}
	}
	return side{"urxe", true, guest.HostIP4, start}
}

// runBatch runs a batch and compares each test's output with the golden one.
func runBatch(t *testing.T, b batch, server, client side) {
	t.Run(fmt.Sprintf("%s to %s, %s", client.name, server.name, b), func(t *testing.T) {
		outputs := runCT(t, b, server, client)
		for _, test := range b.tests {
			t.Run(test, func(t *testing.T) {
				got := outputs[test]
				old := server.name == "rxe "+string(guest.Kernel61)
				if *update && !server.urxe && !client.urxe && !old {
					os.WriteFile(ct.GoldenFile(test, b.pathMTU), []byte(got), 0o644)
				}
				want := golden(t, test, b.pathMTU)
				switch {
				case server.urxe:
					want = ct.Expect(want, test)
				case old:
					want = ct.ExpectOfRxe61(want, test)
				}
				if client.urxe {
					want = ct.ExpectOfClient(want, test)
				}
				if got != want {
					t.Errorf("got\n%swant\n%s", got, want)
				}
			})
		}
	})
}

func golden(t *testing.T, test string, pathMTU int) string {
	t.Helper()
	text, err := os.ReadFile(ct.GoldenFile(test, pathMTU))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// runCT returns what both sides print in each test of the batch.
func runCT(t *testing.T, b batch, server, client side) map[string]string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	args := []string{strings.Join(b.tests, ","), fmt.Sprint(b.gid), fmt.Sprint(b.pathMTU)}
	wait := server.start(t, args...)
	out, err := client.start(t, append(args, server.ip4)...)(ctx)
	if err != nil {
		t.Errorf("client (%s): %v", client.name, err)
		cancel() // the server waits for it in vain
	}
	srvOut, err := wait(ctx)
	if err != nil {
		t.Errorf("server (%s): %v", server.name, err)
	}
	s, c := byTest(srvOut), byTest(out)
	outputs := map[string]string{}
	for _, test := range b.tests {
		outputs[test] = ct.Join(s[test], c[test])
	}
	return outputs
}

// byTest splits the output of ct at its lines "== TEST".
func byTest(out string) map[string]string {
	parts := map[string]string{}
	for part := range strings.SplitSeq(out, "== ") {
		name, text, _ := strings.Cut(part, "\n")
		parts[name] = text
	}
	return parts
}
