package kerneltest

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/tests/interop/guest"
)

// TestUsmWithoutSubnetManagement: on a host whose only port is RoCE, usm says so
// and ends.
func TestUsmWithoutSubnetManagement(t *testing.T) {
	if testing.Short() {
		t.Skip("guests are booted without -short")
	}
	file := filepath.Join(t.TempDir(), "usm")
	for i, k := range guest.Kernels {
		g := guest.Start(t, k, guest.Options{})
		if i == 0 {
			buildUsm(t, file)
		}
		usm := []string{g.Put(t, file), "-F", "/dev/null", "-P", "/nonexistent", "-f", "stdout", "--transport", "umad", "--cache_dir", "/tmp", "--dump_files_dir", "/tmp"}
		gid := strings.Split(strings.TrimSpace(g.Run(t, "cat", "/sys/class/infiniband/rxe0/ports/1/gids/0")), ":")
		guid := "0x" + strings.Join(gid[4:], "")
		for _, c := range []struct {
			name string
			args []string
			want string
		}{
			{"no InfiniBand port", usm, "no InfiniBand port that is up; there are: rxe0 port 1 ("},
			{"one that has no QP0", append(usm, "-g", guid), "this port has no subnet management: it is no InfiniBand port"},
			{"a GUID that no port has", append(usm, "-o", "-g", "0x1234"), "no port with GUID 0000:0000:0000:1234; there are: rxe0 port 1 ("},
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			r, err := g.Exec(ctx, c.args...)
			cancel()
			if err != nil || r.Status != 1 || !strings.Contains(r.Stderr, c.want) || !strings.Contains(r.Stdout, "ERR 6100: ") {
				t.Errorf("kernel %s, %s: %v, status %d, want 1 and %q\n%s%s", k, c.name, err, r.Status, c.want, r.Stdout, r.Stderr)
			}
			t.Logf("kernel %s, %s: %s", k, c.name, r.Stderr)
		}
	}
}

func buildUsm(t *testing.T, file string) {
	t.Helper()
	b := exec.Command("go", "build", "-o", file, "github.com/urxe/urxe/cmd/usm")
	b.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := b.CombinedOutput(); err != nil {
		t.Fatalf("building for the guest: %v\n%s", err, out)
	}
}
