// Package sim runs whole ports, their workers and queue pairs over a simulated
// network in a time of its own, all from one seed. Packets are lost, duplicated,
// delayed, reordered, damaged and forged; links run out of room; receives come
// late; connections are broken on purpose. Checkers watch that every work
// request completes exactly once and in order, that memory is what the
// operations posted would have made it, and that atomics add up. After the
// faults end, everything must come to an end too.
package sim
