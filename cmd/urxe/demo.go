package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/urxe/urxe/cmd/urxe/internal/demo"
	"github.com/urxe/urxe/ib"
)

func newDemo() *cobra.Command {
	var (
		o      demo.Options
		mtu    int
		asJSON bool
	)
	c := &cobra.Command{
		Use:   "demo",
		Short: "Run every operation between two devices on this machine, check each byte, measure",
		Long: `Opens two devices on this machine, runs every operation of a reliable connection between them, checks each byte, and
prints a table of latency and bandwidth.

As root the devices are the ends of a veth pair between two network namespaces, which exist as long as the command runs;
packets go over AF_XDP sockets. Without root the link between the devices is in memory.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) (err error) {
			if o.MTU, err = ib.MTUFromBytes(mtu); err != nil {
				return usage(c, err)
			}
			if o.Duration <= 0 {
				return usage(c, fmt.Errorf("--duration %v: want more than 0", o.Duration))
			}
			if o.Link, err = demoLink(c, o.Link); err != nil {
				return usage(c, err)
			}
			if isTerminal(c.ErrOrStderr()) {
				o.Progress = c.ErrOrStderr()
			}
			r, err := demo.Run(c.Context(), o)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), r)
			}
			return r.Print(c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.StringVar(&o.Link, "link", "", "af_xdp, af_packet or mem (default: af_xdp as root, else mem)")
	f.IntVar(&mtu, "mtu", 1024, "path MTU: 256, 512, 1024, 2048 or 4096")
	f.DurationVar(&o.Duration, "duration", 300*time.Millisecond, "of each measurement")
	f.BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// demoLink settles what the demonstration runs over.
func demoLink(c *cobra.Command, asked string) (string, error) {
	switch asked {
	case demo.LinkAFXDP, demo.LinkAFPacket, demo.LinkMem:
		return asked, nil
	case "":
		if os.Geteuid() == 0 {
			return demo.LinkAFXDP, nil
		}
		fmt.Fprintln(c.ErrOrStderr(), "Not root, so the link between the devices is in memory; as root it is a veth pair with AF_XDP.")
		return demo.LinkMem, nil
	}
	return "", fmt.Errorf("--link %s: want %s, %s or %s", asked, demo.LinkAFXDP, demo.LinkAFPacket, demo.LinkMem)
}
