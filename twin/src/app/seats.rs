//! What an application knows of its members of jobs.

use crate::collective::ledger::Part;
use hostd_client::abi::collective::Membership;
use hostd_client::abi::descriptor::WORK_LEN;
use hostd_client::abi::ring::Producer;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// A member that is to join.
#[derive(Debug)]
pub struct NewMember {
    /// The number of its job in the simulation.
    pub job: usize,
    /// What it asks the switch for.
    pub membership: Membership,
    /// Its vectors, and what has come to it.
    pub part: Rc<RefCell<Part>>,
}

/// How a job ended for a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemberEnd {
    /// It has all results.
    Done,
    /// Why it has not, as hostd numbers reasons, and the world rank that is to blame.
    Failed(u16, Option<u16>),
    /// Its host died.
    Died,
}

/// A member that has joined.
#[derive(Debug)]
pub(super) struct Seat {
    pub(super) job: usize,
    pub(super) handle: u32,
    /// Kept, for hostd reads it.
    pub(super) _ring: Producer<WORK_LEN>,
    pub(super) part: Rc<RefCell<Part>>,
    /// Collectives that have completed.
    pub(super) completed: usize,
    pub(super) failed: Option<u32>,
}

/// Those of a host.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) seats: Vec<Seat>,
    pub(super) by_handle: HashMap<u32, usize>,
}

impl Members {
    pub(super) fn len(&self) -> usize {
        self.seats.len()
    }
}
