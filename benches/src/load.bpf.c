// Offers frames on one device as fast as a core can, and counts what comes out at another.
//
// `offer` runs on live frames (BPF_F_TEST_XDP_LIVE_FRAMES): the kernel keeps a pool of them and hands each to the
// program, which makes it one of the wanted flows and sends it to the one device of the map. `count` drops
// everything that reaches its device.
//
// Live frames are no longer than a page, so jumbo frames are offered by a packet socket.

#include <linux/bpf.h>
#include <bpf/bpf_endian.h>
#include <bpf/bpf_helpers.h>

#define COUNT_EXPECTED 0
#define COUNT_OTHER 1

struct offer {
    __u32 flows; // a power of two
    __u8 expected[6];
    __u8 unused[2];
    __u64 next;
};

struct headers {
    __u8 destination[6], source[6];
    __be16 type;
    __u8 ip[20];
    __be16 source_port, destination_port;
} __attribute__((packed));

struct {
    __uint(type, BPF_MAP_TYPE_DEVMAP);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, __u32);
} load_device SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_ARRAY);
    __uint(max_entries, 1);
    __type(key, __u32);
    __type(value, struct offer);
} load_offer SEC(".maps");

struct {
    __uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
    __uint(max_entries, 2);
    __type(key, __u32);
    __type(value, __u64);
} load_counts SEC(".maps");

SEC("xdp")
int offer(struct xdp_md *context) {
    struct headers *headers = (void *)(long)context->data;
    __u32 zero = 0;
    struct offer *offer = bpf_map_lookup_elem(&load_offer, &zero);
    if (!offer || (void *)(headers + 1) > (void *)(long)context->data_end)
        return XDP_ABORTED;
    // One thread offers, so nobody else counts here. The UDP checksum is zero: none (RFC 768).
    headers->source_port = bpf_htons(0xc000 | (offer->next++ & (offer->flows - 1)));
    return bpf_redirect_map(&load_device, 0, XDP_DROP);
}

// Also of frames in pieces, of which it reads the first.
SEC("xdp.frags")
int count(struct xdp_md *context) {
    struct headers *headers = (void *)(long)context->data;
    __u32 zero = 0, what = COUNT_OTHER;
    struct offer *offer = bpf_map_lookup_elem(&load_offer, &zero);
    if (offer && (void *)(headers + 1) <= (void *)(long)context->data_end) {
        const __u16 *a = (void *)headers->destination, *b = (void *)offer->expected;
        if (!((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2])))
            what = COUNT_EXPECTED;
    }
    __u64 *counter = bpf_map_lookup_elem(&load_counts, &what);
    if (counter)
        *counter += 1;
    return XDP_DROP;
}

char LICENSE[] SEC("license") = "Dual MIT/GPL";
