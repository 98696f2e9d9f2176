// Package wire is RoCEv2 as it stands on the wire: Ethernet, IP, UDP, BTH, the
// extended transport headers and the ICRC (IBA 9; Annex A17 and A19).
//
// Parse takes a received frame apart, once and completely: what it accepts has
// all that its opcode asks for, and what it returns are values and views of the
// frame. Template.Emit writes a packet from such values, byte for byte the same;
// Template.Seal adds the ICRC when the payload is in place. Neither copies or
// allocates. A frame is in one or two pieces.
package wire
