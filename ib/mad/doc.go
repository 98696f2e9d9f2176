// Package mad holds the formats of InfiniBand management: the datagram (MAD)
// itself, subnet management packets by directed route or by LID, the
// attributes of subnet and performance management, the records of subnet
// administration, the messages of communication management, notices, and RMPP,
// which carries what a MAD is too small for.
//
// Formats are byte views: a type is a byte slice that overlays a part of a
// MAD, and its methods read and write fields in place. Parse checks a
// datagram once; the views it hands out are long enough for all accessors.
//
// The second half of the package is the way to a fabric. A Port sends and
// receives packets through a port of a subnet; package umad gives ports of
// this host's adapters, ibsim those of a simulator in another process, and
// fabric those of a simulator in memory. Transactions, Sender and Receiver
// are the state machines of requests and of RMPP: they take packets and the
// time, and return packets and the next deadline.
package mad

//go:generate go run ./internal/gen -in layout.txt -out views_gen.go
