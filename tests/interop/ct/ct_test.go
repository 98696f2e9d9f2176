package ct

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urxe/urxe/verbs"
)

func TestBothEndsOverMemory(t *testing.T) {
	for _, test := range append(Tests(), Since62()...) {
		t.Run(test, func(t *testing.T) {
			got := runPair(t, Config{Test: test, GIDIndex: 1, PathMTU: 1024})
			want := ExpectOfClient(Expect(read(t, test), test), test)
			if got != want {
				t.Errorf("got\n%swant\n%s", got, want)
			}
		})
	}
}

func read(t *testing.T, test string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", GoldenFile(test, 1024)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func runPair(t *testing.T, c Config) string {
	a, b, err := verbs.OpenPair(verbs.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	defer b.Close()
	near, far := tcpPair(t)
	type result struct {
		out string
		err error
	}
	run := func(dev *verbs.Device, conn net.Conn, c Config) <-chan result {
		done := make(chan result, 1)
		go func() {
			var out strings.Builder
			err := Run(dev, conn, c, &out)
			if err != nil {
				conn.Close() // the peer need not wait
			}
			done <- result{out.String(), err}
		}()
		return done
	}
	server := c
	server.Server = true
	s, cl := run(a, near, server), run(b, far, c)
	rs, rc := <-s, <-cl
	if rs.err != nil || rc.err != nil {
		t.Errorf("server: %v, client: %v", rs.err, rc.err)
	}
	return Join(rs.out, rc.out)
}

func tcpPair(t *testing.T) (near, far net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	far, err = net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	near, err = l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { near.Close(); far.Close() })
	return near, far
}
