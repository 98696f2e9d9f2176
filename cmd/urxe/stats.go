package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/urxe/urxe/internal/control"
	"github.com/urxe/urxe/verbs"
)

func newStats() *cobra.Command {
	var asJSON, all bool
	c := &cobra.Command{
		Use:   "stats [INTERFACE]",
		Short: "Print the counters of running urxe processes",
		Long: `Prints the counters of the urxe process that holds INTERFACE, or of all that hold one: under the names that rxe and
InfiniBand use where they have one, and how many packets were dropped for which reason.`,
		Args: nArgs(0, 1, "at most one interface"),
		RunE: func(c *cobra.Command, args []string) error {
			list, err := allStats(args)
			if err != nil {
				return err
			}
			if asJSON {
				return writeJSON(c.OutOrStdout(), list)
			}
			for _, s := range list {
				printStats(c.OutOrStdout(), &s, all)
			}
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	c.Flags().BoolVarP(&all, "all", "a", false, "also counters that are 0")
	return c
}

// allStats asks the holders of the interface that was named, or of all interfaces.
func allStats(args []string) (list []verbs.Stats, err error) {
	if len(args) > 0 {
		s, err := statsOf(args[0])
		return []verbs.Stats{s}, err
	}
	devices, err := verbs.Devices()
	if err != nil {
		return nil, err
	}
	for _, d := range devices {
		s, err := statsOf(d.Name)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	if list == nil {
		return nil, errors.New("no urxe process holds an interface here")
	}
	return list, nil
}

func statsOf(ifname string) (s verbs.Stats, err error) {
	r, err := control.Call(ifname, "stats")
	if err != nil {
		return s, err
	}
	defer r.Close()
	if err := json.NewDecoder(r).Decode(&s); err != nil {
		return s, fmt.Errorf("%s: the answer to stats: %w", ifname, err)
	}
	return s, nil
}

func printStats(w io.Writer, s *verbs.Stats, all bool) {
	fmt.Fprintf(w, "%s: %s, PORT_%s, MTU %d, active path MTU %d, %d QPs\n", s.Device, s.Link, s.State, s.MTU, s.ActiveMTU, s.QPs)
	if s.Trouble != "" {
		fmt.Fprintf(w, "    trouble: %s\n", s.Trouble)
	}
	printNoGID(w, s.NoGID)
	printCounters(w, "", s.Counters, all)
	printCounters(w, "dropped: ", s.Drops, all)
}

func printCounters(w io.Writer, prefix string, m map[string]uint64, all bool) {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if m[name] > 0 || all {
			fmt.Fprintf(w, "    %-30s %12d\n", prefix+name, m[name])
		}
	}
}
