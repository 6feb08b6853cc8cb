//! What control keeps of ports that are being opened and closed.

use super::opener::Opener;
use crate::worker::events::Detached;
use common::xdp::AfXdpQueue;
use crossbeam_channel::Receiver;
use std::collections::{BTreeMap, HashSet};

/// A port that workers are letting go of.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// Workers that have not been told yet.
    pub(super) untold: HashSet<usize>,
    /// Workers that have not answered yet.
    pub(super) waiting: HashSet<usize>,
    /// What the others gave back.
    pub(super) queues: Vec<AfXdpQueue>,
}

/// What opens and closes ports while the switch runs.
#[derive(Debug)]
pub struct Porter {
    pub(super) opener: Opener,
    pub(super) detached: Receiver<Detached<AfXdpQueue>>,
    pub(super) leaving: BTreeMap<usize, Leaving>,
}

impl Porter {
    /// `opener` opens and closes; workers give queues back by `detached`.
    pub fn new(opener: Opener, detached: Receiver<Detached<AfXdpQueue>>) -> Self {
        Self {
            opener,
            detached,
            leaving: BTreeMap::new(),
        }
    }
}
