package main

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/urxe/urxe/cmd/urxe/internal/bench"
	"github.com/urxe/urxe/cmd/urxe/internal/perf"
	"github.com/urxe/urxe/ib"
)

func newPerf() *cobra.Command {
	c := &cobra.Command{
		Use:   "perf",
		Short: "Measure bandwidth or latency between two machines",
		Long: `Measures bandwidth or latency between two machines that both run urxe. Start it without HOST on the one, and with the
other's name on the second; the second one decides what is measured.`,
		Args: noArgs,
		RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	for _, op := range []string{"write", "read", "send", "atomic"} {
		sub := &cobra.Command{
			Use: op, Short: "Measure " + map[string]string{"write": "WRITEs", "read": "READs", "send": "SENDs", "atomic": "FETCH_ADDs"}[op],
			Args: noArgs, RunE: func(c *cobra.Command, _ []string) error { return c.Help() },
		}
		sub.AddCommand(newPerfTest(op, perf.Bandwidth, "Bandwidth"), newPerfTest(op, perf.Latency, "Latency"))
		c.AddCommand(sub)
	}
	return c
}

// perfFlags are the flags of a measurement.
type perfFlags struct {
	perf.Options
	device  deviceFlags
	mtu     int
	all     bool
	asJSON  bool
	results []perf.Result
}

func newPerfTest(op, mode, what string) *cobra.Command {
	f := &perfFlags{}
	f.Test.Op, f.Test.Mode = op, mode
	c := &cobra.Command{
		Use: mode + " [flags] [HOST]", Short: what + " of " + op + "; with HOST as the client, else as the server",
		Args: nArgs(0, 1, "at most one host"),
		RunE: func(c *cobra.Command, args []string) error { return f.run(c, args) },
	}
	f.register(c)
	return c
}

func (f *perfFlags) register(c *cobra.Command) {
	p := c.Flags()
	p.IntVarP(&f.Port, "port", "p", 18515, "TCP port to listen on or connect to")
	f.device.register(p, &f.PKeyIndex)
	p.IntVarP(&f.GID, "gid-index", "x", -1, "index of the local GID (default: the first of the peer's kind)")
	p.Lookup("gid-index").DefValue = "0" // so that help doesn't show -1
	p.BoolVar(&f.asJSON, "json", false, "print JSON")
	p.IntVarP(&f.mtu, "mtu", "m", 1024, "path MTU: 256, 512, 1024, 2048 or 4096")
	p.IntVarP(&f.Test.Iters, "iters", "n", 0, "messages or round trips (default: as many as the duration allows)")
	p.DurationVarP(&f.Test.Duration, "duration", "D", 2*time.Second, "of each measurement")
	f.Test.QPs, f.Test.Depth = 1, 128
	if f.Test.Op != "atomic" {
		size := 65536
		if f.Test.Mode == perf.Latency {
			size = 8
		}
		p.IntSliceVarP(&f.Sizes, "size", "s", []int{size}, "bytes of a message; several, separated by commas")
		p.BoolVarP(&f.all, "all", "a", false, "all powers of two from 2 to 8388608 as sizes")
	} else {
		f.Sizes = []int{8}
	}
	if f.Test.Mode == perf.Bandwidth {
		p.IntVarP(&f.Test.QPs, "qp", "q", 1, "QPs")
		p.IntVarP(&f.Test.Depth, "tx-depth", "t", 128, "messages in flight on each QP")
		p.BoolVarP(&f.Test.Events, "events", "e", false, "sleep on completion events instead of polling")
	}
}

func (f *perfFlags) run(c *cobra.Command, args []string) error {
	if err := f.check(c); err != nil {
		return usage(c, err)
	}
	if err := f.device.check(); err != nil {
		return usage(c, err)
	}
	if len(args) > 0 {
		f.Host = args[0]
	}
	d, err := f.device.open(c.ErrOrStderr())
	if err != nil {
		return err
	}
	w := c.OutOrStdout()
	f.Each = func(r perf.Result) { f.results = append(f.results, r); f.print(w, &r) }
	if errs := c.ErrOrStderr(); isTerminal(errs) {
		f.Progress = func(size int, b bench.Bandwidth) { f.showProgress(errs, size, b) }
		show := f.Each
		f.Each = func(r perf.Result) { fmt.Fprint(errs, eraseLine); show(r) }
	}
	if f.Host == "" {
		fmt.Fprintf(c.ErrOrStderr(), "%s: waiting for a client on TCP port %d\n", d.Name(), f.Port)
	}
	err = errors.Join(perf.Run(c.Context(), d, f.Options), d.Close())
	if err == nil && f.asJSON && f.Host != "" {
		err = writeJSON(w, f.results)
	}
	return err
}

// check checks and translates the values.
func (f *perfFlags) check(c *cobra.Command) (err error) {
	if err := checkRanges([]ranged{{"port", f.Port, 1, 65535}, {"gid-index", f.GID, -1, 255}}); err != nil {
		return err
	}
	if f.Test.MTU, err = ib.MTUFromBytes(f.mtu); err != nil {
		return err
	}
	if f.Test.Iters > 0 && !c.Flags().Changed("duration") {
		f.Test.Duration = 0
	}
	if f.all {
		f.Sizes = nil
		for n := 2; n <= 1<<23; n *= 2 {
			f.Sizes = append(f.Sizes, n)
		}
	}
	for _, n := range f.Sizes {
		t := f.Test
		t.Size = n
		if err := t.Check(); err != nil {
			return err
		}
	}
	return nil
}

// print prints a result as a line, the first one after a heading.
func (f *perfFlags) print(w io.Writer, r *perf.Result) {
	switch first := len(f.results) == 1; {
	case f.asJSON:
	case r.Mode == perf.Latency:
		if first {
			fmt.Fprintf(w, "%10s %10s %10s %10s %10s %10s %10s\n", "bytes", "trips", "min µs", "median µs", "avg µs", "99% µs", "max µs")
		}
		fmt.Fprintf(w, "%10d %10d %10.2f %10.2f %10.2f %10.2f %10.2f\n", r.Size, r.Messages, r.MinUs, r.MedianUs, r.AvgUs, r.P99Us, r.MaxUs)
	default:
		if first {
			fmt.Fprintf(w, "%10s %6s %10s %12s %14s\n", "bytes", "QPs", "messages", "MB/s", "messages/s")
		}
		fmt.Fprintf(w, "%10d %6d %10d %12.2f %14.0f\n", r.Size, r.QPs, r.Messages, r.MBps, r.Rate)
	}
}

// eraseLine makes a terminal forget the line that the cursor is at the beginning of.
const eraseLine = "\x1b[K"

// showProgress shows on the terminal how it goes; the next writes over it.
func (f *perfFlags) showProgress(w io.Writer, size int, b bench.Bandwidth) {
	how := fmt.Sprintf("%.2f MB/s", b.MBps())
	if f.Test.Mode == perf.Latency {
		how = fmt.Sprintf("%d round trips", b.Messages)
	}
	fmt.Fprintf(w, "%10d bytes: %.1f s, %s\r", size, b.Elapsed.Seconds(), how)
}
