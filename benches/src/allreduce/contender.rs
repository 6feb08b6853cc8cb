//! Who takes part.

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Contender {
    /// hostd, through the switches.
    Switches,
    /// hostd, recursive doubling between the hosts.
    Doubling,
    /// hostd, a ring of the hosts.
    Ring,
    /// Open MPI, as it chooses.
    Mpi,
    /// Open MPI with this algorithm of its component `tuned`.
    MpiForced(&'static str, u8),
    /// PyTorch over gloo.
    Gloo,
}

/// Open MPI's algorithms by their numbers.
const MPI_DOUBLING: Contender = Contender::MpiForced("recursive doubling", 3);
const MPI_RING: Contender = Contender::MpiForced("ring", 4);
const MPI_RABENSEIFNER: Contender = Contender::MpiForced("Rabenseifner", 6);

pub(super) const WITH_SHORT: [Contender; 5] = [
    Contender::Switches,
    Contender::Doubling,
    Contender::Mpi,
    MPI_DOUBLING,
    Contender::Gloo,
];
pub(super) const WITH_LONG: [Contender; 6] = [
    Contender::Switches,
    Contender::Ring,
    Contender::Mpi,
    MPI_RING,
    MPI_RABENSEIFNER,
    Contender::Gloo,
];

impl Contender {
    pub(super) fn name(self) -> String {
        match self {
            Self::Switches => "hostd, through the switches".to_owned(),
            Self::Doubling => "hostd, recursive doubling".to_owned(),
            Self::Ring => "hostd, ring".to_owned(),
            Self::Mpi => "Open MPI".to_owned(),
            Self::MpiForced(name, _) => format!("Open MPI, {name}"),
            Self::Gloo => "gloo".to_owned(),
        }
    }
}
