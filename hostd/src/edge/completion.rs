//! Completions into an application's ring.

use super::statistics::EdgeStatistics;
use crate::verbs::{Completion, Status};
use crate::wakes::Bell;
use hostd_client::abi::descriptor::{
    COMPLETION_LEN, CompletionEntry, CompletionOpcode, CompletionStatus,
};
use hostd_client::abi::ring::Producer;
use hostd_client::shm::Mapping;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// How an application that sleeps learns that completions came.
#[derive(Debug)]
pub enum Wake {
    /// By a thread that writes into a pipe of it.
    Bell(Bell),
    /// By this flag: it runs in the same process and looks by itself.
    Flag(Arc<AtomicBool>),
}

impl Wake {
    fn ring(&self) {
        match self {
            Self::Bell(bell) => bell.ring(),
            Self::Flag(flag) => flag.store(true, Ordering::Release),
        }
    }
}

/// A completion queue of an application. The engine holds completions back for which the ring has
/// no room, and refuses work when it holds as many as its queues have room for.
#[derive(Debug)]
pub struct CompletionRing {
    ring: Producer<COMPLETION_LEN>,
    wake: Wake,
    /// The application broke the ring.
    broken: bool,
    /// It has no room for what has completed.
    full: bool,
    /// A solicited completion, or one that did not succeed, was put in and not shown yet.
    urgent: bool,
}

impl CompletionRing {
    /// A ring whose application is woken by `wake`.
    pub fn new(ring: Producer<COMPLETION_LEN>, wake: Wake) -> Self {
        Self {
            ring,
            wake,
            broken: false,
            full: false,
            urgent: false,
        }
    }

    /// The memory of the ring.
    pub fn into_memory(self) -> Arc<Mapping> {
        self.ring.into_memory()
    }

    /// Takes completions from `next` as long as there is room, and shows them; how many they were.
    pub fn fill(
        &mut self,
        mut next: impl FnMut() -> Option<Completion>,
        statistics: &mut EdgeStatistics,
    ) -> u64 {
        let was_full = std::mem::take(&mut self.full);
        let mut moved = 0;
        loop {
            if !self.has_room() {
                // One that was full asks only when it has become full anew: the request stands.
                if was_full && moved == 0 {
                    self.full = true;
                    return 0;
                }
                self.publish(true, statistics);
                if !self.wait_for_room() {
                    self.full = true;
                    statistics.full_rings += 1;
                    return moved;
                }
            }
            let Some(completion) = next() else {
                self.publish(false, statistics);
                return moved;
            };
            self.push(&completion, statistics);
            moved += 1;
        }
    }

    /// Whether it had no room for what has completed.
    pub fn is_full(&self) -> bool {
        self.full
    }

    /// Whether another completion fits. A broken ring takes any, and loses them.
    fn has_room(&mut self) -> bool {
        match self.ring.room() {
            Ok(room) => room > 0 || self.broken,
            Err(_) => {
                self.broken = true;
                true
            }
        }
    }

    /// Asks the application to wake the worker when it has made room. True if there is room
    /// already.
    fn wait_for_room(&mut self) -> bool {
        self.broken || self.ring.starve().unwrap_or(true)
    }

    /// Puts a completion in; [`Self::has_room`] was asked before.
    fn push(&mut self, completion: &Completion, statistics: &mut EdgeStatistics) {
        let pushed =
            !self.broken && matches!(self.ring.push(&entry(completion).to_bytes()), Ok(true));
        if pushed {
            self.urgent |= completion.solicited;
            statistics.completions += 1;
        } else {
            self.broken = true;
            statistics.lost_completions += 1;
        }
    }

    /// Shows the application what was put in, and wakes it if it sleeps. One that waits for a
    /// solicited completion is woken by one, by a failure, and when the ring is `full`, because
    /// what it waits for may be behind.
    fn publish(&mut self, full: bool, statistics: &mut EdgeStatistics) {
        if self.broken {
            return;
        }
        self.ring.publish();
        let urgent = std::mem::take(&mut self.urgent) || full;
        if self.ring.take_wake_request(urgent) {
            statistics.wakes += 1;
            self.wake.ring();
        }
    }

    /// Whether the application broke the ring.
    pub fn is_broken(&self) -> bool {
        self.broken
    }
}

fn entry(completion: &Completion) -> CompletionEntry {
    CompletionEntry {
        wr_id: completion.wr_id,
        qp: completion.qpn,
        status: status(completion.status),
        opcode: opcode(completion.opcode),
        byte_len: completion.byte_len,
        immediate: completion.imm,
        invalidated: completion.invalidated,
    }
}

fn status(status: Status) -> CompletionStatus {
    match status {
        Status::Success => CompletionStatus::Success,
        Status::LocalLength => CompletionStatus::LocalLength,
        Status::LocalQpOperation => CompletionStatus::LocalQpOperation,
        Status::LocalProtection => CompletionStatus::LocalProtection,
        Status::MemoryWindowBind => CompletionStatus::WindowBind,
        Status::LocalAccess => CompletionStatus::LocalAccess,
        Status::WorkRequestFlushed => CompletionStatus::Flushed,
        Status::RemoteInvalidRequest => CompletionStatus::RemoteInvalidRequest,
        Status::RemoteAccess => CompletionStatus::RemoteAccess,
        Status::RemoteOperation => CompletionStatus::RemoteOperation,
        Status::RetryExceeded => CompletionStatus::RetryExceeded,
        Status::RnrRetryExceeded => CompletionStatus::RnrRetryExceeded,
        Status::Fatal => CompletionStatus::Fatal,
        Status::General => CompletionStatus::General,
    }
}

fn opcode(opcode: crate::verbs::CompletionOpcode) -> CompletionOpcode {
    use crate::verbs::CompletionOpcode as Engine;
    match opcode {
        Engine::Send => CompletionOpcode::Send,
        Engine::RdmaWrite => CompletionOpcode::Write,
        Engine::RdmaRead => CompletionOpcode::Read,
        Engine::CompSwap => CompletionOpcode::CompareSwap,
        Engine::FetchAdd => CompletionOpcode::FetchAdd,
        Engine::BindMw => CompletionOpcode::BindWindow,
        Engine::LocalInv => CompletionOpcode::LocalInvalidate,
        Engine::Collective => CompletionOpcode::Collective,
        Engine::Receive => CompletionOpcode::Receive,
        Engine::ReceiveRdmaWithImm => CompletionOpcode::ReceiveWriteImmediate,
    }
}
