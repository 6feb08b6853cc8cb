//! The multipath offer: what two sides tell each other of their abilities in the last bytes of the
//! private data of REQ and REP (HT-20, HT-22). The application's data is in front of it, so that an
//! application that knows nothing of the offer finds it where it looks.
//!
//! ```text
//!   byte 0–3    4D 50 52 31 ("MPR1")
//!   byte 4      version, 2
//!   byte 5      bits 0–2 granularities that are known: flow, flowlet, packet;
//!               bit 3 acknowledgements may tell which packets were marked or trimmed;
//!               bits 4–7 path MTU, 1 = 256 … 5 = 4096
//!   byte 6–7    sub-paths at most
//!   byte 8–9    reorder tolerance in packets
//!   byte 10–11  reorder tolerance in µs
//!   byte 12–13  reorder buffer in packets
//!   byte 14–15  flowlet time-out in µs
//!   byte 16–21  cookie: what the other side has to put into its packets
//!   byte 22     bits 0–5: blocks of the extension header that this side understands;
//!               bits 6–7: delivery service, 0 ordered, 1 unordered, 2 idempotent
//!   byte 23     bytes of the application's data
//! ```
//!
//! The REP carries the result: the smaller number of each, the finest granularity that both know,
//! the stricter service, the tags that both know by the same TPIDs ([`super::tags`]); and the
//! cookie of its own side. A side that does not know the offer, or only version 1, which had no
//! cookie and was in front, takes it for what it is not interested in and answers without one: then
//! the connection is plain RoCEv2.

use super::tags;
use crate::limits;
use crate::verbs::{Granularity, MultipathConfig, Service, Untagged};
use common::time::Span;
use common::wire::cm::REQ_PRIVATE_LEN;
use common::wire::csig::Tpids;
use common::wire::roce::{Cookie, Extension};

/// Bytes of an offer.
pub(crate) const OFFER_LEN: usize = 24;

const MAGIC: [u8; 4] = *b"MPR1";
const VERSION: u8 = 2;

/// The bit that says that marks of packets are understood.
const MARKS: u8 = 1 << 3;

/// Where the service is in its byte.
const SERVICE: u32 = 6;

/// An offer, or its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offer {
    pub(crate) config: MultipathConfig,
    /// Payload bytes of a full packet.
    pub(crate) path_mtu: u16,
    /// What packets to this side carry.
    pub(crate) cookie: Cookie,
    /// The TPIDs that are told of the tags which this side offers.
    pub(crate) told: Option<Tpids>,
}

impl Offer {
    /// The offer at the end of `private`, if there is one that makes sense, and the application's
    /// data. Without an offer that is all of `private`: nothing tells where it ends.
    pub(crate) fn parse(private: &[u8]) -> (Option<Self>, &[u8]) {
        let Some((front, bytes)) = private.split_last_chunk() else {
            return (None, private);
        };
        match (
            Self::read(bytes),
            front.split_at_checked(usize::from(bytes[23])),
        ) {
            (Some(offer), Some((data, between))) => {
                let told = tags::read(between);
                (Some(Self { told, ..offer }), data)
            }
            _ => (None, private),
        }
    }

    fn read(bytes: &[u8; OFFER_LEN]) -> Option<Self> {
        if bytes[..4] != MAGIC || bytes[4] != VERSION {
            return None;
        }
        let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
        let micros = |at: usize| Span::from_micros(u64::from(word(at)));
        let offer = Self {
            config: MultipathConfig {
                paths: word(6),
                granularity: finest(bytes[5] & 7)?,
                reorder_packets: word(8),
                reorder_time: micros(10),
                reorder_buffer: word(12),
                flowlet_timeout: micros(14),
                marks: bytes[5] & MARKS != 0,
                changes: bytes[22] & Extension::CHANGE != 0,
                signals: bytes[22] & Extension::REFLECTION != 0,
                telemetry: bytes[22] & Extension::UTILISATION != 0,
                service: Service::of_bits(bytes[22] >> SERVICE),
            },
            path_mtu: mtu_of(bytes[5] >> 4)?,
            cookie: Cookie::from_bytes(*bytes[16..].first_chunk()?),
            told: None,
        };
        (offer.config.paths > 0 && offer.config.reorder_buffer > 0).then_some(offer)
    }

    /// The bytes of the offer, with `data_len` bytes of the application's data in front of it.
    fn emit(&self, data_len: u8) -> [u8; OFFER_LEN] {
        let config = self.config.within_limits();
        let micros = |span: Span| u16::try_from(span.nanos() / 1_000).unwrap_or(u16::MAX);
        let mut bytes = [0; OFFER_LEN];
        bytes[..4].copy_from_slice(&MAGIC);
        bytes[4] = VERSION;
        bytes[5] = known(config.granularity) | mtu_code(self.path_mtu) << 4;
        bytes[5] |= if config.marks { MARKS } else { 0 };
        let words = [
            config.paths,
            config.reorder_packets,
            micros(config.reorder_time),
            config.reorder_buffer,
            micros(config.flowlet_timeout),
        ];
        for (place, word) in bytes[6..16].chunks_exact_mut(2).zip(words) {
            place.copy_from_slice(&word.to_be_bytes());
        }
        bytes[16..22].copy_from_slice(&self.cookie.to_bytes());
        bytes[22] = if config.changes { Extension::CHANGE } else { 0 };
        bytes[22] |= if config.signals {
            Extension::REFLECTION
        } else {
            0
        };
        bytes[22] |= if config.telemetry {
            Extension::UTILISATION
        } else {
            0
        };
        bytes[22] |= config.service.bits() << SERVICE;
        bytes[23] = data_len;
        bytes
    }

    /// Fills the private data of a message: the application's `data`, and the offer, if there is
    /// one. What finds no room is cut off; TPIDs are told only if there is room behind the data.
    pub(crate) fn fill(private: &mut [u8], offer: Option<&Self>, data: &[u8]) {
        let room = private.len() - if offer.is_some() { OFFER_LEN } else { 0 };
        let len = data.len().min(room).min(usize::from(u8::MAX));
        private[..len].copy_from_slice(&data[..len]);
        if let Some(offer) = offer {
            let len = u8::try_from(len).expect("bounded above");
            private[room..].copy_from_slice(&offer.emit(len));
            let between = private[usize::from(len)..room].last_chunk_mut();
            if let Some((between, told)) = between.zip(offer.told) {
                *between = tags::emit(told);
            }
        }
    }

    /// The offer of a REQ with so many bytes of the application's data, of a side that knows tags
    /// by `known`; and what cannot be offered.
    pub(crate) fn asking(mut self, known: Tpids, data: usize) -> (Self, Option<Untagged>) {
        let own = tags::offered(&self.config, known);
        let tells = !tags::are_shipped(own);
        (self.config.signals, self.config.telemetry) = tags::as_shipped(own);
        let has_room = data + OFFER_LEN + tags::LEN <= REQ_PRIVATE_LEN;
        self.told = (tells && has_room).then_some(own);
        let untagged = Untagged { own, peer: None };
        (self, (tells && !has_room).then_some(untagged))
    }

    /// What is agreed on with the offer of a REQ, by a side that knows tags by `known`; and why
    /// there are no tags, if both offer some.
    pub(crate) fn answering(&self, known: Tpids, asked: &Self) -> (Self, Option<Untagged>) {
        let own = tags::offered(&self.config, known);
        let theirs = asked.tpids();
        let mut agreed = self.agree(asked);
        (agreed.config.signals, agreed.config.telemetry) = tags::same(own, theirs);
        let tells = asked.told.is_some() || !tags::are_shipped(own);
        agreed.told = tells.then_some(own);
        (agreed, tags::disagreement(own, theirs))
    }

    /// What is agreed on by the REP to this offer of a REQ; and why there are no tags, if both
    /// offer some. The REP has said which blocks there will be; that its TPIDs are the same is
    /// looked at once more.
    pub(crate) fn answered(&self, answer: &Self) -> (Self, Option<Untagged>) {
        let own = self.tpids();
        let theirs = answer.told.unwrap_or(own);
        let mut agreed = self.agree(answer);
        let (signals, telemetry) = tags::same(own, theirs);
        agreed.config.signals = answer.config.signals && signals;
        agreed.config.telemetry = answer.config.telemetry && telemetry;
        (agreed, tags::disagreement(own, theirs))
    }

    /// The TPIDs of the tags that a REQ offers: those that ship if it tells none.
    fn tpids(&self) -> Tpids {
        self.told
            .unwrap_or_else(|| tags::offered(&self.config, Tpids::default()))
    }

    /// What both offer, with the cookie of this side.
    fn agree(&self, other: &Self) -> Self {
        let (own, other_config) = (self.config.within_limits(), other.config.within_limits());
        Self {
            config: MultipathConfig {
                paths: own.paths.min(other_config.paths),
                granularity: coarser(own.granularity, other_config.granularity),
                reorder_packets: own.reorder_packets.min(other_config.reorder_packets),
                reorder_time: own.reorder_time.min(other_config.reorder_time),
                reorder_buffer: own.reorder_buffer.min(other_config.reorder_buffer),
                flowlet_timeout: own.flowlet_timeout.min(other_config.flowlet_timeout),
                marks: own.marks && other_config.marks,
                changes: own.changes && other_config.changes,
                signals: own.signals && other_config.signals,
                telemetry: own.telemetry && other_config.telemetry,
                service: own.service.min(other_config.service),
            },
            path_mtu: self.path_mtu.min(other.path_mtu),
            cookie: self.cookie,
            told: None,
        }
    }
}

/// The granularities of a side that wants `granularity`: that one and all coarser ones.
const fn known(granularity: Granularity) -> u8 {
    match granularity {
        Granularity::Flow => 0b001,
        Granularity::Flowlet => 0b011,
        Granularity::Packet => 0b111,
    }
}

/// The finest of the granularities in `bits`.
const fn finest(bits: u8) -> Option<Granularity> {
    match bits {
        0b100..=0b111 => Some(Granularity::Packet),
        0b010 | 0b011 => Some(Granularity::Flowlet),
        0b001 => Some(Granularity::Flow),
        _ => None,
    }
}

const fn coarser(one: Granularity, other: Granularity) -> Granularity {
    match finest(known(one) & known(other)) {
        Some(granularity) => granularity,
        None => Granularity::Flow,
    }
}

/// The path MTU of InfiniBand's code.
pub(crate) const fn mtu_of(code: u8) -> Option<u16> {
    match code {
        1..=5 => Some(128 << code),
        _ => None,
    }
}

/// InfiniBand's code of a path MTU; of the next smaller one if it is between two.
pub(crate) const fn mtu_code(mtu: u16) -> u8 {
    match mtu {
        4096.. => 5,
        2048.. => 4,
        1024.. => 3,
        512.. => 2,
        _ => 1,
    }
}

/// The largest path MTU for a port that carries IP packets of `mtu` bytes; `None` below the
/// smallest.
pub(crate) fn path_mtu(mtu: u16, wanted: u16, v6: bool) -> Option<u16> {
    /// UDP 8, BTH 12, MPEH 8 and its extension 8, RETH 16, ImmDt 4, ICRC 4.
    const TRANSPORT: u16 = 8 + 12 + 8 + 8 + 16 + 4 + 4;
    const _: () = assert!(Extension::LEN == 8);
    let headers = TRANSPORT + if v6 { 40 } else { 20 };
    let room = mtu.checked_sub(headers)?.min(wanted);
    (room >= limits::PATH_MTU_MIN)
        .then(|| mtu_of(mtu_code(room)))
        .flatten()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn offers() -> impl Strategy<Value = Offer> {
        let numbers = (
            1..=256_u16,
            0..3_u8,
            0..=600_u16,
            100..=9_000_u64,
            1..=512_u16,
            any::<bool>(),
        );
        (numbers, 0..=9_000_u64, 1..=5_u8).prop_map(|(numbers, flowlet, mtu)| Offer {
            config: MultipathConfig {
                paths: numbers.0,
                granularity: [Granularity::Flow, Granularity::Flowlet, Granularity::Packet]
                    [usize::from(numbers.1)],
                reorder_packets: numbers.2,
                reorder_time: Span::from_micros(numbers.3),
                reorder_buffer: numbers.4,
                flowlet_timeout: Span::from_micros(flowlet),
                marks: numbers.5,
                changes: numbers.5 != (numbers.0 % 2 == 0),
                signals: numbers.4 % 2 == 0,
                telemetry: numbers.4 % 4 == 1,
                service: Service::ALL[usize::from(numbers.2 % 3)],
            },
            path_mtu: mtu_of(mtu).expect("a code"),
            cookie: Cookie::new(numbers.0.into()),
            told: None,
        })
    }

    proptest! {
        /// HT-20: an offer is read as it was written, with the application's data in front of it,
        /// and the result is the same from both sides, but for the cookie of each, and not more
        /// than either offered.
        #[test]
        fn offers_meet_in_the_middle(
            one in offers(),
            other in offers(),
            data in proptest::collection::vec(any::<u8>(), 0..40),
            room in 24..200_usize,
        ) {
            let mut private = vec![0; room];
            Offer::fill(&mut private, Some(&one), &data);
            let sent = data.len().min(room - OFFER_LEN);
            prop_assert_eq!(&private[..sent], &data[..sent]);
            prop_assert_eq!(Offer::parse(&private), (Some(one), &data[..sent]));
            let agreed = one.agree(&other);
            prop_assert_eq!(agreed.cookie, one.cookie);
            let theirs = other.agree(&one);
            prop_assert_eq!(Offer { cookie: agreed.cookie, ..theirs }, agreed);
            prop_assert_eq!(agreed.agree(&one), agreed);
            prop_assert!(agreed.config.paths <= one.config.paths.min(other.config.paths));
            // HT-39: the stricter service.
            let [one, other] = [one, other].map(|offer| offer.config.service);
            prop_assert!(agreed.config.service <= one && agreed.config.service <= other);
            prop_assert!([one, other].contains(&agreed.config.service));
        }

        /// Any bytes: no panic, and nothing out of range comes out.
        #[test]
        fn any_private_data_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let mut offered = bytes.clone();
            if let Some(offer) = offered.last_chunk_mut::<OFFER_LEN>() {
                offer[..4].copy_from_slice(&MAGIC);
                offer[4] = VERSION;
            }
            for private in [&bytes, &offered] {
                let (offer, data) = Offer::parse(private);
                prop_assert!(private.starts_with(data));
                if let Some(offer) = offer {
                    prop_assert!(offer.config.paths > 0 && offer.path_mtu >= 256);
                    let agreed = offer.agree(&offer).config;
                    prop_assert!(agreed.paths <= 256);
                    prop_assert!(agreed.reorder_time >= limits::REORDER_TIME_MIN);
                }
            }
        }
    }

    #[test]
    fn path_mtu_leaves_room_for_headers() {
        assert_eq!(path_mtu(3000, 4096, false), Some(2048));
        assert_eq!(path_mtu(1500, 4096, true), Some(1024));
        assert_eq!(path_mtu(9000, 4096, true), Some(4096));
        assert_eq!(path_mtu(9000, 1500, true), Some(1024));
        assert_eq!(path_mtu(300, 4096, false), None);
        assert_eq!(path_mtu(0, 4096, false), None);
    }
}
