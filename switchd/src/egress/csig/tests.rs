//! CS-2: the short way beside the long one.

use super::*;
use crate::egress::signals::{Exit, sign as sign_at_length};
use crate::id::PortId;
use crate::tables::csig::{Domain, Rule};
use common::csig::{Buckets, Scale, Scales};
use common::wire::csig::{Kind, Tpids};
use common::xdp::frame::{FramePool, Region};
use proptest::prelude::*;
use std::sync::Arc;

/// A packet with a tag, of 60 bytes behind it.
fn packet(form: Form, fields: u64, edits: Edits) -> Packet {
    let mut bytes = vec![2; 12];
    bytes.extend(Tpids::default().of(form).to_be_bytes());
    bytes.extend(&fields.to_be_bytes()[10 - form.len()..]);
    bytes.extend([0x08, 0x00]);
    bytes.resize(bytes.len() + 60, 0x45);
    let mut pool = FramePool::new(Region::heap(4, 2048, 64));
    let mut packet = Packet::at(pool.take_filled(&bytes).expect("room"), PortId(0));
    packet
        .link
        .set_network(14 + u16::try_from(form.len()).expect("short"));
    packet.edits = edits;
    packet.edits.add(Edits::of_tag(Kind::Csig(form), true));
    packet
}

fn port(modes: [Mode; 3]) -> PortCsig {
    let scale = |unit| Scale {
        buckets: Buckets::new(&[0, 100, 200, 5_000, 70_000]),
        unit,
    };
    PortCsig {
        domain: Arc::new(Domain {
            tpids: Tpids::default(),
            measures: Default::default(),
            scales: Scales::new([scale(1), scale(1), scale(1)]),
        }),
        is_trusted: true,
        rules: modes.map(|mode| Rule {
            mode,
            locators: [0x55, 0xabcd],
        }),
    }
}

proptest! {
    /// CS-2, CS-7: the short way does what the long one does, or nothing.
    #[test]
    fn the_short_way_does_what_the_long_one_does(
        compact: bool,
        fields: u64,
        small in 0_u64..4,
        modes in [0..3_usize, 0..3, 0..3],
        available in prop_oneof![0_u64..300, 0_u64..1 << 21],
        share in prop_oneof![0_u64..300, 0_u64..1 << 21],
        knows: bool,
        waited: bool,
        (trimmed, untrusted, is_long) in any::<(bool, bool, bool)>(),
    ) {
        let form = if compact { Form::Compact } else { Form::Expanded };
        // Types that are known are frequent.
        let fields = match (small, form) {
            (3, _) => fields,
            (kind, Form::Compact) => fields & !0xe000 | kind << 13,
            (kind, Form::Expanded) => fields & !0xf000_0000 | kind << 28,
        };
        let mut edits = Edits::default();
        if trimmed {
            edits.add(Edits::TRIMMED);
        }
        if untrusted {
            edits.add(Edits::UNTRUSTED);
        }
        let port = port(modes.map(|it| [Mode::Update, Mode::PassThrough, Mode::Strip][it]));
        let stamp = if knows {
            Stamp::new(&port.domain, available, share)
        } else {
            Stamp::NEUTRAL
        };
        let mtu = if is_long { 40 } else { 1500 };
        let quick = Quick::new(&port.domain, &port.rules, &stamp, mtu + 18);
        let exit = Exit {
            tpids: port.domain.tpids,
            csig: Some((&port, stamp)),
            int: None,
            longest: mtu + 18,
        };
        let mut long = packet(form, fields, edits);
        let now = if waited { Time::from_nanos(6_000) } else { Time::ZERO };
        let wanted = sign_at_length(&mut long, exit, 0, now);
        let mut short = packet(form, fields, edits);
        let before = short.frame.bytes().to_vec();
        let (at, len) = (short.link.network(), short.frame.len());
        let bytes = short.frame.bytes_mut();
        let found = sign_quickly(bytes, (at, len), short.edits, &quick, || waited);
        match found {
            Some(signed) => {
                prop_assert_eq!(Some((Kind::Csig(form), signed)), wanted);
                prop_assert_eq!(short.frame.bytes(), long.frame.bytes());
            }
            None => prop_assert_eq!(short.frame.bytes(), &before[..]),
        }
        // It is taken where it is meant to be.
        let kind = match form {
            Form::Compact => fields >> 13 & 7,
            Form::Expanded => fields >> 28 & 0xf,
        };
        let last = fields & if compact { 0x1000 } else { 0x80 };
        let stays = !trimmed && !untrusted && !is_long && last == 0;
        let is_known = match kind {
            2 => !waited,
            kind => kind < 2 && knows,
        };
        if stays && is_known && modes[usize::try_from(kind).unwrap_or(0)] == 0 {
            prop_assert!(found.is_some());
        }
    }
}
