package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/urxe/urxe/internal/clock"
)

// The protocol: the client sends the name of a command and a newline. The
// holder answers "ok" or "error: why", a newline, and after "ok" the command's
// output until it closes the connection.

const (
	maxClients = 16
	maxRequest = 64 // bytes
	// patience is how long a client may take to send its request, and to take
	// in any piece of the answer.
	patience = 5 * time.Second
	// lastWords is how long it may take for the rest when the holder lets go, and
	// for each piece of it when the client has had enough.
	lastWords = 500 * time.Millisecond
)

// Command answers a client: it writes to w until it is done, w fails, or ctx
// ends, as it does when the client goes or the holder lets go.
type Command func(ctx context.Context, w io.Writer) error

// Serve begins to answer clients: those of root, and of the holder's own user.
func (h *Holder) Serve(commands map[string]Command) {
	places := make(chan struct{}, maxClients)
	begin := func(c *net.UnixConn) {
		places <- struct{}{}
		h.serving.Go(func() {
			defer func() { <-places }()
			defer c.Close()
			h.answer(c, commands)
		})
	}
	h.serving.Go(func() { h.accept(h.listener, begin) })
}

// accept has take close those who come to l, until the holder lets go.
func (h *Holder) accept(l *net.UnixListener, take func(*net.UnixConn)) {
	for {
		c, err := l.AcceptUnix()
		if h.ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
			if err == nil {
				c.Close()
			}
			return
		}
		if err != nil { // no descriptors are left, say
			time.Sleep(100 * time.Millisecond)
			continue
		}
		take(c)
	}
}

func (h *Holder) answer(c *net.UnixConn, commands map[string]Command) {
	ctx, cancel := context.WithCancel(h.ctx)
	defer cancel()
	_ = c.SetDeadline(clock.Wall().Add(patience))
	// Close doesn't wait for a client that is slow.
	defer context.AfterFunc(h.ctx, func() { _ = c.SetDeadline(clock.Wall().Add(lastWords)) })()
	command, err := h.request(c, commands)
	if err != nil {
		fmt.Fprintf(c, "error: %v\n", err)
		return
	}
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return
	}
	go func() { // sees the client go; ends when c is closed
		defer cancel()
		_, _ = io.Copy(io.Discard, c)
	}()
	w := &patientWriter{ctx, c}
	if _, err := io.WriteString(w, "ok\n"); err == nil {
		// An error here is the client's end, or the holder's: no one is left to be told.
		_ = command(ctx, w)
	}
}

// request reads what the client wants, and checks that it may.
func (h *Holder) request(c *net.UnixConn, commands map[string]Command) (Command, error) {
	cred, err := peer(c)
	if err != nil {
		return nil, err
	}
	if uid := os.Getuid(); cred.Uid != 0 && int(cred.Uid) != uid {
		return nil, fmt.Errorf("user %d may not ask: only root and user %d", cred.Uid, uid)
	}
	line, err := bufio.NewReader(io.LimitReader(c, maxRequest)).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("no request within %v or %d bytes", patience, maxRequest)
	}
	command := commands[strings.TrimSuffix(line, "\n")]
	if command == nil {
		return nil, fmt.Errorf("no such command: %q; there are %v", strings.TrimSpace(line), slices.Sorted(maps.Keys(commands)))
	}
	return command, nil
}

// patientWriter gives the client so much time for each piece.
type patientWriter struct {
	ctx context.Context
	c   *net.UnixConn
}

func (w *patientWriter) Write(b []byte) (int, error) {
	if w.ctx.Err() == nil {
		if err := w.c.SetWriteDeadline(clock.Wall().Add(patience)); err != nil {
			return 0, err
		}
	}
	return w.c.Write(b)
}

// Answer is the output of a command, up to io.EOF.
type Answer struct {
	r      *bufio.Reader
	c      *net.UnixConn
	ending atomic.Bool
}

// Read implements io.Reader.
func (a *Answer) Read(b []byte) (int, error) {
	if a.ending.Load() {
		if err := a.hurry(); err != nil {
			return 0, err
		}
	}
	return a.r.Read(b)
}

// hurry gives the holder so much time for the next piece.
func (a *Answer) hurry() error { return a.c.SetReadDeadline(clock.Wall().Add(lastWords)) }

// Close makes an end, wherever the command is.
func (a *Answer) Close() error { return a.c.Close() }

// End tells the command to come to its end. What it still has to say can be
// read: a stream is whole then. Read fails with os.ErrDeadlineExceeded when
// nothing comes for a short while.
func (a *Answer) End() error {
	a.ending.Store(true)
	return errors.Join(a.c.CloseWrite(), a.hurry())
}

// Call asks the holder of an interface, in the calling thread's network
// namespace, to run a command, and returns its output. The error wraps
// os.ErrNotExist if no one holds the interface.
func Call(ifname, command string) (*Answer, error) {
	runtime.LockOSThread() // the socket is made in this thread's namespace
	c, err := net.DialUnix("unix", nil, address(ifname))
	runtime.UnlockOSThread()
	if err != nil {
		return nil, fmt.Errorf("no urxe process holds %s (%w): %w", ifname, os.ErrNotExist, err)
	}
	a := &Answer{r: bufio.NewReader(c), c: c}
	if err := a.begin(command); err != nil {
		c.Close()
		return nil, fmt.Errorf("ask the holder of %s for %s: %w", ifname, command, err)
	}
	return a, nil
}

// begin sends the request, and takes in whether it is granted. A holder that is
// stopped doesn't answer, and must not stop whoever asks.
func (a *Answer) begin(command string) error {
	if err := a.c.SetDeadline(clock.Wall().Add(patience)); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(a.c, command); err != nil {
		return err
	}
	line, err := a.r.ReadString('\n')
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("no answer within %v (is its process stopped?)", patience)
	case err != nil:
		return fmt.Errorf("no answer: %w", err)
	case line != "ok\n":
		return errors.New(strings.TrimPrefix(strings.TrimSpace(line), "error: "))
	}
	return a.c.SetDeadline(time.Time{})
}
