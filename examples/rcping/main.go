// Command rcping sends messages to and fro between two RDMA devices over a
// reliable connection and prints the round-trip times.
//
// Without flags the devices are a pair in memory. With two interfaces of this
// machine that are connected, as root:
//
//	rcping -a eth1 -b eth2
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/urxe/urxe/verbs"
)

func main() {
	log.SetFlags(0)
	a := flag.String("a", "", "interface of one side; empty: a pair in memory")
	b := flag.String("b", "", "interface of the other side")
	n := flag.Int("n", 5, "round trips")
	size := flag.Int("s", 64, "bytes of a message")
	flag.Parse()
	if err := run(*a, *b, *n, *size); err != nil {
		log.Fatal("rcping: ", err)
	}
}

func run(a, b string, n, size int) (err error) {
	da, db, err := open(a, b)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, da.Close(), db.Close()) }()
	left, err := newSide(da, size)
	if err != nil {
		return err
	}
	right, err := newSide(db, size)
	if err != nil {
		return err
	}
	if err := connect(left, right); err != nil {
		return err
	}
	for i := range n {
		start := time.Now()
		if err := roundTrip(left, right); err != nil {
			return err
		}
		fmt.Printf("%d bytes from %v: seq=%d time=%v\n", size, right.gid, i, time.Since(start))
	}
	return nil
}

// open opens two interfaces, or a pair in memory when none is named.
func open(a, b string) (da, db *verbs.Device, err error) {
	if a == "" && b == "" {
		return verbs.OpenPair(verbs.PairOptions{})
	}
	if da, err = verbs.Open(a, verbs.Options{}); err != nil {
		return nil, nil, err
	}
	if db, err = verbs.Open(b, verbs.Options{}); err != nil {
		return nil, nil, errors.Join(err, da.Close())
	}
	return da, db, nil
}
