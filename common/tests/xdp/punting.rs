//! What is punted: left to the kernel although it is for other machines.

use crate::namespace::Namespace;
use crate::steering::{PORT, discovery, ethernet, ipv6, tagged, udp4};
use crate::{open, send, umem};
use common::xdp::frame::FramePool;
use common::xdp::{
    BridgeMaps, Port, PortOptions, Prefixes, PuntLimit, PuntReason, Role, STORM_DROPS, SteerCounts,
    SteerSettings, StormLimits, Verdict, VlanTag, open_port,
};
use netns::privileged;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Two ends of a link: one sends, the other is the port that is looked at.
pub(crate) struct Rig {
    _namespace: Namespace,
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
        let namespace = Namespace::new();
        namespace.veth("va", "vb", "");
        namespace.run("ip link set vb address 02:00:00:00:00:01");
        namespace.enter();
        let umem = umem(2);
        let pool = FramePool::new(umem.region().clone());
        let source = open(&umem, "va");
        let prefixes = Arc::new(Prefixes::new().unwrap());
        let bridges = Arc::new(BridgeMaps::new().unwrap());
        let options = PortOptions {
            prefixes: Some(prefixes.clone()),
            bridges: Some(bridges.clone()),
            punt_limit,
            storm_limits,
            local: vec!["10.0.0.1".parse().unwrap()],
            ..PortOptions::new(Role::Switch)
        };
        let port = open_port(&umem, "vb", &options).unwrap();
        Self {
            _namespace: namespace,
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
        let end = Instant::now() + Duration::from_secs(5);
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

/// SW-1: a port whose packets belong to another interface, tags of the kernel's VLANs, discovery
/// for other machines.
#[test]
fn whole_ports_vlans_and_discovery_are_punted() {
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
    let proxied = ethernet(PORT, 0x86dd, &discovery("2001:db8::2", 135));
    assert_eq!(rig.fate(proxied), Fate::Punted(PuntReason::Discovery));

    // From fe80::9.
    let from_link = |destination| {
        let mut packet = ipv6(destination, 17, &[0; 4]);
        packet[8..12].copy_from_slice(&[0xfe, 0x80, 0, 0]);
        ethernet(PORT, 0x86dd, &packet)
    };
    rig.set("2001:db8:7::/48", Verdict::Local);
    rig.configure(|settings| settings.prefixes_v6 = true);
    let fate = rig.fate(from_link("2001:db8::2"));
    assert_eq!(fate, Fate::Punted(PuntReason::LinkLocal));
    let fate = rig.fate(from_link("2001:db8:7::2"));
    assert_eq!(fate, Fate::Kernel, "this machine's own");
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
    rig.port.steering.set_vlans(&[five, six], &[five]).unwrap();
    assert_eq!(rig.fate(customer), Fate::Socket);
    assert_eq!(rig.fate(service), Fate::Punted(PuntReason::Vlan));
    assert_eq!(rig.fate(priority_first), Fate::Punted(PuntReason::Vlan));
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
}
