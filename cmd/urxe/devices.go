package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/urxe/urxe/ib"
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
			held := make([]*verbs.Stats, len(list))
			for i := range list {
				if s, err := statsOf(list[i].Name); err == nil {
					list[i].Port.PKeyTable = s.PKeys
					held[i] = &s
				}
			}
			if asJSON {
				all := make([]deviceJSON, len(list))
				for i := range list {
					all[i] = jsonOf(&list[i], held[i])
				}
				return writeJSON(c.OutOrStdout(), all)
			}
			for i := range list {
				printDevice(c.OutOrStdout(), &list[i])
				if held[i] != nil {
					printHolder(c.OutOrStdout(), held[i])
				}
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return c
}

// deviceJSON is what --json prints of a device, under the names of stats --json.
type deviceJSON struct {
	Device    string       `json:"device"`
	NodeGUID  string       `json:"node_guid"`
	State     string       `json:"state"`
	MTU       int          `json:"mtu"`        // of the interface, bytes
	ActiveMTU int          `json:"active_mtu"` // bytes of payload a packet; 0: not even 256
	PKeys     ib.PKeyTable `json:"pkeys"`
	GIDs      []gidJSON    `json:"gids"`
	NoGID     int          `json:"addresses_without_gid,omitempty"`
	Holder    *holderJSON  `json:"holder,omitempty"` // the urxe process that has it
}

type gidJSON struct {
	Index  int    `json:"index"`
	GID    string `json:"gid"`
	Netdev string `json:"netdev"`
	VLAN   uint16 `json:"vlan,omitempty"`
}

// holderJSON is what printHolder prints.
type holderJSON struct {
	QPs     int      `json:"qps"`
	Link    string   `json:"link"`
	Rung    string   `json:"rung"`
	Reasons []string `json:"rung_reasons,omitempty"`
	Trouble string   `json:"link_trouble,omitempty"`
}

func jsonOf(d *verbs.DeviceInfo, held *verbs.Stats) deviceJSON {
	j := deviceJSON{
		Device: d.Name, NodeGUID: d.NodeGUID.String(), State: d.Port.State.String(), MTU: d.MTU, ActiveMTU: d.Port.ActiveMTU.Bytes(),
		PKeys: d.Port.PKeyTable, GIDs: []gidJSON{}, NoGID: d.NoGID,
	}
	for i, g := range d.GIDs {
		if !g.IsZero() {
			j.GIDs = append(j.GIDs, gidJSON{i, g.String(), d.Netdevs[i], d.VLANs[i]})
		}
	}
	if held != nil {
		j.Holder = &holderJSON{held.QPs, held.Link, held.Rung, held.Reasons, held.Trouble}
	}
	return j
}

func printDevice(w io.Writer, d *verbs.DeviceInfo) {
	fmt.Fprintf(w, "%s: PORT_%v, node GUID %v, MTU %d, active path MTU %v\n", d.Name, d.Port.State, d.NodeGUID, d.MTU, d.Port.ActiveMTU)
	for i, k := range d.Port.PKeyTable {
		fmt.Fprintf(w, "    P_Key %d: %v\n", i, k)
	}
	for i, g := range d.GIDs {
		if !g.IsZero() {
			fmt.Fprintf(w, "    GID %d: %v%s\n", i, g, whose(d, i))
		}
	}
	printNoGID(w, d.NoGID)
}

// printNoGID tells of addresses that can't be used.
func printNoGID(w io.Writer, n int) {
	if n > 0 {
		fmt.Fprintf(w, "    %d more addresses have no GID: the table is full\n", n)
	}
}

// printHolder says what the process that holds a device has, and what it got of the
// ladder and why.
func printHolder(w io.Writer, s *verbs.Stats) {
	fmt.Fprintf(w, "    held by a urxe process, with %d QPs, over %s\n", s.QPs, s.Link)
	fmt.Fprintf(w, "    link: %s\n", s.Rung)
	for _, why := range s.Reasons {
		fmt.Fprintf(w, "    not better, as: %s\n", why)
	}
	if s.Trouble != "" {
		fmt.Fprintf(w, "    trouble: %s\n", s.Trouble)
	}
}

// whose says of what else than the interface itself a GID is.
func whose(d *verbs.DeviceInfo, i int) string {
	switch {
	case d.Netdevs[i] == d.Name:
		return ""
	case d.VLANs[i] != 0:
		return fmt.Sprintf(" (%s, VLAN %d)", d.Netdevs[i], d.VLANs[i])
	}
	return fmt.Sprintf(" (%s)", d.Netdevs[i])
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetIndent("", strings.Repeat(" ", 2))
	return e.Encode(v)
}
