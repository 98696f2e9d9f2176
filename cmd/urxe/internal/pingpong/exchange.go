package pingpong

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/verbs"
)

// The exchange of ibv_*_pingpong, over TCP: the client sends a message of 52 bytes, text and a zero byte, with its LID,
// QPN, PSN and GID; the server connects its QP and answers with its own; the client says "done" and a zero byte.
const (
	messageLen = len("0000:000000:000000:00000000000000000000000000000000") + 1
	doneMsg    = "done\x00"
	patience   = 10 * time.Second
)

func encode(e verbs.Endpoint) []byte {
	return fmt.Appendf(nil, "%04x:%06x:%06x:%s\x00", uint16(e.LID), uint32(e.QPN), uint32(e.PSN), e.GID.Wire())
}

func decode(b []byte) (e verbs.Endpoint, err error) {
	s := strings.TrimRight(string(b), "\x00")
	fail := fmt.Errorf("the peer's address %q isn't LID:QPN:PSN:GID of an ibv_*_pingpong", s)
	f := strings.Split(s, ":")
	if len(f) != 4 {
		return e, fail
	}
	_, err1 := fmt.Sscanf(f[0], "%x", &e.LID)
	_, err2 := fmt.Sscanf(f[1], "%x", (*uint32)(&e.QPN))
	_, err3 := fmt.Sscanf(f[2], "%x", (*uint32)(&e.PSN))
	gid, err4 := ib.GIDFromWire(f[3])
	if errors.Join(err1, err2, err3, err4) != nil || !e.QPN.Valid() || !e.PSN.Valid() {
		return e, fail
	}
	e.GID = gid
	return e, nil
}

// listen waits for one client.
func listen(ctx context.Context, port int) (net.Conn, error) {
	var lc net.ListenConfig
	l, err := lc.Listen(ctx, "tcp", fmt.Sprintf(":%d", port))
	if err != nil {
		return nil, fmt.Errorf("listen for a client: %w", err)
	}
	defer l.Close()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	c, err := l.Accept()
	if err != nil && ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return c, err
}

// dial connects to a server.
func dial(ctx context.Context, host string, port int) (net.Conn, error) {
	d := net.Dialer{Timeout: patience}
	c, err := d.DialContext(ctx, "tcp", net.JoinHostPort(host, fmt.Sprint(port)))
	if err != nil {
		return nil, fmt.Errorf("couldn't connect to %s:%d: %w (is the server running there?)", host, port, err)
	}
	return c, nil
}

// receive reads one message of the exchange.
func receive(c net.Conn, n int) ([]byte, error) {
	late := time.AfterFunc(patience, func() { c.Close() })
	b := make([]byte, n)
	_, err := io.ReadFull(c, b)
	if !late.Stop() {
		err = fmt.Errorf("none in %v", patience)
	}
	if err != nil {
		return nil, fmt.Errorf("couldn't read the peer's message of %d bytes: %w", n, err)
	}
	return b, nil
}

// asClient exchanges addresses with the server, as many as there are of this side; the server is ready to receive afterwards.
func asClient(c net.Conn, local []verbs.Endpoint) (remote []verbs.Endpoint, err error) {
	if err := tell(c, local); err != nil {
		return nil, err
	}
	if remote, err = hear(c, len(local)); err != nil {
		return nil, err
	}
	_, err = c.Write([]byte(doneMsg))
	return remote, err
}

// asServer reads n addresses of the client, has the QPs connected by ready, which returns as many addresses of this side, and
// answers.
func asServer(c net.Conn, n int, ready func(remote []verbs.Endpoint) ([]verbs.Endpoint, error)) error {
	remote, err := hear(c, n)
	if err != nil {
		return err
	}
	local, err := ready(remote)
	if err != nil {
		return err
	}
	if err := tell(c, local); err != nil {
		return err
	}
	_, err = receive(c, len(doneMsg))
	return err
}

// tell sends addresses.
func tell(c net.Conn, local []verbs.Endpoint) error {
	var b []byte
	for _, e := range local {
		b = append(b, encode(e)...)
	}
	if _, err := c.Write(b); err != nil {
		return fmt.Errorf("couldn't send the local address: %w", err)
	}
	return nil
}

// hear reads n addresses.
func hear(c net.Conn, n int) (remote []verbs.Endpoint, err error) {
	b, err := receive(c, n*messageLen)
	if err != nil {
		return nil, err
	}
	for ; len(b) > 0; b = b[messageLen:] {
		e, err := decode(b[:messageLen])
		if err != nil {
			return nil, err
		}
		remote = append(remote, e)
	}
	return remote, nil
}
