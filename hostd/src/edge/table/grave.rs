//! What an ended session leaves, and how far it is released.

use crate::edge::command::{Answer, SessionId, SessionReport};
use crate::engine::Engine;
use crate::memory::RegionMemory;
use crate::verbs::{CompletionQueueId, DomainId, MemberId, SharedQueueId};
use hostd_client::shm::Mapping;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// Objects that are released in a turn. Each costs about as much as a packet, and a turn takes some
/// hundreds of those.
pub const BURIALS: usize = 64;

/// How far burials are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Burial {
    /// Nothing is left to be released.
    Over,
    /// There is more than a turn takes.
    More,
    /// The thread that unmaps has to come along first.
    Waits,
}

/// What a session left.
#[derive(Debug)]
pub(super) struct Grave {
    pub(super) session: SessionId,
    pub(super) domain: Option<DomainId>,
    pub(super) queue_pairs: Vec<u32>,
    pub(super) shared: Vec<SharedQueueId>,
    pub(super) members: Vec<MemberId>,
    pub(super) completion_queues: Vec<CompletionQueueId>,
    pub(super) windows: Vec<u32>,
    pub(super) regions: BTreeMap<u32, u64>,
    /// Memory of rings that are no more.
    pub(super) rings: Vec<Arc<Mapping>>,
    pub(super) done: Done,
}

/// Who waits for the end.
#[derive(Debug)]
pub(super) enum Done {
    Session(oneshot::Sender<()>),
    Object(Answer<()>),
}

impl Grave {
    /// A single region, of a session that goes on.
    pub(super) fn of_region(session: SessionId, lkey: u32, len: u64, answer: Answer<()>) -> Self {
        Self {
            regions: BTreeMap::from([(lkey, len)]),
            ..Self::of_rings(session, Vec::new(), answer)
        }
    }

    /// The rings of a single object, of a session that goes on.
    pub(super) fn of_rings(
        session: SessionId,
        rings: Vec<Arc<Mapping>>,
        answer: Answer<()>,
    ) -> Self {
        Self {
            session,
            domain: None,
            queue_pairs: Vec::new(),
            shared: Vec::new(),
            members: Vec::new(),
            completion_queues: Vec::new(),
            windows: Vec::new(),
            regions: BTreeMap::new(),
            rings,
            done: Done::Object(answer),
        }
    }

    /// Whether memory comes next that another thread has to unmap.
    pub(super) fn has_memory(&self) -> bool {
        let objects = self.queue_pairs.len()
            + self.shared.len()
            + self.members.len()
            + self.completion_queues.len();
        let others = objects + self.windows.len();
        !self.rings.is_empty() || (others == 0 && !self.regions.is_empty())
    }

    pub(super) fn report<M: RegionMemory>(&self, engine: &Engine<M>) -> SessionReport {
        let windows = self.windows.iter();
        SessionReport {
            session: self.session,
            regions: self.regions.iter().map(|(key, len)| (*key, *len)).collect(),
            windows: windows
                .filter_map(|window| engine.window_statistics(*window))
                .collect(),
            completion_queues: self.completion_queues.len(),
            queue_pairs: self.queue_pairs.len(),
            listeners: Vec::new(),
        }
    }
}
