package main

import (
	"github.com/spf13/cobra"

	"github.com/urxe/urxe/rocev2/decode"
)

func newDecode() *cobra.Command {
	var o decode.Options
	c := &cobra.Command{
		Use:   "decode FILE",
		Short: "Print the RoCEv2 packets of a pcap or pcapng file, and check their ICRCs",
		Long: `Prints a line for each RoCEv2 packet of a pcap or pcapng file, or of standard input when FILE is -: addresses, QPN, opcode,
PSN, extended headers, and whether the ICRC is right. The exit code is 1 if one is wrong, or the file is damaged.`,
		Args: nArgs(1, 1, "one file, or - for standard input"),
		RunE: func(c *cobra.Command, args []string) error {
			return decode.File(c.OutOrStdout(), args[0], c.InOrStdin(), o)
		},
	}
	c.Flags().BoolVar(&o.Absolute, "absolute", false, "print the time of day (UTC) instead of seconds since the first packet")
	return c
}
