//! What is punted: left to the kernel although it is for other machines.

use crate::bridging;
use crate::namespace::Namespace;
use crate::steering::{PORT, discovery, ethernet, ipv6, tagged, udp4};
use crate::{open, send, umem};
use common::sys::monotonic;
use common::time::{Span, Time};
use common::xdp::frame::FramePool;
use common::xdp::queue::QueueIo;
use common::xdp::{
    BridgeMaps, Port, PortOptions, Prefixes, PuntLimit, PuntReason, Role, STORM_DROPS, SteerCounts,
    SteerSettings, StormLimits, UPPER_MAX, Verdict, VlanTag, open_port,
};
use netns::privileged;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Two ends of a link: one sends, the other is the port that is looked at.
pub(crate) struct Rig {
    pub(crate) namespace: Namespace,
    pool: FramePool,
    source: Port,
    pub(crate) port: Port,
    prefixes: Arc<Prefixes>,
    pub(crate) bridges: Arc<BridgeMaps>,
}

impl Rig {
    pub(crate) fn new(punt_limit: Option<PuntLimit>) -> Self {
        Self::with_storms(punt_limit, None)
    }

    pub(crate) fn with_storms(
        punt_limit: Option<PuntLimit>,
        storm_limits: Option<StormLimits>,
    ) -> Self {
        Self::with_options(|options| {
            (options.punt_limit, options.storm_limits) = (punt_limit, storm_limits);
        })
    }

    fn with_options(change: impl FnOnce(&mut PortOptions)) -> Self {
        let namespace = Namespace::new();
        namespace.veth("va", "vb", "");
        namespace.run("ip link set vb address 02:00:00:00:00:01");
        namespace.enter();
        let umem = umem(2);
        let pool = FramePool::new(umem.region().clone());
        let source = open(&umem, "va");
        let prefixes = Arc::new(Prefixes::new().unwrap());
        let bridges = Arc::new(BridgeMaps::new().unwrap());
        let mut options = PortOptions {
            prefixes: Some(prefixes.clone()),
            bridges: Some(bridges.clone()),
            local: vec!["10.0.0.1".parse().unwrap()],
            ..PortOptions::new(Role::Switch)
        };
        change(&mut options);
        let port = open_port(&umem, "vb", &options).unwrap();
        Self {
            namespace,
            pool,
            source,
            port,
            prefixes,
            bridges,
        }
    }

    pub(crate) fn configure(&self, change: impl FnOnce(&mut SteerSettings)) {
        let mut settings = SteerSettings {
            mac: PORT,
            ..SteerSettings::default()
        };
        change(&mut settings);
        self.port.steering.configure(settings).unwrap();
    }

    fn set(&self, prefix: &str, verdict: Verdict) {
        self.prefixes.set(prefix.parse().unwrap(), verdict).unwrap();
    }

    /// What the program did with one packet.
    pub(crate) fn fate(&mut self, packet: Vec<u8>) -> Fate {
        let before = self.port.steering.counts().unwrap();
        send(&mut self.source.queues[0], &mut self.pool, &[packet]);
        let end = Instant::now() + Duration::from_secs(30);
        loop {
            let now = self.port.steering.counts().unwrap();
            if now != before {
                return Fate::between(&before, &now);
            }
            assert!(Instant::now() < end, "the packet was not counted");
            std::thread::yield_now();
        }
    }

    fn to4(&mut self, last: [u8; 4]) -> Fate {
        self.fate(ethernet(PORT, 0x0800, &udp4(last, 80, 0)))
    }

    fn to6(&mut self, destination: &str) -> Fate {
        self.fate(ethernet(PORT, 0x86dd, &ipv6(destination, 17, &[0; 4])))
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fate {
    Socket,
    Kernel,
    Punted(PuntReason),
    Limited,
    /// Above one of the limits of storms, by its name.
    Storm(&'static str),
}

impl Fate {
    fn between(before: &SteerCounts, after: &SteerCounts) -> Self {
        if after.redirected > before.redirected {
            return Self::Socket;
        }
        if after.punt_limited > before.punt_limited {
            return Self::Limited;
        }
        let storms = before.storm_limited.iter().zip(&after.storm_limited);
        if let Some((_, (name, _))) = storms.zip(STORM_DROPS).find(|((a, b), _)| a != b) {
            return Self::Storm(name);
        }
        assert_eq!(after.passed, before.passed + 1);
        let pairs = before.punted.iter().zip(&after.punted);
        let reason = pairs.zip(PuntReason::ALL).find(|((a, b), _)| a != b);
        reason.map_or(Self::Kernel, |(_, reason)| Self::Punted(reason))
    }
}

/// SW-1: the longest prefix says who forwards, whichever way prefixes are nested.
#[test]
fn the_longest_prefix_says_who_forwards() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(None);
    rig.set("0.0.0.0/0", Verdict::Punt(PuntReason::NotAPort));
    rig.set("10.1.0.0/16", Verdict::Forward);
    rig.set("10.1.2.0/24", Verdict::Punt(PuntReason::Encapsulated));
    rig.set("10.1.2.3/32", Verdict::Forward);
    rig.set("77.7.0.0/16", Verdict::Local);
    rig.set("2001:db8:1::/48", Verdict::Punt(PuntReason::Mixed));
    rig.set("2001:db8:1:2::/64", Verdict::Forward);
    // Nothing is looked at before the program is told that there is something.
    assert_eq!(rig.to4([9, 9, 9, 9]), Fate::Socket);
    rig.configure(|settings| settings.prefixes_v4 = true);
    assert_eq!(rig.to4([9, 9, 9, 9]), Fate::Punted(PuntReason::NotAPort));
    assert_eq!(rig.to4([10, 1, 9, 9]), Fate::Socket);
    assert_eq!(
        rig.to4([10, 1, 2, 9]),
        Fate::Punted(PuntReason::Encapsulated)
    );
    assert_eq!(rig.to4([10, 1, 2, 3]), Fate::Socket);
    assert_eq!(rig.to4([77, 7, 1, 1]), Fate::Kernel);
    assert_eq!(rig.to4([10, 0, 0, 1]), Fate::Kernel, "an own address");
    assert_eq!(rig.to6("2001:db8:1::1"), Fate::Socket, "not told of");
    rig.configure(|settings| settings.prefixes_v6 = true);
    assert_eq!(rig.to4([9, 9, 9, 9]), Fate::Socket, "not told of any more");
    assert_eq!(rig.to6("2001:db8:1::1"), Fate::Punted(PuntReason::Mixed));
    assert_eq!(rig.to6("2001:db8:1:2::1"), Fate::Socket);
    assert_eq!(rig.to6("2001:db8:2::1"), Fate::Socket);
    rig.prefixes
        .remove("2001:db8:1::/48".parse().unwrap())
        .unwrap();
    rig.prefixes
        .remove("2001:db8:1::/48".parse().unwrap())
        .unwrap();
    assert_eq!(rig.to6("2001:db8:1::1"), Fate::Socket);
}

/// SW-1: a port whose packets belong to another interface, discovery for other machines, sources
/// of this link alone.
#[test]
fn whole_ports_and_discovery_are_punted() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(None);
    rig.configure(|settings| settings.punt_v4 = Some(PuntReason::Master));
    assert_eq!(rig.to4([9, 9, 9, 9]), Fate::Punted(PuntReason::Master));
    assert_eq!(rig.to4([10, 0, 0, 1]), Fate::Kernel, "an own address");
    assert_eq!(rig.to6("2001:db8::2"), Fate::Socket);
    rig.configure(|settings| settings.punt_v6 = Some(PuntReason::Rule));
    assert_eq!(rig.to6("2001:db8::2"), Fate::Punted(PuntReason::Rule));
    assert_eq!(rig.to4([9, 9, 9, 9]), Fate::Socket);

    rig.configure(|_| {});
    for (kind, hops, is_discovery) in [
        (132, 255, false),
        (133, 255, true),
        (137, 255, true),
        (138, 255, false),
        (135, 254, false),
    ] {
        let mut packet = discovery("2001:db8::2", kind);
        packet[7] = hops;
        let expected = match is_discovery {
            true => Fate::Punted(PuntReason::Discovery),
            false => Fate::Socket,
        };
        let fate = rig.fate(ethernet(PORT, 0x86dd, &packet));
        assert_eq!(fate, expected, "type {kind}, hop limit {hops}");
    }

    // The last of fe80::/10 is febf, and what follows is not of one link.
    let from = |first: [u8; 2], destination| {
        let mut packet = ipv6(destination, 17, &[0; 4]);
        packet[8..12].copy_from_slice(&[first[0], first[1], 0, 0]);
        ethernet(PORT, 0x86dd, &packet)
    };
    rig.set("2001:db8:7::/48", Verdict::Local);
    rig.set("2001:db8:8::/48", Verdict::Forward);
    rig.configure(|settings| settings.prefixes_v6 = true);
    for destination in ["2001:db8::2", "2001:db8:8::2"] {
        for first in [[0xfe, 0x80], [0xfe, 0xbf]] {
            let fate = rig.fate(from(first, destination));
            assert_eq!(fate, Fate::Punted(PuntReason::LinkLocal), "{destination}");
        }
        assert_eq!(rig.fate(from([0xfe, 0xc0], destination)), Fate::Socket);
    }
    let fate = rig.fate(from([0xfe, 0x80], "2001:db8:7::2"));
    assert_eq!(fate, Fate::Kernel, "this machine's own");
    assert_eq!(rig.to6("febf::1"), Fate::Kernel);
    assert_eq!(rig.to6("fec0::1"), Fate::Socket);
}

/// SW-1: tags of the kernel's VLANs are punted, but for those of interfaces that the daemon serves.
#[test]
fn vlans_of_the_kernel_are_punted() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(None);
    rig.configure(|_| {});
    // The tags of `tagged` are of VLAN 5.
    let packet = udp4([9, 9, 9, 9], 80, 0);
    let customer = ethernet(PORT, 0x8100, &tagged(0x0800, &packet));
    let service = ethernet(PORT, 0x88a8, &tagged(0x8100, &tagged(0x0800, &packet)));
    let mut priority_first = ethernet(PORT, 0x8100, &tagged(0x8100, &tagged(0x0800, &packet)));
    priority_first[15] = 0;
    let tag = |is_service, id| VlanTag { is_service, id };
    for (tags, of_customer, of_service) in [
        (vec![], false, false),
        (vec![tag(false, 5)], true, false),
        (vec![tag(true, 5), tag(false, 4095)], false, true),
        (vec![tag(false, 69), tag(true, 4)], false, false),
    ] {
        rig.port.steering.set_vlans(&tags, &[]).unwrap();
        let fate = |punted| match punted {
            true => Fate::Punted(PuntReason::Vlan),
            false => Fate::Socket,
        };
        assert_eq!(rig.fate(customer.clone()), fate(of_customer), "{tags:?}");
        assert_eq!(rig.fate(service.clone()), fate(of_service), "{tags:?}");
        assert_eq!(
            rig.fate(priority_first.clone()),
            fate(of_customer),
            "{tags:?}"
        );
    }
    // The daemon serves the interface of one, whose frames have no other tag.
    let (five, six) = (tag(false, 5), tag(true, 5));
    let v6 = tagged(0x86dd, &ipv6("2001:db8::2", 17, &[0; 4]));
    let v6 = ethernet(PORT, 0x8100, &v6);
    let twice = ethernet(PORT, 0x8100, &tagged(0x8100, &tagged(0x0800, &packet)));
    rig.configure(|settings| {
        (settings.punt_v4, settings.punt_v6) = (Some(PuntReason::Master), Some(PuntReason::Rule));
    });
    assert_eq!(rig.fate(v6.clone()), Fate::Punted(PuntReason::Rule));
    rig.port.steering.set_vlans(&[five, six], &[five]).unwrap();
    for of_five in [&customer, &v6] {
        assert_eq!(rig.fate(of_five.clone()), Fate::Socket);
    }
    for other in [service, priority_first, twice] {
        assert_eq!(rig.fate(other), Fate::Punted(PuntReason::Vlan));
    }
    rig.port.steering.set_vlans(&[five], &[]).unwrap();
    for of_five in [customer, v6] {
        assert_eq!(rig.fate(of_five), Fate::Punted(PuntReason::Vlan));
    }
}

/// SW-1: what is for stations of interfaces on the port is punted for a reason of its own, tagged
/// or not. It stays the kernel's in full where it is for this machine, and other stations are no
/// business of the daemon's.
#[test]
fn other_stations_on_the_port_are_punted() {
    if !privileged() {
        return;
    }
    const VRRP: [u8; 6] = [0, 0, 0x5e, 0, 1, 7];
    const STRANGER: [u8; 6] = [0, 0, 0x5e, 0, 1, 8];
    let mut rig = Rig::new(None);
    rig.configure(|settings| settings.compute = Some(4_795));
    let away = udp4([9, 9, 9, 9], 80, 0);
    let to4 = |mac| ethernet(mac, 0x0800, &udp4([9, 9, 9, 9], 80, 0));
    let to6 = |mac| ethernet(mac, 0x86dd, &ipv6("2001:db8::2", 17, &[0; 4]));
    let station = Fate::Punted(PuntReason::Station);
    let tell = |rig: &Rig, stations: &[[u8; 6]], all| {
        let stations = stations.iter().copied().collect();
        rig.port.steering.set_upper(&stations, all).unwrap();
    };
    for (listed, all, of_vrrp, of_stranger) in [
        (vec![], false, Fate::Kernel, Fate::Kernel),
        (vec![VRRP, [2; 6]], false, station, Fate::Kernel),
        (vec![VRRP], true, station, station),
        (vec![STRANGER], false, Fate::Kernel, station),
        (vec![], true, station, station),
        (vec![], false, Fate::Kernel, Fate::Kernel),
        (vec![VRRP], false, station, Fate::Kernel),
    ] {
        tell(&rig, &listed, all);
        for (mac, expected) in [
            (VRRP, of_vrrp),
            (STRANGER, of_stranger),
            (PORT, Fate::Socket),
        ] {
            assert_eq!(rig.fate(to4(mac)), expected, "{listed:?} {all} {mac:?}");
            assert_eq!(rig.fate(to6(mac)), expected, "{listed:?} {all} {mac:?}");
        }
        let group = ethernet([0xff; 6], 0x0800, &away);
        assert_eq!(rig.fate(group), Fate::Kernel, "{listed:?} {all}");
    }
    // This machine's own, in-network compute among it: the daemon answers as the port only.
    for port in [80, 4_795] {
        let packet = udp4([10, 0, 0, 1], port, 0);
        assert_eq!(rig.fate(ethernet(VRRP, 0x0800, &packet)), Fate::Kernel);
    }
    assert_eq!(rig.fate(ethernet(VRRP, 0x0806, &[0; 28])), Fate::Kernel);
    // On a VLAN too, served or not.
    let tag = VlanTag {
        is_service: false,
        id: 5,
    };
    let frame = |mac| ethernet(mac, 0x8100, &tagged(0x0800, &away));
    for (tags, served) in [
        (vec![], vec![]),
        (vec![tag], vec![]),
        (vec![tag], vec![tag]),
    ] {
        rig.port.steering.set_vlans(&tags, &served).unwrap();
        assert_eq!(rig.fate(frame(VRRP)), station, "{tags:?} {served:?}");
        assert_eq!(rig.fate(frame(STRANGER)), Fate::Kernel);
    }
    // At a port of a bridge, on a VLAN of the port.
    bridging::bridged(&rig, &[0], |_| {});
    assert_eq!(rig.fate(frame(VRRP)), station);
    assert_eq!(rig.fate(frame(STRANGER)), Fate::Kernel);
    assert_eq!(rig.fate(frame(PORT)), Fate::Punted(PuntReason::Vlan));
}

/// SW-1: stations that find no room are an error; those that are known are punted all the same.
#[test]
fn more_stations_than_there_is_room_for_are_an_error() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(None);
    rig.configure(|_| {});
    let station = |number: usize| {
        let [.., high, low] = number.to_be_bytes();
        [2, 9, 0, 0, high, low]
    };
    let stations = (0..=UPPER_MAX).map(station).collect();
    rig.port.steering.set_upper(&stations, false).unwrap_err();
    let frame = ethernet(station(0), 0x0800, &udp4([9, 9, 9, 9], 80, 0));
    let punted = Fate::Punted(PuntReason::Station);
    assert_eq!(rig.fate(frame.clone()), punted);
    let stations = (1..=UPPER_MAX).map(station).collect();
    rig.port.steering.set_upper(&stations, false).unwrap();
    assert_eq!(rig.fate(frame.clone()), Fate::Kernel);
    let last = ethernet(station(UPPER_MAX), 0x0800, &udp4([9, 9, 9, 9], 80, 0));
    assert_eq!(rig.fate(last), punted);
}

/// SW-1: a destination of this link alone is the daemon's to drop and count, also where a prefix
/// says otherwise; what is cut is the daemon's to count.
#[test]
fn what_stays_on_its_link_and_what_is_cut_is_counted_by_the_daemon() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(None);
    rig.set("0.0.0.0/0", Verdict::Punt(PuntReason::NotAPort));
    rig.set("::/0", Verdict::Punt(PuntReason::NotAPort));
    rig.configure(|settings| (settings.prefixes_v4, settings.prefixes_v6) = (true, true));
    let punted = Fate::Punted(PuntReason::NotAPort);
    for (second, expected) in [(253, punted), (254, Fate::Socket), (255, punted)] {
        assert_eq!(rig.to4([169, second, 1, 1]), expected, "169.{second}");
    }
    let v6 = ipv6("2001:db8::2", 17, &[]);
    for (kind, header) in [(0x0800, &udp4([9, 9, 9, 9], 80, 0)[..20]), (0x86dd, &v6)] {
        let mut frame = ethernet(PORT, kind, &[]);
        frame.truncate(14);
        frame.extend(header);
        assert_eq!(rig.fate(frame.clone()), punted, "{kind:#x}");
        frame.pop();
        assert_eq!(rig.fate(frame), Fate::Socket, "{kind:#x}");
    }
}

/// SW-1: where a worker has taken nothing for as long as its port bears, the kernel gets what it
/// forwards itself. A worker that sleeps has as long from the packet on that wakes it.
#[test]
fn the_kernel_forwards_for_a_worker_that_is_absent() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::with_options(|options| options.patience = Span::from_millis(300));
    let absent = Fate::Punted(PuntReason::Absent);
    let far = Span::from_secs(3600);
    let forwards = |rig: &Rig| rig.configure(|settings| settings.forwards_v4 = true);
    forwards(&rig);
    rig.port.queues[0].doze();
    assert_eq!(rig.to4([9, 9, 9, 9]), Fate::Socket, "this wakes it");
    std::thread::sleep(Duration::from_millis(500));
    assert_eq!(rig.to4([9, 9, 9, 9]), absent);
    // The kernel forwards no IPv6.
    assert_eq!(rig.to6("2001:db8::2"), Fate::Socket);
    rig.port.queues[0].flush(&mut rig.pool, monotonic() + far);
    assert_eq!(rig.to4([9, 9, 9, 9]), Fate::Socket, "it is back");
    let long_ago = Time::from_nanos(1);
    rig.port.queues[0].doze();
    rig.port.queues[0].flush(&mut rig.pool, long_ago);
    assert_eq!(rig.to4([9, 9, 9, 9]), absent);
    assert_eq!(rig.to4([10, 0, 0, 1]), Fate::Kernel, "its own anyway");
    rig.configure(|_| {});
    assert_eq!(rig.to4([9, 9, 9, 9]), Fate::Socket, "nobody else forwards");
    // What is bridged needs no forwarding of IP.
    bridging::bridged(&rig, &[0], |_| {});
    let between = || bridging::packet(bridging::THERE, bridging::HERE);
    assert_eq!(rig.fate(between()), absent);
    rig.port.queues[0].doze();
    rig.port.queues[0].flush(&mut rig.pool, monotonic() + far);
    assert_eq!(rig.fate(between()), Fate::Socket);
}

/// SW-1: options are the kernel's where it forwards, and else the daemon's, which counts what it
/// drops. No-operations are no options. What says where the packet goes comes first.
#[test]
fn options_are_the_kernels_where_it_forwards() {
    if !privileged() {
        return;
    }
    let mut rig = Rig::new(None);
    let options = |to: [u8; 4], options: &[u8]| {
        let mut packet = udp4(to, 80, 0);
        packet[0] = 0x45 + u8::try_from(options.len() / 4).unwrap();
        packet.splice(20..20, options.iter().copied());
        ethernet(PORT, 0x0800, &packet)
    };
    let away = [9, 9, 9, 9];
    let forty = |last: u8| [&[1; 39][..], &[last]].concat();
    let said: [(&[u8], bool); 12] = [
        (&[1, 1, 1, 1], false),
        (&[0, 0, 0, 0], false),
        // What ends before the last word is left to the kernel too, which does the same.
        (&[1, 0, 0, 0, 0, 0, 0, 0], true),
        (&[1, 1, 1, 0], false),
        (&forty(0), false),
        (&forty(7), true),
        (&[1, 0, 1, 0], true),
        (&[1, 1, 1, 0, 1, 0, 0, 0], true),
        (&[0, 0, 0, 0, 1, 1, 1, 1], true),
        (&[7, 7, 4, 0, 0, 0, 0, 0], true),
        (&[1, 1, 1, 1, 148, 4, 0, 0], true),
        (&[148, 4, 0, 0], true),
    ];
    let hop_by_hop = ethernet(
        PORT,
        0x86dd,
        &ipv6("2001:db8::2", 0, &[17, 0, 5, 2, 0, 0, 1, 0]),
    );
    let punted = Fate::Punted(PuntReason::Options);
    for (v4, v6) in [(false, false), (true, false), (false, true)] {
        rig.configure(|settings| (settings.forwards_v4, settings.forwards_v6) = (v4, v6));
        for (words, counts) in said {
            let expected = if counts && v4 { punted } else { Fate::Socket };
            assert_eq!(rig.fate(options(away, words)), expected, "{words:?}");
        }
        let expected = if v6 { punted } else { Fate::Socket };
        assert_eq!(rig.fate(hop_by_hop.clone()), expected);
    }
    // The kernel would not look at their sources as the daemon does.
    rig.configure(|settings| {
        (
            settings.forwards_v4,
            settings.forwards_v6,
            settings.validates,
        ) = (true, true, true);
    });
    assert_eq!(rig.fate(hop_by_hop), Fate::Socket);
    for (words, _) in said {
        assert_eq!(rig.fate(options(away, words)), Fate::Socket, "{words:?}");
    }
    let record: &[u8] = &[7, 7, 4, 0, 0, 0, 0, 0];
    // A header that is cut is the daemon's to count.
    let mut cut = options(away, record);
    cut.truncate(14 + 22);
    rig.set("9.9.9.0/24", Verdict::Punt(PuntReason::NotAPort));
    rig.set("77.7.0.0/16", Verdict::Local);
    rig.configure(|settings| {
        (settings.forwards_v4, settings.prefixes_v4) = (true, true);
    });
    let not_a_port = Fate::Punted(PuntReason::NotAPort);
    assert_eq!(rig.fate(options(away, record)), not_a_port);
    assert_eq!(rig.fate(options([77, 7, 1, 1], record)), Fate::Kernel);
    assert_eq!(rig.fate(options([10, 0, 0, 1], record)), Fate::Kernel);
    assert_eq!(rig.fate(options([8, 8, 8, 8], record)), punted);
    cut[30] = 8;
    assert_eq!(rig.fate(cut), Fate::Socket);
}

/// SW-1: what exceeds the limit is dropped and counted; nothing else is limited.
#[test]
fn punted_packets_are_limited() {
    if !privileged() {
        return;
    }
    // One packet per second, 64 at once, and one more because the first is never early.
    let mut rig = Rig::new(Some(PuntLimit {
        packets_per_second: 1,
    }));
    rig.configure(|settings| settings.punt_v4 = Some(PuntReason::Rule));
    let began = Instant::now();
    let fates: Vec<Fate> = (0..100).map(|_| rig.to4([9, 9, 9, 9])).collect();
    let punted = fates
        .iter()
        .filter(|fate| **fate == Fate::Punted(PuntReason::Rule))
        .count();
    let limited = fates.iter().filter(|fate| **fate == Fate::Limited).count();
    assert_eq!(punted + limited, 100);
    let refilled = usize::try_from(began.elapsed().as_secs()).unwrap() + 1;
    assert!((65..=65 + refilled).contains(&punted), "{punted}");
    assert_eq!(rig.to4([10, 0, 0, 1]), Fate::Kernel);
    rig.configure(|_| {});
    assert_eq!(rig.to4([9, 9, 9, 9]), Fate::Socket);
    // Nor are prefixes of this machine.
    rig.set("77.7.0.0/16", Verdict::Local);
    rig.configure(|settings| settings.prefixes_v4 = true);
    for _ in 0..90 {
        assert_eq!(rig.to4([77, 7, 1, 1]), Fate::Kernel);
    }
}

/// SW-40: UDP to the port of in-network compute at an own address is the daemon's, in one piece and
/// once it is on; all else at own addresses stays the kernel's, and to others nothing changes.
#[test]
fn messages_of_compute_are_the_daemons() {
    if !privileged() {
        return;
    }
    const COMPUTE: u16 = 4_795;
    let mut rig = Rig::new(None);
    let own6 = "2001:db8::9";
    rig.port.steering.add_local(own6.parse().unwrap()).unwrap();
    let own = [10, 0, 0, 1];
    let to4 = |port, fragment| ethernet(PORT, 0x0800, &udp4(own, port, fragment));
    let to6 = |protocol, port: u16| {
        let ports = [&[0, 1][..], &port.to_be_bytes()].concat();
        ethernet(PORT, 0x86dd, &ipv6(own6, protocol, &ports))
    };
    assert_eq!(rig.fate(to4(COMPUTE, 0)), Fate::Kernel, "off");
    assert_eq!(rig.fate(to6(17, COMPUTE)), Fate::Kernel, "off");
    rig.configure(|settings| settings.compute = Some(COMPUTE));
    assert_eq!(rig.fate(to4(COMPUTE, 0)), Fate::Socket);
    assert_eq!(rig.fate(to6(17, COMPUTE)), Fate::Socket);
    for (port, fragment) in [(COMPUTE + 1, 0), (COMPUTE, 1), (COMPUTE, 0x2000)] {
        assert_eq!(rig.fate(to4(port, fragment)), Fate::Kernel, "{fragment}");
    }
    assert_eq!(rig.fate(to6(17, COMPUTE + 1)), Fate::Kernel);
    assert_eq!(rig.fate(to6(6, COMPUTE)), Fate::Kernel, "TCP");
    assert_eq!(rig.to4([9, 9, 9, 9]), Fate::Socket, "transit");
    let group = ethernet(PORT, 0x0800, &udp4([224, 0, 0, 5], COMPUTE, 0));
    assert_eq!(rig.fate(group), Fate::Kernel);
}
