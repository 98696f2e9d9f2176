//go:build ignore

// SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause
//
// The XDP program of an urxe port. It takes RoCEv2 packets for addresses that
// the port owns and leaves every other packet to the kernel untouched.

#include <linux/bpf.h>
#include <linux/if_ether.h>
#include <linux/in.h>
#include <linux/ip.h>
#include <linux/ipv6.h>
#include <linux/udp.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define ROCE_PORT 4791 /* Annex A17.3.2.2: UDP destination port of RoCEv2 */

/* What became of a packet that could have been ours; the order is known to
 * bpf/counters.go. */
enum roce_count {
	COUNT_REDIRECTED, /* handed to the socket of its queue */
	COUNT_NO_SOCKET,  /* ours, but its queue has no socket: passed */
	COUNT_FOREIGN,	  /* RoCEv2 for an address that isn't ours: passed */
	COUNT_OPTIONS,	  /* ours, with IP options or a fragment: passed */
	COUNT_MAX,
};

/* An IPv6 address, or an IPv4 one mapped into ::ffff:0:0/96. Written in whole
 * words: without CAP_PERFMON, kernels like 6.1 refuse to write half of one twice. */
struct roce_addr {
	__u64 word[2];
};

struct vlan_tag {
	__be16 tci;
	__be16 proto;
};

struct {
	__uint(type, BPF_MAP_TYPE_XSKMAP);
	__uint(max_entries, 64); /* set at load to the queues of the device */
	__type(key, __u32);
	__type(value, __u32);
} xsks SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, 4096);
	__uint(map_flags, BPF_F_NO_PREALLOC);
	__type(key, struct roce_addr);
	__type(value, __u8);
} addrs SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, COUNT_MAX);
	__type(key, __u32);
	__type(value, __u64);
} counts SEC(".maps");

static __always_inline int count(__u32 what, int verdict)
{
	__u64 *n = bpf_map_lookup_elem(&counts, &what);

	if (n)
		(*n)++;
	return verdict;
}

static __always_inline int is_ours(const struct roce_addr *dst)
{
	return bpf_map_lookup_elem(&addrs, dst) != 0;
}

static __always_inline int deliver(struct xdp_md *ctx, const struct roce_addr *dst)
{
	if (!is_ours(dst))
		return count(COUNT_FOREIGN, XDP_PASS);
	if (bpf_redirect_map(&xsks, ctx->rx_queue_index, XDP_PASS) != XDP_REDIRECT)
		return count(COUNT_NO_SOCKET, XDP_PASS);
	return count(COUNT_REDIRECTED, XDP_REDIRECT);
}

static __always_inline int is_roce(const struct udphdr *udp, const void *end)
{
	return (const void *)(udp + 1) <= end && udp->dest == bpf_htons(ROCE_PORT);
}

/* The second half of a mapped IPv4 address, as it lies in memory. */
static __always_inline __u64 mapped(__be32 addr)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
	return (__u64)addr << 32 | bpf_htonl(0xffff);
#else
	return (__u64)bpf_htonl(0xffff) << 32 | addr;
#endif
}

static __always_inline int from_ipv4(struct xdp_md *ctx, struct iphdr *ip, void *end,
				     struct roce_addr *dst)
{
	if ((void *)(ip + 1) > end || ip->version != 4 || ip->protocol != IPPROTO_UDP)
		return XDP_PASS;
	dst->word[0] = 0;
	dst->word[1] = mapped(ip->daddr);
	/* The low 14 bits: More Fragments and the offset. */
	if (ip->ihl != 5 || (ip->frag_off & bpf_htons(0x3fff)))
		return is_ours(dst) ? count(COUNT_OPTIONS, XDP_PASS) : XDP_PASS;
	if (!is_roce((void *)(ip + 1), end))
		return XDP_PASS;
	return deliver(ctx, dst);
}

static __always_inline int from_ipv6(struct xdp_md *ctx, struct ipv6hdr *ip, void *end,
				     struct roce_addr *dst)
{
	/* An extension header shows as another next header: not for us. */
	if ((void *)(ip + 1) > end || ip->version != 6 || ip->nexthdr != IPPROTO_UDP)
		return XDP_PASS;
	if (!is_roce((void *)(ip + 1), end))
		return XDP_PASS;
	__builtin_memcpy(dst->word, &ip->daddr, sizeof(dst->word));
	/* An IPv4-mapped address is a key for IPv4, and no address on a wire. */
	if (!dst->word[0] && dst->word[1] == mapped(ip->daddr.s6_addr32[3]))
		return XDP_PASS;
	return deliver(ctx, dst);
}

static __always_inline int from_ether(struct xdp_md *ctx)
{
	void *end = (void *)(long)ctx->data_end;
	struct ethhdr *eth = (void *)(long)ctx->data;
	struct roce_addr dst;
	void *l3 = eth + 1;
	__be16 proto;

	if (l3 > end)
		return XDP_PASS;
	proto = eth->h_proto;
	if (proto == bpf_htons(ETH_P_8021Q)) {
		struct vlan_tag *tag = l3;

		l3 = tag + 1;
		if (l3 > end)
			return XDP_PASS;
		proto = tag->proto;
	}
	if (proto == bpf_htons(ETH_P_IP))
		return from_ipv4(ctx, l3, end, &dst);
	if (proto == bpf_htons(ETH_P_IPV6))
		return from_ipv6(ctx, l3, end, &dst);
	return XDP_PASS;
}

/* For kernels and drivers with multi-buffer XDP: packets longer than a page. */
SEC("xdp.frags")
int urxe_roce_frags(struct xdp_md *ctx)
{
	return from_ether(ctx);
}

SEC("xdp")
int urxe_roce(struct xdp_md *ctx)
{
	return from_ether(ctx);
}

char LICENSE[] SEC("license") = "Dual BSD/GPL";
