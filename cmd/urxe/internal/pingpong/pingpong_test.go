package pingpong

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urxe/urxe/cmd/urxe/internal/rig/rigtest"
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/verbs"
)

// game plays a server against a client and returns what they printed.
func play(t *testing.T, o Options) (server, client string) {
	t.Helper()
	a, b := rigtest.Pair(t)
	o.Port, o.IBPort = rigtest.FreePort(t), 1
	var outS, outC bytes.Buffer
	var wg sync.WaitGroup
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	defer wg.Wait()
	wg.Go(func() {
		if err := Run(ctx, a, o, &outS); err != nil {
			t.Errorf("server: %v", err)
		}
	})
	oc := o
	oc.Host = "127.0.0.1"
	for {
		err := Run(ctx, b, oc, &outC)
		if err == nil {
			break
		}
		if !strings.Contains(err.Error(), "is the server running") {
			cancel()
			t.Fatalf("client: %v", err)
		}
		time.Sleep(time.Millisecond) // the server doesn't listen yet
		outC.Reset()
	}
	wg.Wait()
	return outS.String(), outC.String()
}

var output = regexp.MustCompile(`^  local address:  LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID (\S+)
  remote address: LID 0x0000, QPN 0x[0-9a-f]{6}, PSN 0x[0-9a-f]{6}, GID (\S+)
(\d+) bytes in \d+\.\d\d seconds = \d+\.\d\d Mbit/sec
(\d+) iters in \d+\.\d\d seconds = \d+\.\d\d usec/iter
$`)

func TestGames(t *testing.T) {
	base := Options{Size: 4096, MTU: ib.MTU1024, RxDepth: 50, Iters: 120, GID: -1}
	for name, change := range map[string]func(*Options){
		"default":         func(*Options) {},
		"events":          func(o *Options) { o.Events = true },
		"validated":       func(o *Options) { o.Check, o.Size = true, 9000 },
		"empty messages":  func(o *Options) { o.Size = 0 },
		"odd, one packet": func(o *Options) { o.Size, o.MTU = 3, ib.MTU256 },
		"IPv6 GID":        func(o *Options) { o.GID = 0 },
		"few receives":    func(o *Options) { o.RxDepth = 2 },
		"one exchange":    func(o *Options) { o.Iters = 1 },
	} {
		for _, typ := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
			t.Run(typ.String()+", "+name, func(t *testing.T) {
				o := base
				change(&o)
				if o.Type = typ; typ == verbs.UD {
					o.MTU, o.Size = 0, min(o.Size, 4096)
				}
				checkGame(t, o)
			})
		}
	}
}

// checkGame plays and looks at what was printed.
func checkGame(t *testing.T, o Options) {
	server, client := play(t, o)
	gid := "::ffff:192.0.2."
	if o.GID == 0 {
		gid = "fe80::ff:fe00:"
	}
	for i, out := range []string{server, client} {
		m := output.FindStringSubmatch(out)
		if m == nil || !strings.HasPrefix(m[1], gid) || !strings.HasPrefix(m[2], gid) || m[1] == m[2] {
			t.Errorf("side %d printed\n%s", i, out)
		}
	}
}

func TestMessageIsThatOfIbvRCPingpong(t *testing.T) {
	e := verbs.Endpoint{QPN: 0x11, PSN: 0xf6f2a1, GID: ib.GID{10: 0xff, 11: 0xff, 12: 10, 15: 2}}
	b := encode(e)
	if string(b) != "0000:000011:f6f2a1:00000000000000000000ffff0a000002\x00" || len(b) != messageLen {
		t.Errorf("%q", b)
	}
	if got, err := decode(b); err != nil || got != e {
		t.Errorf("%+v, %v", got, err)
	}
	for _, bad := range []string{"", "0000:000011:f6f2a1", "x:1:2:3", "0000:1000011:f6f2a1:00000000000000000000ffff0a000002",
		"0000:000011:f6f2a1:00000000000000000000ffff0a0000", "0000:000011:f6f2a1:00000000000000000000ffff0a000002:1"} {
		if _, err := decode([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

func TestServerEndsWhenInterrupted(t *testing.T) {
	a, _ := rigtest.Pair(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	err := Run(ctx, a, Options{Port: rigtest.FreePort(t), IBPort: 1, Size: 1, MTU: ib.MTU256, RxDepth: 1, Iters: 1, GID: -1}, &bytes.Buffer{})
	if !errors.Is(err, why) {
		t.Error(err)
	}
}

func TestClientErrors(t *testing.T) {
	a, b, err := verbs.OpenPair(verbs.PairOptions{LinkMTU: 1500})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	o := Options{Host: "127.0.0.1", Port: rigtest.FreePort(t), IBPort: 1, Size: 1, MTU: ib.MTU256, RxDepth: 1, Iters: 1}
	for says, change := range map[string]func(*Options){
		"is the server running there":                               func(*Options) {},
		"mem0 has port 1 only":                                      func(o *Options) { o.IBPort = 2 },
		"mem0 has room for 1024: raise its interface's MTU to 4180": func(o *Options) { o.MTU = ib.MTU4096 },
		"no GID at index 5 (the table":                              func(o *Options) { o.GID = 5 },
		"a datagram of mem0 has at most 1024":                       func(o *Options) { o.Type, o.Size = verbs.UD, 2048 },
	} {
		o := o
		change(&o)
		if err := Run(t.Context(), a, o, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
}

// With an SRQ there are many QPs, each with its lines, and their messages go in any order.
func TestGamesWithAnSRQ(t *testing.T) {
	base := Options{Type: verbs.RC, SRQ: true, QPs: 16, Size: 4096, MTU: ib.MTU1024, RxDepth: 50, Iters: 200, GID: -1}
	for name, change := range map[string]func(*Options){
		"default":                  func(*Options) {},
		"events":                   func(o *Options) { o.Events = true },
		"validated":                func(o *Options) { o.Check, o.Size = true, 9000 },
		"one QP":                   func(o *Options) { o.QPs, o.RxDepth = 1, 1 },
		"a receive each":           func(o *Options) { o.RxDepth = 16 },
		"as many QPs as can be":    func(o *Options) { o.QPs, o.RxDepth, o.Iters = MaxQPs, MaxQPs, 1000 },
		"fewer exchanges than QPs": func(o *Options) { o.Iters = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			o := base
			change(&o)
			server, client := play(t, o)
			for _, out := range []string{server, client} {
				local, remote := strings.Count(out, "  local address:  LID"), strings.Count(out, "  remote address: LID")
				if local != o.QPs || remote != o.QPs || !strings.Contains(out, fmt.Sprintf("\n%d iters in", o.Iters)) {
					t.Errorf("%d local and %d remote addresses, want %d each:\n%s", local, remote, o.QPs, out)
				}
			}
		})
	}
}

// Of a peer with fewer QPs the user is told.
func TestSRQPeerWithFewerQPs(t *testing.T) {
	a, _ := rigtest.Pair(t)
	g := &game{o: Options{Type: verbs.RC, SRQ: true, QPs: 2, Size: 1, RxDepth: 2, GID: -1}, dev: a, out: &bytes.Buffer{}}
	if err := g.prepare(); err != nil {
		t.Fatal(err)
	}
	peer := make([]verbs.Endpoint, MaxQPs)
	peer[0] = verbs.Endpoint{QPN: 5, GID: a.GIDs()[0]}
	if err := g.connect(peer); err == nil || !strings.Contains(err.Error(), "fewer QPs than the 2 of this side") {
		t.Error(err)
	}
}
