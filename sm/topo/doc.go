// Package topo is the subnet as the subnet manager knows it: nodes, ports and
// the links between them, in flat arrays, so that fifty thousand ports are a
// few megabytes and an index names a port everywhere.
//
// A Fabric is built once, by the sweep or by a test, and never changed after:
// routing, the subnet administrator and the dump files all read the same
// snapshot while the next sweep builds another.
//
// A Graph is the part of a Fabric that routing needs: the switches, the links
// between them, and the LIDs with the switch port each one leaves by.
package topo
