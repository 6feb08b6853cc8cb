//! What members call together, and how it is done.

use crate::abi::codec::{DecodeError, Reader, Writer};
use reduce::{Element, Operation};
use std::fmt;

/// What the members of a group do together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collective {
    /// Each gets what comes of the vectors of all.
    Allreduce(Operation, Element),
    /// The root gets it. The vectors of the others are scratch.
    Reduce {
        /// What is done to the elements.
        operation: Operation,
        /// What they are.
        element: Element,
        /// The rank that gets the result.
        root: usize,
    },
    /// Each gets the bytes of the root.
    Broadcast {
        /// The rank that has them.
        root: usize,
    },
    /// Nobody goes on before all are there.
    Barrier,
    /// Each gets the blocks of all: the vector is as many equal blocks as there are members, and
    /// the one of the own rank is what this member gives.
    Allgather,
    /// Each gets its block of what comes of the vectors of all. The other blocks are scratch.
    ReduceScatter(Operation, Element),
}

/// How a collective is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Algorithm {
    /// Through the switches if they can: they add in the order of arrival, so the last bits of sums
    /// and products of floats may be others in each call, unless the group is deterministic. Else
    /// by length: [`Algorithm::Doubling`] for short vectors, [`Algorithm::Ring`] for long ones. In
    /// order of the ranks [`Algorithm::Chain`].
    #[default]
    Auto,
    /// Along the ring of the ranks, in blocks: each link carries about twice the vector, however
    /// many members there are. With a root: from member to member towards it, or from it.
    Ring,
    /// Recursive doubling, and trees if there is a root: as few steps as can be.
    Doubling,
    /// From rank to rank and back, in segments: sums are added in the order of the ranks.
    Chain,
    /// Through the switches, as [`Algorithm::Auto`] does if they can. Where they cannot, and from
    /// where they fail, between the hosts as [`Algorithm::Auto`] does without switches.
    Inc,
}

/// The longest vector in bytes for which `Auto` takes few steps rather than few bytes.
pub(crate) const SHORT: usize = 128 << 10;

impl Algorithm {
    const ALL: [Self; 5] = [
        Self::Auto,
        Self::Ring,
        Self::Doubling,
        Self::Chain,
        Self::Inc,
    ];

    /// What is meant between hosts for a vector of `len` bytes; `None` if the collective is not
    /// done so.
    pub(crate) fn choose(
        self,
        collective: Collective,
        deterministic: bool,
        len: usize,
    ) -> Option<Self> {
        let reduces = matches!(
            collective,
            Collective::Allreduce(..) | Collective::Reduce { .. } | Collective::ReduceScatter(..)
        );
        let whole = !matches!(
            collective,
            Collective::Allgather | Collective::ReduceScatter(..)
        );
        match self {
            Self::Auto if collective == Collective::Barrier => Some(Self::Doubling),
            Self::Auto if reduces && deterministic => Some(Self::Chain),
            Self::Auto if whole && len <= SHORT => Some(Self::Doubling),
            Self::Auto | Self::Ring if collective != Collective::Barrier => {
                (self == Self::Auto || !(reduces && deterministic)).then_some(Self::Ring)
            }
            Self::Auto | Self::Ring => None,
            Self::Doubling => (whole && !(reduces && deterministic)).then_some(self),
            Self::Chain => reduces.then_some(self),
            Self::Inc if whole => Self::Auto.choose(collective, deterministic, len),
            Self::Inc => None,
        }
    }
}

/// What all members must agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// What they do.
    pub collective: Collective,
    /// How between hosts, so neither [`Algorithm::Auto`] nor [`Algorithm::Inc`].
    pub algorithm: Algorithm,
    /// Bytes of the vector.
    pub len: u64,
}

/// Bytes of a call in a message.
pub(crate) const CALL_LEN: usize = 16;

impl Call {
    pub(crate) fn to_bytes(self) -> [u8; CALL_LEN] {
        let (number, work, root) = match self.collective {
            Collective::Allreduce(operation, element) => (0, Some((operation, element)), 0),
            Collective::Reduce {
                operation,
                element,
                root,
            } => (1, Some((operation, element)), root),
            Collective::Broadcast { root } => (2, None, root),
            Collective::Barrier => (3, None, 0),
            Collective::Allgather => (4, None, 0),
            Collective::ReduceScatter(operation, element) => (5, Some((operation, element)), 0),
        };
        let (operation, element) = work.map_or((0, 0), |(op, el)| (op as u8, el as u8));
        let algorithm = self.algorithm as u8;
        Writer::<CALL_LEN>::new()
            .u8(number)
            .u8(operation)
            .u8(element)
            .u8(algorithm)
            .u16(u16::try_from(root).unwrap_or(u16::MAX))
            .u16(0)
            .u64(self.len)
            .full()
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let [number, operation, element, algorithm] = reader.bytes()?;
        let root = usize::from(reader.u16()?);
        reader.reserved::<2>()?;
        let len = reader.u64()?;
        let work = || {
            let operation = Operation::ALL.into_iter().find(|it| *it as u8 == operation);
            let element = Element::ALL.into_iter().find(|it| *it as u8 == element);
            operation.zip(element).ok_or(DecodeError::Field("work"))
        };
        let collective = match number {
            0 => work().map(|(operation, element)| Collective::Allreduce(operation, element))?,
            1 => work().map(|(operation, element)| Collective::Reduce {
                operation,
                element,
                root,
            })?,
            2 => Collective::Broadcast { root },
            3 => Collective::Barrier,
            4 => Collective::Allgather,
            5 => {
                work().map(|(operation, element)| Collective::ReduceScatter(operation, element))?
            }
            _ => return Err(DecodeError::Field("collective")),
        };
        let algorithm = Algorithm::ALL.get(usize::from(algorithm)).copied();
        Ok(Self {
            collective,
            algorithm: algorithm.ok_or(DecodeError::Field("algorithm"))?,
            len,
        })
    }

    /// What is done to elements, if anything is.
    pub(crate) fn work(&self) -> Option<(Operation, Element)> {
        match self.collective {
            Collective::Allreduce(operation, element)
            | Collective::ReduceScatter(operation, element)
            | Collective::Reduce {
                operation, element, ..
            } => Some((operation, element)),
            _ => None,
        }
    }

    /// What one that has results gives to another one that lacks them, of `len` bytes in all: no
    /// collective that members call.
    pub(crate) fn mending(holder: usize, len: u64) -> Self {
        Self {
            collective: Collective::Broadcast { root: holder },
            algorithm: Algorithm::Chain,
            len,
        }
    }

    /// Whether it is [`Self::mending`].
    pub(crate) fn mends(&self) -> bool {
        matches!(self.collective, Collective::Broadcast { .. })
            && self.algorithm == Algorithm::Chain
    }

    /// Whether the first `len` bytes of the vector are whole elements.
    pub(crate) fn takes(&self, len: u64) -> bool {
        let whole = |width: usize| len == self.len || len.is_multiple_of(width as u64);
        self.work().is_none_or(|(_, element)| whole(element.len()))
    }

    /// Whether the bits of the result depend on the order in which the vectors are reduced.
    pub(crate) fn depends_on_order(&self) -> bool {
        self.work()
            .is_some_and(|(operation, element)| operation.is_ordered(element))
    }

    /// Whether nobody can be done before all have come.
    pub(crate) fn synchronizes(&self) -> bool {
        !matches!(
            self.collective,
            Collective::Reduce { .. } | Collective::Broadcast { .. }
        )
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.collective {
            Collective::Allreduce(operation, element) => {
                write!(f, "allreduce ({operation:?} of {element:?})")?;
            }
            Collective::Reduce {
                operation,
                element,
                root,
            } => write!(f, "reduce to {root} ({operation:?} of {element:?})")?,
            Collective::Broadcast { root } => write!(f, "broadcast from {root}")?,
            Collective::Barrier => return write!(f, "barrier"),
            Collective::Allgather => write!(f, "allgather")?,
            Collective::ReduceScatter(operation, element) => {
                write!(f, "reduce-scatter ({operation:?} of {element:?})")?;
            }
        }
        write!(f, " of {} bytes by {:?}", self.len, self.algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn every() -> Vec<Collective> {
        let mut all = vec![Collective::Barrier, Collective::Allgather];
        all.push(Collective::Broadcast { root: 63 });
        for operation in Operation::ALL {
            for element in Element::ALL {
                let root = 7;
                all.push(Collective::Allreduce(operation, element));
                all.push(Collective::ReduceScatter(operation, element));
                all.push(Collective::Reduce {
                    operation,
                    element,
                    root,
                });
            }
        }
        all
    }

    /// HT-50: what one member says it calls is what the others read, and nothing else is read.
    #[test]
    fn calls_round_trip() {
        for collective in every() {
            for algorithm in Algorithm::ALL {
                let len = 1 << 33;
                let call = Call {
                    collective,
                    algorithm,
                    len,
                };
                let bytes = call.to_bytes();
                assert_eq!(Call::read(&mut Reader::new(&bytes)), Ok(call));
                assert!(Call::read(&mut Reader::new(&bytes[..15])).is_err());
            }
        }
        let call = Call {
            collective: Collective::Allreduce(Operation::Sum, Element::F32),
            algorithm: Algorithm::Ring,
            len: 4,
        };
        for (byte, wrong) in [(0, 6), (1, 8), (1, 0), (2, 9), (3, 5), (6, 1)] {
            let mut bytes = call.to_bytes();
            bytes[byte] = wrong;
            assert!(Call::read(&mut Reader::new(&bytes)).is_err(), "{byte}");
        }
    }

    /// HT-50, SW-43: short vectors go in few steps, long ones in few bytes, and what must be added
    /// in the order of the ranks is.
    #[test]
    fn algorithms_fit_the_collective() {
        let sum = Collective::Allreduce(Operation::Sum, Element::F32);
        let auto =
            |collective, deterministic, len| Algorithm::Auto.choose(collective, deterministic, len);
        assert_eq!(auto(sum, false, SHORT), Some(Algorithm::Doubling));
        assert_eq!(auto(sum, false, SHORT + 1), Some(Algorithm::Ring));
        assert_eq!(auto(sum, true, 8), Some(Algorithm::Chain));
        assert_eq!(
            auto(Collective::Barrier, true, 0),
            Some(Algorithm::Doubling)
        );
        assert_eq!(auto(Collective::Allgather, true, 8), Some(Algorithm::Ring));
        for collective in every() {
            for deterministic in [false, true] {
                assert!(
                    auto(collective, deterministic, 64).is_some(),
                    "{collective:?}"
                );
            }
        }
        assert_eq!(Algorithm::Ring.choose(sum, true, 8), None);
        assert_eq!(Algorithm::Doubling.choose(sum, true, 8), None);
        assert_eq!(
            Algorithm::Doubling.choose(Collective::Allgather, false, 8),
            None
        );
        assert_eq!(Algorithm::Ring.choose(Collective::Barrier, false, 0), None);
        assert_eq!(Algorithm::Chain.choose(Collective::Barrier, false, 0), None);
        let inc = |collective, deterministic| Algorithm::Inc.choose(collective, deterministic, 8);
        assert_eq!(inc(sum, false), Some(Algorithm::Doubling));
        assert_eq!(inc(sum, true), Some(Algorithm::Chain));
        assert_eq!(inc(Collective::Barrier, true), Some(Algorithm::Doubling));
        assert_eq!(inc(Collective::Allgather, false), None);
        // What mends is nothing that members call.
        let mending = Call::mending(2, 8);
        assert!(mending.mends());
        let chosen = Algorithm::Chain.choose(mending.collective, false, 8);
        assert_eq!(chosen, None);
    }
}
