package rig

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/urxe/urxe/ib"
	"github.com/urxe/urxe/rocev2"
	"github.com/urxe/urxe/verbs"
)

func gid(t *testing.T, s string) ib.GID {
	g, err := ib.ParseGID(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// device makes a device with these addresses.
func device(t *testing.T, gids ...string) *verbs.Device {
	l, other, err := rocev2.NewPair(rocev2.PairOptions{})
	if err != nil {
		t.Fatal(err)
	}
	n := &rocev2.FixedNet{}
	for _, s := range gids {
		n.Addresses = append(n.Addresses, gid(t, s))
	}
	p, err := rocev2.NewPort(rocev2.Config{Name: "test0", Links: []rocev2.Link{l}, Net: n})
	if err != nil {
		t.Fatal(err)
	}
	d := verbs.OpenPort(p, verbs.Options{})
	t.Cleanup(func() { d.Close(); other.Close() })
	return d
}

func TestPickGID(t *testing.T) {
	d := device(t, "fe80::1", "::", "10.0.0.1", "fd00::1", "10.0.0.2")
	v6 := device(t, "fe80::1", "fd00::1")
	for _, c := range []struct {
		d     *verbs.Device
		asked int
		peer  string
		want  int
		err   string
	}{
		{d, -1, "10.0.0.9", 2, ""},
		{d, -1, "127.0.0.1", 2, ""},
		{d, -1, "fe80::9", 0, ""},
		{d, -1, "fd00::9", 3, ""},
		{d, -1, "2001:db8::9", 3, ""},
		{d, 4, "fe80::9", 4, ""}, // as asked
		{d, 1, "10.0.0.9", 1, "no GID at index 1 (the table: 0: fe80::1, 2: ::ffff:10.0.0.1"},
		{d, 5, "10.0.0.9", 5, "no GID at index 5"},
		{v6, -1, "10.0.0.9", 0, "no address of the IP version of ::ffff:10.0.0.9 (its GIDs: 0: fe80::1, 1: fd00::1)"},
		{device(t, "fe80::1", "10.0.0.1"), -1, "fd00::9", 0, ""},
		{device(t, "fd00::1", "10.0.0.1"), -1, "fe80::9", 0, ""},
		{device(t, "169.254.0.1", "10.0.0.1"), -1, "10.0.0.9", 1, ""},
	} {
		got, err := PickGID(c.d, c.asked, gid(t, c.peer))
		if c.err == "" && (err != nil || got != c.want) || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("asked for %d towards %s: %d, %v; want %d %q", c.asked, c.peer, got, err, c.want, c.err)
		}
	}
}

func TestWaitEndsWithTheContext(t *testing.T) {
	d := device(t, "fe80::1")
	for _, events := range []bool{false, true} {
		s, err := NewSide(d, Config{Size: 64, Depth: 4, Events: events})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancelCause(t.Context())
		why := errors.New("enough")
		time.AfterFunc(5*time.Millisecond, func() { cancel(why) })
		if _, err := s.Wait(ctx, make([]verbs.WC, 1)); !errors.Is(err, why) {
			t.Errorf("events %v: %v", events, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestConnectWantsAsManyQPs(t *testing.T) {
	d := device(t, "fe80::1")
	s, err := NewSide(d, Config{Size: 64, Depth: 4, QPs: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Connect(Address{}, verbs.ConnectOptions{}); err == nil || !strings.Contains(err.Error(), "the peer has 0 QPs, this side 2") {
		t.Error(err)
	}
}
