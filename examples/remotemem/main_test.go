package main

import (
	"io"
	"net"
	"strings"
	"testing"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/verbs"
)

// end is a device, and how to get to the network that it is in.
type end struct {
	dev    *verbs.Device
	inside func(func() error) error
	ip     string
}

func TestOverMemory(t *testing.T) {
	a, b, err := verbs.OpenPair(verbs.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	here := func(f func() error) error { return f() }
	check(t, end{a, here, "127.0.0.1"}, end{b, here, "127.0.0.1"}, "192.0.2.2")
}

func TestOverAFXDP(t *testing.T) {
	pair := nettest.New(t, nettest.Config{})
	var ends [2]end
	for i, e := range pair.Ends {
		ends[i] = end{inside: e.NS.Do, ip: e.V4.String()}
		if err := e.NS.Do(func() (err error) {
			ends[i].dev, err = verbs.Open(e.Name, verbs.Options{})
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	check(t, ends[0], ends[1], ends[1].ip)
}

// check has a client put two texts into a server's memory.
func check(t *testing.T, server, client end, clientIP string) {
	defer server.dev.Close()
	defer client.dev.Close()
	var l net.Listener
	if err := server.inside(func() (err error) { l, err = net.Listen("tcp", server.ip+":0"); return err }); err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	mem := make([]byte, size)
	h, err := newHost(server.dev)
	if err != nil {
		t.Fatal(err)
	}
	hc, err := newHost(client.dev)
	if err != nil {
		t.Fatal(err)
	}
	gone, other := net.Pipe() // a client that ends at once
	other.Close()
	if err := h.serve(gone, mem, io.Discard); err == nil || server.dev.Stats().QPs != 0 {
		t.Errorf("a client that ends at once: %v, %d QPs are left", err, server.dev.Stats().QPs)
	}
	for _, c := range []struct{ text, says, serverSays string }{
		{"first", "text 1 is there: first\n", "1 texts, the last one from ::ffff:" + clientIP + ": first\n"},
		{"second text", "text 2 is there: second text\n", "2 texts, the last one from ::ffff:" + clientIP + ": second text\n"},
	} {
		served := make(chan error, 1)
		var says, serverSays strings.Builder
		go func() {
			conn, err := l.Accept()
			if err == nil {
				err = h.serve(conn, mem, &serverSays)
			}
			served <- err
		}()
		err := client.inside(func() error {
			conn, err := net.Dial("tcp", l.Addr().String())
			if err != nil {
				return err
			}
			defer conn.Close()
			return hc.put(conn, c.text, &says)
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-served; err != nil {
			t.Fatal(err)
		}
		if says.String() != c.says || serverSays.String() != c.serverSays {
			t.Errorf("client: %q, server: %q", says.String(), serverSays.String())
		}
	}
}
