package control

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// kept is what the other process holds.
var kept *Holder

// TestMain lets the test binary play a process that holds an interface.
func TestMain(m *testing.M) {
	if ifname := os.Getenv("CONTROL_TEST_HOLD"); ifname != "" {
		var err error
		if kept, err = Hold(ifname); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		memory := make([]byte, 256<<20) // so that it takes time to end
		for i := 0; i < len(memory); i += 4096 {
			memory[i] = 1
		}
		fmt.Println("held")
		select {}
	}
	os.Exit(m.Run())
}

// name is an interface name that only this run uses.
func name(n int) string { return fmt.Sprintf("t%dx%d", os.Getpid()%100000, n) }

func mustHold(t *testing.T, ifname string) *Holder {
	t.Helper()
	h, err := Hold(ifname)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h
}

func TestSecondHolderIsToldOfTheFirst(t *testing.T) {
	h := mustHold(t, name(1))
	_, err := Hold(name(1))
	if !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) || !strings.Contains(err.Error(), "control.test") {
		t.Fatalf("error %v; want ErrHeld, with process and command", err)
	}
	mustHold(t, name(2))
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	mustHold(t, name(1))
}

// startHolder starts another process that holds an interface.
func startHolder(t *testing.T, ifname string) *exec.Cmd {
	t.Helper()
	other := exec.Command(os.Args[0])
	other.Env = append(os.Environ(), "CONTROL_TEST_HOLD="+ifname)
	out, err := other.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		t.Fatalf("the other process says %q", line)
	}
	return other
}

// Who holds an interface can be asked without taking it.
func TestHeldBy(t *testing.T) {
	for _, ifname := range []string{name(10), "lo"} { // the second is there, and held by its index as well
		if who, err := HeldBy(ifname); who != "" || err != nil {
			t.Fatalf("%s is held by %q before it is; error %v", ifname, who, err)
		}
		other := startHolder(t, ifname)
		if who, err := HeldBy(ifname); !strings.Contains(who, fmt.Sprint("process ", other.Process.Pid)) {
			t.Errorf("%s is held by %q; want process %d; error %v", ifname, who, other.Process.Pid, err)
		}
		if err := other.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if who, err := HeldBy(ifname); who != "" || err != nil {
			t.Errorf("%s is held by %q, which was killed; error %v", ifname, who, err)
		}
		_ = other.Wait()
	}
}

// An interface whose holder can't be asked isn't taken for free.
func TestHeldByOneThatCannotBeAsked(t *testing.T) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	if err := errors.Join(unix.Bind(fd, &unix.SockaddrUnix{Name: address(name(11)).Name}), unix.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	if who, err := HeldBy(name(11)); who == "" || err != nil {
		t.Fatalf("held by %q, error %v", who, err)
	}
	if who, err := HeldBy(name(11)); who != "" || !errors.Is(err, unix.EAGAIN) { // its queue is full
		t.Errorf("held by %q, error %v; want EAGAIN", who, err)
	}
}

// Whoever asks for the holder of an interface leaves nothing behind.
func TestHeldByIsAskedWithoutEnd(t *testing.T) {
	text, err := os.ReadFile("/proc/sys/net/core/somaxconn")
	if err != nil {
		t.Fatal(err)
	}
	queue, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	mustHold(t, "lo")
	for i := range queue + 100 {
		if who, err := HeldBy("lo"); who == "" || err != nil {
			t.Fatalf("asked %d times: held by %q, error %v", i, who, err)
		}
	}
}

func TestHoldDiesWithItsProcess(t *testing.T) {
	other := startHolder(t, name(3))
	if _, err := Hold(name(3)); !errors.Is(err, ErrHeld) || !strings.Contains(err.Error(), fmt.Sprint("process ", other.Process.Pid)) {
		t.Errorf("error %v; want one that names process %d", err, other.Process.Pid)
	}
	if err := other.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = other.Wait()
	mustHold(t, name(3))
}

// Right after kill -9 its process still holds the name: it is waited for.
func TestHoldAtOnceAfterKill(t *testing.T) {
	for range 5 {
		other := startHolder(t, name(9))
		if err := other.Process.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		h, err := Hold(name(9))
		if err != nil {
			t.Error(err)
		} else {
			h.Close()
		}
		_ = other.Wait()
	}
}

func TestBadNames(t *testing.T) {
	for _, n := range []string{"", "a b", "a/b", "0123456789abcdef"} {
		if _, err := Hold(n); err == nil {
			t.Errorf("%q was held", n)
		}
	}
}

func TestCommands(t *testing.T) {
	h := mustHold(t, name(4))
	ended := make(chan struct{})
	h.Serve(map[string]Command{
		"stats": func(_ context.Context, w io.Writer) error {
			_, err := io.WriteString(w, `{"a":1}`)
			return err
		},
		"stream": func(ctx context.Context, w io.Writer) error {
			defer close(ended)
			for i := 0; ; i++ {
				if _, err := fmt.Fprintln(w, i); err != nil {
					return err
				}
				select {
				case <-ctx.Done():
					return nil
				case <-time.After(time.Millisecond):
				}
			}
		},
	})
	r, err := Call(name(4), "stats")
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(r); err != nil || string(b) != `{"a":1}` {
		t.Fatalf("stats: %q, %v", b, err)
	}
	r.Close()
	if _, err := Call(name(4), "nonsense"); err == nil || !strings.Contains(err.Error(), "stats stream") {
		t.Errorf("error %v; want one that lists the commands", err)
	}
	if _, err := Call(name(5), "stats"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("error %v for an interface that no one holds; want ErrNotExist", err)
	}
	if r, err = Call(name(4), "stream"); err != nil {
		t.Fatal(err)
	}
	if line, _ := bufio.NewReader(r).ReadString('\n'); line != "0\n" {
		t.Errorf("the stream starts with %q", line)
	}
	r.Close()
	select {
	case <-ended:
	case <-time.After(5 * time.Second):
		t.Fatal("a stream goes on without its client")
	}
}

// A stream that its client ends comes to its end, and no piece of it is cut.
func TestEnd(t *testing.T) {
	h := mustHold(t, name(8))
	h.Serve(map[string]Command{"stream": func(ctx context.Context, w io.Writer) error {
		for ctx.Err() == nil {
			if _, err := io.WriteString(w, "a piece\n"); err != nil {
				return err
			}
		}
		for range 6 { // each soon enough, all together not
			time.Sleep(lastWords / 4)
			if _, err := io.WriteString(w, "a late piece\n"); err != nil {
				return err
			}
		}
		return nil
	}})
	a, err := Call(name(8), "stream")
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := io.ReadFull(a, make([]byte, 1001)); err != nil {
		t.Fatal(err)
	}
	if err := a.End(); err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(a); err != nil || !strings.HasSuffix(string(b), "a piece\n"+strings.Repeat("a late piece\n", 6)) {
		t.Errorf("%v; the stream ends with %q", err, b[max(0, len(b)-100):])
	}
}

// Who asks a process that is stopped is told so.
func TestStoppedHolder(t *testing.T) {
	if testing.Short() {
		t.Skip("waits for an answer")
	}
	other := startHolder(t, name(10))
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	if err := other.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if _, err := Call(name(10), "stats"); err == nil || !strings.Contains(err.Error(), name(10)) || !strings.Contains(err.Error(), "no answer within") {
		t.Error(err)
	}
}

// Close doesn't wait for a client that reads nothing.
func TestSlowClient(t *testing.T) {
	h := mustHold(t, name(6))
	h.Serve(map[string]Command{"flood": func(_ context.Context, w io.Writer) error {
		for {
			if _, err := w.Write(make([]byte, 1<<16)); err != nil {
				return err
			}
		}
	}})
	r, err := Call(name(6), "flood")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	time.Sleep(50 * time.Millisecond)
	start := time.Now()
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if d := time.Since(start); d > 3*time.Second {
		t.Fatalf("Close took %v", d)
	}
}

func TestRudeClients(t *testing.T) {
	h := mustHold(t, name(7))
	h.Serve(map[string]Command{"hello": func(_ context.Context, w io.Writer) error {
		_, err := io.WriteString(w, "hello")
		return err
	}})
	if _, err := Call(name(7), strings.Repeat("x", 1000)); err == nil {
		t.Error("a long request was taken")
	}
	for range maxClients - 1 { // connect, and say nothing
		if _, _, err := holder(name(7)); err != nil {
			t.Fatal(err)
		}
	}
	r, err := Call(name(7), "hello")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if b, _ := io.ReadAll(r); string(b) != "hello" {
		t.Errorf("got %q", b)
	}
}
