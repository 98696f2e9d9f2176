// Command usm is a subnet manager for InfiniBand. Its options are those of
// opensm as far as they apply.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/urxe/urxe/sm/daemon"
)

func main() { os.Exit(run(os.Args[1:])) }

// run executes a command line and returns the exit code: 1 when it failed, 2
// when it makes no sense, 3 when one sweep (-o) left something out.
func run(args []string) int {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	context.AfterFunc(ctx, cancel) // a second signal ends it at once, should it hang
	root := newCommand()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil:
		return 0
	case errors.Is(err, daemon.ErrIncomplete):
		fmt.Fprintln(os.Stderr, "usm:", err)
		return 3
	case errors.As(err, new(usageError)):
		fmt.Fprintf(os.Stderr, "usm: %v (see usm --help)\n", err)
		return 2
	}
	fmt.Fprintln(os.Stderr, "usm:", err)
	return 1
}

// usageError is a command line that makes no sense.
type usageError struct{ error }
