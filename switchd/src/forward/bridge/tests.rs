use super::*;
use crate::tables::bridge::{Bridging, VlanSet};
use crate::tables::policy::Policy;
use crate::tables::validation::SourceValidation;
use crate::tables::{Hashing, PortEntry};
use std::sync::Arc;

const CUSTOMER: u16 = 0x8100;
const SERVICE: u16 = 0x88a8;

/// The station behind port n has the last octet n.
fn mac(port: u16) -> [u8; 6] {
    [2, 0, 0, 0, 1, u8::try_from(port).unwrap()]
}

fn entry(number: u16) -> PortEntry {
    PortEntry {
        name: format!("p{number}"),
        ifindex: 10 + u32::from(number),
        mac: [2, 0, 0, 0, 0, 9],
        up: true,
        mtu: 1500,
        speed: None,
        link: None,
        icmp_v4: None,
        icmp_v6: None,
        mtu_v6: u16::MAX,
        burst: 125_000,
        validation: SourceValidation::Off,
        csig: None,
        int: None,
    }
}

fn vlans(ids: &[u16]) -> VlanSet {
    let mut set = VlanSet::default();
    ids.iter().for_each(|id| set.insert(*id, *id));
    set
}

/// Four ports, 0 to 2 of bridge 1, 3 of bridge 2, with a station behind each, which is known in
/// VLANs 0, 5 and 6.
fn tables(change: impl FnOnce(&mut Vec<BridgePort>)) -> Tables {
    let mut ports: Vec<BridgePort> = [1, 1, 1, 2]
        .map(|bridge| BridgePort {
            bridge,
            forwards: true,
            ..BridgePort::default()
        })
        .to_vec();
    change(&mut ports);
    let mut bridging = Bridging::default();
    for (number, port) in (0..).zip(&ports) {
        for vlan in [0, 5, 6] {
            let station = Station {
                port: PortId(number),
                number: u32::from(number),
            };
            bridging.fdb.insert(port.bridge, vlan, mac(number), station);
        }
    }
    bridging.ports = ports.into_iter().map(Some).collect();
    let entries: Vec<PortEntry> = (0..4).map(entry).collect();
    let policy = Arc::new(Policy::plain(4, 4096));
    let mut tables = Tables::new(entries, Hashing::default(), policy);
    tables.bridging = Arc::new(bridging);
    tables
}

/// A frame of so many bytes from the station behind one port to that behind another, with these
/// tags: EtherType and control information.
fn frame((from, to): (u16, u16), tags: &[(u16, u16)], len: usize) -> Vec<u8> {
    let mut bytes = [mac(to), mac(from)].concat();
    for (kind, control) in tags {
        bytes.extend(kind.to_be_bytes());
        bytes.extend(control.to_be_bytes());
    }
    bytes.extend([0x08, 0x00]);
    bytes.resize(len.max(bytes.len()), 0);
    bytes
}

/// Where a frame in one piece goes.
fn decide(tables: &Tables, port: PortId, frame: &[u8]) -> Result<Bridged, DropReason> {
    super::decide(tables, port, (frame, frame.len()))
}

/// Where a short frame that arrives at the port of its source goes.
fn way(tables: &Tables, ways: (u16, u16), tags: &[(u16, u16)]) -> Result<Bridged, DropReason> {
    decide(tables, PortId(ways.0), &frame(ways, tags, 60))
}

fn egress(tables: &Tables, ways: (u16, u16), tags: &[(u16, u16)]) -> Result<u16, DropReason> {
    way(tables, ways, tags).map(|bridged| bridged.egress.0)
}

/// SW-1: between two stations of a bridge without VLANs, whatever tags there are; not to another
/// bridge, not back.
#[test]
fn frames_go_where_the_station_is() {
    let mut tables = tables(|_| {});
    for tags in [&[][..], &[(CUSTOMER, 77)], &[(SERVICE, 7), (CUSTOMER, 8)]] {
        assert_eq!(egress(&tables, (0, 1), tags), Ok(1));
        assert_eq!(egress(&tables, (2, 0), tags), Ok(0));
    }
    let unknown = Err(DropReason::StationUnknown);
    assert_eq!(egress(&tables, (0, 3), &[]), unknown, "another bridge");
    assert_eq!(egress(&tables, (0, 9), &[]), unknown);
    // It is behind port 0 now. What it sent before has passed the steering program as port 2's.
    let moved = decide(&tables, PortId(2), &frame((0, 1), &[], 60));
    assert_eq!(moved.map(|it| it.egress.0), Ok(1));
    let mut group = frame((0, 1), &[], 60);
    group[0] |= 1;
    let group = decide(&tables, PortId(0), &group);
    assert_eq!(group.map(|it| it.egress.0), Err(DropReason::Multicast));
    let short = decide(&tables, PortId(0), &[0; 13]);
    assert_eq!(short.map(|it| it.egress.0), Err(DropReason::Truncated));
    let cut = decide(
        &tables,
        PortId(0),
        &frame((0, 1), &[(CUSTOMER, 5)], 0)[..15],
    );
    assert_eq!(cut.map(|it| it.egress.0), Err(DropReason::Truncated));
    // The port of the station is of another bridge by now.
    let bridging = Arc::make_mut(&mut tables.bridging);
    let port = bridging.ports[1].as_mut().expect("of bridge 1");
    port.bridge = 2;
    assert_eq!(egress(&tables, (0, 1), &[]), unknown);
}

/// SW-1: a source that sends is noted, and no other.
#[test]
fn the_use_of_a_station_is_its_sending() {
    let mut tables = tables(|_| {});
    let used = Arc::new(crate::tables::bridge::StationUse::new(4));
    Arc::make_mut(&mut tables.bridging).used = used.clone();
    egress(&tables, (0, 1), &[]).unwrap();
    let _ = egress(&tables, (2, 9), &[]);
    // As one that has moved from port 1.
    let of_other = frame((1, 0), &[], 60);
    decide(&tables, PortId(2), &of_other).unwrap();
    let taken: Vec<bool> = (0..4).map(|number| used.take(number)).collect();
    assert_eq!(taken, [true, false, false, false]);
    assert!(!used.take(0), "until it sends again");
}

/// SW-1: rules between two ports: split horizon and hairpin, isolation, spanning tree, links.
#[test]
fn ports_may_refuse_frames() {
    type Case = (
        fn(&mut Vec<BridgePort>),
        (u16, u16),
        Result<u16, DropReason>,
    );
    // The station of port 1 is behind port 0, too.
    let cases: [Case; 6] = [
        (|ports| ports[0].is_isolated = true, (0, 1), Ok(1)),
        (
            |ports| ports.iter_mut().for_each(|it| it.is_isolated = true),
            (0, 1),
            Err(DropReason::PortIsolated),
        ),
        (
            |ports| ports[0].forwards = false,
            (0, 1),
            Err(DropReason::BridgeBlocked),
        ),
        (
            |ports| ports[0].forwards = false,
            (1, 0),
            Err(DropReason::BridgeBlocked),
        ),
        (|_| {}, (0, 0), Err(DropReason::SamePort)),
        (|ports| ports[0].has_hairpin = true, (0, 0), Ok(0)),
    ];
    for (number, (change, ways, expected)) in cases.into_iter().enumerate() {
        assert_eq!(egress(&tables(change), ways, &[]), expected, "{number}");
    }
    let mut down = tables(|_| {});
    down.ports[1].up = false;
    assert_eq!(egress(&down, (0, 1), &[]), Err(DropReason::EgressDown));
}

/// SW-1: the VLAN is that of the tag, or the port's own; the port has to be a member, and the
/// egress port as well, which says how the frame leaves.
#[test]
fn vlans_are_those_of_tags_and_ports() {
    let aware = tables(|ports| {
        for port in ports.iter_mut() {
            port.tag = Some(CUSTOMER);
            port.members = vlans(&[5, 6]);
        }
        ports[0].pvid = Some(5);
        ports[0].untagged = vlans(&[5]);
        ports[2].members = vlans(&[6]);
    });
    let of = |ways, tags: &[(u16, u16)]| {
        let way = way(&aware, ways, tags);
        way.map(|it| (it.vlan, it.tagged, it.leaves_untagged))
    };
    assert_eq!(of((0, 1), &[]), Ok((5, Tagged::No, false)));
    assert_eq!(of((1, 0), &[(CUSTOMER, 5)]), Ok((5, Tagged::Vlan, true)));
    let priority = way(&aware, (0, 1), &[(CUSTOMER, 0xa000)]).unwrap();
    assert_eq!((priority.vlan, priority.tagged), (5, Tagged::Priority));
    assert_eq!(priority.pcp, 5);
    assert_eq!(
        of((0, 1), &[(CUSTOMER, 0x6006)]),
        Ok((6, Tagged::Vlan, false))
    );
    // A tag of the other kind is payload: transit of whole networks (802.1ad).
    assert_eq!(of((0, 1), &[(SERVICE, 6)]), Ok((5, Tagged::No, false)));
    let unknown = Err(DropReason::UnknownVlan);
    assert_eq!(of((1, 0), &[]), unknown, "no PVID");
    assert_eq!(of((0, 1), &[(CUSTOMER, 7)]), unknown, "no member");
    assert_eq!(of((0, 2), &[]), Err(DropReason::VlanNotMember));
    assert_eq!(of((0, 2), &[(CUSTOMER, 6)]), Ok((6, Tagged::Vlan, false)));
}

/// SW-1: as in the kernel, a frame may be a tag longer than the MTU, and its outermost tag is not
/// counted.
#[test]
fn frames_that_are_too_long_do_not_leave() {
    let tables = tables(|_| {});
    for (tags, longest) in [
        (&[][..], 1518),
        (&[(CUSTOMER, 5)], 1522),
        (&[(SERVICE, 5), (CUSTOMER, 6)], 1522),
    ] {
        let of = |len| decide(&tables, PortId(0), &frame((0, 1), tags, len)).map(|it| it.egress.0);
        assert_eq!(of(longest), Ok(1), "{tags:?}");
        assert_eq!(of(longest + 1), Err(DropReason::FrameTooLong), "{tags:?}");
    }
}
