package daemon

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/urxe/urxe/sm"
	"github.com/urxe/urxe/sm/conf"
	"github.com/urxe/urxe/sm/lid"
)

// inMemory are options for a fabric in memory.
func inMemory(t *testing.T, net string) Options {
	t.Setenv("SIM_HOST", "")
	o := Options{Options: conf.Default(), Transport: "fabric:../testdata/" + net + ".net", CacheDir: t.TempDir()}
	o.PartitionFile = ""
	o.DumpDir = o.CacheDir
	o.LogFile = filepath.Join(o.CacheDir, "usm.log")
	o.LogFlags = 0x47
	return o
}

func TestOnceInMemory(t *testing.T) {
	o := inMemory(t, "ft32")
	o.Once, o.GUID = true, 0x100009
	if err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	var tb lid.Table
	if notes, err := tb.Load(filepath.Join(o.CacheDir, "guid2lid")); err != nil || len(notes) > 0 {
		t.Fatal(notes, err)
	}
	if r, ok := tb.Get(0x100009); !ok || r.Min != 1 {
		t.Errorf("the manager's own port has %v: want LID 1", r)
	}
	for _, f := range []string{"opensm-subnet.lst", "opensm-lfts.dump", "opensm.fdbs"} {
		if st, err := os.Stat(filepath.Join(o.DumpDir, f)); err != nil || st.Size() == 0 {
			t.Errorf("%s: %v", f, err)
		}
	}
}

// TestReload: SIGHUP reads the file again; one that is wrong changes nothing.
func TestReload(t *testing.T) {
	o := inMemory(t, "torus4x4")
	o.ConfigFile = filepath.Join(o.CacheDir, "opensm.conf")
	write := func(text string) {
		if err := os.WriteFile(o.ConfigFile, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("routing_engine updn\n")
	if _, err := o.Load(o.ConfigFile, true); err != nil {
		t.Fatal(err)
	}
	o.Override = []string{"log_flags 0x47", "partition_config_file (null)", "log_file " + o.LogFile, "dump_files_dir " + o.DumpDir}
	stop := start(t, o)
	if count(o.LogFile, "updn tables configured") != 1 {
		t.Error("not routed by updn at first")
	}
	signal := func() {
		if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	write("routing_engine nue\nlmc 9\n")
	signal()
	await(t, o.LogFile, "the configuration stays as it was", 1)
	write("routing_engine nue\nqos TRUE\n")
	signal()
	await(t, o.LogFile, "nue tables configured", 1)
	await(t, o.LogFile, "option qos is OpenSM's and not used here", 1)
	await(t, o.LogFile, "SUBNET UP", 2)
	if err := os.Rename(o.LogFile, o.LogFile+".1"); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(os.Getpid(), syscall.SIGUSR1); err != nil {
		t.Fatal(err)
	}
	for range 500 {
		if _, err := os.Stat(o.LogFile); err == nil {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	if count(o.LogFile, "Exiting SM") != 1 {
		t.Error("the log was not opened anew")
	}
}

func TestWrongOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"transport":    func(o *Options) { o.Transport = "carrier-pigeon" },
		"no such file": func(o *Options) { o.Transport = "fabric:/nonexistent" },
		"roots":        func(o *Options) { o.RootGUIDFile = "/nonexistent/roots" },
		"names":        func(o *Options) { o.NodeNameMapFile = "/nonexistent/names" },
		"log file":     func(o *Options) { o.LogFile = "/nonexistent/usm.log" },
	} {
		o := inMemory(t, "ft32")
		change(&o)
		if err := Run(context.Background(), o); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: want something of %q", err, want)
		}
	}
}

// TestUnknownEngineIsNamed: engines that only OpenSM has are passed over, loudly.
func TestUnknownEngineIsNamed(t *testing.T) {
	o := inMemory(t, "ring8")
	o.Once, o.RoutingEngine = true, "lash,updn"
	if err := Run(context.Background(), o); err != nil {
		t.Fatal(err)
	}
	if count(o.LogFile, `routing engine "lash" is not one of`) != 1 || count(o.LogFile, "updn tables") != 1 {
		b, _ := os.ReadFile(o.LogFile)
		t.Errorf("log:\n%s", b)
	}
}

func TestProgressLine(t *testing.T) {
	var b bytes.Buffer
	if !show(&b, sm.Progress{Phase: "discovering", Nodes: 12}, true, false) || !strings.Contains(b.String(), "discovering") {
		t.Errorf("%q", b.String())
	}
	b.Reset()
	if show(&b, sm.Progress{}, false, true) || b.String() != "\r\x1b[K" {
		t.Errorf("%q", b.String())
	}
	b.Reset()
	if show(&b, sm.Progress{}, false, false); b.Len() > 0 {
		t.Errorf("%q", b.String())
	}
}

// TestReloadWithoutFile: a configuration file that went away, as while an editor
// replaces it, does not put all options to their defaults.
func TestReloadWithoutFile(t *testing.T) {
	o := inMemory(t, "ring8")
	o.ConfigFile = filepath.Join(o.CacheDir, "opensm.conf")
	if err := os.WriteFile(o.ConfigFile, []byte("lmc 2\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	o.look()
	next, _, _, err := o.reload()
	if err != nil || next.LMC != 2 {
		t.Fatal(next, err)
	}
	if err := os.Remove(o.ConfigFile); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := next.reload(); err == nil || next.LMC != 2 {
		t.Errorf("LMC %d, %v: want an error, and the options as they were", next.LMC, err)
	}
}

// TestLongLines: every file says where a line is too long.
func TestLongLines(t *testing.T) {
	o := inMemory(t, "ring8")
	long := filepath.Join(o.CacheDir, "guid2lid")
	if err := os.WriteFile(long, bytes.Repeat([]byte("x"), 70000), 0o644); err != nil {
		t.Fatal(err)
	}
	empty := t.TempDir()
	for name, change := range map[string]func(*Options){
		"guid2lid":       func(*Options) {},
		"root_guid_file": func(o *Options) { o.CacheDir, o.RootGUIDFile = empty, long },
		"node_name_map":  func(o *Options) { o.CacheDir, o.NodeNameMapFile = empty, long },
	} {
		c := o
		change(&c)
		if _, _, err := c.config(); err == nil || !strings.Contains(err.Error(), long) || !strings.Contains(err.Error(), "1: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := o.Load(long, true); err == nil || !strings.Contains(err.Error(), long+":1: ") {
		t.Error(err)
	}
}

// TestMissingPartitionFile: a partition file that was named and is not there is told of.
func TestMissingPartitionFile(t *testing.T) {
	o := inMemory(t, "ring8")
	o.PartitionFile = filepath.Join(o.CacheDir, "typo.conf")
	if _, warnings, err := o.config(); err != nil || len(warnings) != 1 || !strings.Contains(warnings[0], "typo.conf") {
		t.Error(warnings, err)
	}
}
