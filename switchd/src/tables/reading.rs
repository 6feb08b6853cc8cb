//! By what a port knows the tags of CSIG and INT of packets that arrive, and whether it believes
//! them (CS-7, SW-52).

use super::csig::PortCsig;
use super::int::PortInt;
use common::wire::csig::{Kind, Tpids};

/// How tags that tell of a path are read at the port where packets arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reading {
    /// By which they are known.
    pub tpids: Tpids,
    /// Congestion signals are believed; otherwise they are taken off.
    pub trusts_csig: bool,
    /// The same of telemetry.
    pub trusts_int: bool,
}

impl Reading {
    /// At a port that does this with congestion signals, and with telemetry; `None`: it knows
    /// neither.
    #[inline]
    pub fn new(csig: Option<&PortCsig>, int: Option<PortInt>) -> Option<Self> {
        if csig.is_none() && int.is_none() {
            return None;
        }
        let known = csig.map_or(Tpids::NONE, |csig| csig.domain.tpids);
        Some(Self {
            tpids: Tpids {
                int: int.map_or(0, |int| int.tpid),
                ..known
            },
            trusts_csig: csig.is_some_and(|csig| csig.is_trusted),
            trusts_int: int.is_some_and(|int| int.is_trusted),
        })
    }

    /// Whether tags of this kind are believed.
    #[inline]
    pub const fn trusts(self, kind: Kind) -> bool {
        match kind {
            Kind::Csig(_) => self.trusts_csig,
            Kind::Int => self.trusts_int,
        }
    }
}
