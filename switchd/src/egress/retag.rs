//! \[9\] The tag of a frame that is bridged (802.1Q clause 9): kept, put in, or taken out.

use common::wire::ethernet;
use common::wire::vlan::TAG_LEN;
use common::xdp::frame::Frame;

/// What becomes of the outermost tag of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retag {
    /// It stays as it is, or there is none.
    Keep,
    /// It is taken out.
    Pop,
    /// One of this EtherType and VLAN, of priority 0, is put in.
    Push {
        /// The EtherType.
        tag: u16,
        /// The VLAN.
        vlan: u16,
    },
    /// It has a priority only, and gets this VLAN.
    Join {
        /// The VLAN.
        vlan: u16,
    },
}

/// Bytes of a tag as a frame counts them.
pub const TAG: u16 = 4;
const _: () = assert!(TAG as usize == TAG_LEN);

/// Where the tag control information of the outermost tag is.
const CONTROL: usize = ethernet::field::ETHERTYPE + 2;

impl Retag {
    /// Changes the frame, which is at least a link header long, and has a tag if one is to be taken
    /// out or changed. False, and nothing done, if there is no room for a tag.
    #[inline]
    pub fn apply(self, frame: &mut Frame) -> bool {
        match self {
            Self::Keep => true,
            Self::Pop => {
                let bytes = frame.bytes_mut();
                let addresses = ethernet::field::SRC.end;
                if bytes.len() < addresses + TAG_LEN {
                    return false;
                }
                bytes.copy_within(..addresses, TAG_LEN);
                frame.shrink_front(TAG);
                true
            }
            Self::Push { tag, vlan } => {
                if !frame.grow_front(TAG) {
                    return false;
                }
                let addresses = ethernet::field::SRC.end;
                let bytes = frame.bytes_mut();
                bytes.copy_within(TAG_LEN..TAG_LEN + addresses, 0);
                bytes[addresses..CONTROL].copy_from_slice(&tag.to_be_bytes());
                bytes[CONTROL..CONTROL + 2].copy_from_slice(&vlan.to_be_bytes());
                true
            }
            Self::Join { vlan } => {
                if let Some(control) = frame.bytes_mut().get_mut(CONTROL..CONTROL + 2) {
                    // The identifier is zero.
                    let [high, low] = vlan.to_be_bytes();
                    control[0] |= high;
                    control[1] |= low;
                }
                true
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use common::xdp::frame::{FramePool, Region};

    fn after(retag: Retag, bytes: &[u8], headroom: u16) -> Option<Vec<u8>> {
        let mut pool = FramePool::new(Region::heap(1, 256, headroom));
        let mut frame = pool.take_filled(bytes).expect("a free frame");
        let done = retag.apply(&mut frame);
        let found = frame.bytes().to_vec();
        pool.give(frame);
        // What cannot be done leaves the frame as it was.
        assert!(done || found == bytes);
        done.then_some(found)
    }

    /// SW-1: a tag is put in and taken out between the addresses and the rest, inner tags stay, and
    /// a priority stays with its tag.
    #[test]
    fn tags_come_and_go_between_addresses_and_type() {
        let addresses = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12];
        let with = |rest: &[u8]| [&addresses[..], rest].concat();
        let plain = with(&[8, 0, 0x45, 0, 0, 1]);
        let outer = with(&[0x88, 0xa8, 0x00, 0x64, 8, 0, 0x45, 0, 0, 1]);
        let push = Retag::Push {
            tag: 0x88a8,
            vlan: 100,
        };
        assert_eq!(after(push, &plain, 4), Some(outer.clone()));
        assert_eq!(after(push, &plain, 3), None, "no room");
        assert_eq!(after(Retag::Pop, &outer, 0), Some(plain.clone()));
        let double = with(&[0x88, 0xa8, 0, 1, 0x81, 0, 0xa0, 5, 8, 0, 0x45, 0]);
        let single = with(&[0x81, 0, 0xa0, 5, 8, 0, 0x45, 0]);
        assert_eq!(after(Retag::Pop, &double, 0), Some(single));
        let priority = with(&[0x81, 0, 0xa0, 0, 8, 0]);
        let joined = with(&[0x81, 0, 0xaf, 0xfe, 8, 0]);
        assert_eq!(
            after(Retag::Join { vlan: 4094 }, &priority, 0),
            Some(joined)
        );
        assert_eq!(after(Retag::Keep, &double, 0), Some(double.clone()));
    }
}
