// Package conf reads what operators write for OpenSM: opensm.conf,
// partitions.conf, root_guid_file and node_name_map.
//
// A value that makes no sense is an error with its file and line. An option
// that OpenSM knows and that is not used here is named in a warning, unless it
// has the value that OpenSM writes into a fresh file; one that nobody knows is
// always named.
package conf

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/route"
)

// Options are the options of opensm.conf that are used.
type Options struct {
	GUID         ib.GUID
	MKey         uint64
	MKeyLease    int // seconds; 0 is for good
	MKeyProtect  uint8
	SMKey        uint64
	SubnetPrefix uint64
	LMC          uint8
	Priority     uint8

	PacketLifeTime uint8
	VLStallCount   uint8
	HOQLife        uint8
	LeafHOQLife    uint8
	MaxOpVLs       uint8
	SubnetTimeout  uint8

	SweepInterval int // seconds; 0 is never
	MaxSMPs       int // 0 is the default
	TimeoutMS     int
	Retries       int // 0 is the default

	ReassignLIDs    bool
	HonorGUID2LID   bool
	NoClientsRereg  bool
	AllowBothPKeys  bool
	BabblingPolicy  bool   // babbling_port_policy
	PartEnforce     string // both, in, out or off
	Daemon          bool
	ForceLogFlush   bool
	AccumLog        bool
	RoutingEngine   string
	RootGUIDFile    string
	PartitionFile   string
	NodeNameMapFile string
	LogFile         string
	LogPrefix       string
	LogFlags        uint8
	LogMaxMB        int
	DumpDir         string
}

// Default returns the options that hold when nothing is said.
func Default() Options {
	return Options{
		SMKey: 1, SubnetPrefix: 0xfe80 << 48, PacketLifeTime: 18, VLStallCount: 7, HOQLife: 18, LeafHOQLife: 16, MaxOpVLs: 5, SubnetTimeout: 18,
		SweepInterval: 10, TimeoutMS: 200, LogFlags: 3, AccumLog: true, HonorGUID2LID: true,
		LogFile: "/var/log/usm.log", DumpDir: "/var/log", PartitionFile: "/etc/opensm/partitions.conf",
		PartEnforce: "both",
	}
}

// setter puts the text of a value into the options.
type setter func(o *Options, v string) error

func number[T ~uint8 | ~uint64 | ~int](field func(*Options) *T, lo, hi uint64) setter {
	return func(o *Options, v string) error {
		n, err := strconv.ParseUint(v, 0, 64)
		if err != nil || n < lo || n > hi {
			return fmt.Errorf("%q: want a number from %d to %d", v, lo, hi)
		}
		*field(o) = T(n)
		return nil
	}
}

func boolean(field func(*Options) *bool) setter {
	return func(o *Options, v string) error {
		switch strings.ToUpper(v) {
		case "TRUE", "1", "YES", "ON":
			*field(o) = true
		case "FALSE", "0", "NO", "OFF":
			*field(o) = false
		default:
			return fmt.Errorf("%q: want TRUE or FALSE", v)
		}
		return nil
	}
}

func text(field func(*Options) *string) setter {
	return func(o *Options, v string) error {
		if v == "(null)" {
			v = ""
		}
		*field(o) = v
		return nil
	}
}

const any64 = 1<<64 - 1

// known are the options that are used.
var known = map[string]setter{
	"guid": func(o *Options, v string) (err error) {
		o.GUID, err = ib.ParseGUID(v)
		return err
	},
	"m_key":                       number(func(o *Options) *uint64 { return &o.MKey }, 0, any64),
	"m_key_lease_period":          number(func(o *Options) *int { return &o.MKeyLease }, 0, 1<<16-1),
	"m_key_protection_level":      number(func(o *Options) *uint8 { return &o.MKeyProtect }, 0, 3),
	"sm_key":                      number(func(o *Options) *uint64 { return &o.SMKey }, 0, any64),
	"subnet_prefix":               number(func(o *Options) *uint64 { return &o.SubnetPrefix }, 1, any64),
	"lmc":                         number(func(o *Options) *uint8 { return &o.LMC }, 0, 7),
	"sm_priority":                 number(func(o *Options) *uint8 { return &o.Priority }, 0, 15),
	"packet_life_time":            number(func(o *Options) *uint8 { return &o.PacketLifeTime }, 0, 31),
	"vl_stall_count":              number(func(o *Options) *uint8 { return &o.VLStallCount }, 1, 7),
	"head_of_queue_lifetime":      number(func(o *Options) *uint8 { return &o.HOQLife }, 1, 20),
	"leaf_head_of_queue_lifetime": number(func(o *Options) *uint8 { return &o.LeafHOQLife }, 1, 20),
	"max_op_vls":                  number(func(o *Options) *uint8 { return &o.MaxOpVLs }, 1, 5),
	"subnet_timeout":              number(func(o *Options) *uint8 { return &o.SubnetTimeout }, 1, 31),
	"sweep_interval":              number(func(o *Options) *int { return &o.SweepInterval }, 0, 1<<31),
	"max_wire_smps":               wireSMPs,
	"transaction_timeout":         number(func(o *Options) *int { return &o.TimeoutMS }, 1, 60000),
	"transaction_retries":         retries,
	"reassign_lids":               boolean(func(o *Options) *bool { return &o.ReassignLIDs }),
	"honor_guid2lid_file": func(o *Options, v string) error {
		return boolean(func(o *Options) *bool { return &o.HonorGUID2LID })(o, v)
	},
	"no_clients_rereg":     boolean(func(o *Options) *bool { return &o.NoClientsRereg }),
	"allow_both_pkeys":     boolean(func(o *Options) *bool { return &o.AllowBothPKeys }),
	"babbling_port_policy": boolean(func(o *Options) *bool { return &o.BabblingPolicy }),
	"part_enforce":         partEnforce,
	"no_partition_enforcement": func(o *Options, v string) error {
		var off bool
		err := boolean(func(*Options) *bool { return &off })(o, v)
		if off {
			o.PartEnforce = "off"
		}
		return err
	},
	"daemon":                boolean(func(o *Options) *bool { return &o.Daemon }),
	"force_log_flush":       boolean(func(o *Options) *bool { return &o.ForceLogFlush }),
	"accum_log_file":        boolean(func(o *Options) *bool { return &o.AccumLog }),
	"log_flags":             number(func(o *Options) *uint8 { return &o.LogFlags }, 0, 255),
	"log_max_size":          number(func(o *Options) *int { return &o.LogMaxMB }, 0, 1<<20),
	"routing_engine":        engines,
	"root_guid_file":        text(func(o *Options) *string { return &o.RootGUIDFile }),
	"partition_config_file": text(func(o *Options) *string { return &o.PartitionFile }),
	"node_name_map_name":    text(func(o *Options) *string { return &o.NodeNameMapFile }),
	"log_file":              text(func(o *Options) *string { return &o.LogFile }),
	"log_prefix":            text(func(o *Options) *string { return &o.LogPrefix }),
	"dump_files_dir":        text(func(o *Options) *string { return &o.DumpDir }),
}

func partEnforce(o *Options, v string) error {
	switch v {
	case "both", "in", "out", "off":
		o.PartEnforce = v
		return nil
	}
	return fmt.Errorf("%q: want both, in, out or off", v)
}

// wireSMPs takes OpenSM's own default for none given: the window adapts itself.
func wireSMPs(o *Options, v string) error {
	if v == "4" {
		return nil
	}
	return number(func(o *Options) *int { return &o.MaxSMPs }, 0, 1<<16)(o, v)
}

// retries does the same for the number of retries.
func retries(o *Options, v string) error {
	if v == "3" {
		return nil
	}
	return number(func(o *Options) *int { return &o.Retries }, 0, 100)(o, v)
}

func engines(o *Options, v string) error {
	if v == "(null)" {
		return nil
	}
	if known, unknown := route.ParseEngines(v); len(known)+len(unknown) == 0 {
		return fmt.Errorf("%q: want a list of %s", v, strings.Join(route.Engines(), ", "))
	}
	o.RoutingEngine = v
	return nil
}

// Read takes the lines of opensm.conf into o. name is the file's, for messages.
func (o *Options) Read(r io.Reader, name string) (warnings []string, err error) {
	s := bufio.NewScanner(r)
	line := 1
	for ; s.Scan(); line++ {
		key, value := split(s.Text())
		if key == "" {
			continue
		}
		warning, e := o.set(key, value)
		if e != nil {
			err = errors.Join(err, fmt.Errorf("%s:%d: %s %w", name, line, key, e))
		}
		if warning != "" {
			warnings = append(warnings, fmt.Sprintf("%s:%d: %s", name, line, warning))
		}
	}
	return warnings, errors.Join(err, unread(s, name, line))
}

// Set takes one option as a line of the file would have it.
func (o *Options) Set(line string) (warning string, err error) {
	key, value := split(line)
	if warning, err = o.set(key, value); err != nil {
		err = fmt.Errorf("%s %w", key, err)
	}
	return warning, err
}

// split takes a line apart; comments and empty lines have no key.
func split(line string) (key, value string) {
	line = strings.TrimSpace(line)
	if line == "" || line[0] == '#' {
		return "", ""
	}
	key, value, _ = strings.Cut(strings.Replace(line, "\t", " ", 1), " ")
	value = strings.TrimSpace(value)
	if i := strings.Index(value, " #"); i >= 0 {
		value = strings.TrimSpace(value[:i])
	}
	return key, strings.Trim(value, `"`)
}

func (o *Options) set(key, value string) (warning string, err error) {
	if set, ok := known[key]; ok {
		return "", set(o, value)
	}
	if usual, ok := unused[key]; ok {
		if value != usual {
			return fmt.Sprintf("option %s is OpenSM's and not used here; it stays without effect", key), nil
		}
		return "", nil
	}
	return fmt.Sprintf("option %s is unknown", key), nil
}

// Load reads an opensm.conf. Without the file the options stay as they are when
// it need not be there.
func (o *Options) Load(path string, must bool) (warnings []string, err error) {
	f, err := os.Open(path)
	if err != nil {
		if os.IsNotExist(err) && !must {
			return nil, nil
		}
		return nil, err
	}
	defer f.Close()
	return o.Read(f, path)
}

// Text gives the options as an opensm.conf.
func (o *Options) Text() string {
	var b strings.Builder
	null := func(s string) string {
		if s == "" {
			return "(null)"
		}
		return s
	}
	boolean := func(v bool) string { return strings.ToUpper(strconv.FormatBool(v)) }
	for _, l := range []struct {
		key   string
		value any
	}{
		{"guid", fmt.Sprintf("0x%016x", uint64(o.GUID))}, {"m_key", fmt.Sprintf("0x%016x", o.MKey)},
		{"m_key_lease_period", o.MKeyLease}, {"m_key_protection_level", o.MKeyProtect}, {"sm_key", fmt.Sprintf("0x%016x", o.SMKey)},
		{"subnet_prefix", fmt.Sprintf("0x%016x", o.SubnetPrefix)}, {"lmc", o.LMC}, {"sm_priority", o.Priority},
		{"packet_life_time", o.PacketLifeTime}, {"vl_stall_count", o.VLStallCount}, {"head_of_queue_lifetime", o.HOQLife},
		{"leaf_head_of_queue_lifetime", o.LeafHOQLife}, {"max_op_vls", o.MaxOpVLs}, {"subnet_timeout", o.SubnetTimeout},
		{"sweep_interval", o.SweepInterval}, {"max_wire_smps", o.MaxSMPs}, {"transaction_timeout", o.TimeoutMS},
		{"transaction_retries", o.Retries}, {"reassign_lids", boolean(o.ReassignLIDs)}, {"honor_guid2lid_file", boolean(o.HonorGUID2LID)},
		{"no_clients_rereg", boolean(o.NoClientsRereg)}, {"allow_both_pkeys", boolean(o.AllowBothPKeys)},
		{"part_enforce", o.PartEnforce}, {"babbling_port_policy", boolean(o.BabblingPolicy)},
		{"routing_engine", null(o.RoutingEngine)}, {"root_guid_file", null(o.RootGUIDFile)},
		{"partition_config_file", null(o.PartitionFile)}, {"node_name_map_name", null(o.NodeNameMapFile)},
		{"log_file", null(o.LogFile)}, {"log_prefix", null(o.LogPrefix)}, {"log_flags", fmt.Sprintf("0x%02x", o.LogFlags)},
		{"log_max_size", o.LogMaxMB}, {"accum_log_file", boolean(o.AccumLog)}, {"dump_files_dir", null(o.DumpDir)},
	} {
		fmt.Fprintf(&b, "%s %v\n", l.key, l.value)
	}
	return b.String()
}
