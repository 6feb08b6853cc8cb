//! CSIG: congestion signals in a tag of the link header (draft-ravi-ippm-csig-01, CS-1 to CS-3).
//!
//! The tag is the last one of the link header: behind all VLAN tags, right before the EtherType of
//! the packet. There are two forms. Each has a TPID of its own, which is configured: none is
//! assigned.
//!
//! ```text
//!    0                   1                   2                   3
//!    0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//!   ├───────────────────────────────┼─────┼─┼─────────┼─────────────┤
//!   │             TPID              │  T  │D│    S    │     LM      │   compact, 4 bytes
//!   ├───────────────────────────────┼─────┴─┴─────────┴─────────────┤
//!   │             TPID              │              LM               │   expanded, 8 bytes
//!   ├───────┬───────────────────────┴───────────────┬─┬─────────────┤
//!   │   T   │                   S                   │D│      R      │
//!   └───────┴───────────────────────────────────────┴─┴─────────────┘
//! ```
//!
//! T is the type of the signal, S its value, LM says where the bottleneck is (locator metadata). D
//! is the first of the bits that the draft reserves: the packet was trimmed, and its signal is not
//! updated any more (SAI's proposal for CSIG).

use super::vlan::{self, Stack};
use super::{Error, Result, be16, int, need, put};

/// What a tag is about. Other types are reserved (CS-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Signal {
    /// T = 0: the least available bandwidth of the egress ports on the path, min(ABW).
    AvailableBandwidth,
    /// T = 1: the least share of its capacity that a port had free, min(ABW/C).
    AvailableShare,
    /// T = 2: the longest time that the packet was in one device, max(PD).
    Delay,
}

impl Signal {
    /// All of them, by type.
    pub const ALL: [Self; 3] = [Self::AvailableBandwidth, Self::AvailableShare, Self::Delay];

    /// The signal of type `number`; `None` if that is reserved.
    #[inline]
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            0 => Some(Self::AvailableBandwidth),
            1 => Some(Self::AvailableShare),
            2 => Some(Self::Delay),
            _ => None,
        }
    }

    /// Its type, as it is written.
    #[inline]
    pub const fn number(self) -> u8 {
        self as u8
    }

    /// Whether `mine` is nearer to the bottleneck than `theirs`: less of a minimum, more of a
    /// maximum. Both are as they are written, in buckets or units.
    #[inline]
    pub const fn is_worse(self, mine: u32, theirs: u32) -> bool {
        match self {
            Self::AvailableBandwidth | Self::AvailableShare => mine < theirs,
            Self::Delay => mine > theirs,
        }
    }

    /// The value with which a sender begins: any device may replace it (CS-2).
    pub const fn neutral(self, form: Form) -> u32 {
        match self {
            Self::AvailableBandwidth | Self::AvailableShare => form.value_max(),
            Self::Delay => 0,
        }
    }
}

/// Form of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// Four bytes, values in 32 buckets.
    Compact,
    /// Eight bytes, values in 2^20 units.
    Expanded,
}

impl Form {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Compact, Self::Expanded];

    /// Bytes of the tag, TPID included.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(self) -> usize {
        match self {
            Self::Compact => 4,
            Self::Expanded => 8,
        }
    }

    /// The largest value of S.
    #[inline]
    pub const fn value_max(self) -> u32 {
        match self {
            Self::Compact => 0x1f,
            Self::Expanded => 0xf_ffff,
        }
    }

    /// The largest locator.
    pub const fn locator_max(self) -> u16 {
        match self {
            Self::Compact => 0x7f,
            Self::Expanded => 0xffff,
        }
    }
}

/// A tag that tells of the path of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A congestion signal in this form.
    Csig(Form),
    /// Telemetry: see [`int`].
    Int,
}

impl Kind {
    /// Bytes of the tag, TPID included.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "never empty")]
    pub const fn len(self) -> usize {
        match self {
            Self::Csig(form) => form.len(),
            Self::Int => int::LEN,
        }
    }

    /// The header that errors name.
    const fn name(self) -> &'static str {
        match self {
            Self::Csig(_) => "csig",
            Self::Int => "int",
        }
    }
}

/// The TPIDs of a domain. Zero: such tags are not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tpids {
    /// Of compact tags.
    pub compact: u16,
    /// Of expanded tags.
    pub expanded: u16,
    /// Of tags for telemetry.
    pub int: u16,
}

impl Default for Tpids {
    /// 0x9900 is what the one open implementation uses for compact tags (fboss). The two behind it
    /// are free.
    fn default() -> Self {
        Self {
            compact: 0x9900,
            expanded: 0x9901,
            int: int::TPID,
        }
    }
}

impl Tpids {
    /// None of these tags is known.
    pub const NONE: Self = Self {
        compact: 0,
        expanded: 0,
        int: 0,
    };

    /// What tag `ethertype` announces.
    #[inline]
    pub const fn kind(self, ethertype: u16) -> Option<Kind> {
        if let Some(form) = self.form(ethertype) {
            Some(Kind::Csig(form))
        } else if ethertype == self.int && ethertype != 0 {
            Some(Kind::Int)
        } else {
            None
        }
    }

    /// The form of a CSIG tag that `ethertype` announces.
    #[inline]
    pub const fn form(self, ethertype: u16) -> Option<Form> {
        if ethertype == 0 {
            // The frame has a length there, and such tags may not be known.
            None
        } else if ethertype == self.compact {
            Some(Form::Compact)
        } else if ethertype == self.expanded {
            Some(Form::Expanded)
        } else {
            None
        }
    }

    /// The TPID of a form.
    #[inline]
    pub const fn of(self, form: Form) -> u16 {
        match form {
            Form::Compact => self.compact,
            Form::Expanded => self.expanded,
        }
    }
}

/// The fields of a tag behind its TPID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tag {
    /// T: 3 bits in a compact tag, 4 in an expanded one.
    pub kind: u8,
    /// S: 5 or 20 bits.
    pub value: u32,
    /// LM: 7 or 16 bits.
    pub locator: u16,
    /// D: not to be updated.
    pub is_final: bool,
    /// R: 7 bits of an expanded tag; a compact one has none.
    pub reserved: u8,
}

impl Tag {
    /// What a sender begins with: the neutral value of a signal, and a locator of its own.
    pub const fn neutral(form: Form, signal: Signal, locator: u16) -> Self {
        Self {
            kind: signal.number(),
            value: signal.neutral(form),
            locator,
            is_final: false,
            reserved: 0,
        }
    }

    /// Reads a tag of this form that begins, with its TPID, at `bytes`.
    ///
    /// # Errors
    /// If it does not end there.
    #[inline]
    pub fn read(form: Form, bytes: &[u8]) -> Result<Self> {
        need("csig", bytes, form.len())?;
        Ok(match form {
            Form::Compact => Self::of_compact([bytes[2], bytes[3]]),
            Form::Expanded => {
                Self::of_expanded([bytes[2], bytes[3], bytes[4], bytes[5], bytes[6], bytes[7]])
            }
        })
    }

    /// The fields of a compact tag, as a receiver reflects them (CS-8).
    #[inline]
    pub const fn of_compact(data: [u8; 2]) -> Self {
        let [high, low] = data;
        Self {
            kind: high >> 5,
            value: ((high & 0x0f) << 1 | low >> 7) as u32,
            locator: (low & 0x7f) as u16,
            is_final: high & 0x10 != 0,
            reserved: 0,
        }
    }

    /// The fields of an expanded tag.
    #[inline]
    pub const fn of_expanded(data: [u8; 6]) -> Self {
        let [lm_high, lm_low, a, b, c, last] = data;
        let word = u32::from_be_bytes([0, a, b, c]);
        Self {
            kind: a >> 4,
            value: word & Form::Expanded.value_max(),
            locator: u16::from_be_bytes([lm_high, lm_low]),
            is_final: last & 0x80 != 0,
            reserved: last & 0x7f,
        }
    }

    /// The fields as a compact tag has them; what is too large for it is cut off.
    #[inline]
    pub const fn compact(self) -> [u8; 2] {
        let [.., value] = self.value.to_be_bytes();
        let [_, locator] = self.locator.to_be_bytes();
        let last = if self.is_final { 0x10 } else { 0 };
        [
            self.kind << 5 | last | value >> 1 & 0x0f,
            value << 7 | locator & 0x7f,
        ]
    }

    /// The fields as an expanded tag has them; what is too large for it is cut off.
    #[inline]
    pub const fn expanded(self) -> [u8; 6] {
        let [high, low] = self.locator.to_be_bytes();
        let [_, a, b, c] = self.value.to_be_bytes();
        let last = if self.is_final { 0x80 } else { 0 };
        [
            high,
            low,
            self.kind << 4 | a & 0x0f,
            b,
            c,
            last | self.reserved & 0x7f,
        ]
    }

    /// Writes the fields of a tag of this form that begins at `bytes`. The TPID stays.
    ///
    /// # Errors
    /// If it does not end there.
    #[inline]
    pub fn write(self, form: Form, bytes: &mut [u8]) -> Result<()> {
        need("csig", bytes, form.len())?;
        match form {
            Form::Compact => put(bytes, 2, self.compact()),
            Form::Expanded => put(bytes, 2, self.expanded()),
        }
        Ok(())
    }
}

/// The tags of a frame: those of VLANs, and then one that tells of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tagged {
    /// EtherType and place of the packet are those behind all tags; the tags it counts are those of
    /// VLANs.
    pub stack: Stack,
    /// What the tag of the path is, and where it begins in the frame.
    pub signal: Option<(Kind, usize)>,
}

/// Walks the tags of an Ethernet frame.
///
/// # Errors
/// If the frame ends inside the header or a tag; or if the tag of the path is not the last one,
/// because there is another, or a VLAN's behind it.
#[inline]
pub fn walk(frame: &[u8], tpids: Tpids) -> Result<Tagged> {
    let mut stack = vlan::walk(frame)?;
    let Some(kind) = tpids.kind(stack.ethertype) else {
        return Ok(Tagged {
            stack,
            signal: None,
        });
    };
    // The TPID lies where the EtherType was expected.
    let at = stack.payload_at - 2;
    let len = kind.len();
    need(kind.name(), frame, at + len + 2)?;
    stack.payload_at += len;
    stack.ethertype = be16(frame, at + len);
    if tpids.kind(stack.ethertype).is_some() || vlan::is_tag(stack.ethertype) {
        return Err(Error::Field {
            header: kind.name(),
            field: "next",
            value: stack.ethertype.into(),
        });
    }
    Ok(Tagged {
        stack,
        signal: Some((kind, at)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const TPIDS: Tpids = Tpids {
        compact: 0x9900,
        expanded: 0x9901,
        int: 0x9902,
    };

    /// CS-1: each bit of both forms is where the draft has it.
    #[test]
    fn fields_are_where_the_draft_has_them() {
        let tag = Tag {
            kind: 0b010,
            value: 0b10110,
            locator: 0b100_0011,
            is_final: false,
            reserved: 0,
        };
        assert_eq!(tag.compact(), [0b0100_1011, 0b0100_0011]);
        assert_eq!(Tag::of_compact(tag.compact()), tag);
        let last = Tag {
            is_final: true,
            ..tag
        };
        assert_eq!(last.compact(), [0b0101_1011, 0b0100_0011]);
        let tag = Tag {
            kind: 0b1001,
            value: 0xa_bcde,
            locator: 0x1234,
            is_final: false,
            reserved: 0x55,
        };
        assert_eq!(tag.expanded(), [0x12, 0x34, 0x9a, 0xbc, 0xde, 0x55]);
        assert_eq!(Tag::of_expanded(tag.expanded()), tag);
        let last = Tag {
            is_final: true,
            ..tag
        };
        assert_eq!(last.expanded()[5], 0xd5);
    }

    /// CS-1: any bits that come are kept when they are written again.
    #[test]
    fn what_is_read_is_written() {
        for word in 0..=u16::MAX {
            let data = word.to_be_bytes();
            assert_eq!(Tag::of_compact(data).compact(), data);
        }
        let mut state = 1_u64;
        for _ in 0..10_000 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            let [_, _, data @ ..] = (state ^ state >> 29).to_be_bytes();
            assert_eq!(Tag::of_expanded(data).expanded(), data);
        }
    }

    /// CS-2: a minimum begins at the top, a maximum at the bottom, and only what is worse counts.
    #[test]
    fn the_neutral_value_gives_way_to_all_others() {
        for form in Form::ALL {
            for signal in Signal::ALL {
                let neutral = signal.neutral(form);
                assert!(!signal.is_worse(neutral, neutral));
                for value in [1, form.value_max() / 2, form.value_max() - 1] {
                    assert!(signal.is_worse(value, neutral));
                    assert!(!signal.is_worse(neutral, value));
                }
                assert_eq!(Signal::from_number(signal.number()), Some(signal));
            }
        }
        assert!((3..=u8::MAX).all(|kind| Signal::from_number(kind).is_none()));
    }

    /// CS-1, SW-52: the tag stands behind those of VLANs and before the EtherType.
    #[test]
    fn a_tag_is_found_behind_those_of_vlans() {
        let compact = &[0x99, 0x00, 0x4b, 0x43][..];
        let expanded = &[0x99, 0x01, 0x12, 0x34, 0x9a, 0xbc, 0xde, 0][..];
        let mut telemetry = [0; int::LEN];
        int::clear(TPIDS.int, &mut telemetry).expect("room");
        let telemetry = &telemetry[..];
        let vlans = &[0x88, 0xa8, 0xb0, 0x64, 0x81, 0, 0, 5][..];
        let type_of_ip = &[0x08, 0x00][..];
        for vlans in [&[][..], &vlans[..4], vlans] {
            for (tag, kind) in [
                (&[][..], None),
                (compact, Some(Kind::Csig(Form::Compact))),
                (expanded, Some(Kind::Csig(Form::Expanded))),
                (telemetry, Some(Kind::Int)),
            ] {
                let frame = [&[0; 12], vlans, tag, type_of_ip].concat();
                let found = walk(&frame, TPIDS).expect("whole tags");
                let at = 12 + vlans.len();
                assert_eq!(found.signal, kind.map(|kind| (kind, at)));
                assert_eq!(found.stack.ethertype, 0x0800);
                assert_eq!(found.stack.payload_at, frame.len());
                assert_eq!(found.stack.tags, vlans.len() / 4);
                for cut in 0..frame.len() {
                    assert!(walk(&frame[..cut], TPIDS).is_err(), "{cut} bytes");
                }
            }
        }
        for behind in [compact, expanded, telemetry, &vlans[4..]] {
            let frame = [&[0; 12], compact, behind, type_of_ip].concat();
            let refused = walk(&frame, TPIDS).expect_err("a tag behind it");
            assert!(matches!(refused, Error::Field { header: "csig", .. }));
            let frame = [&[0; 12], telemetry, behind, type_of_ip].concat();
            let refused = walk(&frame, TPIDS).expect_err("a tag behind it");
            assert!(matches!(refused, Error::Field { header: "int", .. }));
        }
    }

    /// CS-1, SW-52: a length is no tag, also where such tags are not known.
    #[test]
    fn no_tag_is_known_by_zero() {
        let frame = [0; 80];
        let found = walk(&frame, Tpids::NONE).expect("a link header");
        assert_eq!((found.signal, found.stack.payload_at), (None, 14));
        assert_eq!(Tpids::NONE.kind(0x9902), None);
    }
}
