//! Which way flows go while the hops of their route change, as seen on the wire.

use super::{output, python};
use crate::support::{Rig, eventually, privileged};
use std::collections::BTreeMap;

/// Flows that are looked at; they differ by source port only.
const FLOWS: usize = 742;

/// The links to `b`, and so the hops.
const LINKS: [u8; 4] = [2, 3, 4, 5];

/// Of each flow, by its source port, the interface of `b` that its packets arrive at.
type Ways = BTreeMap<String, String>;

/// One of both families, with what is called after it.
struct Family {
    /// Option of `ip`.
    option: &'static str,
    prefix: &'static str,
    destination: &'static str,
    socket: &'static str,
    ethertype: u16,
    /// Offset of the UDP header in a frame, which is followed by the source port.
    udp: usize,
}

const FAMILIES: [Family; 2] = [
    Family {
        option: "-4",
        prefix: "10.9.0.0/16",
        destination: "10.9.0.1",
        socket: "AF_INET",
        ethertype: 0x0800,
        udp: 34,
    },
    Family {
        option: "-6",
        prefix: "2001:db8:9::/48",
        destination: "2001:db8:9::1",
        socket: "AF_INET6",
        ethertype: 0x86dd,
        udp: 54,
    },
];

impl Family {
    fn gateway(&self, link: u8) -> String {
        match self.option {
            "-4" => format!("10.{link}.0.2"),
            _ => format!("2001:db8:{link}::2"),
        }
    }

    /// Replaces the route, by a list of hops.
    fn replace(&self, rig: &Rig, links: &[u8]) {
        self.route(rig, self.prefix, links);
    }

    /// Sets a route, by a list of hops.
    fn route(&self, rig: &Rig, prefix: &str, links: &[u8]) {
        let hops = links.iter().map(|link| self.gateway(*link));
        let hops: String = hops.map(|hop| format!(" nexthop via {hop}")).collect();
        let option = self.option;
        rig.ip("sw", &format!("{option} route replace {prefix}{hops}"));
    }

    /// Replaces the route, by a group.
    fn replace_by(&self, rig: &Rig, group: u8) {
        self.route_by(rig, self.prefix, group);
    }

    /// Sets a route, by a group.
    fn route_by(&self, rig: &Rig, prefix: &str, group: u8) {
        let option = self.option;
        rig.ip(
            "sw",
            &format!("{option} route replace {prefix} nhid {group}"),
        );
    }

    /// Makes the hops next hop objects, of the numbers of their links.
    fn add_objects(&self, rig: &Rig) {
        for link in LINKS {
            let (option, gateway) = (self.option, self.gateway(link));
            rig.ip(
                "sw",
                &format!("{option} nexthop add id {link} via {gateway} dev p{link}"),
            );
        }
    }

    /// Sends packets of each flow from `a` and looks where `b` gets them. Each flow has one way.
    fn ways(&self, rig: &Rig, hops: usize) -> Ways {
        let members = || {
            let rows = rig.ctl(&["routes", self.prefix]);
            let all = rows.as_array().into_iter().flatten();
            let mut own = all.filter(|row| row["prefix"] == self.prefix);
            let hops = own.next().and_then(|row| row["next_hops"].as_array());
            hops.map_or(0, Vec::len)
        };
        eventually(&format!("group of {hops}"), || members() == hops);
        let Self {
            ethertype,
            udp,
            socket,
            destination,
            ..
        } = self;
        let script = format!(
            "import json,select,socket,time\nends={{}}\n\
             for link in {LINKS:?}:\n \
              end=socket.socket(socket.AF_PACKET,socket.SOCK_RAW,socket.htons({ethertype}))\n \
              end.setsockopt(socket.SOL_SOCKET,33,1<<23)\n end.bind((f'e{{link}}',0))\n ends[end]=f'e{{link}}'\n\
             print('ready',flush=True)\nseen={{}}\nuntil=time.time()+60\n\
             while len(seen)<{FLOWS} and time.time()<until:\n \
              for end in select.select(list(ends),[],[],0.2)[0]:\n  \
               frame,address=end.recvfrom(2000)\n  \
               if address[2]==4 or frame[{udp}+2:{udp}+4]!=(9).to_bytes(2,'big'): continue\n  \
               seen.setdefault(int.from_bytes(frame[{udp}:{udp}+2],'big'),set()).add(ends[end])\n\
             print(json.dumps({{flow:'+'.join(ways) for flow,ways in seen.items()}}))\n"
        );
        let receiver = python(rig, "b", &script);
        let script = format!(
            "import socket,time\nfor n in range({FLOWS}):\n \
             s=socket.socket(socket.{socket},socket.SOCK_DGRAM)\n s.bind(('',20000+n))\n \
             for _ in range(2): s.sendto(b'flow',('{destination}',9))\n \
             s.close()\n time.sleep(0.0002)\n"
        );
        rig.on("a", "python3", &["-c", &script]);
        let ways: Ways = serde_json::from_str(&output(receiver)).expect("a map");
        assert_eq!(ways.len(), FLOWS, "every flow arrives");
        ways
    }
}

/// How many flows go by each way.
fn shares(ways: &Ways) -> BTreeMap<&str, usize> {
    let mut shares = BTreeMap::new();
    for way in ways.values() {
        *shares.entry(way.as_str()).or_default() += 1;
    }
    shares
}

/// Of flows that went by all four ways, those by the last one have moved, and no others.
fn assert_only_the_last_moved(before: &Ways, after: &Ways, what: &str) {
    let lost = format!("e{}", LINKS[3]);
    let moved = before.iter().filter(|(flow, way)| after[*flow] != **way);
    let innocent = moved.clone().filter(|(_, way)| **way != lost).count();
    let (moved, had) = (moved.count(), shares(before)[lost.as_str()]);
    println!("{what}: {moved} of {FLOWS} flows moved, {had} had to");
    assert_eq!((innocent, moved), (0, had), "{what}: {:?}", shares(after));
    assert!(!shares(after).contains_key(lost.as_str()), "{what}");
}

/// SW-3: on the wire, a route that is replaced without one of its four hops, by a list of hops, by
/// a next hop group, or by a resilient group that loses a member, moves the flows of that hop and
/// no others; they go their old ways when it is back.
#[test]
fn only_the_flows_of_a_hop_that_leaves_move() {
    if !privileged() {
        return;
    }
    for family in FAMILIES {
        let mut rig = Rig::new("rs");
        rig.link(4, "b");
        rig.link(5, "b");
        rig.start(&[]);
        let (all, rest) = (&LINKS[..], &LINKS[..3]);
        family.replace(&rig, all);
        let before = family.ways(&rig, 4);
        assert!(
            shares(&before).values().all(|flows| *flows > 100),
            "{:?}",
            shares(&before)
        );
        assert_eq!(shares(&before).len(), 4, "{:?}", shares(&before));

        family.replace(&rig, rest);
        assert_only_the_last_moved(&before, &family.ways(&rig, 3), "list of hops");
        family.replace(&rig, all);
        assert_eq!(family.ways(&rig, 4), before, "the hop is back");

        family.add_objects(&rig);
        rig.ip("sw", "nexthop add id 20 group 2/3/4");
        family.replace_by(&rig, 20);
        assert_only_the_last_moved(&before, &family.ways(&rig, 3), "next hop group");
        rig.ip("sw", "nexthop add id 21 group 2/3/4/5");
        family.replace_by(&rig, 21);
        assert_eq!(family.ways(&rig, 4), before, "a group with the hop");
        rig.ip("sw", "nexthop replace id 21 group 2/3/4");
        assert_only_the_last_moved(&before, &family.ways(&rig, 3), "group that is replaced");

        let resilient = "type resilient buckets 128 idle_timer 0";
        rig.ip(
            "sw",
            &format!("nexthop add id 22 group 2/3/4/5 {resilient}"),
        );
        family.replace_by(&rig, 22);
        // Its buckets are laid out as the kernel lays them out, which is another order.
        let before = family.ways(&rig, 4);
        rig.ip(
            "sw",
            &format!("nexthop replace id 22 group 2/3/4 {resilient}"),
        );
        let without = family.ways(&rig, 3);
        assert_only_the_last_moved(&before, &without, "resilient group");
        rig.ip(
            "sw",
            &format!("nexthop replace id 22 group 2/3/4/5 {resilient}"),
        );
        // It gets its share of buckets, not the same: first those that no packet has come to.
        let before = family.ways(&rig, 4);
        let last = format!("e{}", LINKS[3]);
        let mut moved = before.iter().filter(|(flow, way)| without[*flow] != **way);
        assert!(moved.all(|(_, way)| *way == last), "a member that is back");
        assert!(
            shares(&before)[last.as_str()] > 100,
            "{:?}",
            shares(&before)
        );
        rig.ip("sw", "nexthop del id 5");
        assert_only_the_last_moved(&before, &family.ways(&rig, 3), "member that is deleted");
    }
}

/// SW-3: the same where other routes had the hops that are left, or their next hop group, before:
/// as routing daemons share their groups.
#[test]
fn other_routes_by_the_same_hops_move_no_flow() {
    if !privileged() {
        return;
    }
    let [family, _] = FAMILIES;
    let mut rig = Rig::new("ro");
    rig.link(4, "b");
    rig.link(5, "b");
    rig.start(&[]);
    let (all, rest) = (&LINKS[..], &LINKS[..3]);
    family.add_objects(&rig);
    rig.ip("sw", "nexthop add id 20 group 2/3/4");
    rig.ip("sw", "nexthop add id 21 group 2/3/4/5");
    family.route(&rig, "10.8.0.0/16", rest);
    family.route_by(&rig, "10.7.0.0/16", 20);
    family.replace(&rig, all);
    let before = family.ways(&rig, 4);
    family.replace(&rig, rest);
    assert_only_the_last_moved(&before, &family.ways(&rig, 3), "list of hops");
    family.replace(&rig, all);
    assert_eq!(family.ways(&rig, 4), before, "the hop is back");
    family.replace_by(&rig, 20);
    assert_only_the_last_moved(&before, &family.ways(&rig, 3), "next hop group");
    family.replace_by(&rig, 21);
    assert_eq!(family.ways(&rig, 4), before, "a group with the hop");
}
