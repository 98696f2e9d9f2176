package veth

import "github.com/vishvananda/netns"

// Join is join, for an interface that tests make from another process.
var Join = join

// Filled is c with its defaults.
func (c Config) Filled() Config { return c.filled() }

// NSOf is the namespace of a descriptor.
func NSOf(fd int) *NS { return &NS{netns.NsHandle(fd)} }
