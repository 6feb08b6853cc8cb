//! \[9\] A congestion signal of a packet that leaves (CS-2): see [`super::signals`].
//!
//! Most are minima that a port compares with its own, or delays of packets that had none:
//! [`sign_quickly`] does that in some instructions, and leaves everything else to the long way.

use crate::packet::{Edits, Packet};
use crate::stats::Signed;
use crate::tables::csig::{Mode, PortCsig, Quick, Row, Stamp};
use common::time::Time;
use common::wire::csig::{Form, Signal, Tag};

/// The type of the delay in a tag.
const DELAY: u32 = Signal::Delay.number() as u32;

/// Compares the tag right before the EtherType in front of `network` with what the port writes, and
/// replaces it if it is to. `None`, and nothing done: it is a case that takes more than that.
/// `has_waited`: whether the packet leaves later than it came, which few are asked.
#[inline(always)]
#[expect(clippy::inline_always, reason = "a call costs as much as what it does")]
pub fn sign_quickly(
    bytes: &mut [u8],
    (network, len): (u16, usize),
    edits: Edits,
    quick: &Quick,
    has_waited: impl FnOnce() -> bool,
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
        if fields.0 == DELAY && has_waited() {
            return None;
        }
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
        if low >> 28 == DELAY && has_waited() {
            return None;
        }
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
mod tests;
