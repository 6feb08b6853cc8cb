//! Which tags for CSIG and INT the two sides of a connection know by the same TPIDs (CS-8, SW-52).
//! A tag of another TPID is a packet of an unknown protocol to the peer: all that carry one would
//! be lost. So such tags are not agreed on, and both sides say why.
//!
//! TPIDs are told in the eight bytes before the [offer](super::negotiation):
//!
//! ```text
//!   byte 0–1    54 50 ("TP")
//!   byte 2–3    TPID of compact CSIG tags; 0: CSIG is not offered
//!   byte 4–5    TPID of expanded CSIG tags; 0: CSIG is not offered
//!   byte 6–7    TPID of INT tags; 0: INT is not offered
//! ```
//!
//! A REQ tells them if they are not those that ship, and then does not name blocks 1 and 2 in its
//! offer for the sake of those: a peer that does not know these bytes agrees on no tags. Who names
//! blocks and tells nothing has the TPIDs that ship. A REP names the blocks that are agreed on. It
//! tells TPIDs if the REQ did, or if its own are not those that ship.

use crate::verbs::{MultipathConfig, Untagged};
use common::wire::csig::Tpids;

/// Bytes in which TPIDs are told.
pub(super) const LEN: usize = 8;

const MAGIC: [u8; 2] = *b"TP";

/// Those of `known` that tags are offered with. Zero: no such tags.
pub(super) fn offered(config: &MultipathConfig, known: Tpids) -> Tpids {
    let only = |wanted, tpid| if wanted { tpid } else { 0 };
    Tpids {
        compact: only(config.signals, known.compact),
        expanded: only(config.signals, known.expanded),
        int: only(config.telemetry, known.int),
    }
}

/// Whether both know CSIG's tags by the same TPIDs, and INT's.
pub(super) fn same(one: Tpids, other: Tpids) -> (bool, bool) {
    let csig = |it: Tpids| (it.compact, it.expanded);
    (
        one.compact != 0 && csig(one) == csig(other),
        one.int != 0 && one.int == other.int,
    )
}

/// Whether the TPIDs of CSIG that are offered are those that ship, and those of INT.
pub(super) fn as_shipped(offered: Tpids) -> (bool, bool) {
    same(offered, Tpids::default())
}

/// Whether all that is offered has the TPIDs that ship.
pub(super) fn are_shipped(offered: Tpids) -> bool {
    let (csig, int) = as_shipped(offered);
    (csig || offered.compact == 0) && (int || offered.int == 0)
}

/// Why tags that both offer are not agreed on, if so.
pub(super) fn disagreement(own: Tpids, peer: Tpids) -> Option<Untagged> {
    let both = Untagged {
        own,
        peer: Some(peer),
    };
    let differ = both.concerns_signals() || both.concerns_telemetry();
    differ.then_some(both)
}

/// TPIDs as they are told.
pub(super) fn emit(tpids: Tpids) -> [u8; LEN] {
    let mut bytes = [0; LEN];
    bytes[..2].copy_from_slice(&MAGIC);
    let words = [tpids.compact, tpids.expanded, tpids.int];
    for (place, word) in bytes[2..].chunks_exact_mut(2).zip(words) {
        place.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// What is told at the end of `before`, which is what there is between the application's data and
/// the offer; `None` if that is nothing, or makes no sense.
pub(super) fn read(before: &[u8]) -> Option<Tpids> {
    let bytes: &[u8; LEN] = before.last_chunk()?;
    let word = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let tpids = Tpids {
        compact: word(2),
        expanded: word(4),
        int: word(6),
    };
    let is_whole = (tpids.compact == 0) == (tpids.expanded == 0);
    (bytes[..2] == MAGIC && is_whole).then_some(tpids)
}

#[cfg(test)]
mod tests;
