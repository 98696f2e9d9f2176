package umad

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// Info is a port of this host that speaks MADs.
type Info struct {
	mad.Local
	Umad       string // The name of its device file: "umad0".
	ISSM       string // The one that says "an SM is here": "issm0".
	Physical   mad.PhysicalState
	Capability mad.CapabilityMask
	LinkLayer  string // "InfiniBand" or "Ethernet".
	NodeType   mad.NodeType
}

// roots are where the kernel shows its devices; tests have others.
type roots struct{ sys, dev string }

var kernel = roots{sys: "/sys", dev: "/dev/infiniband"}

// List returns the ports of this host, in the order of their device files.
func List() ([]Info, error) { return kernel.list() }

func (r roots) list() ([]Info, error) {
	class := filepath.Join(r.sys, "class/infiniband_mad")
	entries, err := os.ReadDir(class)
	if err != nil {
		return nil, fmt.Errorf("umad: %s: %w (is the module ib_umad loaded, and is there an InfiniBand adapter?)", class, err)
	}
	if v, err := readUint(filepath.Join(class, "abi_version")); err != nil || v != abiVersion {
		return nil, fmt.Errorf("umad: ABI version %d (%v): want %d", v, err, abiVersion)
	}
	var ports []Info
	for _, e := range entries {
		num, ok := strings.CutPrefix(e.Name(), "umad")
		if !ok {
			continue
		}
		p, err := r.port(filepath.Join(class, e.Name()))
		if err != nil {
			return nil, fmt.Errorf("umad: %s: %w", e.Name(), err)
		}
		p.Umad, p.ISSM = e.Name(), "issm"+num
		ports = append(ports, p)
	}
	slices.SortFunc(ports, func(a, b Info) int { return number(a.Umad) - number(b.Umad) })
	return ports, nil
}

func number(umad string) int {
	n, _ := strconv.Atoi(strings.TrimPrefix(umad, "umad"))
	return n
}

// port reads which port a device file is of, and what that port is.
func (r roots) port(class string) (Info, error) {
	dev, err := readText(filepath.Join(class, "ibdev"))
	if err != nil {
		return Info{}, err
	}
	num, err := readUint(filepath.Join(class, "port"))
	if err != nil {
		return Info{}, err
	}
	p := Info{}
	p.Device, p.Port = dev, int(num)
	return p, r.refresh(&p)
}

// refresh reads all that may change. What a driver does not show stays zero.
func (r roots) refresh(p *Info) error {
	ca := filepath.Join(r.sys, "class/infiniband", p.Device)
	port := filepath.Join(ca, "ports", strconv.Itoa(p.Port))
	gid, err := readText(filepath.Join(port, "gids/0"))
	if err != nil {
		return err
	}
	g, err := ib.ParseGID(gid)
	if err != nil {
		return err
	}
	p.GIDPrefix, p.GUID = splitGID(g)
	if s, err := readText(filepath.Join(ca, "node_guid")); err == nil {
		p.NodeGUID, _ = ib.ParseGUID(s)
	}
	small := func(name string) uint64 {
		v, _ := readUint(filepath.Join(port, name))
		return v
	}
	p.LID, p.SMLID = ib.LID(small("lid")), ib.LID(small("sm_lid"))
	p.LMC, p.SMSL = uint8(small("lid_mask_count")), uint8(small("sm_sl"))
	p.State, p.Physical = ib.PortState(small("state")), mad.PhysicalState(small("phys_state"))
	p.Capability = mad.CapabilityMask(small("cap_mask"))
	p.LinkLayer, _ = readText(filepath.Join(port, "link_layer"))
	nodeType, _ := readUint(filepath.Join(ca, "node_type"))
	p.NodeType = mad.NodeType(nodeType)
	p.PKeys = readPKeys(filepath.Join(port, "pkeys"))
	return nil
}

func splitGID(g ib.GID) (prefix uint64, guid ib.GUID) {
	for i := range 8 {
		prefix = prefix<<8 | uint64(g[i])
		guid = guid<<8 | ib.GUID(g[8+i])
	}
	return prefix, guid
}

// readPKeys returns the table by index, without the zeros at its end.
func readPKeys(dir string) []ib.PKey {
	entries, _ := os.ReadDir(dir)
	keys := make([]ib.PKey, len(entries))
	for _, e := range entries {
		i, err := strconv.Atoi(e.Name())
		if err != nil || i < 0 || i >= len(keys) {
			continue
		}
		v, _ := readUint(filepath.Join(dir, e.Name()))
		keys[i] = ib.PKey(v)
	}
	for len(keys) > 0 && keys[len(keys)-1] == 0 {
		keys = keys[:len(keys)-1]
	}
	return keys
}

func readText(path string) (string, error) {
	b, err := os.ReadFile(path)
	return strings.TrimSpace(string(b)), err
}

// readUint reads the number that a file begins with: "4: ACTIVE", "0xffff".
func readUint(path string) (uint64, error) {
	s, err := readText(path)
	if err != nil {
		return 0, err
	}
	s, _, _ = strings.Cut(s, ":")
	return strconv.ParseUint(strings.TrimSpace(s), 0, 64)
}
