// Package bpf holds the XDP program that picks a port's RoCEv2 packets out of
// an interface's traffic, compiled, and Go bindings to load it.
//
// The program (roce.bpf.c) redirects a packet to the AF_XDP socket of its
// queue when all of this holds, and leaves it to the kernel otherwise:
//
//   - Ethernet, untagged or with one 802.1Q tag that is still in the packet;
//   - IPv4 without options that is no fragment, or IPv6 without extension headers;
//   - UDP to port 4791;
//   - the destination address is a key of the map "addrs".
//
// It comes twice: urxe_roce_frags for kernels with multi-buffer XDP (5.18) and
// urxe_roce for those without. Only one of the two is loaded.
package bpf

// The two include paths are where Debian keeps asm/types.h on amd64 and arm64;
// its contents are the same.
//go:generate go run github.com/cilium/ebpf/cmd/bpf2go -go-package bpf -no-global-types -output-stem roce -cc clang -strip llvm-strip -cflags "-O2 -Wall -Wextra -Werror -idirafter /usr/include/x86_64-linux-gnu -idirafter /usr/include/aarch64-linux-gnu" Roce roce.bpf.c
