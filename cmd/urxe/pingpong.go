package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/urxe/urxe/cmd/urxe/internal/pingpong"
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/verbs"
)

func newPingpong() *cobra.Command {
	c := &cobra.Command{
		Use:   "pingpong",
		Short: "Exchange messages with ibv_*_pingpong, or with itself",
		Args:  noArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	for _, t := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		c.AddCommand(newPingpongOf(strings.ToLower(t.String()), pingpong.Options{Type: t}))
	}
	c.AddCommand(newPingpongOf("srq", pingpong.Options{Type: verbs.RC, SRQ: true}))
	return c
}

// services says what the pingpongs go over.
var services = map[string]string{
	"rc": "a reliable connection", "uc": "an unreliable connection, so that a lost message ends it", "ud": "datagrams, so that a lost message ends it",
	"srq": "reliable connections whose receives come from one shared receive queue",
}

func newPingpongOf(name string, o pingpong.Options) *cobra.Command {
	f := pingpongFlags{Options: o}
	c := &cobra.Command{
		Use:   name + " [flags] [HOST]",
		Short: fmt.Sprintf("What ibv_%s_pingpong does; with HOST as its client, else as its server", name),
		Long: fmt.Sprintf(`What ibv_%[1]s_pingpong does, over %s:
with HOST as its client, else as its server. The peer may be ibv_%[1]s_pingpong on a machine with RDMA (give it a GID index,
-g), or urxe. Options have the same letters and names.`, name, services[name]),
		Args: nArgs(0, 1, "at most one host"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.register(c)
	return c
}

// pingpongFlags are the options of ibv_*_pingpong.
type pingpongFlags struct {
	pingpong.Options
	device              deviceFlags
	mtu                 int
	odp, iodp, prefetch bool
	ts, dm, newSend     bool
}

func (f *pingpongFlags) register(c *cobra.Command) {
	p := c.Flags()
	p.IntVarP(&f.Port, "port", "p", 18515, "TCP port to listen on or connect to")
	f.device.register(p, &f.PKeyIndex)
	p.IntVarP(&f.IBPort, "ib-port", "i", 1, "port of the device")
	if f.Type == verbs.UD {
		p.IntVarP(&f.Size, "size", "s", 2048, "bytes of a message")
	} else {
		p.IntVarP(&f.Size, "size", "s", 4096, "bytes of a message")
		p.IntVarP(&f.mtu, "mtu", "m", 1024, "path MTU: 256, 512, 1024, 2048 or 4096")
	}
	p.IntVarP(&f.RxDepth, "rx-depth", "r", 500, "receives to post at a time")
	p.IntVarP(&f.Iters, "iters", "n", 1000, "exchanges")
	p.Uint8VarP(&f.SL, "sl", "l", 0, "service level, 0 to 15: the priority of frames that have a VLAN tag")
	p.BoolVarP(&f.Events, "events", "e", false, "sleep on completion events instead of polling")
	p.IntVarP(&f.GID, "gid-idx", "g", -1, "index of the local GID (default: the first of the peer's kind)")
	p.Lookup("gid-idx").DefValue = "0" // so that help doesn't show -1
	p.BoolVarP(&f.Check, "chk", "c", false, "validate the received buffer")
	if f.Type != verbs.RC {
		return
	}
	p.BoolVarP(&f.odp, "odp", "o", false, "use on-demand paging (all memory of this device is paged on demand)")
	if f.SRQ {
		p.IntVarP(&f.QPs, "num-qp", "q", 16, "QPs to use; both sides must agree")
	} else {
		f.registerRC(p)
	}
}

// registerRC has the options that only ibv_rc_pingpong has.
func (f *pingpongFlags) registerRC(p *pflag.FlagSet) {
	p.BoolVarP(&f.iodp, "iodp", "O", false, "use implicit on-demand paging (not supported)")
	p.BoolVarP(&f.prefetch, "prefetch", "P", false, "prefetch the on-demand-paging region (it is touched at registration)")
	p.BoolVarP(&f.ts, "ts", "t", false, "get completions with timestamps (not supported)")
	p.BoolVarP(&f.dm, "dm", "j", false, "use device memory (not supported)")
	p.BoolVarP(&f.newSend, "new_send", "N", false, "use the new post-send API (there is one API; the same)")
}

func (f *pingpongFlags) run(c *cobra.Command, args []string) error {
	if err := f.check(); err != nil {
		return usage(c, err)
	}
	if err := f.device.check(); err != nil {
		return usage(c, err)
	}
	if err := f.unsupported(); err != nil {
		return err
	}
	if len(args) > 0 {
		f.Host = args[0]
	}
	d, err := f.device.open(c.ErrOrStderr())
	if err != nil {
		return err
	}
	f.Notes = c.ErrOrStderr()
	return errors.Join(pingpong.Run(c.Context(), d, f.Options, c.OutOrStdout()), d.Close())
}

// check checks and translates the values.
func (f *pingpongFlags) check() (err error) {
	if f.Type != verbs.UD {
		if f.MTU, err = ib.MTUFromBytes(f.mtu); err != nil {
			return err
		}
	}
	if err := checkRanges([]ranged{
		{"port", f.Port, 1, 65535}, {"size", f.Size, 0, 1 << 30}, {"rx-depth", f.RxDepth, 1, 1 << 15},
		{"iters", f.Iters, 1, 1 << 40}, {"sl", int(f.SL), 0, 15}, {"gid-idx", f.GID, -1, 255},
	}); err != nil {
		return err
	}
	if f.SRQ {
		return f.checkSRQ()
	}
	if f.prefetch && !f.odp {
		return errors.New("--prefetch needs --odp")
	}
	return nil
}

func (f *pingpongFlags) checkSRQ() error {
	switch {
	case f.QPs < 1 || f.QPs > pingpong.MaxQPs:
		return fmt.Errorf("--num-qp %d: want 1 to %d", f.QPs, pingpong.MaxQPs)
	case f.QPs > f.RxDepth:
		return fmt.Errorf("--rx-depth %d: want at least one receive for each of %d QPs", f.RxDepth, f.QPs)
	}
	return nil
}

// unsupported names what the device doesn't have, as ibv_rc_pingpong does.
func (f *pingpongFlags) unsupported() error {
	switch {
	case f.iodp:
		return errors.New("the device doesn't support implicit on-demand paging")
	case f.ts:
		return errors.New("the device doesn't support completion timestamping")
	case f.dm:
		return errors.New("the device doesn't support device memory")
	}
	return nil
}
