package procmem

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/rocev2/mem"
)

// The other process: the test program once more, which maps some pages and does
// with them what it is told on its standard input.

const (
	roleEnv = "URXE_PROCMEM_TEST_ROLE"
	pages   = 64
	filler  = 0xaa // what the child's pages hold at first
)

var page = os.Getpagesize()

func TestMain(m *testing.M) {
	if os.Getenv(roleEnv) != "" {
		beChild()
		return
	}
	flag.Parse()
	os.Exit(m.Run())
}

func beChild() {
	b, err := unix.Mmap(-1, 0, pages*page, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	copy(b, bytes.Repeat([]byte{filler}, len(b)))
	fmt.Println(mem.Address(b))
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		fmt.Println(obey(b, in.Text()))
	}
}

// obey does what a line says: "unmap OFF LEN", "get OFF LEN", "put OFF HEX".
func obey(b []byte, line string) string {
	var what, arg string
	var off, n int
	fmt.Sscan(line, &what, &off, &arg)
	fmt.Sscan(arg, &n)
	switch what {
	case "unmap":
		at := uintptr(mem.Address(b)) + uintptr(off)
		if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, at, uintptr(n), 0); errno != 0 {
			return "error: " + errno.Error()
		}
	case "get":
		return hex.EncodeToString(b[off : off+n])
	case "put":
		data, err := hex.DecodeString(arg)
		if err != nil {
			return "error: " + err.Error()
		}
		copy(b[off:], data)
	default:
		return "error: unknown command"
	}
	return "ok"
}

type child struct {
	t    *testing.T
	cmd  *exec.Cmd
	in   io.WriteCloser
	out  *bufio.Scanner
	addr uint64 // of the pages
	proc *mem.Process
}

func startChild(t *testing.T) *child {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"=child")
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := cmd.Start(); err1 != nil || err2 != nil || err != nil {
		t.Fatal(err1, err2, err)
	}
	c := &child{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	c.out.Buffer(nil, 4*pages*page)
	t.Cleanup(c.stop)
	if _, err := fmt.Sscan(c.line(), &c.addr); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.proc, err = mem.NewProcess(cmd.Process.Pid); err != nil {
		needs(t, fmt.Sprintf("the right to the memory of a child: %v", err))
	}
	return c
}

// needs skips the test, except where everything must run.
func needs(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("URXE_REQUIRE") == "1" {
		t.Fatalf("lacks %s", what)
	}
	t.Skipf("lacks %s", what)
}

func (c *child) stop() {
	c.in.Close()
	c.kill()
	if c.proc != nil {
		c.proc.Close()
	}
}

func (c *child) kill() {
	c.cmd.Process.Kill()
	c.cmd.Wait()
}

func (c *child) line() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("the child died: %v", c.out.Err())
	}
	return c.out.Text()
}

// tell makes the child do something and waits until it is done.
func (c *child) tell(format string, args ...any) string {
	c.t.Helper()
	fmt.Fprintf(c.in, format+"\n", args...)
	reply := c.line()
	if strings.HasPrefix(reply, "error:") {
		c.t.Fatalf("child: "+format+": %s", append(args, reply)...)
	}
	return reply
}

// unmap takes pages away.
func (c *child) unmap(first, n int) { c.t.Helper(); c.tell("unmap %d %d", first*page, n*page) }

// put fills the child's memory.
func (c *child) put(off int, b []byte) { c.t.Helper(); c.tell("put %d %x", off, b) }

// wantBytes compares the child's memory, by its own account.
func (c *child) wantBytes(what string, off int, want []byte) {
	c.t.Helper()
	got, err := hex.DecodeString(c.tell("get %d %d", off, len(want)))
	if err != nil {
		c.t.Fatal(err)
	}
	for i := range want {
		if got[i] != want[i] {
			c.t.Fatalf("%s: byte %d of %d at offset %d is %#x, want %#x", what, i, len(want), off, got[i], want[i])
		}
	}
}

// untouched is what n bytes hold that nobody has written.
func untouched(n int) []byte { return bytes.Repeat([]byte{filler}, n) }
