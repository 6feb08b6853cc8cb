// Which packets of a port belong to the kernel, and which to the AF_XDP socket of their queue.
//
// The kernel keeps its addresses, its neighbours and its routing daemons: packets to it, or to
// everyone on the link, are passed on untouched. A packet whose headers cannot be read goes to the
// socket, because the daemon counts what it drops. The kernel would drop it uncounted.

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// Same values as in steer.rs.
#define ROLE_SWITCH 0
#define ROLE_HOST 1
#define COUNT_PASSED 0
#define COUNT_REDIRECTED 1
#define COUNT_NO_SOCKET 2 // one for each queue from here on, then one for queues that came later
#define QUEUES_MAX 256
#define LOCAL_MAX 4096

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_MAC_CONTROL 0x8808
#define ETHERTYPE_SERVICE_VLAN 0x88a8
#define PROTOCOL_UDP 17
#define PROTOCOL_ICMPV6 58
#define PORT_ROCE 4791 // RoCEv2, IBTA annex A17
#define TAGS_MAX 2

struct port {
    __u32 role;
    __u8 mac[6];
    __u16 queues; // when the port was opened
};

struct ethernet {
    __u8 destination[6];
    __u8 source[6];
    __be16 type;
} __attribute__((packed));

struct tag {
    __be16 control;
    __be16 type;
} __attribute__((packed));

struct ipv4 {
    __u8 version_length;
    __u8 service;
    __be16 length;
    __be16 id;
    __be16 fragment;
    __u8 ttl;
    __u8 protocol;
    __be16 checksum;
    __be32 source;
    __be32 destination;
} __attribute__((packed));

struct address6 {
    __u8 bytes[16];
};

struct ipv6 {
    __be32 flow;
    __be16 length;
    __u8 next;
    __u8 hops;
    struct address6 source;
    struct address6 destination;
} __attribute__((packed));

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct port);
} steer_port SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, LOCAL_MAX);
    __type(key, __be32);
    __type(value, __u8);
} steer_local4 SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, LOCAL_MAX);
    __type(key, struct address6);
    __type(value, __u8);
} steer_local6 SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_XSKMAP);
    __uint(max_entries, QUEUES_MAX);
    __type(key, __u32);
    __type(value, __u32);
} steer_sockets SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, COUNT_NO_SOCKET + QUEUES_MAX + 1);
    __type(key, __u32);
    __type(value, __u64);
} steer_counts SEC(".maps");

static __always_inline void count(__u32 what) {
    __u64 *counter = bpf_map_lookup_elem(&steer_counts, &what);
    if (counter)
        *counter += 1;
}

static __always_inline int to_kernel(void) {
    count(COUNT_PASSED);
    return XDP_PASS;
}

static __always_inline int to_socket(struct xdp_md *context, const struct port *port) {
    __u32 queue = context->rx_queue_index;
    int verdict = bpf_redirect_map(&steer_sockets, queue, XDP_PASS);
    if (verdict == XDP_REDIRECT)
        count(COUNT_REDIRECTED);
    else
        count(COUNT_NO_SOCKET + (queue < port->queues ? queue : port->queues));
    return verdict;
}

static __always_inline int same_station(const __u8 *one, const __u8 *other) {
    const __u16 *a = (const __u16 *)one, *b = (const __u16 *)other;
    return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]));
}

static __always_inline int is_local4(__be32 address) {
    return bpf_map_lookup_elem(&steer_local4, &address) != 0;
}

static __always_inline int is_local6(const struct address6 *address) {
    struct address6 key;
    __builtin_memcpy(&key, address, sizeof key);
    return bpf_map_lookup_elem(&steer_local6, &key) != 0;
}

static __always_inline int steer_ipv4(struct xdp_md *context, const struct port *port, void *at, void *end) {
    struct ipv4 *ip = at;
    if (at + sizeof *ip > end)
        return port->role == ROLE_SWITCH ? to_socket(context, port) : to_kernel();
    if (port->role == ROLE_SWITCH) {
        __u32 destination = bpf_ntohl(ip->destination);
        if (destination >> 28 >= 0xe           // multicast, reserved, broadcast
            || destination >> 16 == 0xa9fe     // 169.254/16 never leaves its link (RFC 3927 §2.6.2)
            || is_local4(ip->destination))
            return to_kernel();
        return to_socket(context, port);
    }
    if (ip->protocol != PROTOCOL_UDP || (ip->fragment & bpf_htons(0x3fff)) || !is_local4(ip->destination))
        return to_kernel();
    // RoCEv2 has no IP options (annex A17), and a pointer that moves by a value from the packet
    // would make CAP_PERFMON necessary to load this.
    at += sizeof *ip;
    if (ip->version_length != 0x45 || at + 4 > end || ((__be16 *)at)[1] != bpf_htons(PORT_ROCE))
        return to_kernel();
    return to_socket(context, port);
}

static __always_inline int steer_ipv6(struct xdp_md *context, const struct port *port, void *at, void *end) {
    struct ipv6 *ip = at;
    if (at + sizeof *ip > end)
        return port->role == ROLE_SWITCH ? to_socket(context, port) : to_kernel();
    __u8 *destination = ip->destination.bytes;
    if (port->role == ROLE_SWITCH) {
        if (destination[0] == 0xff                                            // multicast
            || (destination[0] == 0xfe && (destination[1] & 0xc0) == 0x80)    // fe80::/10
            || is_local6(&ip->destination))
            return to_kernel();
        // Router and neighbour discovery, redirects: RFC 4861 §4.
        if (ip->next == PROTOCOL_ICMPV6 && at + sizeof *ip + 1 <= end) {
            __u8 type = *(__u8 *)(at + sizeof *ip);
            if (type >= 133 && type <= 137)
                return to_kernel();
        }
        return to_socket(context, port);
    }
    at += sizeof *ip;
    if (ip->next != PROTOCOL_UDP || at + 4 > end || ((__be16 *)at)[1] != bpf_htons(PORT_ROCE)
        || !is_local6(&ip->destination))
        return to_kernel();
    return to_socket(context, port);
}

SEC("xdp")
int fabric_steer(struct xdp_md *context) {
    void *at = (void *)(long)context->data, *end = (void *)(long)context->data_end;
    __u32 zero = 0;
    struct port *port = bpf_map_lookup_elem(&steer_port, &zero);
    struct ethernet *ethernet = at;
    if (!port || at + sizeof *ethernet > end)
        return to_kernel();
    __be16 type = ethernet->type;
    // Pause and priority pause are sent to a group address of their own (802.3 31B, 802.1Qbb).
    if (type == bpf_htons(ETHERTYPE_MAC_CONTROL))
        return to_socket(context, port);
    // Group addresses, and stations that are not this one.
    if (!same_station(ethernet->destination, port->mac))
        return to_kernel();
    at += sizeof *ethernet;
#pragma unroll
    for (int tags = 0; tags < TAGS_MAX; tags++) {
        if (type != bpf_htons(ETHERTYPE_VLAN) && type != bpf_htons(ETHERTYPE_SERVICE_VLAN))
            break;
        struct tag *tag = at;
        if (at + sizeof *tag > end)
            return to_kernel();
        type = tag->type;
        at += sizeof *tag;
    }
    if (type == bpf_htons(ETHERTYPE_IPV4))
        return steer_ipv4(context, port, at, end);
    if (type == bpf_htons(ETHERTYPE_IPV6))
        return steer_ipv6(context, port, at, end);
    return to_kernel();
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
