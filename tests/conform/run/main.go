// Command run writes the conformance table, and checks what a test run noted of it:
//
//	run table [-o FILE]   the table in Markdown
//	run check DIR         fails unless every claim of the source ran and passed
//
// Claims that skipped are failures when URXE_REQUIRE is 1.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/urxe/urxe/tests/conform"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(args []string) error {
	root, err := moduleRoot()
	if err != nil {
		return err
	}
	switch {
	case len(args) == 2 && args[0] == "check":
		return conform.Check(os.Stdout, root, args[1], os.Getenv("URXE_REQUIRE") == "1")
	case len(args) == 1 && args[0] == "table", len(args) == 3 && args[0] == "table" && args[1] == "-o":
		text, err := conform.Markdown(root)
		if err != nil {
			return err
		}
		if len(args) == 3 {
			return os.WriteFile(args[2], []byte(text), 0o644)
		}
		_, err = os.Stdout.WriteString(text)
		return err
	}
	return errors.New("usage: run table [-o FILE] | run check DIR")
}

// moduleRoot returns the folder of go.mod.
func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	file := strings.TrimSpace(string(out))
	if err != nil || filepath.Base(file) != "go.mod" {
		return "", fmt.Errorf("no module here: go env GOMOD says %q, %v", file, err)
	}
	return filepath.Dir(file), nil
}
