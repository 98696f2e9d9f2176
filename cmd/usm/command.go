package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/urxe/urxe/sm/conf"
	"github.com/urxe/urxe/sm/daemon"
)

const long = `usm finds the nodes of an InfiniBand subnet, gives them LIDs, routes, and keeps
the subnet up. It takes opensm's options, opensm.conf and partitions.conf.

  usm                                     at the first active port of this host
  usm -o -f stdout --transport ibsim      once, in the simulator (IBSIM_SOCKNAME, SIM_HOST)
  usm -o -f stdout --transport fabric:f   once, in a netfile, in memory

It ends with 0, or 3 when a single sweep (-o) found something that it could not
configure.`

// flag is an option of the command line that stands for one of opensm.conf.
type flag struct {
	name, short, option, usage string
	value                      string // when it takes no argument
}

var flags = []flag{
	{"guid", "g", "guid", "GUID of the port to manage from", ""},
	{"priority", "p", "sm_priority", "priority among subnet managers, 0 to 15", ""},
	{"lmc", "l", "lmc", "2^LMC LIDs for each port, 0 to 7", ""},
	{"subnet_prefix", "", "subnet_prefix", "prefix of all GIDs", ""},
	{"smkey", "k", "sm_key", "key that subnet managers share", ""},
	{"reassign_lids", "r", "reassign_lids", "give new LIDs to all", "TRUE"},
	{"honor_guid2lid", "x", "honor_guid2lid_file", "take LIDs from guid2lid", "TRUE"},
	{"routing_engine", "R", "routing_engine", "engines to try in order: ftree, nue, updn, dfsssp, minhop", ""},
	{"root_guid_file", "a", "root_guid_file", "file with the GUIDs of the root switches", ""},
	{"sweep", "s", "sweep_interval", "seconds between light sweeps; 0 is never", ""},
	{"timeout", "t", "transaction_timeout", "milliseconds to wait for an answer", ""},
	{"retries", "", "transaction_retries", "times to ask again", ""},
	{"maxsmps", "n", "max_wire_smps", "most requests under way; 0 leaves it to usm", ""},
	{"log_file", "f", "log_file", "log file, or stdout", ""},
	{"log_limit", "L", "log_max_size", "size of the log file in MB", ""},
	{"log_prefix", "", "log_prefix", "text before each message", ""},
	{"Pconfig", "P", "partition_config_file", "partitions.conf", ""},
	{"part_enforce", "Z", "part_enforce", "where switches enforce partitions: both, in, out or off", ""},
	{"no_part_enforce", "N", "no_partition_enforcement", "the same as -Z off", "TRUE"},
	{"allow_both_pkeys", "W", "allow_both_pkeys", "full and limited membership of one partition", "TRUE"},
	{"dump_files_dir", "", "dump_files_dir", "directory for dump files", ""},
	{"D", "D", "log_flags", "log levels, in bits; 0x40 also dumps the routing", ""},
	{"node_name_map", "", "node_name_map_name", "file with names for nodes", ""},
}

func noArguments(_ *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usageError{fmt.Errorf("%q: usm takes options only", args[0])}
	}
	return nil
}

func newCommand() *cobra.Command {
	var o daemon.Options
	c := &cobra.Command{
		Use: "usm [options]", Short: "a subnet manager for InfiniBand", Long: long,
		SilenceErrors: true, SilenceUsage: true, Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return start(c, &o) },
	}
	c.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	c.CompletionOptions.DisableDefaultCmd = true
	fs := c.Flags()
	fs.SortFlags = false
	fs.StringVarP(&o.ConfigFile, "config", "F", "/etc/opensm/opensm.conf", "configuration file")
	fs.StringVar(&o.Transport, "transport", "umad", "where the subnet is: umad, ibsim, or fabric:FILE")
	fs.BoolVarP(&o.Once, "once", "o", false, "configure the subnet once, and end")
	fs.BoolVarP(&o.EraseLog, "erase_log_file", "e", false, "empty the log file first")
	fs.BoolVar(&o.JSONLog, "log_json", false, "write the log as JSON")
	fs.StringVar(&o.CacheDir, "cache_dir", "", "directory of guid2lid (OSM_CACHE_DIR, else /var/cache/opensm)")
	fs.StringP("create-config", "c", "", "write the options in force into a file, and end")
	fs.BoolP("verbose", "v", false, "log more")
	for _, f := range flags {
		fs.StringP(f.name, f.short, "", f.usage)
		fs.Lookup(f.name).NoOptDefVal = f.value
	}
	return c
}

func start(c *cobra.Command, o *daemon.Options) error {
	o.Options = conf.Default()
	fs := c.Flags()
	environment(fs, o)
	warnings, err := o.Load(o.ConfigFile, fs.Changed("config"))
	if err != nil {
		return err
	}
	for _, w := range warnings {
		fmt.Fprintln(os.Stderr, "usm: warning:", w)
	}
	for _, f := range flags {
		if v := fs.Lookup(f.name); v.Changed {
			o.Override = append(o.Override, f.option+" "+v.Value.String())
		}
	}
	if fs.Changed("verbose") {
		o.Override = append(o.Override, "log_flags 0x07")
	}
	if err := o.Apply(o.Override); err != nil {
		return usageError{err}
	}
	if file, _ := fs.GetString("create-config"); file != "" {
		return os.WriteFile(file, []byte(o.Text()), 0o644)
	}
	return daemon.Run(c.Context(), *o)
}

// environment takes what opensm takes from there.
func environment(fs *pflag.FlagSet, o *daemon.Options) {
	if dir := os.Getenv("OSM_TMP_DIR"); dir != "" {
		o.DumpDir = dir
	}
	if fs.Changed("cache_dir") {
		return
	}
	o.CacheDir = "/var/cache/opensm"
	if dir := os.Getenv("OSM_CACHE_DIR"); dir != "" {
		o.CacheDir = dir
	}
}
