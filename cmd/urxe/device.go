package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/urxe/urxe/cmd/urxe/internal/rig"
	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/verbs"
)

// deviceFlags say which network interface is opened, and how.
type deviceFlags struct {
	name  string
	pkeys pkeyTable
}

// register adds the flags; pkeyIndex is for the P_Key index of the QPs.
func (f *deviceFlags) register(p *pflag.FlagSet, pkeyIndex *uint16) {
	p.StringVarP(&f.name, "ib-dev", "d", "", "network interface to open (default: the first that is up)")
	p.Var(&f.pkeys, "pkeys", "the device's P_Key table, as 0xffff,0x8001 (default: 0xffff alone)")
	p.Uint16Var(pkeyIndex, "pkey-index", 0, "index of the QPs' P_Key in the table")
}

func (f *deviceFlags) open() (*verbs.Device, error) {
	return rig.Open(f.name, verbs.Options{PKeys: ib.PKeyTable(f.pkeys)})
}

// pkeyTable is a flag: P_Keys separated by commas, as of any base that Go writes.
type pkeyTable ib.PKeyTable

// Set implements pflag.Value.
func (t *pkeyTable) Set(s string) error {
	var keys ib.PKeyTable
	for _, word := range strings.Split(s, ",") {
		k, err := strconv.ParseUint(strings.TrimSpace(word), 0, 16)
		if err != nil {
			return fmt.Errorf("%q is no P_Key: want a number of 16 bits, such as 0x8001", word)
		}
		keys = append(keys, ib.PKey(k))
	}
	*t = pkeyTable(keys)
	return keys.Check()
}

// String implements pflag.Value.
func (t *pkeyTable) String() string { return ib.PKeyTable(*t).String() }

// Type implements pflag.Value.
func (*pkeyTable) Type() string { return "list" }
