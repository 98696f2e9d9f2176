package kerneltest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/urxe/urxe/tests/interop/guest"
)

func TestMain(m *testing.M) { os.Exit(guest.Main(m)) }

func TestUmadInGuests(t *testing.T) {
	if testing.Short() {
		t.Skip("guests are booted without -short")
	}
	file := filepath.Join(t.TempDir(), "umad.test")
	for i, k := range guest.Kernels {
		g := guest.Start(t, k, guest.Options{})
		if i == 0 {
			build(t, file)
		}
		out := g.Run(t, "env", "URXE_UMAD_GUEST=1", g.Put(t, file), "-test.v", "-test.run", "^TestInGuest$")
		if strings.Count(out, "--- PASS: TestInGuest/") < 8 {
			t.Errorf("kernel %s:\n%s", k, out)
		}
		t.Logf("kernel %s:\n%s", k, out)
	}
}

func build(t *testing.T, file string) {
	t.Helper()
	b := exec.Command("go", "test", "-c", "-o", file, "github.com/urxe/urxe/ib/umad")
	b.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := b.CombinedOutput(); err != nil {
		t.Fatalf("building for the guest: %v\n%s", err, out)
	}
}
