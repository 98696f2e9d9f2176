package interop

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urxe/urxe/tests/interop/guest"
)

// asLeaver in the environment makes TestKilledLabIsSwept the test that is killed.
const asLeaver = "URXE_INTEROP_LEAVER"

// After kill -9 of a test with a lab, the next one that wants a lab removes the
// guests, namespaces and processes that it left.
func TestKilledLabIsSwept(t *testing.T) {
	guest.Need(t)
	if os.Getenv(asLeaver) != "" {
		waitForDeath(t)
	}
	var lab string
	var sleeper int
	killed := startLeaver(t, &lab, &sleeper)
	if err := killed.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	killed.Wait()
	if !exists("/run/netns/"+lab) || !exists("/run/urxe/"+lab) {
		t.Fatal("the lab is gone already: it would not have been left behind")
	}
	if err := guest.Sweep(); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"/run/netns/" + lab, "/run/netns/" + lab + "-sw", "/run/urxe/" + lab} {
		if exists(path) {
			t.Errorf("%s is still there", path)
		}
	}
	if !ended(sleeper) {
		t.Errorf("the process %d of the lab still runs", sleeper)
	}
}

// waitForDeath makes a lab with a guest and a process, says so, and waits.
func waitForDeath(t *testing.T) {
	g := guest.Start(t, guest.Kernel61, guest.Options{})
	sleeper := g.Lab.Command(t.Context(), "sleep", "1000")
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	fmt.Printf("lab %s sleeper %d\n", g.Lab.Namespace, sleeper.Process.Pid)
	sleeper.Wait()
}

func startLeaver(t *testing.T, lab *string, sleeper *int) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestKilledLabIsSwept$", "-test.v")
	cmd.Env = append(os.Environ(), asLeaver+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if n, _ := fmt.Sscanf(lines.Text(), "lab %s sleeper %d", lab, sleeper); n == 2 {
			return cmd
		}
	}
	t.Fatalf("the process ended: %v", cmd.Wait())
	return nil
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// ended reports whether a process has ended, maybe without anyone to notice.
func ended(pid int) bool {
	for range 50 {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") || syscall.Kill(pid, 0) != nil {
			return true
		}
		time.Sleep(20 * time.Millisecond)
	}
	return false
}
