package perf

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/urxe/urxe/cmd/urxe/internal/bench"
	"github.com/urxe/urxe/cmd/urxe/internal/rig/rigtest"
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/verbs"
)

// measure runs a server and a client against each other.
func measure(t *testing.T, o Options) (results []Result, server, client error) {
	t.Helper()
	a, b := rigtest.Pair(t)
	o.Port, o.GID = rigtest.FreePort(t), -1
	o.Each = func(r Result) { results = append(results, r) }
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	var wg sync.WaitGroup
	oc := o
	oc.Host = "127.0.0.1"
	wg.Go(func() { server = Run(ctx, a, o) })
	client = runWhenItListens(ctx, b, oc)
	wg.Wait()
	return results, server, client
}

// runWhenItListens runs a client whose server may not listen yet.
func runWhenItListens(ctx context.Context, d *verbs.Device, o Options) error {
	for {
		err := Run(ctx, d, o)
		if err == nil || ctx.Err() != nil || !strings.Contains(err.Error(), "couldn't connect") {
			return err
		}
		time.Sleep(time.Millisecond)
	}
}

func TestEveryMeasurement(t *testing.T) {
	for op := range Ops {
		for _, mode := range []string{Bandwidth, Latency} {
			t.Run(op+" "+mode, func(t *testing.T) {
				sizes := []int{1, 8, 5000}
				if op == "atomic" {
					sizes = []int{8}
				}
				o := Options{Sizes: sizes, Test: Test{Op: op, Mode: mode, MTU: ib.MTU1024, QPs: 3, Depth: 8, Iters: 300}}
				results, server, client := measure(t, o)
				if server != nil || client != nil || len(results) != len(sizes) {
					t.Fatalf("server: %v; client: %v; results %+v", server, client, results)
				}
				for i, r := range results {
					if r.Messages != 300 || r.Size != sizes[i] || r.Op != op || mode == Bandwidth && (r.MBps <= 0 || r.QPs != 3) ||
						mode == Latency && (r.MinUs <= 0 || r.MinUs > r.MedianUs || r.MedianUs > r.P99Us || r.P99Us > r.MaxUs) {
						t.Errorf("%+v", r)
					}
				}
			})
		}
	}
}

func TestDurationAndEvents(t *testing.T) {
	for _, mode := range []string{Bandwidth, Latency} {
		o := Options{Sizes: []int{64}, Test: Test{Op: "send", Mode: mode, MTU: ib.MTU1024, QPs: 1, Depth: 16, Duration: 300 * time.Millisecond, Events: true}}
		var told bench.Bandwidth
		o.Progress = func(_ int, b bench.Bandwidth) { told = b }
		r, server, client := measure(t, o)
		if server != nil || client != nil || len(r) != 1 || mode == Bandwidth && (r[0].Seconds < 0.3 || r[0].Seconds > 5) {
			t.Errorf("%s: server: %v; client: %v; %+v", mode, server, client, r)
		}
		if told.Messages == 0 || told.Elapsed == 0 || len(r) == 1 && told.Messages > r[0].Messages {
			t.Errorf("%s: progress told %+v, and the result is %+v", mode, told, r)
		}
	}
}

func TestCheck(t *testing.T) {
	good := Test{Op: "send", Mode: Bandwidth, MTU: ib.MTU1024, QPs: 1, Depth: 1, Iters: 1}
	if err := good.Check(); err != nil {
		t.Fatal(err)
	}
	for says, change := range map[string]func(*Test){
		"want write, read, send or atomic": func(t *Test) { t.Op = "recv" },
		"want bw or lat":                   func(t *Test) { t.Mode = "jitter" },
		"size -1: want 0 to":               func(t *Test) { t.Size = -1 },
		"QPs 0: want 1 to":                 func(t *Test) { t.QPs = 0 },
		"depth 8193: want 1 to 8192":       func(t *Test) { t.Depth = 8193 },
		"path MTU":                         func(t *Test) { t.MTU = 0 },
		"want one of them above 0":         func(t *Test) { t.Iters = 0 },
		"duration -1s and 1 iterations":    func(t *Test) { t.Duration = -time.Second },
		"size 1 at least":                  func(t *Test) { t.Op, t.Mode = "write", Latency },
	} {
		bad := good
		change(&bad)
		if err := bad.Check(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, want an error that says %q", err, says)
		}
	}
}

// A server meets clients that say strange things.
func TestServerRefuses(t *testing.T) {
	for said, want := range map[string]string{
		"GET / HTTP/1.1\r\n\r\n":         "is it urxe perf",
		`{"version":7}`:                  "version 7",
		`{"version":1}`:                  "has no test",
		`{"version":1,"error":"no"}`:     "the peer says: no",
		`{"version":1,"test":{"op":"x"}`: "is it urxe perf",
		`{"version":1,"test":{"op":"write"},"address":{"qps":[{}]}}`: "mode",
	} {
		a, _ := rigtest.Pair(t)
		port := rigtest.FreePort(t)
		got := make(chan error)
		go func() { got <- Run(t.Context(), a, Options{Port: port, GID: -1}) }()
		var c net.Conn
		for err := errors.New(""); err != nil; {
			c, err = net.DialTCP("tcp", nil, &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: port})
		}
		c.Write([]byte(said))
		c.(*net.TCPConn).CloseWrite()
		if err := <-got; err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v, want an error that says %q", said, err, want)
		}
		c.Close()
	}
}

func TestInterruptedServer(t *testing.T) {
	a, _ := rigtest.Pair(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	time.AfterFunc(20*time.Millisecond, func() { cancel(why) })
	if err := Run(ctx, a, Options{Port: rigtest.FreePort(t), GID: -1}); !errors.Is(err, why) {
		t.Error(err)
	}
}

// Who is interrupted in the middle of a measurement leaves at once, and so does the other.
func TestInterruptedClient(t *testing.T) {
	a, b := rigtest.Pair(t)
	o := Options{Port: rigtest.FreePort(t), GID: -1, Sizes: []int{8}, Each: func(Result) {},
		Test: Test{Op: "write", Mode: Bandwidth, MTU: ib.MTU1024, QPs: 1, Depth: 8, Duration: time.Hour}}
	server := make(chan error, 1)
	os := o
	go func() { server <- Run(t.Context(), a, os) }()
	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	o.Host = "127.0.0.1"
	o.Progress = func(int, bench.Bandwidth) { cancel(why) }
	if err := runWhenItListens(ctx, b, o); !errors.Is(err, why) {
		t.Errorf("client: %v", err)
	}
	if err := <-server; err == nil || !strings.Contains(err.Error(), "went away") {
		t.Errorf("server: %v", err)
	}
}

// So does the client when the server is interrupted, though it has nothing outstanding that could fail.
func TestInterruptedServerOfATest(t *testing.T) {
	a, b := rigtest.Pair(t)
	o := Options{Port: rigtest.FreePort(t), GID: -1, Sizes: []int{8}, Each: func(Result) {},
		Test: Test{Op: "send", Mode: Latency, MTU: ib.MTU1024, QPs: 1, Depth: 8, Duration: time.Hour}}
	ctx, cancel := context.WithCancelCause(t.Context())
	server := make(chan error, 1)
	os := o
	go func() { server <- Run(ctx, a, os) }()
	why := errors.New("enough")
	o.Host = "127.0.0.1"
	o.Progress = func(int, bench.Bandwidth) { cancel(why) }
	if err := runWhenItListens(t.Context(), b, o); err == nil || !strings.Contains(err.Error(), "went away") {
		t.Errorf("client: %v", err)
	}
	if err := <-server; !errors.Is(err, why) {
		t.Errorf("server: %v", err)
	}
}
