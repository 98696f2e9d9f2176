// Package owner stands in for the owner of another XDP program that provides a
// pinned XSKMAP: it loads the program of package bpf, attaches it to an end of a
// pair, and pins the map.
package owner

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"

	"github.com/urxe/urxe/bpf"
	"github.com/urxe/urxe/internal/nettest"
)

// Options of Attach.
type Options struct {
	Generic  bool   // generic mode, not the driver's
	Entries  uint32 // of the map; 0: 64
	Detached bool   // load and pin only
}

// Owner is an attached program with its map, on a BPF filesystem of its own.
type Owner struct {
	Path string // of the pinned map

	objects bpf.RoceObjects
	link    link.Link
	dir     string
}

// Attach attaches the program to an end, whose RoCEv2 it redirects. Close it.
func Attach(e *nettest.End, o Options) (_ *Owner, err error) {
	w := &Owner{}
	defer func() {
		if err != nil {
			err = errors.Join(err, w.Close())
		}
	}()
	if w.dir, err = os.MkdirTemp("", "urxe-owner"); err != nil {
		return nil, err
	}
	if err := unix.Mount("bpf", w.dir, "bpf", 0, ""); err != nil {
		return nil, fmt.Errorf("mount a BPF filesystem: %w", err)
	}
	if err := w.load(o.Entries); err != nil {
		return nil, err
	}
	for _, a := range [][16]byte{e.V4.As16(), e.V6.As16(), e.LL.As16()} {
		if err := w.Take(a); err != nil {
			return nil, err
		}
	}
	w.Path = filepath.Join(w.dir, "xsks")
	if err := w.Pin(); err != nil || o.Detached {
		return w, err
	}
	flags := link.XDPDriverMode
	if o.Generic {
		flags = link.XDPGenericMode
	}
	return w, e.NS.Do(func() (err error) {
		w.link, err = link.AttachXDP(link.XDPOptions{Program: w.objects.UrxeRoceFrags, Interface: e.Index, Flags: flags})
		return err
	})
}

func (w *Owner) load(entries uint32) error {
	spec, err := bpf.LoadRoce()
	if err != nil {
		return err
	}
	if entries != 0 {
		spec.Maps["xsks"].MaxEntries = entries
	}
	return spec.LoadAndAssign(&w.objects, nil)
}

// Take redirects what goes to an address, too.
func (w *Owner) Take(addr [16]byte) error {
	return w.objects.Addrs.Update(addr, uint8(1), ebpf.UpdateAny)
}

// Map is the XSKMAP.
func (w *Owner) Map() *ebpf.Map { return w.objects.Xsks }

// Pin pins the map.
func (w *Owner) Pin() error { return w.objects.Xsks.Pin(w.Path) }

// Unpin takes that away.
func (w *Owner) Unpin() error { return w.objects.Xsks.Unpin() }

// Replace starts anew, as an owner that is updated does: with another program and
// another map in the old one's place.
func (w *Owner) Replace(addrs ...[16]byte) error {
	old := w.objects
	w.objects = bpf.RoceObjects{}
	if err := w.load(0); err != nil {
		return err
	}
	for _, a := range addrs {
		if err := w.Take(a); err != nil {
			return err
		}
	}
	return errors.Join(old.Xsks.Unpin(), w.Pin(), w.link.Update(w.objects.UrxeRoceFrags), old.Close())
}

// Close detaches the program and removes everything. It may be called twice.
func (w *Owner) Close() (err error) {
	if w.link != nil {
		err = w.link.Close()
	}
	if w.objects.Xsks != nil {
		err = errors.Join(err, w.objects.Close())
	}
	if w.dir != "" {
		_ = unix.Unmount(w.dir, 0) // it may not have been mounted
		err = errors.Join(err, os.Remove(w.dir))
	}
	*w = Owner{}
	return err
}
