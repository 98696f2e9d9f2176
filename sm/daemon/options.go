// Package daemon puts a subnet manager together from its parts: a port of the
// transport asked for, the configuration files, the log, the manager, and the
// files that it leaves. Package main of usm only reads flags for it.
package daemon

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/fabric"
	"github.com/urxe/urxe/ib/ibsim"
	"github.com/urxe/urxe/ib/mad"
	"github.com/urxe/urxe/ib/umad"
	"github.com/urxe/urxe/sm"
	"github.com/urxe/urxe/sm/conf"
	"github.com/urxe/urxe/sm/lid"
	"github.com/urxe/urxe/sm/route"
)

// Options are those of the configuration file and those of the command line.
type Options struct {
	conf.Options
	Transport  string // "umad", "ibsim" or "fabric:FILE"
	ConfigFile string // read again on SIGHUP; empty is none
	Once       bool   // configure the subnet once, and end
	EraseLog   bool
	JSONLog    bool
	CacheDir   string   // where guid2lid is
	found      bool     // ConfigFile was there when it was last read
	Override   []string // options of the command line, as lines of opensm.conf, that win over the file
}

// open opens the port that the transport and the GUID name.
func (o *Options) open() (mad.Port, error) {
	switch kind, file, _ := strings.Cut(o.Transport, ":"); kind {
	case "", "umad":
		return umad.Open(umad.Options{GUID: o.GUID, Agents: umad.Manager()})
	case "ibsim":
		return ibsim.Open(ibsim.OptionsFromEnv())
	case "fabric":
		return openFabric(file, o.GUID)
	default:
		return nil, fmt.Errorf("transport %q: want umad, ibsim or fabric:FILE", o.Transport)
	}
}

// at checks that a port is the one whose GUID was asked for: in the simulator,
// SIM_HOST chooses it.
func (o *Options) at(local mad.Local) error {
	if o.GUID != 0 && o.GUID != local.GUID {
		return fmt.Errorf("the port at %s has GUID 0x%016x, not 0x%016x (guid): in a simulated fabric SIM_HOST names the node to be at", local.Device, uint64(local.GUID), uint64(o.GUID))
	}
	return nil
}

// openFabric makes the fabric of a netfile and attaches to it: at the port with
// a GUID, at the node that SIM_HOST names, or at the first one.
func openFabric(file string, guid ib.GUID) (mad.Port, error) {
	f := fabric.New(fabric.Defaults{})
	if err := f.Load(file); err != nil {
		return nil, err
	}
	node := os.Getenv("SIM_HOST")
	num := 0
	for _, n := range f.Nodes() {
		for i := 0; guid != 0 && i <= n.NumPorts(); i++ {
			if n.PortGUID(i) == guid {
				node, num = n.ID(), i
			}
		}
		if node == "" {
			node = n.ID()
		}
	}
	return f.Open(node, num)
}

// enforce are the values of part_enforce.
var enforce = map[string]sm.Enforce{"both": sm.EnforceBoth, "in": sm.EnforceIn, "out": sm.EnforceOut, "off": 0}

// config turns the options into those of the manager.
func (o *Options) config() (c sm.Config, warnings []string, err error) {
	c = sm.Config{
		Prefix: o.SubnetPrefix, Priority: o.Priority, MKey: o.MKey, SMKey: o.SMKey, LMC: o.LMC, MaxSMPs: o.MaxSMPs,
		Timeout: time.Duration(o.TimeoutMS) * time.Millisecond, Retries: o.Retries, SweepInterval: time.Duration(o.SweepInterval) * time.Second,
		MaxOpVLs: o.MaxOpVLs, SubnetTimeout: o.SubnetTimeout, PacketLifeTime: o.PacketLifeTime, HOQLife: o.HOQLife,
		LeafHOQLife: o.LeafHOQLife, VLStallCount: o.VLStallCount, ReassignLIDs: o.ReassignLIDs, NoReregister: o.NoClientsRereg,
		LIDs: &lid.Table{}, MKeyLease: uint16(o.MKeyLease), MKeyProtect: o.MKeyProtect, Enforce: enforce[o.PartEnforce], DisableBabbling: o.BabblingPolicy,
	}
	if o.SweepInterval == 0 {
		c.SweepInterval = -1
	}
	known, unknown := route.ParseEngines(o.RoutingEngine)
	for _, u := range unknown {
		warnings = append(warnings, fmt.Sprintf("routing engine %q is not one of %s; the next in the list is taken", u, strings.Join(route.Engines(), ", ")))
	}
	c.Engines = known
	if o.RootGUIDFile != "" {
		if c.Routing.Roots, err = conf.LoadGUIDs(o.RootGUIDFile); err != nil {
			return c, warnings, err
		}
	}
	if o.NodeNameMapFile != "" {
		if c.Names, err = conf.LoadNodeNames(o.NodeNameMapFile); err != nil {
			return c, warnings, err
		}
	}
	more, err := o.partitions(&c)
	if err != nil {
		return c, warnings, err
	}
	warnings = append(warnings, more...)
	if o.HonorGUID2LID {
		notes, err := c.LIDs.Load(o.guid2lid())
		if err != nil {
			return c, warnings, err
		}
		for _, n := range notes {
			warnings = append(warnings, o.guid2lid()+": "+n)
		}
	}
	return c, warnings, nil
}

func (o *Options) guid2lid() string { return filepath.Join(o.CacheDir, "guid2lid") }

func (o *Options) partitions(c *sm.Config) (warnings []string, err error) {
	ps, warnings, err := conf.LoadPartitions(o.PartitionFile)
	if err != nil {
		return nil, err
	}
	if f := o.PartitionFile; f != "" && f != conf.Default().PartitionFile {
		if _, err := os.Stat(f); err != nil {
			warnings = append(warnings, fmt.Sprintf("%v: all ports are full members of the default partition", err))
		}
	}
	ps.AllowBoth = o.AllowBothPKeys
	c.PKeys = func(m sm.Member) []ib.PKey {
		t := mad.NodeType(m.Type)
		return ps.Table(conf.PortOf{GUID: m.GUID, CA: t == mad.NodeCA, Switch: t == mad.NodeSwitch, Self: m.Self})
	}
	return warnings, nil
}

// reload reads the configuration file again, under what the command line says,
// and the files that it names. The options themselves stay as they are.
func (o *Options) reload() (_ *Options, c sm.Config, warnings []string, err error) {
	fresh := *o
	fresh.Options = conf.Default()
	fresh.LogFile, fresh.DumpDir = o.LogFile, o.DumpDir
	if o.ConfigFile != "" {
		if warnings, err = fresh.Load(o.ConfigFile, o.found); err != nil {
			return nil, c, warnings, err
		}
	}
	if err := fresh.Apply(o.Override); err != nil {
		return nil, c, warnings, err
	}
	c, more, err := fresh.config()
	fresh.look()
	return &fresh, c, append(warnings, more...), err
}

// look notes whether there is a configuration file. One that goes away does not
// mean that all options are to have their defaults.
func (o *Options) look() {
	_, err := os.Stat(o.ConfigFile)
	o.found = o.ConfigFile != "" && err == nil
}

// Apply takes options that were given on the command line.
func (o *Options) Apply(lines []string) error {
	var errs []error
	for _, l := range lines {
		w, err := o.Set(l)
		if err == nil && w != "" {
			err = errors.New(w)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
