package conf

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/urxe/urxe/ib"
)

func TestOptions(t *testing.T) {
	o := Default()
	warnings, err := o.Read(strings.NewReader(`# comment
lmc 2
sm_priority	0xf
routing_engine ftree,lash,updn
root_guid_file (null)
log_file "/tmp/x.log"
reassign_lids TRUE
max_wire_smps 4
qos TRUE
qos_policy_file /etc/opensm/qos-policy.conf
babbling_port_policy TRUE
m_key_lease_period 60
m_key_protection_level 2
part_enforce in
no_such_option 1
`), "opensm.conf")
	if err != nil {
		t.Fatal(err)
	}
	if o.LMC != 2 || o.Priority != 15 || o.RoutingEngine != "ftree,lash,updn" || o.LogFile != "/tmp/x.log" || !o.ReassignLIDs || o.MaxSMPs != 0 ||
		!o.BabblingPolicy || o.MKeyLease != 60 || o.MKeyProtect != 2 || o.PartEnforce != "in" {
		t.Errorf("%+v", o)
	}
	if len(warnings) != 2 || !strings.Contains(warnings[0], "opensm.conf:9: option qos") || !strings.Contains(warnings[1], ":15: option no_such_option is unknown") {
		t.Errorf("warnings %q", warnings)
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for _, line := range []string{"lmc 8", "lmc x", "lmc", "sm_priority 16", "reassign_lids maybe", "guid 0xz", "sweep_interval -1", "routing_engine ,", "subnet_timeout 32",
		"m_key_protection_level 4", "m_key_lease_period 65536", "part_enforce sideways", "no_partition_enforcement x"} {
		o := Default()
		if _, err := o.Read(strings.NewReader("\n"+line+"\n"), "f"); err == nil || !strings.HasPrefix(err.Error(), "f:2: "+strings.Fields(line)[0]) {
			t.Errorf("%q: error %v", line, err)
		}
	}
}

const manual = `
# from OpenSM's manual page
Default=0x7fff : ALL, SELF=full ;
NewPartition , ipoib : 0x123456=full, 0x3456789034=limi,  0x2134af2306 ;
YetAnotherOne = 0x300 : SELF=full ;
YetAnotherOne = 0x300 : ALL=limited ;
ShareIO = 0x80 , defmember=full : 0x123451, 0x123452;
ShareIO = 0x80 : 0x123453, 0x123454, 0x123455=full;
ShareIO = 0x80 : defmember=limited : 0x123456, 0x123457,
   0x123458=full;
Default=0x7fff,ipoib:
  mgid=ff12:401b::0707,sl=1 # random IPv4 group
  mgid=ff12::1,sl=1,Q_Key=0xDEADBEEF,rate=3,mtu=2 # random group
  ALL=full;
`

func TestPartitions(t *testing.T) {
	ps, warnings, err := ParsePartitions(manual, "partitions.conf")
	if err != nil {
		t.Fatal(err)
	}
	if len(warnings) != 1 || !strings.Contains(warnings[0], ":4:") {
		t.Errorf("warnings %q", warnings)
	}
	if len(ps.List) != 4 || ps.List[0].PKey != 0x7fff || ps.List[1].PKey != 1 || len(ps.List[0].Groups) != 2 {
		t.Fatalf("%+v", ps.List)
	}
	g := ps.List[0].Groups[1]
	if !g.HasQKey || g.QKey != 0xdeadbeef || g.MTU != ib.MTU512 || g.SL != 1 {
		t.Errorf("group %+v", g)
	}
	for _, c := range []struct {
		port PortOf
		want []ib.PKey
	}{
		{PortOf{GUID: 0x123456, CA: true}, []ib.PKey{0xffff, 0x8001, 0x300, 0x80}},
		{PortOf{GUID: 0x123451, CA: true}, []ib.PKey{0xffff, 0x300, 0x8080}},
		{PortOf{GUID: 1, CA: true, Self: true}, []ib.PKey{0xffff, 0x8300}},
		{PortOf{GUID: 2, Switch: true}, []ib.PKey{0xffff, 0x300}},
	} {
		if got := ps.Table(c.port); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.port, got, c.want)
		}
	}
}

func TestDefaultPartition(t *testing.T) {
	host, self := PortOf{GUID: 5, CA: true}, PortOf{GUID: 6, CA: true, Self: true}
	none := NoPartitionFile()
	if !slices.Equal(none.Table(host), []ib.PKey{0xffff}) {
		t.Error("without a file everybody is a full member")
	}
	ps, _, err := ParsePartitions("A=0x10: ALL=both;", "f")
	if err != nil {
		t.Fatal(err)
	}
	if got := ps.Table(host); !slices.Equal(got, []ib.PKey{0x7fff, 0x8010}) {
		t.Errorf("host %v", got)
	}
	if got := ps.Table(self); !slices.Equal(got, []ib.PKey{0xffff, 0x8010}) {
		t.Errorf("self %v", got)
	}
	ps.AllowBoth = true
	if got := ps.Table(host); !slices.Equal(got, []ib.PKey{0x7fff, 0x8010, 0x10}) {
		t.Errorf("both %v", got)
	}
	ps, _, err = ParsePartitions("A=0x10,indx0: ALL=full;", "f")
	if err != nil || ps.Table(host)[0] != 0x8010 {
		t.Errorf("indx0: %v, %v", ps.Table(host), err)
	}
}

func TestReadableValues(t *testing.T) {
	ps, _, err := ParsePartitions("A=0x10,ipoib,mtu=4096,rate=100G: ALL=full;\nB=0x11,ipoib,mtu=5,rate=16: ALL;", "f")
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range ps.List[1:] {
		if p.Group.MTU != ib.MTU4096 || p.Group.Rate != ib.Rate100Gbps {
			t.Errorf("%s: MTU %v, rate %v", p.Name, p.Group.MTU, p.Group.Rate)
		}
	}
}

func TestBadPartitions(t *testing.T) {
	for text, want := range map[string]string{
		"A=0x10: ALL":                           "f:1",
		"A=0x10 ALL;":                           "f:1",
		"\n\nA=0x8000: ALL;":                    "f:3",
		"A=0x10:\nALL,\nfoo;":                   "f:3",
		"A=0x10,mtu=3000: ALL;":                 "mtu",
		"A=0x10,rate=7G: ALL;":                  "rate",
		"A=0x10,colour=1: ALL;":                 "colour",
		"A=1:mgid=fe80::1\n;":                   "multicast",
		"A=0x10,indx0: ALL;B=0x11,indx0: SELF;": "indx0",
		"A=0x10,defmember=most: ALL;":           "defmember",
		"A=0x10: mgid=ff12::1,sl=16\nALL;":      "sl",
		"A=0x12345: ALL;":                       "P_Key",
	} {
		if _, _, err := ParsePartitions(text, "f"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want something of %q", text, err, want)
		}
	}
}

func TestSmallFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	g, err := LoadGUIDs(write("roots", "# roots\n0x200000\n\n200001 # second\n"))
	if err != nil || !slices.Equal(g, []ib.GUID{0x200000, 0x200001}) {
		t.Error(g, err)
	}
	n, err := LoadNodeNames(write("names", "0x200000 \"spine 1\"\n0x200001\t\"leaf\" # x\n"))
	if err != nil || n[0x200000] != "spine 1" || n[0x200001] != "leaf" {
		t.Error(n, err)
	}
	if _, err := LoadGUIDs(write("bad", "0x1\nfoo\n")); err == nil || !strings.Contains(err.Error(), "bad:2") {
		t.Error(err)
	}
	if _, err := LoadNodeNames(write("bad2", "0x1\n")); err == nil {
		t.Error("a GUID without a name was taken")
	}
}

func FuzzPartitions(f *testing.F) {
	f.Add(manual)
	f.Add("A=0x10,ipoib,mtu=4096,rate=100G: ALL=full;")
	f.Fuzz(func(t *testing.T, s string) {
		ps, _, err := ParsePartitions(s, "f")
		if err == nil {
			ps.Table(PortOf{GUID: 1, CA: true, Self: true})
		}
	})
}

func FuzzOptions(f *testing.F) {
	f.Add("lmc 2\nrouting_engine ftree,updn\nguid 0x1\n")
	f.Fuzz(func(t *testing.T, s string) {
		o := Default()
		_, _ = o.Read(strings.NewReader(s), "f")
	})
}
