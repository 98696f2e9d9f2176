package demo

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// Print writes a result as a table.
func (r *Result) Print(w io.Writer) error {
	fmt.Fprintf(w, "Two devices on %s; %s and %s, path MTU %d\n\n", r.Description, r.GIDs[0], r.GIDs[1], r.PathMTU)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "operation\tevery byte checked\tround trip, 8 bytes\tbandwidth\tmessages/s")
	for _, o := range r.Operations {
		fmt.Fprintf(t, "%s\t%d messages, %s\t%.1f µs\t%s\t%.0f\n", o.Name, o.Messages, size(o.Bytes), o.LatencyUsec, o.bandwidth(), o.MessageRate)
	}
	return t.Flush()
}

func (o *Operation) bandwidth() string {
	if o.BandwidthSize < 1024 {
		return fmt.Sprintf("(%d bytes)", o.BandwidthSize)
	}
	return fmt.Sprintf("%.0f MB/s (%s)", o.BandwidthMBps, size(int64(o.BandwidthSize)))
}

func size(n int64) string {
	switch {
	case n >= 1<<20:
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.0f KiB", float64(n)/(1<<10))
	}
	return fmt.Sprintf("%d bytes", n)
}
