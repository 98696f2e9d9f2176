package procmem

import (
	"bytes"
	"encoding/hex"
	"flag"
	"fmt"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/nettest"
	"github.com/urxe/urxe/internal/proctest"
	"github.com/urxe/urxe/rocev2/mem"
)

// The other process maps some pages and does with them what it is told.

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
	b, err := proctest.Pages(pages * page)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	copy(b, bytes.Repeat([]byte{filler}, len(b)))
	proctest.Obey(mem.Address(b), func(order string) string { return obey(b, order) })
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
	*proctest.Child
	t    *testing.T
	addr uint64 // of the pages
	proc *mem.Process
}

func startChild(t *testing.T) *child {
	t.Helper()
	c := &child{Child: proctest.Start(t, roleEnv+"=child"), t: t}
	if _, err := fmt.Sscan(c.Line(), &c.addr); err != nil {
		t.Fatal(err)
	}
	var err error
	if c.proc, err = mem.NewProcess(c.Cmd.Process.Pid); err != nil {
		nettest.SkipOrFail(t, fmt.Sprintf("the right to the memory of a child: %v", err))
	}
	t.Cleanup(func() { c.proc.Close() })
	return c
}

// unmap takes pages away.
func (c *child) unmap(first, n int) { c.t.Helper(); c.Tell("unmap %d %d", first*page, n*page) }

// put fills the child's memory.
func (c *child) put(off int, b []byte) { c.t.Helper(); c.Tell("put %d %x", off, b) }

// wantBytes compares the child's memory, by its own account.
func (c *child) wantBytes(what string, off int, want []byte) {
	c.t.Helper()
	got, err := hex.DecodeString(c.Tell("get %d %d", off, len(want)))
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
