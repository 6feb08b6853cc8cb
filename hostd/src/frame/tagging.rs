//! Tags of Ethernet frames that tell of the path, put on and taken off (CS-8, SW-52). All that is
//! between knows frames without them.

use common::wire::csig::{Form, Kind, Tag, Tpids, walk};
use common::wire::ethernet::field;
use common::wire::int::{self, Telemetry};
use common::xdp::frame::Frame;

/// What a packet brought of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Carried {
    /// A congestion signal.
    Signal(Form, Tag),
    /// Telemetry; `None`: what is no such thing.
    Telemetry(Option<Telemetry>),
}

/// Makes room for a tag of this kind in a frame without tags: where it begins. `None`, and nothing
/// done, if there is none before the frame.
fn make_room(frame: &mut Frame, kind: Kind) -> Option<&mut [u8]> {
    let len = u16::try_from(kind.len()).ok()?;
    if !frame.grow_front(len) {
        return None;
    }
    let bytes = frame.bytes_mut();
    bytes.copy_within(kind.len()..kind.len() + field::ETHERTYPE, 0);
    bytes.get_mut(field::ETHERTYPE..)
}

/// Puts `tag` on a frame without tags. False, and nothing done, if there is no room before it.
pub(crate) fn put_tag(frame: &mut Frame, tpids: Tpids, form: Form, tag: Tag) -> bool {
    let Some(room) = make_room(frame, Kind::Csig(form)) else {
        return false;
    };
    room[..2].copy_from_slice(&tpids.of(form).to_be_bytes());
    tag.write(form, room).is_ok()
}

/// The same with a tag for telemetry, in which no hop is written yet.
pub(crate) fn put_telemetry(frame: &mut Frame, tpid: u16) -> bool {
    make_room(frame, Kind::Int).is_some_and(|room| int::clear(tpid, room).is_ok())
}

/// Takes the tag off a frame. One that is cut, or with another behind it, stays: such a frame is
/// not for this host.
#[inline]
pub(crate) fn take_tag(frame: &mut Frame, tpids: Tpids) -> Option<Carried> {
    let kind = frame.bytes().get(field::ETHERTYPE..field::ETHERTYPE + 2)?;
    let kind = tpids.kind(u16::from_be_bytes([kind[0], kind[1]]))?;
    walk(frame.bytes(), tpids).ok()?;
    let tag = &frame.bytes()[field::ETHERTYPE..];
    let carried = match kind {
        Kind::Csig(form) => Carried::Signal(form, Tag::read(form, tag).ok()?),
        Kind::Int => Carried::Telemetry(Telemetry::read(tag).ok()),
    };
    let len = u16::try_from(kind.len()).ok()?;
    frame
        .bytes_mut()
        .copy_within(..field::ETHERTYPE, kind.len());
    frame.shrink_front(len);
    Some(carried)
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::wire::csig::Signal;
    use common::xdp::frame::{FramePool, Region};

    /// CS-8, SW-52: a frame is what it was once its tag is off, in all forms; others stay as they
    /// are.
    #[test]
    fn tags_come_on_and_off() {
        let mut pool = FramePool::new(Region::heap(2, 256, 64));
        let tpids = Tpids::default();
        let mut packet = [7; 60];
        packet[12..14].copy_from_slice(&[0x08, 0x00]);
        for form in Form::ALL {
            let tag = Tag {
                value: 11,
                ..Tag::neutral(form, Signal::Delay, 3)
            };
            let mut frame = pool.take_filled(&packet).expect("a frame");
            assert!(put_tag(&mut frame, tpids, form, tag));
            assert_eq!(frame.len(), packet.len() + form.len());
            assert_eq!(frame.bytes()[..12], packet[..12]);
            let behind = 12 + form.len();
            assert_eq!(frame.bytes()[behind..], packet[12..]);
            let carried = Carried::Signal(form, tag);
            assert_eq!(take_tag(&mut frame, tpids), Some(carried));
            assert_eq!(frame.bytes(), packet);
            assert_eq!(take_tag(&mut frame, tpids), None);
            pool.give(frame);
        }
        let mut frame = pool.take_filled(&packet).expect("a frame");
        assert!(put_telemetry(&mut frame, tpids.int));
        assert_eq!(frame.len(), packet.len() + int::LEN);
        assert_eq!(frame.bytes()[12 + int::LEN..], packet[12..]);
        let carried = Carried::Telemetry(Some(Telemetry::default()));
        assert_eq!(take_tag(&mut frame, tpids), Some(carried));
        assert_eq!(frame.bytes(), packet);
        pool.give(frame);
        packet[12..18].copy_from_slice(&[0x99, 0x00, 0, 0, 0x99, 0x01]);
        let mut twice = pool.take_filled(&packet).expect("a frame");
        assert_eq!(take_tag(&mut twice, tpids), None);
        assert_eq!(twice.bytes(), packet);
        pool.give(twice);
    }
}
