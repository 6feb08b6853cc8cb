//! What a stage makes of a packet, for the worker to act on.

use crate::drop::DropReason;
use crate::id::Neighbour;
use common::wire::icmp::Problem;

/// What came of a packet in a stage; `T` is what the next stage is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome<T> {
    /// It goes on to the next stage.
    Forwarded(T),
    /// It goes on in fragments of at most so many bytes.
    Fragmented(T, u16),
    /// It waits until the MAC address of this neighbour is known.
    Unresolved(Neighbour),
    /// It is lost.
    Dropped(DropReason),
    /// It is lost, and its sender is told of the problem, if that may and can be done.
    Answered(DropReason, Problem),
}
