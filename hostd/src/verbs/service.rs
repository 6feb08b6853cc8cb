//! Delivery services of a queue pair (HT-39).

/// In which order messages are given out, and what the application puts up with. What two sides
/// agree on is the stricter of what both ask for: the earlier one here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Service {
    /// Each message after those before it, as reliable connections of InfiniBand do (ROD of UET).
    #[default]
    Ordered,
    /// Each message once, as soon as it is whole, on both sides (RUD of UET).
    Unordered,
    /// The same, of messages that may be carried out twice or in parts: the packets of an RDMA
    /// WRITE each name their place, and are placed as they come (RUDI of UET).
    Idempotent,
}

impl Service {
    /// All of them, from the strictest.
    pub const ALL: [Self; 3] = [Self::Ordered, Self::Unordered, Self::Idempotent];

    /// Its name, for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Ordered => "ordered",
            Self::Unordered => "unordered",
            Self::Idempotent => "idempotent",
        }
    }

    /// Its two bits in an offer.
    pub(crate) const fn bits(self) -> u8 {
        self as u8
    }

    /// The service with these two bits. The value that is not in use may come to mean anything: it
    /// is taken for the strictest.
    pub(crate) const fn of_bits(bits: u8) -> Self {
        match bits {
            1 => Self::Unordered,
            2 => Self::Idempotent,
            _ => Self::Ordered,
        }
    }
}
