//go:build race

package mem

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
)

func init() { racy = beRacy }

// beRacy reads memory that a peer writes, before any completion.
func beRacy() {
	buf := aligned(64)
	mr, err := new(Table).Register(new(PD), NewBytes(buf, 0), 0, 0, 64, allAccess)
	if err != nil {
		panic(err)
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		b := NewBatch(1)
		op := b.Add()
		op.Kind, op.MR, op.Frag[0] = Scatter, mr, make([]byte, 64)
		b.Run()
	}()
	fmt.Println(buf[0])
	<-done
}

// TestTailLandsLast shows that programs which use the accessors are clean.
func TestRaceDetectorSeesReadsWithoutCompletion(t *testing.T) {
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleEnv+"=racy", "GORACE=exitcode=66")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "DATA RACE") {
		t.Errorf("the race went unnoticed: %v\n%s", err, out)
	}
}
