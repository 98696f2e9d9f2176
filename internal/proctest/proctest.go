// Package proctest gives tests another process: the test program once more, which does what it is told, line by line.
package proctest

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"reflect"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// Child is the other process.
type Child struct {
	Cmd *exec.Cmd
	In  io.WriteCloser // for orders whose answers nobody waits for
	t   testing.TB
	out *bufio.Scanner
}

const longestLine = 1 << 20

// Start runs this program with a variable, NAME=value, by which its TestMain knows that it is to Obey. It ends with t, or
// with the thread that started it.
func Start(t testing.TB, variable string) *Child {
	t.Helper()
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), variable)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	if err := cmd.Start(); err1 != nil || err2 != nil || err != nil {
		t.Fatal(err1, err2, err)
	}
	c := &Child{Cmd: cmd, In: in, t: t, out: bufio.NewScanner(out)}
	c.out.Buffer(nil, longestLine)
	t.Cleanup(func() { in.Close(); c.Kill() })
	return c
}

// Kill kills the child and waits for its end.
func (c *Child) Kill() {
	c.Cmd.Process.Kill()
	c.Cmd.Wait()
}

// Line returns the next line that the child says.
func (c *Child) Line() string {
	c.t.Helper()
	if !c.out.Scan() {
		c.t.Fatalf("the child died: %v", c.out.Err())
	}
	return c.out.Text()
}

// Tell gives the child an order, and returns its answer. One that begins with "error:" fails the test.
func (c *Child) Tell(format string, args ...any) string {
	c.t.Helper()
	fmt.Fprintf(c.In, format+"\n", args...)
	answer := c.Line()
	if strings.HasPrefix(answer, "error:") {
		c.t.Errorf("child: %s: %s", fmt.Sprintf(format, args...), answer)
	}
	return answer
}

// Obey is the child's part: it says hello, and then answers each order, until there are no more.
func Obey(hello any, do func(order string) string) {
	fmt.Println(hello)
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, longestLine)
	for in.Scan() {
		fmt.Println(do(in.Text()))
	}
}

// Pages maps n bytes for a child that will unmap some. The address space above them is free, where the kernel looks first: so
// what the Go runtime maps later doesn't come to lie in the holes, to be written by the test, or replaced.
func Pages(n int) ([]byte, error) {
	const room = 1 << 30 // more than a child's runtime ever maps
	b, err := unix.Mmap(-1, 0, n+room, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, err
	}
	if _, _, errno := unix.Syscall(unix.SYS_MUNMAP, reflect.ValueOf(b).Pointer()+uintptr(n), room, 0); errno != 0 {
		return nil, errno
	}
	b = b[:n:n]
	return b, unix.Mprotect(b, unix.PROT_READ|unix.PROT_WRITE)
}
