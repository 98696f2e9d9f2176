package interop

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/tests/conform"
	"github.com/urxe/urxe/tests/interop/guest"
	"github.com/urxe/urxe/tests/interop/rcm"
)

// asRCM in the environment makes this program rcm.Main.
const asRCM = "URXE_INTEROP_RCM"

// rcmRun is a run of a program of rdmacm-utils in a guest with package rcm on this side.
type rcmRun struct {
	program string   // of package rcm
	guest   []string // what the guest runs; ADDRESS stands for the server's
	port    int
	count   int
}

// start starts this side's end.
func (r rcmRun) start(ctx context.Context, t *testing.T, l *guest.Lab, ip string) *host {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	h := &host{done: make(chan error, 1)}
	at := netip.AddrPortFrom(netip.MustParseAddr(ip), uint16(r.port))
	cmd := l.Command(ctx, self, r.program, guest.Iface, at.String(), fmt.Sprint(r.count))
	cmd.Env = append(os.Environ(), asRCM+"=1")
	cmd.Stdout, cmd.Stderr = &h.out, &h.errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { h.done <- cmd.Wait() }()
	return h
}

// args are the guest's, with the server's address in its place.
func (r rcmRun) args(ip string) (args []string) {
	for _, a := range r.guest {
		args = append(args, strings.ReplaceAll(a, "ADDRESS", ip))
	}
	return args
}

// fromGuest has the guest's program be the client of ours, and returns what it wrote.
func (r rcmRun) fromGuest(t *testing.T, g *guest.Guest, ip string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server := r.start(ctx, t, g.Lab, ip)
	server.waitReady(ctx, t)
	client := ofGuest(g.Exec(ctx, r.args(ip)...))
	return r.both(t, server.wait(), client)
}

// toGuest has it be the server. Nothing tells when that listens: it is asked until it answers.
func (r rcmRun) toGuest(t *testing.T, g *guest.Guest, ip string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	server := g.Background(t, r.args(ip)...)
	var client end
	for {
		client = r.start(ctx, t, g.Lab, ip).wait()
		if !strings.Contains(client.errs, "invalid service ID") && !strings.Contains(client.errs, "service ID not supported") || ctx.Err() != nil {
			break
		}
		time.Sleep(200 * time.Millisecond)
	}
	return r.both(t, ofGuest(server.Wait(ctx)), client)
}

// rejectedBy has rping be refused, and say why.
func rejectedBy(t *testing.T, g *guest.Guest) {
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	r := rcmRun{"serve-reject", []string{"rping", "-c", "-a", "ADDRESS", "-p", "7174", "-C", "1", "-v"}, 7174, 1}
	server := r.start(ctx, t, g.Lab, guest.HostIP4)
	server.waitReady(ctx, t)
	client := ofGuest(g.Exec(ctx, r.args(guest.HostIP4)...))
	if e := server.wait(); e.err != nil || client.err == nil || !strings.Contains(client.out+client.errs, "RDMA_CM_EVENT_REJECTED, error 28") {
		t.Errorf("server: %v, %s\nclient: %v\n%s%s", e.err, e.errs, client.err, client.out, client.errs)
	}
}

// both wants both ends to have succeeded.
func (r rcmRun) both(t *testing.T, server, client end) string {
	t.Helper()
	text := fmt.Sprintf("server: %v\n%s%s\nclient: %v\n%s%s", server.err, server.out, server.errs, client.err, client.out, client.errs)
	if server.err != nil || client.err != nil {
		t.Fatal(text)
	}
	return text
}

func (h *host) waitReady(ctx context.Context, t *testing.T) {
	t.Helper()
	for ctx.Err() == nil {
		if strings.Contains(h.out.String(), rcm.Ready) {
			return
		}
		select {
		case err := <-h.done:
			t.Fatalf("it doesn't listen: %v\n%s", err, h.errs.String())
		case <-time.After(20 * time.Millisecond):
		}
	}
	t.Fatal("it doesn't listen")
}

// addresses are the ends of both kinds of addresses: of this side and of a guest.
func addresses(g *guest.Guest) [][2]string {
	return [][2]string{{guest.HostIP4, g.IP4}, {guest.HostIP6, g.IP6}}
}

// The programs of rdmacm-utils, each as the server and as the client of urxe.
func TestRDMACM(t *testing.T) {
	for _, k := range guest.Kernels {
		t.Run(string(k), func(t *testing.T) {
			g := guest.Start(t, k, guest.Options{})
			g.Lab.SetMTU(t, 1500)
			for _, ip := range addresses(g) {
				t.Run("rping "+ip[0], func(t *testing.T) {
					out := rcmRun{"serve-rping", []string{"rping", "-c", "-a", "ADDRESS", "-p", "7174", "-C", "5", "-S", "3000", "-V", "-v"}, 7174, 5}.fromGuest(t, g, ip[0])
					if !strings.Contains(out, "rdma-ping-4: ") {
						t.Error(out)
					}
					rcmRun{"rping", []string{"rping", "-s", "-a", "ADDRESS", "-p", "7174", "-C", "5", "-S", "3001", "-v"}, 7174, 5}.toGuest(t, g, ip[1])
				})
				t.Run("ucmatose "+ip[0], func(t *testing.T) {
					rcmRun{"serve-ucmatose", []string{"ucmatose", "-s", "ADDRESS"}, 7471, 10}.fromGuest(t, g, ip[0])
					rcmRun{"ucmatose", []string{"ucmatose", "-b", "ADDRESS"}, 7471, 10}.toGuest(t, g, ip[1])
				})
			}
			t.Run("udaddy", func(t *testing.T) {
				rcmRun{"serve-udaddy", []string{"udaddy", "-s", "ADDRESS"}, 7174, 10}.fromGuest(t, g, guest.HostIP4)
				rcmRun{"udaddy", []string{"udaddy", "-b", "ADDRESS"}, 7174, 10}.toGuest(t, g, g.IP4)
			})
			t.Run("cmtime", func(t *testing.T) {
				rcmRun{"serve-cmtime", []string{"cmtime", "-s", "ADDRESS", "-c", "50"}, 7471, 50}.fromGuest(t, g, guest.HostIP4)
			})
			t.Run("rejected", func(t *testing.T) { rejectedBy(t, g) })
			conform.Row(t, "5.10/handshake", "5.10/disconnect", "5.10/sidr-req", "5.10/sidr-rep", "5.10/ip-service", "5.10/ip-private")
		})
	}
}
