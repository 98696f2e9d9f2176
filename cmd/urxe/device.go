package main

import (
	"errors"
	"fmt"
	"io"
	"net/netip"
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
	allow prefixes
	link  string
	xsks  string
}

// linkOptions are the values of --link, with what they mean.
var linkOptions = map[string]verbs.Options{
	"auto":      {},
	"af_xdp":    {Link: verbs.LinkAFXDP},
	"zerocopy":  {Link: verbs.LinkAFXDP, XDP: verbs.XDPOptions{Copy: verbs.XDPZeroCopy}},
	"driver":    {Link: verbs.LinkAFXDP, XDP: verbs.XDPOptions{Mode: verbs.XDPDriver}},
	"generic":   {Link: verbs.LinkAFXDP, XDP: verbs.XDPOptions{Mode: verbs.XDPGeneric}},
	"xsk_map":   {Link: verbs.LinkAFXDP},
	"af_packet": {Link: verbs.LinkAFPacket},
}

// register adds the flags; pkeyIndex is for the P_Key index of the QPs.
func (f *deviceFlags) register(p *pflag.FlagSet, pkeyIndex *uint16) {
	p.StringVarP(&f.name, "ib-dev", "d", "", "network interface to open (default: the first that is up)")
	p.Var(&f.pkeys, "pkeys", "the device's P_Key table, as 0xffff,0x8001 (default: 0xffff alone)")
	p.Uint16Var(pkeyIndex, "pkey-index", 0, "index of the QPs' P_Key in the table")
	p.StringVar(&f.link, "link", "auto", "what packets go by: zerocopy, driver, generic, xsk_map, af_packet; af_xdp is any but the last, auto the first that can be had")
	p.StringVar(&f.xsks, "xsk-map", "", "path of a pinned XSKMAP of the interface's own XDP program: attach none")
	p.Var(&f.allow, "allow", "take packets only from these addresses, as 10.0.0.0/8,fd00::1 (default: from all)")
}

// check checks the flags together.
func (f *deviceFlags) check() error {
	_, ok := linkOptions[f.link]
	switch {
	case !ok:
		return fmt.Errorf("--link %s: want auto, zerocopy, driver, generic, xsk_map, af_packet or af_xdp", f.link)
	case f.link == "xsk_map" && f.xsks == "":
		return errors.New("--link xsk_map needs --xsk-map, the path of the map")
	case f.link == "af_packet" && f.xsks != "":
		return errors.New("--link af_packet uses no --xsk-map")
	}
	return nil
}

// open opens the device. If it got nothing better than AF_PACKET without being asked for it, or if what it got doesn't
// work yet, it says so on errs.
func (f *deviceFlags) open(errs io.Writer) (*verbs.Device, error) {
	o := linkOptions[f.link]
	o.XDP.XSKMap, o.PKeys, o.AllowPeers = f.xsks, ib.PKeyTable(f.pkeys), f.allow
	d, err := rig.Open(f.name, o)
	if err != nil {
		return nil, err
	}
	s := d.Stats()
	if s.Link == verbs.LinkAFPacket.String() && o.Link == verbs.LinkAuto {
		fmt.Fprintf(errs, "%s: packets go by AF_PACKET, which is slower: %s\n", d.Name(), strings.Join(s.Reasons, "; "))
	}
	if s.Trouble != "" {
		fmt.Fprintf(errs, "%s: %s\n", d.Name(), s.Trouble)
	}
	return d, nil
}

// prefixes is a flag: addresses and prefixes, separated by commas.
type prefixes []netip.Prefix

// Set implements pflag.Value.
func (l *prefixes) Set(s string) error {
	for _, word := range strings.Split(s, ",") {
		p, err := netip.ParsePrefix(word)
		if err != nil && !strings.Contains(word, "/") {
			var a netip.Addr
			a, err = netip.ParseAddr(word)
			p = netip.PrefixFrom(a, a.BitLen())
		}
		if err != nil {
			return fmt.Errorf("%q: want an address or a prefix, such as 10.0.0.0/8 or fd00::1", word)
		}
		*l = append(*l, p)
	}
	return nil
}

// String implements pflag.Value.
func (l *prefixes) String() string {
	var words []string
	for _, p := range *l {
		words = append(words, p.String())
	}
	return strings.Join(words, ",")
}

// Type implements pflag.Value.
func (*prefixes) Type() string { return "list" }

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
