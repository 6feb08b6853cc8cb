//! Changes of a multipath connection that carries data (HT-22, HT-32).

use super::config::{Granularity, MultipathConfig};
use crate::limits;
use common::time::Span;
use common::wire::roce::PathIds;

/// What is to become other; what is not named stays as it is.
///
/// The sub-paths in force, granularity, tolerance and flowlet time-out hold for both directions,
/// and the peer is asked. Weights are the sender's own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MultipathChange {
    /// Sub-paths that come into force. Each carries data once a probe of it was answered.
    pub add: PathIds,
    /// Sub-paths that carry no new packets any more.
    pub remove: PathIds,
    /// Path ID and new weight, 1–100: the share of packets, or of flowlets, against that of others.
    pub weights: Vec<(u8, u8)>,
    /// What takes one path.
    pub granularity: Option<Granularity>,
    /// Packets by which one may be overtaken before it is taken for lost.
    pub reorder_packets: Option<u16>,
    /// Time by which a packet may be late before it is taken for lost: 100 µs to 65,535 µs.
    pub reorder_time: Option<Span>,
    /// A pause that ends a flowlet: at most 65,535 µs.
    pub flowlet_timeout: Option<Span>,
}

/// What a sub-path is used for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathStanding {
    /// Not in force, and nothing refers to it.
    Unused,
    /// In force; it carries data once a probe was answered.
    Unmeasured,
    /// In force.
    #[default]
    Carrying,
    /// Taken out while packets on it may be in flight.
    Retiring,
}

impl PathStanding {
    /// Its name, for people.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Unused => "unused",
            Self::Unmeasured => "unmeasured",
            Self::Carrying => "carrying",
            Self::Retiring => "retiring",
        }
    }

    /// Whether it is in force.
    pub const fn in_force(self) -> bool {
        matches!(self, Self::Unmeasured | Self::Carrying)
    }
}

/// What the sides of a multipath connection agreed on, as it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MultipathState {
    /// As at first, with all changes.
    pub agreed: MultipathConfig,
    /// Sub-paths in force.
    pub in_force: PathIds,
    /// The peer has not answered the last change that was asked for here.
    pub pending: bool,
    /// The peer refused it.
    pub refused: bool,
}

/// What became of a change that the peer was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeStanding {
    /// The peer has not answered yet.
    Pending,
    /// Both sides have made it.
    Made,
    /// The peer refused it, and nothing has changed.
    Refused,
}

/// Why a change was refused; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChangeRefused {
    /// There is no such queue pair.
    #[error("no such queue pair")]
    Unknown,
    /// The queue pair is not connected, or its connection ends.
    #[error("the queue pair is not connected")]
    NotConnected,
    /// Multipath was not agreed on with the peer.
    #[error("the connection is plain RoCEv2: it has one path")]
    Plain,
    /// The peer did not say that it understands changes.
    #[error("the peer does not understand changes of a connection")]
    PeerTooOld,
    /// The peer has not answered the change before this one.
    #[error("the peer has not answered the change before this one")]
    Pending,
    /// Nothing is to change.
    #[error("nothing is to be changed")]
    Nothing,
    /// More sub-paths than were agreed on.
    #[error("there is no sub-path {path}: {most} were agreed on, from 0 up")]
    NoSuchPath {
        /// Its Path ID.
        path: u8,
        /// How many there may be.
        most: usize,
    },
    /// A sub-path to be added is in force.
    #[error("sub-path {0} is in force already")]
    InForce(u8),
    /// A sub-path that is named is not in force.
    #[error("sub-path {0} is not in force")]
    NotInForce(u8),
    /// A sub-path is both to be added and to be removed.
    #[error("sub-path {0} is both to be added and to be removed")]
    Both(u8),
    /// No sub-path would be left.
    #[error("no sub-path would be left")]
    LastPath,
    /// A weight is not possible.
    #[error(
        "weight {weight} of sub-path {path} is not from 1 to {}",
        limits::WEIGHT
    )]
    Weight {
        /// Path ID.
        path: u8,
        /// The weight.
        weight: u8,
    },
    /// A value is not possible.
    #[error("{0} is out of range")]
    OutOfRange(&'static str),
}

impl MultipathChange {
    /// Checks it against the sub-paths `in_force`, of which there may be `most`; the paths that are
    /// in force afterwards.
    ///
    /// # Errors
    /// The first thing that is not possible.
    pub(crate) fn check(&self, in_force: &PathIds, most: usize) -> Result<PathIds, ChangeRefused> {
        let possible = PathIds::first(most);
        let named = self.weights.iter().map(|(path, _)| *path);
        let mut named = self.add.iter().chain(self.remove.iter()).chain(named);
        if let Some(path) = named.find(|path| !possible.contains(*path)) {
            return Err(ChangeRefused::NoSuchPath { path, most });
        }
        if let Some(path) = self.add.iter().find(|path| self.remove.contains(*path)) {
            return Err(ChangeRefused::Both(path));
        }
        if let Some(path) = self.add.iter().find(|path| in_force.contains(*path)) {
            return Err(ChangeRefused::InForce(path));
        }
        if let Some(path) = self.remove.iter().find(|path| !in_force.contains(*path)) {
            return Err(ChangeRefused::NotInForce(path));
        }
        let after = in_force.iter().chain(self.add.iter());
        let after: PathIds = after.filter(|path| !self.remove.contains(*path)).collect();
        if after.is_empty() {
            return Err(ChangeRefused::LastPath);
        }
        for &(path, weight) in &self.weights {
            if !after.contains(path) {
                return Err(ChangeRefused::NotInForce(path));
            }
            if !(1..=limits::WEIGHT).contains(&weight) {
                return Err(ChangeRefused::Weight { path, weight });
            }
        }
        let most = Span::from_micros(u16::MAX.into());
        let times = limits::REORDER_TIME_MIN..=most;
        if self.reorder_time.is_some_and(|it| !times.contains(&it)) {
            return Err(ChangeRefused::OutOfRange("the reorder time"));
        }
        if self.flowlet_timeout.is_some_and(|it| it > most) {
            return Err(ChangeRefused::OutOfRange("the flowlet time-out"));
        }
        if *self == Self::default() {
            return Err(ChangeRefused::Nothing);
        }
        Ok(after)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-32: each impossible change is refused by what is wrong with it.
    #[test]
    fn impossible_changes_are_refused() {
        let ids = |paths: &[u8]| -> PathIds { paths.iter().copied().collect() };
        let change = MultipathChange::default;
        let of = |add: &[u8], remove: &[u8]| MultipathChange {
            add: ids(add),
            remove: ids(remove),
            ..change()
        };
        let weighed = |path, weight| MultipathChange {
            weights: vec![(path, weight)],
            ..change()
        };
        let late = |micros| MultipathChange {
            reorder_time: Some(Span::from_micros(micros)),
            ..change()
        };
        let paused = MultipathChange {
            flowlet_timeout: Some(Span::from_micros(65_536)),
            ..change()
        };
        let in_force = ids(&[0, 2]);
        let beyond = ChangeRefused::NoSuchPath { path: 4, most: 4 };
        let rows = [
            (change(), ChangeRefused::Nothing),
            (of(&[4], &[]), beyond),
            (of(&[], &[4]), beyond),
            (weighed(4, 1), beyond),
            (of(&[1], &[1]), ChangeRefused::Both(1)),
            (of(&[2], &[]), ChangeRefused::InForce(2)),
            (of(&[], &[1]), ChangeRefused::NotInForce(1)),
            (of(&[], &[0, 2]), ChangeRefused::LastPath),
            (weighed(1, 1), ChangeRefused::NotInForce(1)),
            (weighed(2, 0), ChangeRefused::Weight { path: 2, weight: 0 }),
            (
                weighed(2, 101),
                ChangeRefused::Weight {
                    path: 2,
                    weight: 101,
                },
            ),
            (late(99), ChangeRefused::OutOfRange("the reorder time")),
            (late(65_536), ChangeRefused::OutOfRange("the reorder time")),
            (paused, ChangeRefused::OutOfRange("the flowlet time-out")),
        ];
        for (change, refused) in rows {
            assert_eq!(change.check(&in_force, 4), Err(refused), "{change:?}");
        }
        assert_eq!(of(&[1, 3], &[0, 2]).check(&in_force, 4), Ok(ids(&[1, 3])));
        assert_eq!(weighed(2, 100).check(&in_force, 4), Ok(in_force));
    }
}
