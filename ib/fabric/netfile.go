package fabric

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// Limits of a netfile.
const (
	maxInclude = 9 // How deep files include others.
	maxName    = 255
	maxLine    = 1 << 16
	maxNodes   = 1 << 20
)

// Load adds what is in a file: a netfile of ibsim, or the output of ibnetdiscover.
func (f *Fabric) Load(path string) error {
	l := &loader{f: f, byName: map[string]*netNode{}}
	if err := l.file(path, 0); err != nil {
		return err
	}
	return l.build()
}

// Read adds what is in r, as Load does. name is for errors, and the directory
// in which included files are looked for.
func (f *Fabric) Read(r io.Reader, name string) error {
	l := &loader{f: f, byName: map[string]*netNode{}}
	if err := l.read(r, name, 0); err != nil {
		return err
	}
	return l.build()
}

// netNode is a node as a file has it.
type netNode struct {
	spec  NodeSpec
	links []netLink
	where string
}

// netLink is one end of a link.
type netLink struct {
	port  int
	far   string
	other int
	spec  LinkSpec
	where string
}

// loader reads files into nodes, and then makes those.
type loader struct {
	f      *Fabric
	nodes  []*netNode
	byName map[string]*netNode
	do     []command

	// The state of the file that is read.
	name   string
	line   int
	depth  int
	prefix string
	next   NodeSpec // What the lines before a node say of it.
	link   LinkSpec // What links have unless they say otherwise.
}

func (l *loader) where() string { return fmt.Sprintf("%s:%d", l.name, l.line) }

func (l *loader) errorf(format string, args ...any) error {
	return fmt.Errorf("%s: %s", l.where(), fmt.Sprintf(format, args...))
}

func (l *loader) file(path string, depth int) error {
	r, err := os.Open(path)
	if err != nil {
		return err
	}
	defer r.Close()
	return l.read(r, path, depth)
}

func (l *loader) read(r io.Reader, name string, depth int) error {
	name0, line0, depth0, prefix0 := l.name, l.line, l.depth, l.prefix
	l.name, l.line, l.depth, l.next = name, 0, depth, NodeSpec{}
	s := bufio.NewScanner(r)
	s.Buffer(nil, maxLine)
	for s.Scan() {
		l.line++
		if err := l.parse(strings.TrimSpace(s.Text())); err != nil {
			return err
		}
	}
	if err := s.Err(); err != nil {
		l.line++
		return l.errorf("%v", err)
	}
	l.name, l.line, l.depth, l.prefix = name0, line0, depth0, prefix0
	return nil
}

func (l *loader) parse(line string) error {
	switch {
	case line == "" || line[0] == '#':
		return nil
	case line[0] == '[':
		return l.parseLink(line)
	}
	word := line[:wordEnd(line)]
	rest := strings.TrimSpace(line[len(word):])
	for kind, typ := range nodeKinds {
		if strings.EqualFold(word, kind) {
			return l.parseNode(typ, rest)
		}
	}
	switch word {
	case "Chassis", "Non": // Headings of ibnetdiscover -g: "Chassis 1", "Non-Chassis Nodes".
		return nil
	case "include":
		return l.include(rest)
	case "do":
		return l.addCommand(rest)
	}
	return l.setting(word, rest)
}

var nodeKinds = map[string]mad.NodeType{
	"Switch": mad.NodeSwitch, "Hca": mad.NodeCA, "Ca": mad.NodeCA, "Rt": mad.NodeRouter, "Router": mad.NodeRouter,
}

func wordEnd(s string) int {
	for i, c := range s {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_') {
			return i
		}
	}
	return len(s)
}

// parseNode reads what follows the kind: 16 "id" # "description" ...
func (l *loader) parseNode(typ mad.NodeType, s string) error {
	count, s, _ := strings.Cut(s, `"`)
	ports, err := strconv.Atoi(strings.TrimSpace(count))
	id, rest, ok := strings.Cut(s, `"`)
	switch {
	case err != nil || !ok:
		return l.errorf(`want a number of ports and a node ID in quotes, as in: Switch 16 "leaf0"`)
	case ports < 1 || ports > 254:
		return l.errorf("node %q has %d ports: want 1 to 254", id, ports)
	case len(l.nodes) >= maxNodes:
		return l.errorf("more than %d nodes", maxNodes)
	}
	id, err = l.nodeName(id)
	if err != nil {
		return err
	}
	if n := l.byName[id]; n != nil {
		return l.errorf("node %q is there twice: first at %s", id, n.where)
	}
	n := &netNode{spec: l.next, where: l.where()}
	l.next = NodeSpec{}
	n.spec.ID, n.spec.Type, n.spec.Ports = id, typ, ports
	if _, comment, ok := strings.Cut(rest, "#"); ok {
		n.spec.Description, _, _ = quoted(comment)
	}
	l.nodes = append(l.nodes, n)
	l.byName[id] = n
	return nil
}

// nodeName puts the module's prefix before an ID that has none.
func (l *loader) nodeName(id string) (string, error) {
	if id == "" || len(id) > maxName {
		return "", l.errorf("node ID of %d bytes: want 1 to %d", len(id), maxName)
	}
	if l.prefix != "" && !strings.Contains(id, "#") {
		id = l.prefix + "#" + id
	}
	return id, nil
}

// parseLink reads: [1](guid)[ext 2] "far"[3](guid) w=1 s=2 e=4 # ... 4xQDR
func (l *loader) parseLink(s string) error {
	if len(l.nodes) == 0 {
		return l.errorf("a link before the first node")
	}
	n := l.nodes[len(l.nodes)-1]
	k := netLink{where: l.where(), spec: l.link}
	var ok, ok2 bool
	if k.port, s, ok = bracketed(s); !ok || k.port > n.spec.Ports || k.port == 0 {
		return l.errorf("port of node %q: want [1] to [%d]", n.spec.ID, n.spec.Ports)
	}
	s, err := l.portGUID(s, n, k.port)
	if err != nil {
		return err
	}
	s = skipExternal(s)
	k.far, s, ok = quoted(s)
	k.other, s, ok2 = bracketed(s)
	if !ok || !ok2 {
		return l.errorf(`want [port] "remote"[port]`)
	}
	if k.far, err = l.nodeName(k.far); err != nil {
		return err
	}
	if err := l.linkOptions(s, &k.spec); err != nil {
		return err
	}
	n.links = append(n.links, k)
	return nil
}

// portGUID takes a port's GUID in parentheses, which ibnetdiscover writes.
func (l *loader) portGUID(s string, n *netNode, num int) (string, error) {
	if !strings.HasPrefix(s, "(") {
		return s, nil
	}
	text, rest, ok := strings.Cut(s[1:], ")")
	g, err := ib.ParseGUID(text)
	if err != nil || !ok {
		return s, l.errorf("port GUID: want hexadecimal digits in parentheses")
	}
	if n.spec.Type != mad.NodeSwitch {
		if n.spec.PortGUIDs == nil {
			n.spec.PortGUIDs = map[int]ib.GUID{}
		}
		n.spec.PortGUIDs[num] = g
	}
	return rest, nil
}

// skipExternal skips the number that a chassis has for a port: [ext 7].
func skipExternal(s string) string {
	s = strings.TrimLeft(s, " \t")
	if strings.HasPrefix(s, "[ext") {
		_, s, _ = strings.Cut(s, "]")
	}
	return s
}

// linkOptions reads the masks w=, s= and e=, and in a comment what
// ibnetdiscover says that a link is.
func (l *loader) linkOptions(s string, k *LinkSpec) error {
	s = skipExternal(s)
	if strings.HasPrefix(s, "(") {
		_, s, _ = strings.Cut(s, ")")
	}
	s, comment, _ := strings.Cut(skipExternal(s), "#")
	for _, w := range strings.Fields(s) {
		key, val, ok := strings.Cut(w, "=")
		v, err := strconv.ParseUint(val, 0, 8)
		if !ok || err != nil {
			return l.errorf("link option %q: want w=, s= or e= and a mask", w)
		}
		switch key {
		case "w":
			k.Width = uint8(v)
		case "s":
			k.Speed = uint8(v)
		case "e":
			k.SpeedExt = uint8(v)
		default:
			return l.errorf("link option %q: want w=, s= or e= and a mask", w)
		}
	}
	if f := strings.Fields(comment); len(f) > 0 {
		discoveredLink(f[len(f)-1], k)
	}
	return nil
}

var (
	widthNames = map[string]uint8{"1": 1, "4": 2, "8": 4, "12": 8, "2": 16}
	speedNames = map[string]LinkSpec{
		"SDR": {Speed: 1}, "DDR": {Speed: 3}, "QDR": {Speed: 7}, "FDR10": {Speed: 7},
		"FDR": {Speed: 7, SpeedExt: 1}, "EDR": {Speed: 7, SpeedExt: 3}, "HDR": {Speed: 7, SpeedExt: 7}, "NDR": {Speed: 7, SpeedExt: 15},
	}
)

// discoveredLink reads "4xEDR".
func discoveredLink(s string, k *LinkSpec) {
	width, speed, ok := strings.Cut(s, "x")
	w, ok1 := widthNames[width]
	v, ok2 := speedNames[speed]
	if ok && ok1 && ok2 {
		*k = LinkSpec{Width: w, Speed: v.Speed, SpeedExt: v.SpeedExt}
	}
}

// setting reads key=value.
func (l *loader) setting(key, s string) error {
	if !strings.HasPrefix(s, "=") {
		return l.errorf("%q is no node, link or setting", key)
	}
	s = strings.TrimSpace(s[1:])
	s, _, _ = strings.Cut(s, "#")
	if key == "module" {
		name, _, ok := quoted(s)
		if !ok {
			return l.errorf("module: want a name in quotes")
		}
		l.prefix = name
		return nil
	}
	s, _, _ = strings.Cut(s, "(")
	v, err := strconv.ParseUint(strings.TrimSpace(s), 0, 64)
	if err != nil {
		return l.errorf("%s: want a number, not %q", key, s)
	}
	switch key {
	case "switchguid", "caguid", "rtguid":
		l.next.GUID = ib.GUID(v)
	case "sysimgguid":
		l.next.SystemGUID = ib.GUID(v)
	case "vendid":
		l.next.VendorID = uint32(v) & 0xffffff
	case "devid":
		l.next.DeviceID = uint16(v)
	case "width":
		l.link.Width = uint8(v)
	case "speed":
		l.link.Speed = uint8(v)
	case "extspeed":
		l.link.SpeedExt = uint8(v)
	case "pdebug":
	default:
		return l.errorf("%q is no setting of a netfile", key)
	}
	return nil
}

func (l *loader) include(s string) error {
	name, _, ok := quoted(s)
	switch {
	case !ok:
		return l.errorf("include: want a file in quotes")
	case l.depth >= maxInclude:
		return l.errorf("include: files include others more than %d deep", maxInclude)
	}
	if !filepath.IsAbs(name) {
		name = filepath.Join(filepath.Dir(l.name), name)
	}
	where := l.where()
	if err := l.file(name, l.depth+1); err != nil {
		return fmt.Errorf("%s: include: %w", where, err)
	}
	return nil
}

// quoted cuts a string in quotes off the front of s.
func quoted(s string) (text, rest string, ok bool) {
	s = strings.TrimLeft(s, " \t")
	if s == "" || s[0] != '"' {
		return "", s, false
	}
	text, rest, ok = strings.Cut(s[1:], `"`)
	return text, rest, ok
}

// bracketed cuts [n] off the front of s.
func bracketed(s string) (n int, rest string, ok bool) {
	s = strings.TrimLeft(s, " \t")
	if s == "" || s[0] != '[' {
		return 0, s, false
	}
	text, rest, ok := strings.Cut(s[1:], "]")
	n, err := strconv.Atoi(strings.TrimSpace(text))
	return n, rest, ok && err == nil && n >= 0 && n <= 255
}
