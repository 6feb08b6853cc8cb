//! \[9\] A congestion signal of a packet that leaves (CS-2): see [`super::signals`].
//!
//! Most are minima that a port compares with its own: [`sign_quickly`] does that in some
//! instructions, and leaves everything else to the long way.

use crate::packet::{Edits, Packet};
use crate::stats::Signed;
use crate::tables::csig::{Mode, PortCsig, Quick, Row, Stamp};
use common::time::Time;
use common::wire::csig::{Form, Signal, Tag};

/// Compares the tag right before the EtherType in front of `network` with what the port writes, and
/// replaces it if it is to. `None`, and nothing done: it is a case that takes more than that.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a call costs as much as what it does")]
pub fn sign_quickly(
    bytes: &mut [u8],
    (network, len): (u16, usize),
    edits: Edits,
    quick: &Quick,
) -> Option<Signed> {
    if len > quick.longest || edits.contain(Edits::UNTRUSTED) || edits.contain(Edits::TRIMMED) {
        return None;
    }
    let end = usize::from(network).checked_sub(2)?;
    if edits.contain(Edits::COMPACT) {
        let tag = bytes.get_mut(end.checked_sub(4)?..end)?.first_chunk_mut()?;
        let word = u32::from_be_bytes(*tag);
        // TPID, T, D, S, LM: 16, 3, 1, 5 and 7 bits.
        let fields = (word >> 13 & 0x7, word & 0x1000, word >> 7 & 0x1f);
        let row = row(quick, Form::Compact, word >> 16, (fields.0, fields.1))?;
        if fields.2 <= row.value {
            return Some(Signed::Kept);
        }
        let [.., a, b] = row.fields.to_be_bytes();
        let new = word & !0xfff | u32::from_be_bytes([0, 0, a, b]);
        *tag = new.to_be_bytes();
        return Some(Signed::Updated);
    }
    if edits.contain(Edits::EXPANDED) {
        let tag = bytes.get_mut(end.checked_sub(8)?..end)?.first_chunk_mut()?;
        let [a, b, c, d, e, f, g, h] = *tag;
        // TPID, LM; T, S, D, R: 16, 16; 4, 20, 1 and 7 bits.
        let high = u32::from_be_bytes([a, b, c, d]);
        let low = u32::from_be_bytes([e, f, g, h]);
        let row = row(quick, Form::Expanded, high >> 16, (low >> 28, low & 0x80))?;
        if low >> 8 & 0xf_ffff <= row.value {
            return Some(Signed::Kept);
        }
        let [high, low] = [high, low].map(u64::from);
        let word = high << 32 & 0xffff_0000_0000_0000 | low & 0xf000_00ff;
        *tag = (word | row.fields).to_be_bytes();
        return Some(Signed::Updated);
    }
    None
}

/// What a tag is compared with that begins with this TPID, and has this T and D.
#[inline(always)]
#[expect(clippy::inline_always, reason = "as for `sign_quickly`")]
fn row(quick: &Quick, form: Form, tpid: u32, (kind, is_final): (u32, u32)) -> Option<Row> {
    if tpid != u32::from(quick.tpids[form as usize]) || is_final != 0 {
        return None;
    }
    let row = quick.rows[form as usize].get(kind as usize)?;
    *row
}

/// Compares the tag at `at` with what the port writes, and replaces it if it is to. What is to be
/// said of it; `None`: the frame ends in it.
#[inline]
pub(super) fn sign(
    packet: &mut Packet,
    (form, at): (Form, usize),
    port: &PortCsig,
    stamp: Stamp,
    now: Time,
) -> Option<Signed> {
    let mut tag = Tag::read(form, packet.frame.bytes().get(at..)?).ok()?;
    let Some(signal) = Signal::from_number(tag.kind) else {
        let strips = port.strips_all();
        return Some(if strips {
            Signed::Stripped
        } else {
            Signed::Reserved
        });
    };
    let rule = port.rule(signal);
    match rule.mode {
        Mode::Strip => return Some(Signed::Stripped),
        Mode::PassThrough => return Some(Signed::Kept),
        Mode::Update => {}
    }
    if tag.is_final {
        return Some(Signed::Kept);
    }
    let outcome = if packet.edits.contain(Edits::TRIMMED) {
        tag.is_final = true;
        Signed::Kept
    } else {
        let mine = stamp.value(signal, form).unwrap_or_else(|| {
            let scale = port.domain.scales.of(signal);
            scale.write(form, packet.received.until(now).nanos())
        });
        if !signal.is_worse(mine, tag.value) {
            return Some(Signed::Kept);
        }
        (tag.value, tag.locator) = (mine, rule.locator(form));
        Signed::Updated
    };
    tag.write(form, packet.frame.bytes_mut().get_mut(at..)?)
        .ok()?;
    Some(outcome)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::egress::signals::{Exit, sign as sign_at_length};
    use crate::id::PortId;
    use crate::tables::csig::{Domain, Rule};
    use common::csig::{Buckets, Scale, Scales};
    use common::time::Span;
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
        packet.network = 14 + u16::try_from(form.len()).expect("short");
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
                estimator: Default::default(),
                window: Span::from_micros(100),
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
            small in 0_u64..3,
            modes in [0..3_usize, 0..3, 0..3],
            available in prop_oneof![0_u64..300, 0_u64..1 << 21],
            share in prop_oneof![0_u64..300, 0_u64..1 << 21],
            knows: bool,
            (trimmed, untrusted, is_long) in any::<(bool, bool, bool)>(),
        ) {
            let form = if compact { Form::Compact } else { Form::Expanded };
            // Types that are known are frequent.
            let fields = match (small, form) {
                (2, _) => fields,
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
            let wanted = sign_at_length(&mut long, exit, 0, Time::ZERO);
            let mut short = packet(form, fields, edits);
            let before = short.frame.bytes().to_vec();
            let (at, len) = (short.network, short.frame.len());
            let found = sign_quickly(short.frame.bytes_mut(), (at, len), short.edits, &quick);
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
            if stays && kind < 2 && modes[usize::try_from(kind).unwrap_or(0)] == 0 && knows {
                prop_assert!(found.is_some());
            }
        }
    }
}
