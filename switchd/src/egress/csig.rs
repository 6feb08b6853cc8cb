//! \[9\] A congestion signal of a packet that leaves (CS-2): see [`super::signals`].

use crate::packet::{Edits, Packet};
use crate::stats::Signed;
use crate::tables::csig::{Mode, PortCsig, Stamp};
use common::time::Time;
use common::wire::csig::{Form, Signal, Tag};

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
