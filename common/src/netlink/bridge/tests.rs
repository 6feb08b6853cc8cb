use super::*;

/// Attributes: types and values.
fn packed(attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (kind, value) in attributes {
        bytes.extend(u16::try_from(4 + value.len()).unwrap().to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(*value);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
    }
    bytes
}

fn message(ifindex: u32, fixed: usize, attributes: &[(u16, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![7, 0, 0, 0];
    bytes.extend(ifindex.to_ne_bytes());
    bytes.resize(fixed, 0);
    bytes.extend(packed(attributes));
    bytes
}

fn vlan(flags: u16, id: u16) -> [u8; 4] {
    let ([a, b], [c, d]) = (flags.to_ne_bytes(), id.to_ne_bytes());
    [a, b, c, d]
}

/// SW-1: a port of a bridge with its flags and its VLANs, ranges among them.
#[test]
fn a_port_has_its_state_and_vlans() {
    let bridge = 20_u32.to_ne_bytes();
    let of_port = packed(&[(1, &[3]), (4, &[0]), (33, &[1]), (39, &[0])]);
    let (access, begin, end) = (vlan(2 | 4, 1), vlan(8, 10), vlan(16, 20));
    let of_vlans = packed(&[(2, &access), (2, &begin), (2, &end)]);
    let attributes: [(u16, &[u8]); 3] = [(10, &bridge), (12, &of_port), (26, &of_vlans)];
    let port = bridge_port(&message(5, 16, &attributes), true)
        .unwrap()
        .unwrap();
    let vlan = |first, last, is_access| PortVlan {
        first,
        last,
        is_pvid: is_access,
        is_untagged: is_access,
    };
    let expected = BridgePort {
        ifindex: 5,
        bridge: 20,
        state: StpState::Forwarding,
        is_isolated: true,
        vlans: vec![vlan(1, 1, true), vlan(10, 20, false)],
        ..BridgePort::default()
    };
    assert_eq!(port, expected);
    // The bridge itself has no state.
    let own = bridge_port(&message(20, 16, &attributes[..1]), true).unwrap();
    assert_eq!(own.map(|it| it.ifindex), Some(20));
    // A port that is gone needs none; one that exists does.
    let gone = message(5, 16, &attributes[..1]);
    assert!(bridge_port(&gone, false).unwrap().is_some());
    assert_eq!(bridge_port(&gone, true), Ok(None));
    // A card that tells of its own switch.
    let of_card = packed(&[(0, &2_u16.to_ne_bytes())]);
    let card: [(u16, &[u8]); 3] = [(10, &bridge), (12, &of_port), (26, &of_card)];
    assert_eq!(bridge_port(&message(5, 16, &card), true), Ok(None));
    let odd = packed(&[(1, &[9])]);
    let odd: [(u16, &[u8]); 2] = [(10, &bridge), (12, &odd)];
    assert!(bridge_port(&message(5, 16, &odd), true).is_err());
    assert_eq!(bridge_port(&[7; 12], true), Err(DecodeError::Short));
}

/// SW-1: the states of VLANs, of one or of several in a row.
#[test]
fn vlans_have_states() {
    let (one, row) = (vlan(0, 1), vlan(2, 10));
    let entries = [
        packed(&[(1, &one), (3, &[3])]),
        packed(&[(1, &row), (2, &12_u16.to_ne_bytes()), (3, &[4])]),
        packed(&[(1, &vlan(0, 20))]),
    ];
    let attributes = [1, 1, 1].into_iter().zip(entries.iter().map(Vec::as_slice));
    let attributes: Vec<(u16, &[u8])> = attributes.chain([(2, &one[..])]).collect();
    let state = |first, last, state| VlanState { first, last, state };
    let expected = vec![
        state(1, 1, StpState::Forwarding),
        state(10, 12, StpState::Blocking),
        state(20, 20, StpState::Forwarding),
    ];
    assert_eq!(vlan_states(&message(5, 8, &attributes)), Ok((5, expected)));
    for wrong in [
        packed(&[(1, &vlan(0, 0))]),
        packed(&[(1, &row), (2, &9_u16.to_ne_bytes())]),
        packed(&[(1, &row), (2, &4095_u16.to_ne_bytes())]),
        packed(&[(1, &row), (3, &[5])]),
        packed(&[(3, &[4])]),
    ] {
        assert!(vlan_states(&message(5, 8, &[(1, &wrong)])).is_err());
    }
    assert_eq!(vlan_states(&[7; 7]), Err(DecodeError::Short));
}

/// SW-1: entries of the database by kind; what devices filter by is none.
#[test]
fn stations_have_their_kind() {
    let (mac, bridge, five) = (
        [2, 0, 0, 0, 0, 9],
        20_u32.to_ne_bytes(),
        5_u16.to_ne_bytes(),
    );
    let of = |state: u16, flags: u8, more: u32| {
        let more = more.to_ne_bytes();
        let attributes: [(u16, &[u8]); 4] = [(2, &mac), (5, &five), (9, &bridge), (15, &more)];
        let mut body = message(7, 12, &attributes);
        body[8..10].copy_from_slice(&state.to_ne_bytes());
        body[10] = flags;
        fdb_entry(&body).unwrap()
    };
    let key = FdbKey {
        bridge: 20,
        vlan: 5,
        mac,
    };
    for (state, flags, more, kind) in [
        (0x02, 0, 0, FdbKind::Learned),
        (0x04, 0, 0, FdbKind::Learned),
        (0x40, 0, 0, FdbKind::Static),
        (0x80, 0, 0, FdbKind::Local),
        (0x02, 16, 0, FdbKind::External),
        (0x02, 0, 2, FdbKind::Locked),
    ] {
        let expected = FdbEntry {
            key,
            ifindex: 7,
            kind,
        };
        assert_eq!(of(state, flags, more), Some(expected));
    }
    assert_eq!(of(0x80, 2, 0), None, "of a device");
    let without = message(7, 12, &[(2, &mac)]);
    assert_eq!(fdb_entry(&without), Ok(None), "of no bridge");
}

#[test]
fn a_bridge_has_its_settings() {
    let ageing = 3000_u32.to_ne_bytes();
    let options = [4_u32.to_ne_bytes(), 4_u32.to_ne_bytes()].concat();
    let data = packed(&[(4, &ageing), (7, &[1]), (8, &[0x88, 0xa8]), (46, &options)]);
    let expected = Bridge {
        filters_vlans: true,
        is_service: true,
        ageing: Span::from_secs(30),
        has_mst: true,
    };
    assert_eq!(bridge_link(&data), Ok(expected));
}
