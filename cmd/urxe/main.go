// Command urxe is RDMA in user space on ordinary network interfaces: a
// demonstration, ping-pong and performance tests, and tools to look at what
// goes over the wire.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitFailure = 1
	exitUsage   = 2
)

func main() { os.Exit(run(os.Args[1:], os.Stdout, os.Stderr)) }

// run executes a command line and returns the exit code. The first interrupt ends the command cleanly; a second one
// ends the process.
func run(args []string, out, errOut io.Writer) int {
	ctx, cancel := context.WithCancelCause(context.Background())
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	defer signal.Stop(signals)
	go func() {
		cancel(fmt.Errorf("%w by signal: %v", errInterrupted, <-signals))
		signal.Stop(signals)
	}()
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(out)
	root.SetErr(errOut)
	err := root.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	fmt.Fprintln(errOut, "urxe:", err)
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}

// errInterrupted is why a command ended early at the user's wish.
var errInterrupted = errors.New("interrupted")

// usageError is a command line that makes no sense.
type usageError struct{ error }

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "urxe",
		Short:         "RDMA in user space on ordinary network interfaces",
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          noArgs,
		RunE:          func(c *cobra.Command, _ []string) error { return c.Help() },
	}
	root.SetFlagErrorFunc(func(c *cobra.Command, err error) error { return usage(c, err) })
	root.CompletionOptions.HiddenDefaultCmd = true
	root.AddCommand(newDemo(), newPingpong(), newPerf(), newDevices(), newDecode(), newCapture(), newStats())
	return root
}

// usage makes an error of the command line.
func usage(c *cobra.Command, err error) error {
	return usageError{fmt.Errorf("%s: %w (see %s --help)", c.CommandPath(), err, c.CommandPath())}
}

// ranged is the value of a flag, and what it may be.
type ranged struct {
	flag          string
	n, least, top int
}

// checkRanges says which value can't be.
func checkRanges(list []ranged) error {
	for _, v := range list {
		if v.n < v.least || v.n > v.top {
			return fmt.Errorf("--%s %d: want %d to %d", v.flag, v.n, v.least, v.top)
		}
	}
	return nil
}

func noArgs(c *cobra.Command, args []string) error {
	if len(args) > 0 {
		return usage(c, fmt.Errorf("unknown command or argument %q", args[0]))
	}
	return nil
}

// nArgs takes between least and most arguments.
func nArgs(least, most int, what string) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return usage(c, fmt.Errorf("%d arguments: want %s", len(args), what))
		}
		return nil
	}
}
