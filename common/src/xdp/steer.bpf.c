// Which packets of a port belong to the kernel, and which to the AF_XDP socket of their queue.
//
// The kernel keeps its addresses, its neighbours and its routing daemons: packets to it, or to
// everyone on the link, are passed on untouched. A packet whose headers cannot be read goes to the
// socket, because the daemon counts what it drops. The kernel would drop it uncounted.
//
// Punted packets are for other machines too, but only the kernel can do with them what its tables
// say. They are counted by reason, and what exceeds the limit of the port is dropped and counted.
//
// Tags of CSIG and INT are looked through. What goes to the kernel loses them: it knows no such protocol, and
// what it floods or forwards could bring them to where none are to be.
//
// At a port of a bridge the daemon gets the frames between stations that the bridge knows. The
// kernel gets the rest, within limits of their own: it floods and learns.

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

// Same values as in steer.rs.
#define ROLE_SWITCH 0
#define ROLE_HOST 1
#define COUNT_PASSED 0
#define COUNT_REDIRECTED 1
#define COUNT_LIMITED 2   // punted packets dropped above a limit, one for each bucket
#define BUCKETS 5
#define COUNT_PUNTED 7    // one for each reason from here on
#define REASONS 19
#define COUNT_NO_SOCKET (COUNT_PUNTED + REASONS) // one for each queue, then one for later queues
#define QUEUES_MAX 256
#define LOCAL_MAX 4096
#define PREFIXES_MAX 2097152
#define PREFIXES4 1 // steer_prefix4 is not empty
#define PREFIXES6 2 // steer_prefix6 is not empty
#define VLANS 4     // steer_vlans is not empty
#define FORWARDS4 8  // the kernel forwards IPv4 that it is handed
#define FORWARDS6 16 // the same of IPv6
#define FORWARDS_BRIDGED 32 // the same of frames that are bridged
#define BRIDGED 64          // the port belongs to a bridge: see steer_bridge_ports
#define VALIDATES 128       // the daemon looks at the sources of packets
// What a prefix is; other values are a reason to punt.
#define VERDICT_FORWARD 0
#define VERDICT_LOCAL 255
// Reasons to punt that the program itself finds.
#define REASON_VLAN 8
#define REASON_DISCOVERY 9
#define REASON_ABSENT 10
#define REASON_BROADCAST 11
#define REASON_MULTICAST 12
#define REASON_UNKNOWN 13
#define REASON_LEARNING 14
#define REASON_BRIDGE 15
#define REASON_LINK_LOCAL 16
#define REASON_OPTIONS 18
#define REASON_STATION 19
// Limits of what is punted.
#define BUCKET_PUNT 0
#define BUCKET_BROADCAST 1
#define BUCKET_MULTICAST 2
#define BUCKET_UNKNOWN 3
#define BUCKET_CONTROL 4
// Ports of bridges.
#define PORTS_MAX 256
#define STATIONS_MAX 131072
#define BRIDGE_FORWARDS 1 // spanning tree
#define BRIDGE_FILTERS 2  // the bridge looks at tags
#define STATION_LOCAL 1   // frames to it are this machine's
// Stations on a port beside its own: see steer_upper.
#define UPPER_MAX 4096
#define UPPER_LISTED 1 // those of steer_upper
#define UPPER_ALL 2    // an interface on the port takes the frames to every station
#define ROUTED -1         // no verdict: what is for this machine is routed
#define SERVED -2         // the same, by the daemon

#define ETHERTYPE_IPV4 0x0800
#define ETHERTYPE_ARP 0x0806
#define ETHERTYPE_VLAN 0x8100
#define ETHERTYPE_IPV6 0x86dd
#define ETHERTYPE_MAC_CONTROL 0x8808
#define ETHERTYPE_SERVICE_VLAN 0x88a8
#define PROTOCOL_HOP_BY_HOP 0
#define PROTOCOL_UDP 17
#define PROTOCOL_ICMPV6 58
#define NEIGHBOUR_SOLICITATION 135 // RFC 4861 section 4.3
#define PORT_ROCE 4791 // RoCEv2, IBTA annex A17
#define TAGS_MAX 2
#define COMPACT_LEN 4  // of CSIG tags, TPID included
#define EXPANDED_LEN 8
#define INT_LEN 64     // of INT tags
#define OPTION_WORDS_MAX 10 // RFC 791 section 3.1

struct port {
    __u32 role;
    __u8 mac[6];
    __u16 queues; // when the port was opened
    __u8 flags;
    __u8 punt4; // the reason to punt every IPv4 packet, or 0
    __u8 punt6; // the same of IPv6
    __u8 upper; // UPPER_LISTED, UPPER_ALL, or 0
    __u64 patience; // nanoseconds without a heartbeat, 0: for ever
    __u32 number;   // the place in steer_bridge_ports
    __be16 csig_compact; // TPIDs of CSIG tags, or 0
    __be16 csig_expanded;
    __be16 int_tag; // TPID of INT tags, or 0
    __be16 compute; // UDP port of in-network compute, or 0
    __u8 rest[4];
};

// A limit of punted packets: a token bucket, kept as the time at which it is full.
struct bucket {
    struct bpf_spin_lock lock;
    __u32 unused;
    __u64 due;
    __u64 interval; // nanoseconds for each packet, 0: no limit
    __u64 burst;    // nanoseconds
};

// A port of a bridge.
struct bridge_port {
    __u32 bridge; // 0: of none
    __u16 pvid;   // VLAN of frames without a tag, 0: none
    __be16 tag;   // EtherType of the tags that the bridge looks at
    __u8 mac[6];  // of the bridge
    __u8 flags;
    __u8 unused;
};

// A station that a bridge knows, by its address and VLAN.
struct station_key {
    __u8 mac[6];
    __u16 vlan;
    __u32 bridge;
};

struct station {
    __u16 port; // its place in steer_bridge_ports, or one that none has
    __u16 flags;
};

struct mac {
    __u8 bytes[6];
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

struct prefix4 {
    __u32 length;
    __be32 address;
};

struct prefix6 {
    __u32 length;
    struct address6 address;
};

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct port);
} steer_port SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, BUCKETS);
    __type(key, __u32);
    __type(value, struct bucket);
} steer_buckets SEC(".maps");

// Shared by the ports of a switch: what bridges know.
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, STATIONS_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct station_key);
    __type(value, struct station);
} steer_stations SEC(".maps");

// Shared by the ports of a switch, by number.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, PORTS_MAX);
    __type(key, __u32);
    __type(value, struct bridge_port);
} steer_bridge_ports SEC(".maps");

// VLANs of the bridge of which this port is a member, a bit each, and then those in which the daemon
// routes what is for the bridge; 0: in a bridge that looks at no tags.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 2 * 4096 / 64);
    __type(key, __u32);
    __type(value, __u64);
} steer_members SEC(".maps");

// Shared by the ports of a switch: what is not forwarded by the daemon, and what is, inside it.
struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, PREFIXES_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct prefix4);
    __type(value, __u8);
} steer_prefix4 SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_LPM_TRIE);
    __uint(max_entries, PREFIXES_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct prefix6);
    __type(value, __u8);
} steer_prefix6 SEC(".maps");

// VLAN identifiers for which the kernel has an interface on this port: a bit each, of 802.1Q and
// then of 802.1ad. Then the same of those for which the daemon routes.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 4 * 4096 / 64);
    __type(key, __u32);
    __type(value, __u64);
} steer_vlans SEC(".maps");

// Stations of interfaces on the port which have addresses of their own (macvlan).
struct {
    __uint(type, BPF_MAP_TYPE_HASH);
    __uint(max_entries, UPPER_MAX);
    __uint(map_flags, BPF_F_NO_PREALLOC);
    __type(key, struct mac);
    __type(value, __u8);
} steer_upper SEC(".maps");

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

// By queue: when its worker last took packets, in ns of the monotonic clock; 0: it sleeps.
struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, QUEUES_MAX);
    __uint(map_flags, BPF_F_MMAPABLE);
    __type(key, __u32);
    __type(value, __u64);
} steer_heartbeats SEC(".maps");

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

static __always_inline int within_limit(__u32 which) {
    struct bucket *bucket = bpf_map_lookup_elem(&steer_buckets, &which);
    if (!bucket || !bucket->interval)
        return 1;
    __u64 now = bpf_ktime_get_ns(), burst = bucket->burst, interval = bucket->interval;
    int within = 0;
    bpf_spin_lock(&bucket->lock);
    __u64 due = bucket->due;
    if (due + burst < now)
        due = now - burst;
    if (due <= now) {
        bucket->due = due + interval;
        within = 1;
    }
    bpf_spin_unlock(&bucket->lock);
    return within;
}

static __always_inline int punt_within(__u32 bucket, __u32 reason) {
    if (!within_limit(bucket)) {
        count(COUNT_LIMITED + bucket);
        return XDP_DROP;
    }
    if (reason >= 1 && reason <= REASONS)
        count(COUNT_PUNTED + reason - 1);
    return to_kernel();
}

static __always_inline int punt(__u32 reason) {
    return punt_within(BUCKET_PUNT, reason);
}

// Whether the worker of a queue has taken no packets for too long. One that sleeps is woken by this
// packet, and has as long from now on.
static __always_inline int is_absent(const struct port *port, __u32 queue) {
    if (!port->patience)
        return 0;
    __u64 *heartbeat = bpf_map_lookup_elem(&steer_heartbeats, &queue);
    if (!heartbeat)
        return 0;
    __u64 now = bpf_ktime_get_coarse_ns(), last = *(volatile __u64 *)heartbeat;
    if (!last) {
        *(volatile __u64 *)heartbeat = now;
        return 0;
    }
    return (__s64)(now - last) > (__s64)port->patience;
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

// To the socket, or to the kernel if that forwards while the worker is absent.
static __always_inline int forward(struct xdp_md *context, const struct port *port, __u32 forwards) {
    if ((port->flags & forwards) && is_absent(port, context->rx_queue_index)) {
        count(COUNT_PUNTED + REASON_ABSENT - 1);
        return to_kernel();
    }
    return to_socket(context, port);
}

static __always_inline int same_station(const __u8 *one, const __u8 *other) {
    const __u16 *a = (const __u16 *)one, *b = (const __u16 *)other;
    return !((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]));
}

// Whether a frame to another station than the port is one for an interface on it.
static __always_inline int is_upper(const struct port *port, const __u8 *destination) {
    struct mac key;
    if (!port->upper || (destination[0] & 1))
        return 0;
    if (port->upper == UPPER_ALL)
        return 1;
    __builtin_memcpy(key.bytes, destination, sizeof key.bytes);
    return bpf_map_lookup_elem(&steer_upper, &key) != 0;
}

static __always_inline int is_local4(__be32 address) {
    return bpf_map_lookup_elem(&steer_local4, &address) != 0;
}

static __always_inline int is_local6(const struct address6 *address) {
    struct address6 key;
    __builtin_memcpy(&key, address, sizeof key);
    return bpf_map_lookup_elem(&steer_local6, &key) != 0;
}

// Whether datagrams to a UDP port are the daemon's on a host port.
static __always_inline int is_hosts(const struct port *port, __be16 number) {
    return number == bpf_htons(PORT_ROCE) || (port->compute && number == port->compute);
}

// Of fe80::/10.
static __always_inline int is_link_local(const struct address6 *address) {
    return address->bytes[0] == 0xfe && (address->bytes[1] & 0xc0) == 0x80;
}

// By what is said of the destination's prefix, if something is. Options are for each router to
// read: the kernel does, where it forwards. But it does not look at sources as the daemon does, so
// those of a port that asks for that are the daemon's, which drops them and counts what it drops.
static __always_inline int by_verdict(struct xdp_md *context, const struct port *port, const __u8 *verdict,
                                      int has_options, __u32 forwards) {
    if (verdict && *verdict != VERDICT_FORWARD)
        return *verdict == VERDICT_LOCAL ? to_kernel() : punt(*verdict);
    if (!has_options)
        return forward(context, port, forwards);
    int kernel_reads = port->flags & forwards && !(port->flags & VALIDATES);
    return kernel_reads ? punt(REASON_OPTIONS) : to_socket(context, port);
}

// Whether a word of options says something: no-operations do not, nor does a zero behind them at the
// end of the last word. What is cut says nothing.
static __always_inline int says(const __be32 *word, const void *end, int is_last) {
    if ((const void *)(word + 1) > end)
        return 0;
    __u32 bytes = bpf_ntohl(*word);
    if (bytes == 0x01010101)
        return 0;
    return !is_last || (bytes && bytes != 0x01000000 && bytes != 0x01010000 && bytes != 0x01010100);
}

// Whether an IPv4 header has options that say something.
static __always_inline int has_options(const struct ipv4 *ip, const void *end) {
    const __be32 *word = (const __be32 *)(ip + 1);
    int words = ip->version_length - 0x45;
#pragma unroll
    for (int number = 0; number < OPTION_WORDS_MAX; number++)
        if (number < words && says(word + number, end, number == words - 1))
            return 1;
    return 0;
}

static __always_inline int is_in_vlans(__be16 type, __be16 control, __u32 first) {
    __u32 id = bpf_ntohs(control) & 0xfff;
    __u32 word = first + id / 64 + (type == bpf_htons(ETHERTYPE_SERVICE_VLAN) ? 64 : 0);
    __u64 *bits = bpf_map_lookup_elem(&steer_vlans, &word);
    return bits && (*bits >> (id % 64) & 1);
}

// Whether the kernel has an interface for this tag on the port.
static __always_inline int is_kernels_vlan(__be16 type, __be16 control) {
    return is_in_vlans(type, control, 0);
}

// Whether what follows the IP header is a message of in-network compute: the daemon's, though it is
// addressed to the switch.
static __always_inline int is_compute(const struct port *port, __u8 protocol, void *at, void *end) {
    return port->compute && protocol == PROTOCOL_UDP && at + 4 <= end && ((__be16 *)at)[1] == port->compute;
}

static __always_inline int steer_ipv4(struct xdp_md *context, const struct port *port, void *at, void *end,
                                      __u32 reason) {
    struct ipv4 *ip = at;
    if (at + sizeof *ip > end)
        return port->role == ROLE_SWITCH ? to_socket(context, port) : to_kernel();
    if (port->role == ROLE_SWITCH) {
        __u32 destination = bpf_ntohl(ip->destination);
        if (destination >> 28 == 0xe || destination == 0xffffffff) // multicast, broadcast
            return to_kernel();
        if (is_local4(ip->destination)) {
            int whole = ip->version_length == 0x45 && !(ip->fragment & bpf_htons(0x3fff));
            // The daemon answers as the port, not as another station.
            whole = whole && reason != REASON_STATION;
            int compute = whole && is_compute(port, ip->protocol, at + sizeof *ip, end);
            return compute ? to_socket(context, port) : to_kernel();
        }
        if (reason)
            return punt(reason);
        // Of other machines: never leaves its link (RFC 3927 §2.6.2), but the kernel would send it
        // on. The daemon counts it.
        if (destination >> 16 == 0xa9fe)
            return to_socket(context, port);
        int options = ip->version_length != 0x45 && has_options(ip, end);
        struct prefix4 key = {32, ip->destination};
        const __u8 *verdict = port->flags & PREFIXES4 ? bpf_map_lookup_elem(&steer_prefix4, &key) : 0;
        return by_verdict(context, port, verdict, options, FORWARDS4);
    }
    if (ip->protocol != PROTOCOL_UDP || (ip->fragment & bpf_htons(0x3fff)) || !is_local4(ip->destination))
        return to_kernel();
    // RoCEv2 has no IP options (annex A17), and a pointer that moves by a value from the packet
    // would make CAP_PERFMON necessary to load this.
    at += sizeof *ip;
    if (ip->version_length != 0x45 || at + 4 > end || !is_hosts(port, ((__be16 *)at)[1]))
        return to_kernel();
    return to_socket(context, port);
}

static __always_inline int steer_ipv6(struct xdp_md *context, const struct port *port, void *at, void *end,
                                      __u32 reason) {
    struct ipv6 *ip = at;
    if (at + sizeof *ip > end)
        return port->role == ROLE_SWITCH ? to_socket(context, port) : to_kernel();
    __u8 *destination = ip->destination.bytes;
    if (port->role == ROLE_SWITCH) {
        if (destination[0] == 0xff || is_link_local(&ip->destination)) // multicast
            return to_kernel();
        if (is_local6(&ip->destination)) {
            int compute = reason != REASON_STATION && is_compute(port, ip->next, at + sizeof *ip, end);
            return compute ? to_socket(context, port) : to_kernel();
        }
        if (reason)
            return punt(reason);
        // Router and neighbour discovery, redirects (RFC 4861 §4) to an address that the kernel may
        // answer for, though it has it not (proxy). A hop limit below 255 says that a router sent
        // it on: no discovery.
        if (ip->next == PROTOCOL_ICMPV6 && ip->hops == 255 && at + sizeof *ip + 1 <= end) {
            __u8 type = *(__u8 *)(at + sizeof *ip);
            if (type >= 133 && type <= 137)
                return punt(REASON_DISCOVERY);
        }
        const __u8 *verdict = 0;
        if (port->flags & PREFIXES6) {
            struct prefix6 key = {128};
            __builtin_memcpy(&key.address, &ip->destination, sizeof key.address);
            verdict = bpf_map_lookup_elem(&steer_prefix6, &key);
        }
        // The kernel tells the sender that this goes beyond the scope of its source (RFC 4443 §3.1,
        // code 2), or sends it back to its link.
        if (is_link_local(&ip->source) && !(verdict && *verdict == VERDICT_LOCAL))
            return punt(REASON_LINK_LOCAL);
        return by_verdict(context, port, verdict, ip->next == PROTOCOL_HOP_BY_HOP, FORWARDS6);
    }
    at += sizeof *ip;
    if (ip->next != PROTOCOL_UDP || at + 4 > end || !is_hosts(port, ((__be16 *)at)[1])
        || !is_local6(&ip->destination))
        return to_kernel();
    return to_socket(context, port);
}

static __always_inline int is_tag(__be16 type) {
    return type == bpf_htons(ETHERTYPE_VLAN) || type == bpf_htons(ETHERTYPE_SERVICE_VLAN);
}

// Bytes of the tag for CSIG or INT that an EtherType announces, or 0.
static __always_inline __u32 signal_length(const struct port *port, __be16 type) {
    if (!type)
        return 0;
    if (type == port->csig_compact)
        return COMPACT_LEN;
    if (type == port->csig_expanded)
        return EXPANDED_LEN;
    return type == port->int_tag ? INT_LEN : 0;
}

// What follows a tag of this length. Each is added as a constant, by an instruction that the compiler
// does not merge with the other: without CAP_PERFMON nothing computed may be added to a pointer.
static __always_inline void *past_signal(void *at, __u32 length) {
    if (length == COMPACT_LEN) {
        asm volatile("%0 += %1" : "+r"(at) : "i"(COMPACT_LEN));
    } else if (length == EXPANDED_LEN) {
        asm volatile("%0 += %1" : "+r"(at) : "i"(EXPANDED_LEN));
    } else {
        asm volatile("%0 += %1" : "+r"(at) : "i"(INT_LEN));
    }
    return at;
}

static __always_inline struct station *station(const struct bridge_port *own, const __u8 *mac, __u32 vlan) {
    struct station_key key = {.vlan = vlan, .bridge = own->bridge};
    __builtin_memcpy(key.mac, mac, sizeof key.mac);
    return bpf_map_lookup_elem(&steer_stations, &key);
}

// Whether a frame to a group asks for the address of this machine (RFC 826, RFC 4861), or is of
// protocols between neighbours (224.0.0.0/24, ff02::/120): these must not wait behind a storm.
static __always_inline int is_control(const __u8 *group, __be16 type, void *at, void *end) {
    if (type == bpf_htons(ETHERTYPE_ARP)) {
        __be32 target;
        if (at + 28 > end)
            return 0;
        __builtin_memcpy(&target, at + 24, sizeof target);
        return is_local4(target);
    }
    if (type == bpf_htons(ETHERTYPE_IPV6)) {
        struct ipv6 *ip = at;
        if (group[0] == 0x33 && group[1] == 0x33 && !(group[2] | group[3] | group[4]))
            return 1;
        if (at + sizeof *ip + 24 > end)
            return 0;
        return ip->next == PROTOCOL_ICMPV6 && *(__u8 *)(at + sizeof *ip) == NEIGHBOUR_SOLICITATION
               && is_local6(at + sizeof *ip + 8);
    }
    return type == bpf_htons(ETHERTYPE_IPV4) && group[0] == 0x01 && group[1] == 0x00 && group[2] == 0x5e
           && !(group[3] | group[4]);
}

// A frame to several stations: the kernel floods it.
static __always_inline int flood(const __u8 *group, __be16 type, void *at, void *end) {
    int broadcast = (group[0] & group[1] & group[2] & group[3] & group[4] & group[5]) == 0xff;
    __u32 reason = broadcast ? REASON_BROADCAST : REASON_MULTICAST;
    if (is_control(group, type, at, end))
        return punt_within(BUCKET_CONTROL, reason);
    return punt_within(broadcast ? BUCKET_BROADCAST : BUCKET_MULTICAST, reason);
}

// A frame at a port of a bridge.
static __always_inline int steer_bridged(struct xdp_md *context, const struct port *port, struct ethernet *ethernet,
                                         void *end) {
    __u32 number = port->number;
    struct bridge_port *own = bpf_map_lookup_elem(&steer_bridge_ports, &number);
    void *at = ethernet + 1;
    __be16 type = ethernet->type;
    __u32 vlan = 0;
    if (!own)
        return to_kernel();
    __u8 *destination = ethernet->destination;
    // 802.1Q table 8-1: protocols between neighbours, the spanning tree among them.
    if (destination[0] == 0x01 && destination[1] == 0x80 && destination[2] == 0xc2
        && !(destination[3] | destination[4] | (destination[5] & 0xf0)))
        return to_kernel();
    if (is_tag(type)) {
        struct tag *tag = at;
        if (at + sizeof *tag > end)
            return to_kernel();
        if ((port->flags & VLANS) && is_kernels_vlan(type, tag->control))
            return same_station(destination, port->mac) ? punt(REASON_VLAN)
                   : is_upper(port, destination)        ? punt(REASON_STATION)
                                                        : to_kernel();
        if ((own->flags & BRIDGE_FILTERS) && type == own->tag) {
            vlan = bpf_ntohs(tag->control) & 0xfff;
            type = tag->type;
            at += sizeof *tag;
        }
    }
    __u32 signal = signal_length(port, type);
    if (signal) {
        // What the bridge floods is told apart by what it is.
        void *next = past_signal(at, signal);
        if (next <= end) {
            at = next;
            type = *(__be16 *)(at - sizeof type);
        }
    }
    if (own->flags & BRIDGE_FILTERS) {
        if (!vlan)
            vlan = own->pvid;
        __u32 word = vlan / 64;
        __u64 *bits = bpf_map_lookup_elem(&steer_members, &word);
        // What is of no VLAN of the port is dropped there.
        if (!vlan || !bits || !(*bits >> (vlan % 64) & 1))
            return punt(REASON_BRIDGE);
    }
    if (!(own->flags & BRIDGE_FORWARDS) || (ethernet->source[0] & 1))
        return punt(REASON_BRIDGE);
    if (destination[0] & 1)
        return flood(destination, type, at, end);
    // For an interface of the bridge. The kernel has it if the bridge has to learn.
    if (same_station(destination, own->mac) && !is_tag(type)) {
        __u32 word = 64 + vlan / 64;
        __u64 *bits = bpf_map_lookup_elem(&steer_members, &word);
        if (bits && (*bits >> (vlan % 64) & 1)) {
            struct station *known = station(own, ethernet->source, vlan);
            return known && known->port == number ? SERVED : ROUTED;
        }
    }
    struct station *to = station(own, destination, vlan);
    // The addresses of this machine are known without VLAN.
    if (!to && vlan) {
        struct station *local = station(own, destination, 0);
        if (local && (local->flags & STATION_LOCAL))
            return ROUTED;
    }
    if ((to && (to->flags & STATION_LOCAL)) || same_station(destination, own->mac)
        || same_station(destination, port->mac))
        return ROUTED;
    struct station *from = station(own, ethernet->source, vlan);
    if (!from || from->port != number)
        return punt_within(BUCKET_UNKNOWN, REASON_LEARNING);
    if (!to)
        return punt_within(BUCKET_UNKNOWN, REASON_UNKNOWN);
    __u32 place = to->port;
    struct bridge_port *out = bpf_map_lookup_elem(&steer_bridge_ports, &place);
    if (!out || out->bridge != own->bridge || !(out->flags & BRIDGE_FORWARDS))
        return punt(REASON_BRIDGE);
    return forward(context, port, FORWARDS_BRIDGED);
}

static __always_inline int steer(struct xdp_md *context) {
    void *at = (void *)(long)context->data, *end = (void *)(long)context->data_end;
    __u32 zero = 0;
    struct port *port = bpf_map_lookup_elem(&steer_port, &zero);
    struct ethernet *ethernet = at;
    if (!port || at + sizeof *ethernet > end)
        return to_kernel();
    __be16 type = ethernet->type;
    int served = 0;
    __u32 upper = 0;
    // Pause and priority pause are sent to a group address of their own (802.3 31B, 802.1Qbb).
    if (type == bpf_htons(ETHERTYPE_MAC_CONTROL))
        return to_socket(context, port);
    if (port->flags & BRIDGED) {
        int verdict = steer_bridged(context, port, ethernet, end);
        if (verdict != ROUTED && verdict != SERVED)
            return verdict;
        served = verdict == SERVED;
    } else if (!same_station(ethernet->destination, port->mac)) {
        // Group addresses, and stations that are not here.
        if (!is_upper(port, ethernet->destination))
            return to_kernel();
        upper = REASON_STATION;
    }
    at += sizeof *ethernet;
    __u32 vlan = 0, outermost = 1;
#pragma unroll
    for (int tags = 0; tags < TAGS_MAX; tags++) {
        if (!is_tag(type))
            break;
        struct tag *tag = at;
        if (at + sizeof *tag > end)
            return to_kernel();
        // The outer tag decides, but for one that is there for its priority only.
        if (outermost && (port->flags & VLANS) && is_kernels_vlan(type, tag->control)) {
            // The daemon looks at the first tag.
            served = !tags && !is_tag(tag->type) && is_in_vlans(type, tag->control, 128);
            vlan = REASON_VLAN;
        }
        if (tag->control & bpf_htons(0xfff))
            outermost = 0;
        type = tag->type;
        at += sizeof *tag;
    }
    __u32 signal = signal_length(port, type);
    if (signal) {
        at = past_signal(at, signal);
        // The daemon counts those that are no tags.
        if (at > end)
            return port->role == ROLE_SWITCH ? to_socket(context, port) : to_kernel();
        type = *(__be16 *)(at - sizeof type);
        if (signal_length(port, type) || is_tag(type))
            return port->role == ROLE_SWITCH ? to_socket(context, port) : to_kernel();
    }
    if (upper) {
        vlan = upper;
        served = 0;
    }
    if (type == bpf_htons(ETHERTYPE_IPV4))
        return steer_ipv4(context, port, at, end, served ? 0 : vlan ? vlan : port->punt4);
    if (type == bpf_htons(ETHERTYPE_IPV6))
        return steer_ipv6(context, port, at, end, served ? 0 : vlan ? vlan : port->punt6);
    return to_kernel();
}

// Takes the tag of CSIG or INT off a frame: the words in front of it move over it.
static __always_inline int strip_signal(struct xdp_md *context, const struct port *port) {
    void *data = (void *)(long)context->data, *end = (void *)(long)context->data_end;
    __u32 words[5];
    struct ethernet *ethernet = data;
    // The longest: addresses and two VLAN tags, and what follows.
    if (data + sizeof words + 2 > end)
        return XDP_PASS;
    __builtin_memcpy(words, data, sizeof words);
    __be16 type = ethernet->type;
    __u32 tags = 0;
#pragma unroll
    for (int number = 0; number < TAGS_MAX; number++) {
        if (tags != number || !is_tag(type))
            break;
        type = ((struct tag *)(ethernet + 1) + number)->type;
        tags++;
    }
    __u32 length = signal_length(port, type);
    if (!length)
        return XDP_PASS;
    // A frame that ends in it is as good as lost.
    if (bpf_xdp_adjust_head(context, length))
        return XDP_DROP;
    data = (void *)(long)context->data, end = (void *)(long)context->data_end;
    if (data + sizeof words > end)
        return XDP_PASS;
    __builtin_memcpy(data, words, 12);
    if (tags > 0)
        __builtin_memcpy(data + 12, words + 3, 4);
    if (tags > 1)
        __builtin_memcpy(data + 16, words + 4, 4);
    return XDP_PASS;
}

SEC("xdp")
int fabric_steer(struct xdp_md *context) {
    int verdict = steer(context);
    __u32 zero = 0;
    if (verdict != XDP_PASS)
        return verdict;
    struct port *port = bpf_map_lookup_elem(&steer_port, &zero);
    return port && (port->csig_compact || port->int_tag) ? strip_signal(context, port) : XDP_PASS;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
