package ct

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/urxe/urxe/verbs"
)

// Main is a program that runs one end of some tests on an interface:
//
//	ct TEST,TEST... GID-INDEX PATH-MTU INTERFACE [SERVER-IPv4]
//
// It returns the exit status. A test that fails doesn't keep the others from
// running.
func Main(args []string) int {
	if len(args) < 4 || len(args) > 5 {
		fmt.Fprintln(os.Stderr, "ct: usage: TEST,TEST... GID-INDEX PATH-MTU INTERFACE [SERVER-IPv4]")
		return 2
	}
	c := Config{Server: len(args) == 4}
	var errs [2]error
	c.GIDIndex, errs[0] = strconv.Atoi(args[1])
	c.PathMTU, errs[1] = strconv.Atoi(args[2])
	err := errors.Join(errs[:]...)
	if err == nil {
		err = runAll(args[3], strings.Join(args[4:], ""), strings.Split(args[0], ","), c, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "ct:", err)
		return 1
	}
	return 0
}

func runAll(iface, server string, tests []string, c Config, out io.Writer) error {
	dev, err := verbs.Open(iface, verbs.Options{})
	if err != nil {
		return err
	}
	defer dev.Close()
	dial, err := dialer(server)
	if err != nil {
		return err
	}
	for _, c.Test = range tests {
		fmt.Fprintln(out, "==", c.Test)
		conn, err := dial()
		if err != nil {
			return err
		}
		if err := Run(dev, conn, c, out); err != nil {
			fmt.Fprintln(out, "FAIL:", err)
		}
		conn.Close()
	}
	return dev.Close()
}

// dialer returns how to get the connection of the next test: from a client, or
// to a server, which may not listen yet.
func dialer(server string) (func() (net.Conn, error), error) {
	if server == "" {
		l, err := net.Listen("tcp4", ":"+strconv.Itoa(Port))
		return func() (net.Conn, error) {
			l.(*net.TCPListener).SetDeadline(time.Now().Add(patience))
			return l.Accept()
		}, err
	}
	return func() (conn net.Conn, err error) {
		for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
			if conn, err = net.Dial("tcp4", net.JoinHostPort(server, strconv.Itoa(Port))); err == nil {
				break
			}
		}
		return conn, err
	}, nil
}
