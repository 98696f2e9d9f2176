package umad

import (
	"fmt"
	"slices"
	"strings"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/ib/mad"
)

// choose returns the ports that carry subnet management and the rest. They are
// one, but for adapters of several planes, where two devices share a port GUID
// and the one with IsSMDisabled has general services only.
func choose(ports []Info, o *Options) (smi, gsi Info, err error) {
	p, err := chooseOne(ports, o)
	if err != nil {
		return Info{}, Info{}, err
	}
	smi, gsi = p, p
	for _, q := range ports {
		if q.GUID != p.GUID || q.Umad == p.Umad || o.Device != "" {
			continue
		}
		if disabled(&p) && !disabled(&q) {
			smi = q
		}
		if !disabled(&p) && disabled(&q) {
			gsi = q
		}
	}
	return smi, gsi, nil
}

func disabled(p *Info) bool { return p.Capability&mad.CapSMDisabled != 0 }

func chooseOne(ports []Info, o *Options) (Info, error) {
	if o.GUID == 0 && o.Device == "" {
		if p, ok := best(ports); ok {
			return p, nil
		}
		err := fmt.Errorf("umad: no InfiniBand port that is up; there are: %s", names(ports))
		if len(ports) > 0 && !slices.ContainsFunc(ports, func(p Info) bool { return infiniBand(&p) }) {
			err = fmt.Errorf("%w: %w", err, ErrNoSubnet)
		}
		return Info{}, err
	}
	for _, p := range ports {
		if o.GUID != 0 && p.GUID != o.GUID || o.Device != "" && p.Device != o.Device || o.Port != 0 && p.Port != o.Port {
			continue
		}
		return p, nil
	}
	return Info{}, fmt.Errorf("umad: no port %s; there are: %s", o.wanted(), names(ports))
}

// best chooses as libibumad does: the first port that is active, else the first
// whose link is up, else the first that is not disabled.
func best(ports []Info) (Info, bool) {
	for _, good := range []func(p *Info) bool{
		func(p *Info) bool { return p.State == ib.PortActive },
		func(p *Info) bool { return p.Physical == mad.PhysLinkUp },
		func(p *Info) bool { return p.Physical != mad.PhysDisabled },
	} {
		for i := range ports {
			if p := &ports[i]; infiniBand(p) && good(p) {
				return *p, true
			}
		}
	}
	return Info{}, false
}

func infiniBand(p *Info) bool { return p.LinkLayer == "InfiniBand" || p.LinkLayer == "IB" }

func (o *Options) wanted() string {
	var s []string
	if o.GUID != 0 {
		s = append(s, "with GUID "+o.GUID.String())
	}
	if o.Device != "" {
		s = append(s, "of "+o.Device)
	}
	if o.Port != 0 {
		s = append(s, fmt.Sprint(o.Port))
	}
	return strings.Join(s, " ")
}

func names(ports []Info) string {
	if len(ports) == 0 {
		return "none"
	}
	var s []string
	for _, p := range ports {
		s = append(s, fmt.Sprintf("%s port %d (%v, %s, %v)", p.Device, p.Port, p.GUID, p.LinkLayer, p.State))
	}
	return strings.Join(s, "; ")
}
