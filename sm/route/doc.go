// Package route computes the forwarding tables of a subnet. An engine takes a
// topo.Graph and gives Tables: for every switch the port by which each LID
// leaves (the LFT), and for every pair of switches the lane (SL, and by the
// identity SL2VL also the VL) that traffic between their ends must use.
//
// # Deadlock
//
// A packet holds the buffer of one channel (a link and a lane) while it waits
// for the next one. If the dependencies channel → channel that all paths
// together make contain a cycle, the subnet can lock up for good. Engines avoid
// cycles in one of two ways:
//
//   - by an orientation (updn, dnup, ftree): a total order of the switches makes
//     each link an up or a down link, and no path goes up after it went down;
//   - by lanes (dfsssp, nue): each pair of switches gets a lane such that every
//     lane alone has no cycle. nue also bends paths, so that it fits the lanes
//     there are, even one.
//
// The lane of a pair is the same in both directions. Connections use the SL of
// the one PathRecord that their active side asked for both ways (a reversible
// path, IBA 13.5.1), so lanes by direction would lock up all the same.
//
// Paths counted are those between hosts, and between hosts and switches (the
// performance counters of a switch are read over its LID). Nothing passes
// between two switches' management ports.
//
// Whatever an engine claims, Compute runs package check over the result.
package route
