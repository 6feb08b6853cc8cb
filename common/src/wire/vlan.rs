//! 802.1Q and 802.1ad tags (IEEE 802.1Q clause 9).
//!
//! A tag is four bytes between the source address and the EtherType: the TPID, then three bits of
//! priority (PCP), the drop eligible bit and twelve bits of VLAN identifier.

use super::ethernet::{self, ethertype};
use super::{Result, be16, need};

/// Bytes of one tag.
pub const TAG_LEN: usize = 4;

/// Tags that are walked; a stack that is deeper is not understood.
pub const MAX_TAGS: usize = 4;

/// The tag control information of one tag.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tci(pub u16);

impl Tci {
    /// Priority code point, 0–7.
    pub const fn pcp(self) -> u8 {
        self.0.to_be_bytes()[0] >> 5
    }

    /// Drop eligible indicator.
    pub const fn dei(self) -> bool {
        self.0 & 0x1000 != 0
    }

    /// VLAN identifier; 0 means that the tag carries only a priority.
    pub const fn vid(self) -> u16 {
        self.0 & 0x0fff
    }
}

/// What follows the addresses of a frame once its tags are walked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The outermost tag.
    pub outer: Option<Tci>,
    /// A tag among them is of a VLAN: not all are there for their priority only.
    pub has_vlan: bool,
    /// Number of tags.
    pub tags: usize,
    /// EtherType behind the last tag.
    pub ethertype: u16,
    /// Where the payload of that EtherType begins in the frame.
    pub payload_at: usize,
}

/// Whether `ethertype` announces a tag.
#[inline]
pub const fn is_tag(ethertype: u16) -> bool {
    matches!(ethertype, ethertype::VLAN | ethertype::SERVICE_VLAN)
}

/// Walks the tags of an Ethernet frame. After [`MAX_TAGS`] tags the EtherType may still be a TPID.
///
/// # Errors
/// If the frame ends inside the header or a tag.
#[inline]
pub fn walk(frame: &[u8]) -> Result<Stack> {
    need("ethernet", frame, ethernet::HEADER_LEN)?;
    let mut stack = Stack {
        outer: None,
        has_vlan: false,
        tags: 0,
        ethertype: be16(frame, ethernet::field::ETHERTYPE),
        payload_at: ethernet::HEADER_LEN,
    };
    while is_tag(stack.ethertype) && stack.tags < MAX_TAGS {
        need("vlan", frame, stack.payload_at + TAG_LEN)?;
        let tag = Tci(be16(frame, stack.payload_at));
        stack.outer.get_or_insert(tag);
        stack.has_vlan |= tag.vid() != 0;
        stack.ethertype = be16(frame, stack.payload_at + 2);
        stack.payload_at += TAG_LEN;
        stack.tags += 1;
    }
    Ok(stack)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_of_tags_is_walked() {
        let mut frame = vec![0; 12];
        frame.extend([0x88, 0xa8, 0xb0, 0x64, 0x81, 0x00, 0x00, 0x05, 0x08, 0x00]);
        let stack = walk(&frame).expect("whole tags");
        assert_eq!(
            (stack.tags, stack.ethertype, stack.payload_at),
            (2, 0x0800, 22)
        );
        let outer = stack.outer.expect("a tag");
        assert_eq!((outer.pcp(), outer.dei(), outer.vid()), (5, true, 100));
        for cut in 0..frame.len() {
            assert!(walk(&frame[..cut]).is_err(), "{cut} bytes");
        }
    }

    #[test]
    fn a_bottomless_stack_ends() {
        let mut frame = vec![0; 12];
        frame.extend([0x81, 0x00, 0, 1].repeat(40));
        assert_eq!(walk(&frame).expect("bounded").ethertype, ethertype::VLAN);
    }
}
