package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const net = "../../sm/testdata/ft32.net"

func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	bad := filepath.Join(dir, "bad.conf")
	if err := os.WriteFile(bad, []byte("\nlmc 9\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	common := []string{"--transport", "fabric:" + net, "-F", "/dev/null", "-f", filepath.Join(dir, "log"), "--cache_dir", dir, "--dump_files_dir", dir, "-P", ""}
	for _, c := range []struct {
		want int
		args []string
	}{
		{0, append([]string{"-o", "-e", "-R", "updn", "--maxsmps", "8", "-l", "1"}, common...)},
		{0, []string{"--help"}},
		{2, []string{"--no-such-flag"}},
		{2, []string{"stray"}},
		{2, append([]string{"-o", "-Z", "sideways"}, common...)},
		{0, append([]string{"-o", "-N", "-g", "0x100009"}, common...)},
		{1, append([]string{"-o", "-g", "0x12345"}, common...)},
		{2, append([]string{"-o", "-p", "16"}, common...)},
		{1, []string{"-o", "-F", bad, "--transport", "fabric:" + net}},
		{1, []string{"-o", "-F", filepath.Join(dir, "none.conf")}},
		{1, []string{"-o", "-F", "/dev/null", "-f", filepath.Join(dir, "log"), "--transport", "fabric:none.net"}},
	} {
		if got := run(c.args); got != c.want {
			t.Errorf("usm %s: exit code %d, want %d", strings.Join(c.args, " "), got, c.want)
		}
	}
	log, _ := os.ReadFile(filepath.Join(dir, "log"))
	if !strings.Contains(string(log), "updn tables configured") {
		t.Errorf("log:\n%s", log)
	}
}

// TestCreateConfig: what -c writes is read back without a warning.
func TestCreateConfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "opensm.conf")
	if got := run([]string{"-F", "/dev/null", "-R", "ftree,updn", "-p", "7", "-c", file}); got != 0 {
		t.Fatal(got)
	}
	b, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(b), "routing_engine ftree,updn\n") || !strings.Contains(string(b), "sm_priority 7\n") {
		t.Fatalf("%v\n%s", err, b)
	}
	again := file + ".2"
	if got := run([]string{"-F", file, "-c", again}); got != 0 {
		t.Fatal(got)
	}
	if c, _ := os.ReadFile(again); string(c) != string(b) {
		t.Errorf("read and written again it differs:\n%s", c)
	}
}
