package mem

import (
	"encoding/hex"
	"fmt"
	"os"
	"strconv"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/internal/proctest"
)

// The tests' other process maps some pages and does with them what it is told.

const (
	roleEnv    = "URXE_MEM_TEST_ROLE"
	childPages = 64
)

var pageSize = os.Getpagesize()

type child struct {
	*proctest.Child
	tb   testing.TB
	addr uint64 // of the pages
}

func startChild(tb testing.TB) *child {
	tb.Helper()
	c := &child{Child: proctest.Start(tb, roleEnv+"=child"), tb: tb}
	c.greet()
	return c
}

// greet waits until the child runs, and learns where its pages are.
func (c *child) greet() {
	c.tb.Helper()
	var err error
	if c.addr, err = strconv.ParseUint(c.Line(), 10, 64); err != nil {
		c.tb.Fatal(err)
	}
}

// bytes returns n bytes of the child's memory, by its own account.
func (c *child) bytes(off, n int) []byte {
	b, err := hex.DecodeString(c.Tell("get %d %d", off, n))
	if err != nil {
		c.tb.Fatal(err)
	}
	return b
}

func (c *child) process() *Process {
	c.tb.Helper()
	p, err := NewProcess(c.Cmd.Process.Pid)
	if err != nil {
		c.tb.Fatal(err)
	}
	c.tb.Cleanup(func() { p.Close() })
	return p
}

var racy func() // in race builds

func runRole(role string) {
	switch role {
	case "child":
		beChild()
	case "racy":
		racy()
	case "stranger":
		_, err := NewProcess(os.Getppid())
		fmt.Println(err)
	}
}

func beChild() {
	mem, err := proctest.Pages(childPages * pageSize)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	proctest.Obey(Address(mem), func(order string) string { return obey(mem, order) })
}

func obey(mem []byte, line string) string {
	var what string
	var off, n, v int
	fmt.Sscan(line, &what, &off, &n, &v)
	var err error
	switch what {
	case "unmap":
		err = remap(mem[off:off+n], unix.SYS_MUNMAP, 0)
	case "map":
		err = remap(mem[off:off+n], unix.SYS_MMAP, 0)
	case "protect":
		err = unix.Mprotect(mem[off:off+n], v)
	case "fill":
		for i := range mem[off : off+n] {
			mem[off+i] = byte(v)
		}
	case "get":
		return hex.EncodeToString(mem[off : off+n])
	case "watch":
		err = watchTails(mem[off:off+n], v)
	case "block":
		err = block(mem[off : off+n])
	case "exec":
		err = syscall.Exec("/proc/self/exe", os.Args, os.Environ())
	case "unblock":
		err = unblock(mem[off : off+n])
	default:
		err = fmt.Errorf("unknown command %q", line)
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return "ok"
}

func remap(b []byte, call, _ uintptr) error {
	addr, n := uintptr(unsafe.Pointer(&b[0])), uintptr(len(b))
	var errno syscall.Errno
	if call == unix.SYS_MUNMAP {
		_, _, errno = unix.Syscall(call, addr, n, 0)
	} else {
		_, _, errno = unix.Syscall6(call, addr, n, unix.PROT_READ|unix.PROT_WRITE,
			unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED, ^uintptr(0), 0)
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// watchTails waits for messages that fill b, each with another byte, from 1
// up: it polls the last byte, and when it changes all others must have. It
// acknowledges by a byte on the next page.
func watchTails(b []byte, messages int) error {
	ack := unsafe.Slice(&b[0], pageSize+1)[pageSize:]
	for k := 1; k <= messages; k++ {
		for i := 0; Load8(b, len(b)-1) != byte(k); i++ {
			if i%1000 == 999 {
				yield()
			}
		}
		for i := range b {
			if got := Load8(b, i); got != byte(k) {
				return fmt.Errorf("message %d: the last byte is there, byte %d is still %d", k, i, got)
			}
		}
		storeTail8(&ack[0], byte(k))
	}
	return nil
}

// What userfaultfd(2) needs of linux/userfaultfd.h.
const (
	uffdioAPI      = 0xc018aa3f
	uffdioRegister = 0xc020aa00
	uffdioZeropage = 0xc020aa04
	uffdAPI        = 0xaa
)

var uffd uintptr

// block makes the pages of b ones that nobody can touch until unblock.
func block(b []byte) error {
	if err := unix.Madvise(b, unix.MADV_DONTNEED); err != nil {
		return err
	}
	fd, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, unix.O_CLOEXEC|unix.O_NONBLOCK, 0, 0)
	if errno != 0 {
		return fmt.Errorf("userfaultfd: %w", errno)
	}
	uffd = fd
	api := [3]uint64{uffdAPI}
	if err := ioctl(uffdioAPI, unsafe.Pointer(&api)); err != nil {
		return err
	}
	const missing = 1
	reg := [4]uint64{Address(b), uint64(len(b)), missing}
	return ioctl(uffdioRegister, unsafe.Pointer(&reg))
}

func unblock(b []byte) error {
	zero := [4]uint64{Address(b), uint64(len(b))}
	return ioctl(uffdioZeropage, unsafe.Pointer(&zero))
}

func ioctl(req uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uffd, req, uintptr(arg)); errno != 0 {
		return fmt.Errorf("userfaultfd ioctl %#x: %w", req, errno)
	}
	return nil
}
