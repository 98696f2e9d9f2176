package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/urxe/urxe/internal/control"
)

func newCapture() *cobra.Command {
	var file string
	c := &cobra.Command{
		Use:   "capture INTERFACE",
		Short: "Record the packets of a running urxe process, with what became of each",
		Long: `Records all packets that the urxe process which holds INTERFACE sends and receives, until it is interrupted, as pcapng. What
became of a received packet (accepted, or dropped and why) stands in its comment. tcpdump on the interface sees no AF_XDP
packets; this does. To watch live: urxe capture eth0 | wireshark -k -i -`,
		Args: nArgs(1, 1, "one interface"),
		RunE: func(c *cobra.Command, args []string) error {
			if file == "-" && isTerminal(c.OutOrStdout()) {
				return usage(c, errors.New("a capture is no text for a terminal: name a file (-w), or pipe it into wireshark -k -i -"))
			}
			return capturePackets(c, args[0], file)
		},
	}
	c.Flags().StringVarP(&file, "write", "w", "-", "file to write to; - is standard output")
	return c
}

func capturePackets(c *cobra.Command, ifname, file string) (err error) {
	r, err := control.Call(ifname, "capture")
	if err != nil {
		return err
	}
	defer r.Close()
	// The last packet is to be whole: a file that ends within one is damaged.
	defer context.AfterFunc(c.Context(), func() { _ = r.End() })()
	w := c.OutOrStdout()
	if file != "-" {
		f, err := os.Create(file)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, f.Close()) }()
		w = f
	}
	n, err := io.Copy(w, r)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("the end of the capture is missing: %w", err)
	}
	if file != "-" {
		fmt.Fprintf(c.ErrOrStderr(), "%s: %d bytes in %s\n", ifname, n, file)
	}
	return err
}
