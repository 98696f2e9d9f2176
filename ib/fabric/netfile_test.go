package fabric

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"sort"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/ibsim/ibsimtest"
	"github.com/urxe/urxe/ib/mad"
)

func read(t testing.TB, text string) (*Fabric, error) {
	t.Helper()
	f := New(Defaults{})
	return f, f.Read(strings.NewReader(text), "test.net")
}

// shape describes nodes and links by GUID, whatever the nodes' IDs and order.
func shape(f *Fabric) string {
	var lines []string
	for _, n := range f.Nodes() {
		for i := 1; i <= n.NumPorts(); i++ {
			line := n.Type().String() + " " + n.GUID().String() + " " + n.description()
			if peer, num := n.Peer(i); peer != nil {
				line += " " + string(rune('0'+i)) + "-" + peer.GUID().String() + " " + string(rune('0'+num))
			}
			lines = append(lines, line)
		}
	}
	sort.Strings(lines)
	return strings.Join(lines, "\n")
}

func TestLoadAll(t *testing.T) {
	files, err := filepath.Glob("testdata/*.net")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d netfiles, %v", len(files), err)
	}
	for _, file := range files {
		f := New(Defaults{})
		if err := f.Load(file); err != nil {
			t.Errorf("%v", err)
			continue
		}
		var b bytes.Buffer
		if err := f.WriteNet(&b); err != nil {
			t.Fatal(err)
		}
		g := New(Defaults{})
		if err := g.Read(&b, "written"); err != nil || shape(f) != shape(g) {
			t.Errorf("%s: written and read, it is another (%v)", file, err)
		}
	}
}

// What ibnetdiscover printed about a netfile is the same fabric.
func TestDiscoveredIsTheSame(t *testing.T) {
	f, g := load(t, "ring8.net"), load(t, "ring8.discovered")
	if a, b := shape(f), shape(g); a != b {
		t.Errorf("netfile:\n%s\n\ndiscovered:\n%s", a, b)
	}
	if got := g.Node("S-0000000000200004"); got == nil || got != g.Node("sw4") || got.Info(1).LinkSpeedActive() != 1 {
		t.Errorf("sw4 is %v", got)
	}
}

// Stock ibsim reads what WriteNet writes, and stock ibnetdiscover sees in it
// what we have.
func TestIbsimReadsWhatWeWrite(t *testing.T) {
	f := New(Defaults{})
	if err := f.BuildTorus(2, 3, 3, 2); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "written.net")
	w, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.WriteNet(w); err != nil || w.Close() != nil {
		t.Fatal(err)
	}
	s := ibsimtest.Start(t, file)
	out, err := s.Tool("h0", "ibnetdiscover")
	if err != nil {
		t.Fatalf("ibnetdiscover: %v\n%s", err, out)
	}
	g := New(Defaults{})
	if err := g.Read(strings.NewReader(out), "ibnetdiscover"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if a, b := shape(f), shape(g); a != b {
		t.Errorf("ours:\n%s\n\nibnetdiscover's:\n%s", a, b)
	}
}

func TestNetfileSettings(t *testing.T) {
	dir := t.TempDir()
	main := filepath.Join(dir, "main.net")
	write := func(path, text string) {
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(main, `# a comment
vendid=0x2c9
devid=0xc738
sysimgguid=0x77
switchguid=0x1234(1234)
Switch	4 "a"	# "the first" base port 0 lid 0
[1]	"b#s"[1] w=3 s=7 e=7
[2]	"h"[2](abcd)	# "h" lid 3 4xEDR
caguid=0x99
Ca 2 "h"
[2](abcd)	"a"[2]	# lid 3 lmc 0 "the first" lid 1 4xEDR
Rt 1 "r"

module="b"
include "sub.net"
do Unlink "a#"[1]
`)
	write(filepath.Join(dir, "sub.net"), `switch 2 "s"
[1]	"a"[1]
`)
	f := New(Defaults{})
	err := f.Load(main)
	if err == nil || !strings.Contains(err.Error(), `"b#s" is linked to "b#a"`) && !strings.Contains(err.Error(), "disagrees") {
		t.Fatalf("a link to a node of another module: %v", err)
	}
	write(filepath.Join(dir, "sub.net"), "switch 2 \"s\"\n")
	write(main, strings.Replace(read0(t, main), `do Unlink "a#"[1]`, `do Unlink "s"[1]`, 1))
	f = New(Defaults{})
	if err := f.Load(main); err != nil {
		t.Fatal(err)
	}
	a := f.Node("a")
	ni := mad.NodeInfo(a.info[:])
	if a.GUID() != 0x1234 || ni.VendorID() != 0x2c9 || ni.DeviceID() != 0xc738 || ni.SystemImageGUID() != 0x77 || a.description() != "the first" {
		t.Errorf("node a: %+v", a.spec)
	}
	if pi := a.Info(2); pi.LinkSpeedExtActive() != 2 || pi.LinkSpeedActive() != 4 || pi.LinkWidthActive() != 2 {
		t.Errorf("the link of 4xEDR has %d %d %d", pi.LinkWidthActive(), pi.LinkSpeedActive(), pi.LinkSpeedExtActive())
	}
	if pi := a.Info(1); pi.LinkSpeedSupported() != 7 || pi.LinkWidthSupported() != 3 || pi.PortState() != ib.PortDown {
		t.Errorf("port 1: speed %d, width %d, %v", pi.LinkSpeedSupported(), pi.LinkWidthSupported(), pi.PortState())
	}
	if h := f.Node("h"); h.GUID() != 0x99 || h.PortGUID(2) != 0xabcd || h.PortGUID(1) != 0x9a {
		t.Errorf("h has GUIDs %v, %v, %v", h.GUID(), h.PortGUID(1), h.PortGUID(2))
	}
	if f.Node("r").Type() != mad.NodeRouter || f.Node("b#s") == nil {
		t.Error("r or b#s is missing")
	}
}

// What ibnetdiscover prints about chassis, with ports that have an external
// number and GUIDs in full, as on hardware.
func TestDiscoveredChassis(t *testing.T) {
	f, err := read(t, `#
# Topology file: generated on Thu Jun  5 14:02:31 2025
#
# Initiated from node 0008f10403961354 port 0008f10403961355

Chassis 1 (guid 0x8f10400411f56)

# Chassis 1 - Spine 1 Chip 1
vendid=0x8f1
devid=0x5a06
sysimgguid=0x8f10400411f56
switchguid=0x8f10400411a08(8f10400411a08)
Switch	24 "S-0008f10400411a08"		# "ISR9288 Voltaire sFB-12D" enhanced port 0 lid 7 lmc 0
[19][ext 7]	"H-0008f10403961354"[1](8f10403961355) 		# "MT23108 InfiniHost" lid 4 4xDDR

Non-Chassis Nodes

vendid=0x8f1
devid=0x5a44
sysimgguid=0x8f10403961357
caguid=0x8f10403961354
Ca	2 "H-0008f10403961354"		# "MT23108 InfiniHost"
[1](8f10403961355) 	"S-0008f10400411a08"[19][ext 7]		# lid 4 lmc 1 "ISR9288 Voltaire sFB-12D" lid 7 4xDDR
`)
	if err != nil {
		t.Fatal(err)
	}
	h := f.Node("H-0008f10403961354")
	peer, num := h.Peer(1)
	if peer == nil || peer.GUID() != 0x8f10400411a08 || num != 19 || h.PortGUID(1) != 0x8f10403961355 || h.Info(1).LinkSpeedActive() != 2 {
		t.Errorf("the host is at %v port %d, %v, speed %d", peer, num, h.PortGUID(1), h.Info(1).LinkSpeedActive())
	}
}

func read0(t *testing.T, path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestNetfileErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"Switch 4 leaf", "test.net:1: want a number of ports"},
		{"Switch x \"leaf\"", "test.net:1: want a number of ports"},
		{"Switch 0 \"leaf\"", "0 ports: want 1 to 254"},
		{"Switch 255 \"leaf\"", "255 ports: want 1 to 254"},
		{"Switch 4 \"\"", "node ID of 0 bytes"},
		{"Switch 4 \"a\"\n\nSwitch 4 \"a\"", "test.net:3: node \"a\" is there twice: first at test.net:1"},
		{"[1] \"a\"[1]", "test.net:1: a link before the first node"},
		{"Switch 4 \"a\"\n[5] \"b\"[1]", "test.net:2: port of node \"a\": want [1] to [4]"},
		{"Switch 4 \"a\"\n[1] b[1]", "test.net:2: want [port]"},
		{"Switch 4 \"a\"\n[1] \"b\"[1]", "test.net:2: node \"a\" is linked to \"b\", which is not there"},
		{"Switch 4 \"a\"\n[1] \"a\"[1]", "linked to itself"},
		{"Switch 4 \"a\"\n[1] \"b\"[9]\nSwitch 2 \"b\"", "node \"b\" has no port 9"},
		{"Switch 4 \"a\"\n[1] \"b\"[1]\n[2] \"b\"[1]\nSwitch 2 \"b\"", "is linked to"},
		{"Switch 4 \"a\"\n[1] \"b\"[1]\nSwitch 2 \"b\"\n[1] \"a\"[2]", "disagrees"},
		{"Switch 4 \"a\"\n[1] \"a\"[2] q=3", "link option \"q=3\""},
		{"Switch 4 \"a\"\n[1] \"a\"[2] w=900", "link option \"w=900\""},
		{"Switch 4 \"a\"\n[1](xyz) \"a\"[2]", "port GUID"},
		{"colour=3", "\"colour\" is no setting"},
		{"vendid=x", "vendid: want a number"},
		{"hello", "\"hello\" is no node, link or setting"},
		{"module=x", "module: want a name in quotes"},
		{"include x", "include: want a file"},
		{"include \"no-such-file\"", "no-such-file"},
		{"do Unlink", "do: want a command and a node"},
		{"do Unlink \"a\"[1]", "test.net:1: unlink: no node \"a\""},
		{"Switch 4 \"a\"\ndo Dance \"a\"[1]", "\"dance\": want Unlink, ReLink or Error"},
		{"Switch 4 \"a\"\ndo Error \"a\" 200", "percentage of 0 to 100"},
		{"Switch 4 \"a\"\ndo Unlink \"a\"[1]", "has no link"},
	} {
		if _, err := read(t, c.text); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: error %v, want %q", c.text, err, c.want)
		}
	}
}

func TestIncludeLoop(t *testing.T) {
	file := filepath.Join(t.TempDir(), "loop.net")
	if err := os.WriteFile(file, []byte("include \"loop.net\"\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	err := New(Defaults{}).Load(file)
	if err == nil || !regexp.MustCompile("more than 9 deep").MatchString(err.Error()) {
		t.Errorf("got %v", err)
	}
}

// Any text gives a fabric or an error, and what is read can be written and
// read again.
func FuzzNetfile(f *testing.F) {
	for _, name := range []string{"ring8.net", "ring8.discovered"} {
		b, err := os.ReadFile("testdata/" + name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(b[:min(len(b), 700)]))
	}
	f.Add("module=\"m\"\nwidth=3\nSwitch 3 \"a\" # \"x\"\n[1] \"a\"[2] w=1 s=2 e=4\ndo Error \"a\"[1] 20 21\n")
	f.Fuzz(func(t *testing.T, text string) {
		if strings.Contains(text, "include") {
			return // It would read files.
		}
		a, err := read(t, text)
		if err != nil {
			return
		}
		var b bytes.Buffer
		if err := a.WriteNet(&b); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(text, "\"\r\x00") && strings.Contains(text, "\"\"") {
			return
		}
		if _, err := read(t, b.String()); err != nil {
			t.Errorf("written as\n%s\nit is refused: %v", b.String(), err)
		}
	})
}
