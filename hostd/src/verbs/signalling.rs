//! How a host takes part in CSIG: which tags its packets carry, and what comes back means (CS-8 to
//! CS-10).

use common::csig::Scales;
use common::wire::csig::{Form, Signal, Tpids};
use std::fmt;

/// See the module. TPIDs and scales are those of the whole domain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signalling {
    /// By which tags are known.
    pub tpids: Tpids,
    /// Form of the tags of own packets.
    pub form: Form,
    /// One in so many data packets of a queue pair has a tag; above zero.
    pub every: u32,
    /// The signals that tags ask for, in turns; at least one.
    pub signals: Vec<Signal>,
    /// How values are written.
    pub scales: Scales,
    /// The locators that switches write at ports to hosts: a bottleneck there is the last hop, and
    /// no other path avoids it.
    pub host_locators: Vec<u16>,
}

/// Why the packets of a connection have no tags for CSIG or INT though this side offers them: the
/// sides know them by other TPIDs, and packets with such tags would be lost (CS-8, SW-52). A TPID
/// of zero: no such tags are offered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Untagged {
    /// The TPIDs of this side.
    pub own: Tpids,
    /// Those of the peer; `None`: the own ones are not those that ship, and the data of the
    /// application left no room in the REQ to tell them.
    pub peer: Option<Tpids>,
}

impl Untagged {
    /// Whether it is so for CSIG.
    pub fn concerns_signals(&self) -> bool {
        let csig = |it: Tpids| [it.compact, it.expanded];
        self.concerns(
            |it| csig(it) != [0; 2],
            |one, other| csig(one) == csig(other),
        )
    }

    /// Whether it is so for INT.
    pub fn concerns_telemetry(&self) -> bool {
        self.concerns(|it| it.int != 0, |one, other| one.int == other.int)
    }

    fn concerns(
        &self,
        is_offered: impl Fn(Tpids) -> bool,
        is_same: impl Fn(Tpids, Tpids) -> bool,
    ) -> bool {
        let shipped = Tpids::default();
        let is_unlike = match self.peer {
            Some(peer) => is_offered(peer) && !is_same(self.own, peer),
            None => !is_same(self.own, shipped),
        };
        is_offered(self.own) && is_unlike
    }
}

impl fmt::Display for Untagged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let of = |it: Tpids| {
            let offered = [it.compact, it.expanded, it.int].into_iter();
            let offered = offered.filter(|tpid| *tpid != 0);
            let names: Vec<_> = offered.map(|tpid| format!("{tpid:#06x}")).collect();
            names.join(" and ")
        };
        let own = of(self.own);
        match self.peer {
            Some(peer) => write!(f, "no tags: TPIDs are {own} here, {} at the peer", of(peer)),
            None => write!(
                f,
                "no tags: the application's data leaves no room to tell TPIDs {own}"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CS-10, SW-52: operators read which TPIDs each side has, or why they could not be told, in
    /// the table of the kind of tags that it is about.
    #[test]
    fn why_there_are_no_tags_is_told_with_the_tpids() {
        let csig = |compact| Tpids {
            compact,
            expanded: compact + 1,
            int: 0,
        };
        let int = |int| Tpids { int, ..Tpids::NONE };
        for (own, peer, text, [signals, telemetry]) in [
            (
                csig(0x9900),
                Some(csig(0x88b5)),
                "no tags: TPIDs are 0x9900 and 0x9901 here, 0x88b5 and 0x88b6 at the peer",
                [true, false],
            ),
            (
                int(0x9902),
                Some(int(0x88b5)),
                "no tags: TPIDs are 0x9902 here, 0x88b5 at the peer",
                [false, true],
            ),
            (
                int(0x88b5),
                None,
                "no tags: the application's data leaves no room to tell TPIDs 0x88b5",
                [false, true],
            ),
        ] {
            let untagged = Untagged { own, peer };
            assert_eq!(untagged.to_string(), text);
            assert_eq!(untagged.concerns_signals(), signals, "{text}");
            assert_eq!(untagged.concerns_telemetry(), telemetry, "{text}");
        }
    }
}
