package guest

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// Capture records what passes the bridge port of the system under test. (On
// an interface that an AF_XDP socket holds, tcpdump sees nothing.)
type Capture struct {
	File string // pcap

	t      testing.TB
	cmd    *exec.Cmd
	stderr *output
}

// Capture starts to record packets that match filter, a pcap filter such as
// "udp port 4791", until Stop or the end of t.
func (l *Lab) Capture(t testing.TB, filter string) *Capture {
	t.Helper()
	c := &Capture{File: filepath.Join(t.TempDir(), "capture.pcap"), t: t, stderr: &output{}}
	c.cmd = inNamespace(context.Background(), l.Switch(), "tcpdump", "-n", "-i", "host0",
		"-U", "--immediate-mode", "-B", "32768", "-s", "10000", "-Z", "root", "-w", c.File, filter)
	c.cmd.Stderr = c.stderr
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.end)
	for range 500 {
		if strings.Contains(c.stderr.String(), "listening on") {
			return c
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Fatalf("tcpdump does not start:\n%s", c.stderr)
	return nil
}

var lostPackets = regexp.MustCompile(`(\d+) packets? dropped by`)

// Stop ends the recording and returns the name of the pcap file. It fails the
// test if tcpdump missed packets.
func (c *Capture) Stop() string {
	c.t.Helper()
	time.Sleep(100 * time.Millisecond) // the last packets are on their way to it
	c.end()
	for _, m := range lostPackets.FindAllStringSubmatch(c.stderr.String(), -1) {
		if m[1] != "0" {
			c.t.Fatalf("the capture is not complete:\n%s", c.stderr)
		}
	}
	return c.File
}

func (c *Capture) end() {
	if c.cmd == nil {
		return
	}
	c.cmd.Process.Signal(syscall.SIGINT)
	c.cmd.Wait()
	c.cmd = nil
}

// Fields has tshark read a pcap file, and returns one row per RoCE packet with
// the values of the named fields, all of which must be Wireshark's.
func Fields(t testing.TB, file string, fields ...string) [][]string {
	t.Helper()
	// without this, port 20049 and the like are taken for RPC over RDMA
	args := []string{"-r", file, "--disable-protocol", "rpcordma", "-Y", "infiniband", "-T", "fields", "-E", "separator=|"}
	for _, f := range fields {
		args = append(args, "-e", f)
	}
	var stderr bytes.Buffer
	cmd := exec.Command("tshark", args...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(fmt.Errorf("tshark: %w\n%s", err, &stderr))
	}
	var rows [][]string
	for line := range strings.Lines(string(out)) {
		rows = append(rows, strings.Split(strings.TrimSuffix(line, "\n"), "|"))
	}
	return rows
}

// output is a buffer that may be read while a command writes it.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}
