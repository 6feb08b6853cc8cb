//! The table of memberships of jobs, and who of them waits for a turn.

use crate::collective::Member;
use crate::limits;
use crate::slab::Slab;
use crate::timers::Timers;
use common::time::Time;
use std::collections::{HashMap, VecDeque};

/// All memberships of an engine.
#[derive(Debug)]
pub(super) struct Members {
    pub(super) members: Slab<Box<Member>>,
    /// By job and rank.
    pub(super) names: HashMap<(u32, u16), u32>,
    /// Those with something to send, in the order of their turns.
    pub(super) waiting: VecDeque<u32>,
    pub(super) timers: Timers,
    /// Bytes that results may take that wait for their turn.
    pub(super) staging: u64,
    /// When the way to the switch is asked for again.
    pub(super) ask_from: Time,
    /// Since when, and how often, it was told that a group does without switches.
    pub(super) told: (Time, u32),
    /// Whether members are the first to send in this turn, before queue pairs.
    pub(super) first: bool,
}

impl Members {
    pub(super) fn new() -> Self {
        Self {
            members: Slab::new(limits::MEMBERSHIPS, 32),
            names: HashMap::new(),
            waiting: VecDeque::new(),
            timers: Timers::default(),
            staging: 0,
            ask_from: Time::ZERO,
            told: (Time::ZERO, 0),
            first: false,
        }
    }
}
