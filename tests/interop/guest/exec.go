package guest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// slots is how many commands a guest runs at once, as rxe-peer.sh makes ports.
const slots = 8

// killGrace is how long a killed command may take to end. A guest without KVM
// is slow, and slower while the host is busy.
const killGrace = 15 * time.Second

// Result is how a command in a guest ended. Output is text, by the line.
type Result struct {
	Stdout, Stderr string
	Status         int
}

// Cmd is a command that runs in a guest. It is reached over a virtio-serial
// port, which two FIFOs represent on the host. Lines to the guest are
//
//	RUN id base64(script)     KILL id
//
// and lines from it
//
//	1 id a line of stdout     2 id a line of stderr     X id status
type Cmd struct {
	id            string
	in, out, lock *os.File
	text          string // for messages

	mu             sync.Mutex
	stdout, stderr bytes.Buffer
	status         int
	err            error
	done           chan struct{}
}

// Exec runs a command and waits for it. An exit status other than 0 is no
// error. When ctx ends first the command is killed.
func (g *Guest) Exec(ctx context.Context, args ...string) (Result, error) {
	c, err := g.Start(args...)
	if err != nil {
		return Result{}, err
	}
	return c.Wait(ctx)
}

// Background starts a command that is killed at the end of t, if it still runs.
func (g *Guest) Background(t testing.TB, args ...string) *Cmd {
	t.Helper()
	c, err := g.Start(args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		c.Kill()
		<-c.done
	})
	return c
}

// Start starts a command.
func (g *Guest) Start(args ...string) (*Cmd, error) {
	c := &Cmd{
		id:   strconv.FormatUint(rand.Uint64(), 36),
		text: fmt.Sprintf("guest %s: %s", g.Name, strings.Join(args, " ")),
		done: make(chan struct{}),
	}
	if err := c.open(g.dir); err != nil {
		return nil, err
	}
	script := base64.StdEncoding.EncodeToString([]byte(quote(args) + "\n"))
	if err := c.tell("RUN " + c.id + " " + script); err != nil {
		c.close()
		return nil, err
	}
	go c.read()
	return c, nil
}

// open takes a free port. The lock file keeps rxe-peer.sh exec off it.
func (c *Cmd) open(dir string) error {
	for i := range slots {
		base := filepath.Join(dir, "p"+strconv.Itoa(i))
		lock, err := os.OpenFile(base+".lock", os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return fmt.Errorf("%s: the guest is gone: %w", c.text, err)
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			lock.Close()
			continue
		}
		c.lock = lock
		return c.openPort(base)
	}
	return fmt.Errorf("%s: all %d command slots are busy", c.text, slots)
}

func (c *Cmd) openPort(base string) (err error) {
	// non-blocking, so that deadlines work
	const mode = os.O_RDWR | syscall.O_NONBLOCK
	if c.in, err = os.OpenFile(base+".in", mode, 0); err != nil {
		c.lock.Close()
		return err
	}
	if c.out, err = os.OpenFile(base+".out", mode, 0); err != nil {
		c.in.Close()
		c.lock.Close()
	}
	return err
}

func (c *Cmd) close() {
	c.in.Close()
	c.out.Close()
	c.lock.Close()
}

func (c *Cmd) tell(line string) error {
	_, err := c.in.WriteString(line + "\n")
	return err
}

// read collects the command's output until its status comes.
func (c *Cmd) read() {
	defer close(c.done)
	defer c.close()
	r := bufio.NewReader(c.out)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			c.fail(err)
			return
		}
		if c.take(strings.TrimSuffix(line, "\n")) {
			return
		}
	}
}

func (c *Cmd) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errors.New("it does not end though it was killed; is the guest stuck?")
	}
	c.err = fmt.Errorf("%s: %w", c.text, err)
}

// take handles a line from the guest and reports whether it was the last one.
// Lines of an earlier command, whose client was lost, have another id.
func (c *Cmd) take(line string) bool {
	kind, rest, _ := strings.Cut(line, " ")
	id, text, _ := strings.Cut(rest, " ")
	if id != c.id {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch kind {
	case "1":
		c.stdout.WriteString(text + "\n")
	case "2":
		c.stderr.WriteString(text + "\n")
	case "X":
		c.status, c.err = strconv.Atoi(text)
		return true
	}
	return false
}

// Wait waits until the command has ended, or kills it when ctx ends first.
func (c *Cmd) Wait(ctx context.Context) (Result, error) {
	select {
	case <-c.done:
		return c.Output(), c.err
	case <-ctx.Done():
	}
	c.Kill()
	<-c.done
	return c.Output(), errors.Join(fmt.Errorf("%s: %w", c.text, context.Cause(ctx)), c.err)
}

// Kill kills the command and what it started. Wait tells when it has ended.
func (c *Cmd) Kill() {
	select {
	case <-c.done:
		return
	default:
	}
	c.out.SetReadDeadline(time.Now().Add(killGrace))
	c.tell("KILL " + c.id)
}

// Output returns what the command wrote up to now, and its exit status if it
// has ended.
func (c *Cmd) Output() Result {
	c.mu.Lock()
	defer c.mu.Unlock()
	return Result{c.stdout.String(), c.stderr.String(), c.status}
}

// WaitListen waits until something in the guest listens on a TCP port.
func (g *Guest) WaitListen(t testing.TB, port int) {
	t.Helper()
	g.Run(t, "sh", "-c", fmt.Sprintf(
		`until grep -qE '^ *[0-9]+: [0-9A-F]+:%04X [0-9A-F]+:0000 0A' /proc/net/tcp /proc/net/tcp6; do usleep 20000; done`, port))
}

// quote makes argv one POSIX shell command.
func quote(args []string) string {
	quoted := make([]string, len(args))
	for i, a := range args {
		quoted[i] = "'" + strings.ReplaceAll(a, "'", `'\''`) + "'"
	}
	return strings.Join(quoted, " ")
}
