// Package dump writes a subnet in the files of OpenSM, whose names and formats
// other tools read: ibdmchk above all, and people's scripts.
package dump

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/route"
	"github.com/urxe/urxe/sm/subnet"
	"github.com/urxe/urxe/sm/topo"
)

// file is a file and who writes it.
type file struct {
	name  string
	write func(io.Writer, *subnet.Snapshot)
}

// Subnet writes opensm-subnet.lst, which lists all links, into a directory.
func Subnet(dir string, s *subnet.Snapshot) error {
	return all(dir, s, []file{{"opensm-subnet.lst", Links}})
}

// Routing writes the forwarding tables and lanes: opensm-lfts.dump,
// opensm.fdbs, opensm.mcfdbs (empty: ibdmchk wants it), opensm-sl2vl.dump and
// opensm-path-sl.dump.
func Routing(dir string, s *subnet.Snapshot) error {
	if s.Routing == nil {
		return nil
	}
	return all(dir, s, []file{
		{"opensm-lfts.dump", LFTs}, {"opensm.fdbs", FDBs}, {"opensm.mcfdbs", func(io.Writer, *subnet.Snapshot) {}},
		{"opensm-sl2vl.dump", SL2VL}, {"opensm-path-sl.dump", PathSL},
	})
}

func all(dir string, s *subnet.Snapshot, files []file) (err error) {
	for _, f := range files {
		err = errors.Join(err, save(filepath.Join(dir, f.name), func(w io.Writer) { f.write(w, s) }))
	}
	return err
}

// save replaces a file in one step, so that a reader never sees half of it.
func save(path string, write func(io.Writer)) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	w := bufio.NewWriterSize(f, 1<<20)
	write(w)
	err = errors.Join(w.Flush(), f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	return err
}

// Links writes a line for each end of each link.
func Links(w io.Writer, s *subnet.Snapshot) {
	f := s.Fabric
	for i := range f.Ports {
		p := &f.Ports[i]
		if p.Peer == topo.None || p.State < ib.PortInit {
			continue
		}
		end(w, s, int32(i))
		end(w, s, p.Peer)
		fmt.Fprintf(w, "PHY=%s LOG=%s SPD=%s\n", width(p.Width), state(p.State), speed(p))
	}
}

// end writes one end of a link.
func end(w io.Writer, s *subnet.Snapshot, port int32) {
	f := s.Fabric
	p := &f.Ports[port]
	n := &f.Nodes[p.Node]
	fmt.Fprintf(w, "{ %s%s Ports:%02X SystemGUID:%016x NodeGUID:%016x PortGUID:%016x VenID:%08X DevID:%04X Rev:%08X {%s} LID:%04X PN:%02X } ",
		kinds[n.Type], sm(s, port), n.NumPorts, uint64(n.SystemGUID), uint64(n.GUID), uint64(p.GUID),
		n.VendorID, n.DeviceID, n.Revision, n.Desc, uint16(lidOf(f, port)), p.Num)
}

var kinds = map[topo.NodeType]string{topo.CA: "CA", topo.Switch: "SW", topo.Router: "Rt"}

func sm(s *subnet.Snapshot, port int32) string {
	if port == s.SMPort {
		return "-SM"
	}
	return ""
}

// lidOf returns the LID by which a port is reached: a switch's are at port 0.
func lidOf(f *topo.Fabric, port int32) ib.LID {
	p := &f.Ports[port]
	if f.Nodes[p.Node].Type == topo.Switch {
		return f.NodePorts(p.Node)[0].LID
	}
	return p.LID
}

var states = map[ib.PortState]string{ib.PortDown: "DWN", ib.PortInit: "INI", ib.PortArmed: "ARM", ib.PortActive: "ACT"}

func state(s ib.PortState) string { return states[s] }

// width decodes LinkWidthActive (IBA 14.2.5.6).
func width(w uint8) string {
	switch w {
	case 1:
		return "1x"
	case 2:
		return "4x"
	case 4:
		return "8x"
	case 8:
		return "12x"
	case 16:
		return "2x"
	}
	return "??"
}

// speed decodes the speed of a lane in Gb/s, the extended one when there is one.
func speed(p *topo.Port) string {
	switch p.SpeedExt {
	case 1:
		return "14"
	case 2:
		return "25"
	case 4:
		return "50"
	case 8:
		return "100"
	}
	switch p.Speed {
	case 1:
		return "2.5"
	case 2:
		return "5"
	case 4:
		return "10"
	}
	return "??"
}

// holder says who has a LID.
func holder(s *subnet.Snapshot, d topo.Dest) (kind topo.NodeType, guid ib.GUID, desc string) {
	p := &s.Fabric.Ports[s.ByLID[d.LID]]
	n := &s.Fabric.Nodes[p.Node]
	return n.Type, p.GUID, n.Desc
}

// LFTs writes the forwarding tables of all switches, a line for each LID that
// has a route.
func LFTs(w io.Writer, s *subnet.Snapshot) {
	g := s.Routing.Graph
	for sw := range g.Switches() {
		if g.Away(int32(sw)) {
			continue
		}
		lid := s.Fabric.NodePorts(s.Fabric.Node(g.GUID[sw]))[0].LID
		fmt.Fprintf(w, "Unicast lids [0-%d] of switch Lid %d guid 0x%016x ('%s'):\n", g.MaxLID, lid, uint64(g.GUID[sw]), g.Desc(int32(sw)))
		n := 0
		for _, d := range g.Dests {
			port := s.Routing.LFT[sw][d.LID]
			if _, here := s.ByLID[d.LID]; port == route.NoPort || !here {
				continue
			}
			kind, guid, desc := holder(s, d)
			fmt.Fprintf(w, "0x%04x %03d # %v portguid 0x%016x: '%s'\n", uint16(d.LID), port, kind, uint64(guid), desc)
			n++
		}
		fmt.Fprintf(w, "%d lids dumped\n", n)
	}
}

// FDBs writes the forwarding tables in the form that ibdmchk reads, with the
// hops to each LID and whether there is a shorter way.
func FDBs(w io.Writer, s *subnet.Snapshot) {
	g := s.Routing.Graph
	hops := newHops(s.Routing.Tables)
	for sw := range int32(g.Switches()) {
		if g.Away(sw) {
			continue
		}
		fmt.Fprintf(w, "dump_ucast_routes: Switch 0x%016x\nLID    : Port : Hops : Optimal\n", uint64(g.GUID[sw]))
		hops.from(sw)
		next := 0
		for l := ib.LID(1); l <= g.MaxLID; l++ {
			for next < len(g.Dests) && g.Dests[next].LID < l {
				next++
			}
			port := s.Routing.LFT[sw][l]
			if _, here := s.ByLID[l]; !here || next == len(g.Dests) || g.Dests[next].LID != l || port == route.NoPort {
				fmt.Fprintf(w, "0x%04X : UNREACHABLE\n", uint16(l))
				continue
			}
			taken, least := hops.taken(sw, g.Dests[next]), hops.least(g.Dests[next])
			best := "yes"
			if taken > least {
				best = fmt.Sprintf("No  : %02d", least)
			}
			fmt.Fprintf(w, "0x%04X : %03d  : %02d   : %s\n", uint16(l), port, taken, best)
		}
		fmt.Fprintln(w)
	}
}

// SL2VL writes which VL each SL takes, by input and output port, when lanes are used.
func SL2VL(w io.Writer, s *subnet.Snapshot) {
	if s.Routing.Lanes < 2 {
		return
	}
	g := s.Routing.Graph
	for sw := range int32(g.Switches()) {
		if g.Away(sw) {
			continue
		}
		ports := s.Fabric.NodePorts(s.Fabric.Node(g.GUID[sw]))
		fmt.Fprintf(w, "Switch 0x%016x, base LID %d, \"%s\"\n", uint64(g.GUID[sw]), ports[0].LID, g.Desc(sw))
		fmt.Fprintln(w, "#in out : 0  1  2  3  4  5  6  7  8  9  10 11 12 13 14 15")
		fmt.Fprintln(w, "#--------------------------------------------------------")
		for out := range ports {
			if out > 0 && ports[out].Peer != topo.None {
				vls := min(s.Routing.Lanes, int(max(1, ports[out].VLs)))
				outputSL2VL(w, ports, out, vls)
			}
		}
	}
}

func outputSL2VL(w io.Writer, ports []topo.Port, out, vls int) {
	for in := range ports {
		if in == out || in > 0 && ports[in].Peer == topo.None {
			continue
		}
		fmt.Fprintf(w, "%-3d %-3d :", in, out)
		for sl := range 16 {
			fmt.Fprintf(w, " %-2d", sl%vls)
		}
		fmt.Fprintln(w)
	}
}

// PathSL writes the SL of each pair of end ports, when lanes are used: a line
// "P slid dlid sl" of decimals, and one for ibdmchk, which wants the GUID of the
// source's node.
func PathSL(w io.Writer, s *subnet.Snapshot) {
	if s.Routing.Lanes < 2 {
		fmt.Fprintln(w, "# all paths have SL 0")
		return
	}
	dests := s.Routing.Graph.Dests
	for _, a := range dests {
		from, ok := s.ByLID[a.LID]
		if !ok {
			continue
		}
		guid := s.Fabric.Nodes[s.Fabric.Ports[from].Node].GUID
		for _, b := range dests {
			if _, here := s.ByLID[b.LID]; !here {
				continue
			}
			sl := s.Routing.Lane(a.Switch, b.Switch)
			fmt.Fprintf(w, "P %d %d %d\n", a.LID, b.LID, sl)
			if a.Path == 0 {
				fmt.Fprintf(w, "0x%016x %d %d\n", uint64(guid), b.LID, sl)
			}
		}
	}
}
