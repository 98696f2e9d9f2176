package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/urxe/urxe/verbs"
)

func newDevices() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:   "devices",
		Short: "List the network interfaces that can be opened as RDMA devices",
		Args:  noArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			list, err := verbs.Devices()
			if err != nil {
				return err
			}
			held := make([]string, len(list))
			for i := range list {
				if s, err := statsOf(list[i].Name); err == nil {
					list[i].Port.PKeyTable = s.PKeys
					held[i] = fmt.Sprintf("    held by a urxe process, with %d QPs\n", s.QPs)
				}
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), list)
			}
			for i := range list {
				printDevice(c.OutOrStdout(), &list[i])
				fmt.Fprint(c.OutOrStdout(), held[i])
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

func printDevice(w io.Writer, d *verbs.DeviceInfo) {
	fmt.Fprintf(w, "%s: PORT_%v, node GUID %v, MTU %d, active path MTU %v\n", d.Name, d.Port.State, d.NodeGUID, d.MTU, d.Port.ActiveMTU)
	for i, k := range d.Port.PKeyTable {
		fmt.Fprintf(w, "    P_Key %d: %v\n", i, k)
	}
	for i, g := range d.GIDs {
		if !g.IsZero() {
			fmt.Fprintf(w, "    GID %d: %v\n", i, g)
		}
	}
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", strings.Repeat(" ", 2))
	return e.Encode(v)
}
