//! \[9\] The CSIG tag of a packet that leaves (CS-2, CS-7): updated, left alone, or taken off.
//!
//! ```text
//!   from an untrusted port, too long, or mode strip ──▶ taken off
//!   trimmed here ───────────────▶ D is set: nobody updates it any more
//!   D, or a reserved signal, or mode pass-through ────▶ left alone
//!   mode update ────────────────▶ compared; the worse of both stays, with its locator
//! ```
//!
//! The tag is looked for where it stands now: VLAN tags have come or gone before.

use crate::packet::{Edits, Packet};
use crate::stats::Signed;
use crate::tables::csig::{Mode, PortCsig, Stamp};
use common::time::Time;
use common::wire::csig::{Form, Signal, Tag, Tpids, walk};
use common::wire::ethernet::HEADER_LEN;
use common::wire::vlan::TAG_LEN;

/// What the port is that a packet leaves by.
#[derive(Clone, Copy, Debug)]
pub struct Exit<'a> {
    /// What it does with tags.
    pub port: &'a PortCsig,
    /// What it writes for now.
    pub stamp: Stamp,
    /// The longest IP packet that it sends.
    pub mtu: u16,
}

/// Does with the tag of `packet`, which is about to leave, what the port is to do. `None`: it has
/// none.
#[inline]
pub fn sign(packet: &mut Packet, exit: Exit<'_>, now: Time) -> Option<Signed> {
    let (form, at) = locate(packet.frame.bytes(), exit.port.domain.tpids)?;
    if packet.edits.contain(Edits::UNTRUSTED) {
        return strip(packet, form, at).then_some(Signed::Untrusted);
    }
    // As in the kernel, a VLAN's tag more than the MTU and the link header is no harm.
    if packet.frame.len() > usize::from(exit.mtu) + HEADER_LEN + TAG_LEN {
        return strip(packet, form, at).then_some(Signed::TooLong);
    }
    let mut tag = Tag::read(form, packet.frame.bytes().get(at..)?).ok()?;
    let Some(signal) = Signal::from_number(tag.kind) else {
        if exit.port.strips_all() {
            return strip(packet, form, at).then_some(Signed::Stripped);
        }
        return Some(Signed::Reserved);
    };
    let rule = exit.port.rule(signal);
    match rule.mode {
        Mode::Strip => return strip(packet, form, at).then_some(Signed::Stripped),
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
        let mine = exit.stamp.value(signal, form).unwrap_or_else(|| {
            let delay = now.since(packet.received).nanos();
            exit.port.domain.scale(signal).write(form, delay)
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

/// Form and place of the tag of a frame.
#[inline]
fn locate(frame: &[u8], tpids: Tpids) -> Option<(Form, usize)> {
    let kind = frame.get(12..14)?;
    // Most have no VLAN tag here.
    if let Some(form) = tpids.form(u16::from_be_bytes([kind[0], kind[1]])) {
        return Some((form, 12));
    }
    walk(frame, tpids).ok()?.csig
}

/// Takes the tag at `at` off. False, and nothing done, if the frame ends in it.
fn strip(packet: &mut Packet, form: Form, at: usize) -> bool {
    let bytes = packet.frame.bytes_mut();
    let (len, short) = match form {
        Form::Compact => (form.len(), 4),
        Form::Expanded => (form.len(), 8),
    };
    if bytes.len() <= at + len {
        return false;
    }
    bytes.copy_within(..at, len);
    packet.frame.shrink_front(short);
    packet.network = packet.network.saturating_sub(short);
    true
}
