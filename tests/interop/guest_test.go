package interop

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/tests/interop/guest"
)

// These tests prove the harness with peers that are known to be right: rxe
// against rxe, each kernel as server and as client.

func TestGuestBoots(t *testing.T) {
	for _, k := range guest.Kernels {
		g := guest.Start(t, k, guest.Options{})
		release := strings.TrimSpace(g.Run(t, "uname", "-r"))
		if !strings.HasPrefix(release, string(k)+".") {
			t.Errorf("guest %s runs %s", k, release)
		}
		t.Logf("%s booted in %v", release, g.BootTime)
	}
}

func TestGuestCommands(t *testing.T) {
	g := guest.Start(t, guest.Kernel61, guest.Options{})
	t.Run("output and status", func(t *testing.T) {
		r, err := g.Exec(t.Context(), "sh", "-c", `echo "it's $0" && echo err >&2 && exit 7`, "a  b")
		want := guest.Result{Stdout: "it's a  b\n", Stderr: "err\n", Status: 7}
		if err != nil || r != want {
			t.Errorf("got %+v, %v, want %+v", r, err, want)
		}
	})
	t.Run("a late command is killed", func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		if r, err := g.Exec(ctx, "sleep", "1234"); err == nil {
			t.Errorf("no error, %+v", r)
		}
		if ps := g.Run(t, "ps"); strings.Contains(ps, "sleep 1234") {
			t.Errorf("still runs:\n%s", ps)
		}
	})
	t.Run("every slot works and the ninth command is refused", func(t *testing.T) {
		for range 8 {
			g.Background(t, "sleep", "60")
		}
		if _, err := g.Exec(t.Context(), "true"); err == nil {
			t.Error("a ninth command was accepted")
		}
	})
}

func TestGuestPingpong(t *testing.T) {
	a := guest.Start(t, guest.Kernel61, guest.Options{})
	b := guest.Start(t, guest.Kernel612, guest.Options{})
	for _, c := range []struct {
		server, client *guest.Guest
		gid            int
	}{{a, b, guest.GIDIPv4}, {b, a, guest.GIDIPv4}, {a, b, guest.GIDIPv6}} {
		t.Run(fmt.Sprintf("%s serves %s, gid %d", c.server.Kernel, c.client.Kernel, c.gid), func(t *testing.T) {
			args := []string{"ibv_rc_pingpong", "-e", "-d", guest.Device, "-g", fmt.Sprint(c.gid), "-n", "50", "-s", "1027", "-c"}
			srv := c.server.Background(t, args...)
			c.server.WaitListen(t, 18515)
			c.client.Run(t, append(args, c.server.IP4)...)
			if r, err := srv.Wait(t.Context()); err != nil || r.Status != 0 {
				t.Errorf("server: %+v, %v", r, err)
			}
		})
	}
}

// The host's end of the bridge sees the RoCE packets that a guest sends to the
// system under test, and tshark reads them.
func TestGuestCapture(t *testing.T) {
	g := guest.Start(t, guest.Kernel61, guest.Options{})
	g.Run(t, "ping", "-c", "1", "-w", "5", guest.HostIP4) // so that no ARP is needed
	c := g.Lab.Capture(t, "udp port 4791")
	burst(t, g, guest.GIDIPv4, guest.HostIP4, 20)
	rows := guest.Fields(t, c.Stop(), "infiniband.bth.opcode", "infiniband.bth.destqp", "infiniband.deth.q_key", "ip.dst")
	want := []string{"100", "0x00abcd", "0x0000000011223344", guest.HostIP4}
	if len(rows) != 20 {
		t.Fatalf("%d packets, want 20: %q", len(rows), rows)
	}
	for i, row := range rows {
		if !slices.Equal(row, want) {
			t.Errorf("packet %d: %q, want %q", i, row, want)
		}
	}
}

// Loss drops about as many RoCE packets as it says, in its direction only.
func TestGuestLoss(t *testing.T) {
	const packets, every = 1000, 20
	a := guest.Start(t, guest.Kernel61, guest.Options{})
	b := guest.Start(t, guest.Kernel612, guest.Options{})
	for _, d := range []guest.Direction{guest.Egress, guest.Ingress} {
		for _, gid := range []int{guest.GIDIPv4, guest.GIDIPv6} {
			t.Run(fmt.Sprintf("%s, gid %d", d, gid), func(t *testing.T) {
				to := b.IP4
				if gid == guest.GIDIPv6 {
					to = b.IP6
				}
				loser := a
				if d == guest.Ingress {
					loser = b
				}
				b.Run(t, "ping", "-c", "1", "-w", "5", a.IP4)
				loser.Lose(t, d, every)
				before := datagrams(t, b)
				burst(t, a, gid, to, packets)
				got, lost := datagrams(t, b)-before, loser.Lost(t, d)
				if got != packets-lost {
					t.Errorf("%d sent and %d dropped by the filter, but %d received", packets, lost, got)
				}
				// five standard deviations around the mean of 50: 16 to 84
				if lost < 16 || lost > 84 {
					t.Errorf("%d of %d packets dropped, want about %d", lost, packets, packets/every)
				}
			})
		}
	}
}

// datagrams counts the UDP datagrams that the guest's kernel has received.
func datagrams(t *testing.T, g *guest.Guest) (n int) {
	t.Helper()
	for _, f := range strings.Fields(g.Run(t, "sh", "-c",
		`awk '/^Udp: [0-9]/ {print $2}' /proc/net/snmp; awk '$1 == "Udp6InDatagrams" {print $2}' /proc/net/snmp6`)) {
		k, err := strconv.Atoi(f)
		if err != nil {
			t.Fatal(err)
		}
		n += k
	}
	return n
}

// burst sends n UD datagrams of 64 bytes from a guest to an address.
func burst(t *testing.T, g *guest.Guest, gid int, to string, n int) {
	t.Helper()
	g.Run(t, putCT(t, g), "ud_burst", fmt.Sprint(gid), "1024", to, fmt.Sprint(n))
}
