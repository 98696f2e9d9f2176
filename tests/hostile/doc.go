// Package hostile sends whole Ports what broken and hostile peers send: frames
// of every length, every opcode in every state, damaged and forged ones, packets
// at the edges of the rules. Each frame must have exactly the outcome that the
// tables of IBA 9 ask for, worked out here anew from the bytes, or be dropped for
// one counted reason, without a trace in memory, queues and frames.
package hostile
