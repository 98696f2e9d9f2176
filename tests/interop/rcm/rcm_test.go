package rcm

import (
	"context"
	"io"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/verbs"
)

// Each pair of programs runs with one another.
func TestPrograms(t *testing.T) {
	for _, name := range []string{"rping", "ucmatose", "udaddy"} {
		t.Run(name, func(t *testing.T) {
			a, b, err := verbs.OpenPair(verbs.PairOptions{LinkMTU: 1500})
			if err != nil {
				t.Fatal(err)
			}
			defer a.Close()
			defer b.Close()
			to := netip.AddrPortFrom(b.GIDs()[1].Addr().Unmap(), 7174)
			served := make(chan error, 1)
			go func() { served <- start(t, b, "serve-"+name, to) }()
			err = start(t, a, name, to)
			for err != nil && strings.Contains(err.Error(), "service ID") { // the other isn't there yet
				time.Sleep(10 * time.Millisecond)
				err = start(t, a, name, to)
			}
			if err != nil {
				t.Error("client:", err)
			}
			if err := <-served; err != nil {
				t.Error("server:", err)
			}
		})
	}
}

func start(t *testing.T, d *verbs.Device, program string, at netip.AddrPort) error {
	s, err := newSide(d, io.Discard)
	if err != nil {
		return err
	}
	var cancel func()
	s.ctx, cancel = context.WithTimeout(t.Context(), patience)
	defer cancel()
	return programs[program](s, at, 10)
}
