package conf

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urxe/urxe/ib"
)

// ParsePartitions reads the text of a partitions.conf:
//
//	[name][=pkey][,flag…] : ports and groups ;
//
// "#" begins a comment, a definition ends with ";", a multicast group
// ("mgid=…[,flag…]") with its line. Definitions of one P_Key are one partition.
// mtu and rate may be given as IBA encodes them (mtu=5) or as people write them
// (mtu=4096, rate=100G).
func ParsePartitions(text, name string) (ps *Partitions, warnings []string, err error) {
	p := &parser{name: name, line: 1, ps: &Partitions{}}
	for _, s := range p.statements(text) {
		if err := p.statement(s); err != nil {
			return nil, nil, fmt.Errorf("%s:%d: %w", name, p.line, err)
		}
	}
	if err := p.ps.finish(); err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name, err)
	}
	return p.ps, p.warnings, nil
}

type parser struct {
	name     string
	line     int
	ps       *Partitions
	warnings []string
}

// statement is a definition without comments, and the line it begins on.
type statement struct {
	text string
	line int
	open bool // the file ended before its ";"
}

// statements takes comments out and splits at ";".
func (p *parser) statements(text string) (out []statement) {
	var b strings.Builder
	for line := range strings.SplitSeq(text, "\n") {
		line, _, _ = strings.Cut(line, "#")
		b.WriteString(line + "\n")
	}
	line := 1
	parts := strings.Split(b.String(), ";")
	for i, s := range parts {
		lead := len(s) - len(strings.TrimLeft(s, " \t\r\n"))
		if strings.TrimSpace(s) != "" {
			out = append(out, statement{s[lead:], line + strings.Count(s[:lead], "\n"), i == len(parts)-1})
		}
		line += strings.Count(s, "\n")
	}
	return out
}

func (p *parser) statement(s statement) error {
	p.line = s.line
	if s.open {
		return fmt.Errorf("the definition does not end with %q", ";")
	}
	head, body, ok := strings.Cut(s.text, ":")
	if !ok {
		return fmt.Errorf("no %q between the name of a partition and its members", ":")
	}
	part, member, err := p.head(head)
	if err != nil {
		return err
	}
	p.line += strings.Count(head, "\n")
	// Flags may also follow between two colons.
	if more, rest, ok := strings.Cut(body, ":"); ok && isFlags(more) {
		if err := p.flags(part, &member, strings.Split(more, ",")); err != nil {
			return err
		}
		body = rest
	}
	for line := range strings.SplitSeq(body, "\n") {
		if err := p.body(part, member, line); err != nil {
			return err
		}
		p.line++
	}
	return nil
}

func isFlags(s string) bool { return strings.HasPrefix(strings.TrimSpace(s), "defmember") }

// head takes "name=pkey, flags".
func (p *parser) head(s string) (*Partition, Membership, error) {
	fields := strings.Split(s, ",")
	name, key, hasKey := strings.Cut(fields[0], "=")
	name = strings.TrimSpace(name)
	var k ib.PKey
	switch {
	case hasKey:
		n, err := strconv.ParseUint(strings.TrimSpace(key), 0, 16)
		if err != nil || n&0x7fff == 0 {
			return nil, 0, fmt.Errorf("P_Key %q: want a number from 0x1 to 0x7fff", strings.TrimSpace(key))
		}
		k = ib.PKey(n) & 0x7fff
	case name == "Default":
		k = DefaultPKey
	}
	part := p.ps.lookup(name, k)
	member := Limited
	err := p.flags(part, &member, fields[1:])
	return part, member, err
}

func (p *parser) flags(part *Partition, member *Membership, fields []string) error {
	for _, f := range fields {
		key, value, _ := cutTrim(f)
		switch strings.ToLower(key) {
		case "":
		case "indx0":
			part.Index0 = true
		case "ipoib":
			part.IPoIB = true
		case "defmember":
			m, ok := membership(value)
			if !ok {
				return fmt.Errorf("defmember=%q: want full, limited or both", value)
			}
			*member = m
		default:
			if err := groupFlag(&part.Group, key, value); err != nil {
				return err
			}
		}
	}
	return nil
}

func cutTrim(s string) (key, value string, ok bool) {
	key, value, ok = strings.Cut(s, "=")
	return strings.TrimSpace(key), strings.TrimSpace(value), ok
}

func membership(s string) (Membership, bool) {
	switch strings.ToLower(s) {
	case "full":
		return Full, true
	case "limited":
		return Limited, true
	case "both":
		return Both, true
	}
	return Limited, false
}

// body takes one line of members, or of one group.
func (p *parser) body(part *Partition, def Membership, line string) error {
	var group *Group
	for f := range strings.SplitSeq(line, ",") {
		key, value, hasValue := cutTrim(f)
		switch {
		case key == "":
		case strings.EqualFold(key, "mgid"):
			gid, err := ib.ParseGID(value)
			if err != nil || !gid.IsMulticast() {
				return fmt.Errorf("mgid=%q: want a multicast GID", value)
			}
			g := part.Group
			g.MGID = gid
			part.Groups = append(part.Groups, g)
			group = &part.Groups[len(part.Groups)-1]
		case group != nil:
			if err := groupFlag(group, key, value); err != nil {
				return err
			}
		default:
			if err := p.member(part, def, key, value, hasValue); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *parser) member(part *Partition, m Membership, key, value string, hasValue bool) error {
	e := Entry{Membership: m}
	who, ok := keyword(key)
	if e.Who = who; !ok {
		n, err := strconv.ParseUint(key, 0, 64)
		if err != nil || n == 0 {
			return fmt.Errorf("%q: want a port GUID, ALL, ALL_CAS, ALL_SWITCHES, ALL_ROUTERS or SELF", key)
		}
		e.GUID = ib.GUID(n)
	}
	if hasValue {
		var known bool
		if e.Membership, known = membership(value); !known {
			p.warnings = append(p.warnings, fmt.Sprintf("%s:%d: membership %q is taken as limited", p.name, p.line, value))
		}
	}
	part.Members = append(part.Members, e)
	return nil
}

// groupFlag takes one property of a multicast group.
func groupFlag(g *Group, key, value string) (err error) {
	within := func(most uint64) uint64 {
		n, e := strconv.ParseUint(value, 0, 32)
		if e != nil || n > most {
			err = fmt.Errorf("%s=%q: want a number from 0 to %d", key, value, most)
		}
		return n
	}
	switch strings.ToLower(key) {
	case "rate":
		g.Rate, err = parseRate(value)
	case "mtu":
		g.MTU, err = parseMTU(value)
	case "sl":
		g.SL = uint8(within(15))
	case "scope":
		g.Scopes = append(g.Scopes, uint8(within(15)))
	case "q_key":
		g.QKey, g.HasQKey = ib.QKey(within(1<<32-1)), true
	case "tclass":
		g.TClass = uint8(within(255))
	case "flowlabel":
		g.FlowLabel = uint32(within(1<<20 - 1))
	default:
		err = fmt.Errorf("%q is no property of a partition or group", key)
	}
	return err
}

// parseMTU takes 1 to 5 as IBA encodes it, or bytes.
func parseMTU(s string) (ib.MTU, error) {
	n, err := strconv.ParseUint(s, 0, 16)
	if m := ib.MTU(n); err == nil && n < 256 && m.Valid() {
		return m, nil
	}
	if m, e := ib.MTUFromBytes(int(n)); err == nil && e == nil {
		return m, nil
	}
	return 0, fmt.Errorf("mtu=%q: want 256, 512, 1024, 2048 or 4096, or IBA's code for it (4 is 2048)", s)
}

// parseRate takes a number as IBA encodes it, or Gb/s with a G behind.
func parseRate(s string) (ib.Rate, error) {
	if n, err := strconv.ParseUint(s, 0, 8); err == nil {
		if r := ib.Rate(n); n > 1 && r.Valid() {
			return r, nil
		}
	}
	unit := strings.TrimSuffix(strings.TrimSuffix(strings.ToLower(s), "bps"), "b/s")
	gbps, err := strconv.ParseFloat(strings.TrimSuffix(unit, "g"), 64)
	if err == nil && strings.HasSuffix(unit, "g") {
		if r := nearestRate(gbps); r != 0 {
			return r, nil
		}
	}
	return 0, fmt.Errorf("rate=%q: want a rate such as 100G, or IBA's code for it (3 is 10G)", s)
}

// nearestRate returns the rate that people call by this number: what a link
// carries is up to 7 % more.
func nearestRate(gbps float64) (best ib.Rate) {
	least := 1.07
	for r := ib.Rate2_5Gbps; r.Valid(); r++ {
		if over := float64(r.Mbps()) / 1000 / gbps; over >= 1 && over < least {
			best, least = r, over
		}
	}
	return best
}
