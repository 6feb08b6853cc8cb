//! What a worker counts and measures for the tags that tell of a path.

use super::load::Load;
use common::sync::counter::Counter;
use common::time::Time;

/// What became of a tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signed {
    /// It has the value and the locator of this port, or this port is the last of its hops.
    Updated,
    /// It stayed as it was: the bottleneck is elsewhere, or nobody is to change it.
    Kept,
    /// It stayed as it was: it has no room for a further hop.
    Full,
    /// It stayed as it was: its signal is a reserved one.
    Reserved,
    /// It was taken off: that is the mode of the port.
    Stripped,
    /// It was taken off: it came from a port that is not trusted.
    Untrusted,
    /// It was taken off: the link does not carry the packet with it.
    TooLong,
}

impl Signed {
    /// How many there are.
    pub const COUNT: usize = 7;

    /// What may become of congestion signals.
    pub const CSIG: [Self; 6] = [
        Self::Updated,
        Self::Kept,
        Self::Reserved,
        Self::Stripped,
        Self::Untrusted,
        Self::TooLong,
    ];

    /// What may become of telemetry.
    pub const INT: [Self; 6] = [
        Self::Updated,
        Self::Kept,
        Self::Full,
        Self::Stripped,
        Self::Untrusted,
        Self::TooLong,
    ];

    /// Whether the tag was taken off.
    #[inline]
    pub const fn is_off(self) -> bool {
        matches!(self, Self::Stripped | Self::Untrusted | Self::TooLong)
    }

    /// As it is shown.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Updated => "updated",
            Self::Kept => "kept",
            Self::Full => "full",
            Self::Reserved => "reserved",
            Self::Stripped => "stripped",
            Self::Untrusted => "untrusted",
            Self::TooLong => "too-long",
        }
    }
}

/// Of one egress port.
#[derive(Debug, Default)]
pub struct CsigStats {
    /// Packets with tags that left, by what became of the tag: see [`Signed`].
    pub signed: [Counter; Signed::COUNT],
    /// The loads that were measured last, for the bandwidth that is available and for its share:
    /// when, in nanoseconds of the worker's clock; bytes sent until then; and the level, as the
    /// bits of a floating point number.
    loads: [[Counter; 3]; 2],
}

impl CsigStats {
    /// Tells what was measured. The worker calls it.
    #[inline]
    pub fn show(&self, loads: [Load; 2]) {
        for ([since, sent, level], load) in self.loads.iter().zip(loads) {
            since.set(load.since.nanos());
            sent.set(load.sent);
            level.set(load.level.to_bits());
        }
    }

    /// What was measured last. While the worker tells the next one, parts of both may be read.
    pub fn loads(&self) -> [Load; 2] {
        self.loads.each_ref().map(|[since, sent, level]| Load {
            since: Time::from_nanos(since.get()),
            sent: sent.get(),
            level: f64::from_bits(level.get()),
        })
    }

    /// All counters.
    pub(super) fn all(&self) -> impl Iterator<Item = &Counter> {
        self.signed.iter().chain(self.loads.iter().flatten())
    }
}
