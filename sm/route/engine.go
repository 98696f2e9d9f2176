package route

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/sm/topo"
)

// Options is what the operator says about routing. The zero value works.
type Options struct {
	// Roots are the GUIDs of root_guid_file: the top switches of updn and ftree.
	Roots []ib.GUID

	// Lanes is the number of VLs that every link between switches has; 0 means 1.
	Lanes int
}

func (o Options) lanes() int { return min(max(1, o.Lanes), MaxLanes) }

// roots returns the switches of the graph that Roots names.
func (o Options) roots(g *topo.Graph) (roots []int32) {
	for _, guid := range o.Roots {
		if s := g.Switch(guid); s != topo.None {
			roots = append(roots, s)
		}
	}
	return roots
}

// engineFunc computes tables, or says why this engine cannot.
type engineFunc func(g *topo.Graph, o Options) (*Tables, error)

var engines = map[string]engineFunc{
	"minhop": minhop,
	"updn":   updn,
	"ftree":  ftree,
	"dfsssp": dfsssp,
	"nue":    nue,
}

// Engines returns the names that Compute takes, sorted.
func Engines() []string {
	names := make([]string, 0, len(engines))
	for n := range engines {
		names = append(names, n)
	}
	slices.Sort(names)
	return names
}

// ParseEngines reads OpenSM's comma-separated list. "none" is minhop, as there;
// "no_fallback" is taken and has no effect, since nothing is done silently.
// Names of engines that only OpenSM has are returned in unknown.
func ParseEngines(list string) (known, unknown []string) {
	for name := range strings.SplitSeq(list, ",") {
		switch name = strings.TrimSpace(name); {
		case name == "" || name == "no_fallback":
		case name == "none":
			known = append(known, "minhop")
		case engines[name] != nil:
			known = append(known, name)
		default:
			unknown = append(unknown, name)
		}
	}
	return known, unknown
}

// One runs one engine by name and checks nothing.
func One(name string, g *topo.Graph, o Options) (*Tables, error) {
	e, ok := engines[name]
	if !ok {
		return nil, fmt.Errorf("routing engine %q: not one of %s", name, strings.Join(Engines(), ", "))
	}
	return e(g, o)
}
