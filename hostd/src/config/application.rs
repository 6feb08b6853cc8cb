//! What applications may do and hold: `[application]` and its quotas.

use crate::limits;
use crate::verbs::{Congestion, EngineConfig};
use common::config::{Refusals, within};
use hostd_client::abi;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// `[application]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Application {
    /// Path of the Unix socket.
    pub socket: PathBuf,
    /// Users that may connect beside root, by name or number.
    pub users: Vec<String>,
    /// Groups whose members may connect, by name or number.
    pub groups: Vec<String>,
    /// Seconds for which an application may leave a reply unread before it is disconnected.
    pub reply_timeout_s: u64,
    /// Algorithms of congestion control that applications may choose for their queue pairs, beside
    /// `transport.congestion`.
    pub congestion: Vec<Congestion>,
    /// What one session may hold.
    pub quota: Quota,
    /// What all sessions of one user may hold together.
    pub user_quota: UserQuota,
}

/// `[application.quota]`: what one session, which is one process that connected, may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Quota {
    /// Sessions of one user.
    pub sessions: u32,
    /// Bytes of registered memory, in MiB.
    pub memory_mib: u64,
    /// Memory regions.
    pub regions: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Work requests that all queues together have room for.
    pub work_requests: u32,
    /// Listeners.
    pub listeners: u32,
    /// Memberships of jobs that switches compute for.
    pub memberships: u32,
}

/// `[application.user_quota]`: what all sessions of one user together may hold. The engine's tables
/// are a multiple of it, and their last eighth is for users that hold little, so that nobody takes
/// a whole table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct UserQuota {
    /// Bytes of registered memory, in MiB.
    pub memory_mib: u64,
    /// Memory regions.
    pub regions: u32,
    /// Completion queues.
    pub completion_queues: u32,
    /// Queue pairs.
    pub queue_pairs: u32,
    /// Work requests that all queues together have room for.
    pub work_requests: u32,
    /// Listeners.
    pub listeners: u32,
    /// Memberships of jobs that switches compute for.
    pub memberships: u32,
}

impl Default for Application {
    fn default() -> Self {
        let offered = EngineConfig::default().congestion_choices;
        Self {
            socket: PathBuf::from(hostd_client::SOCKET_DEFAULT),
            users: Vec::new(),
            groups: vec!["hostd".to_owned()],
            reply_timeout_s: 30,
            congestion: Congestion::ALL
                .into_iter()
                .filter(|it| offered & it.bit() != 0)
                .collect(),
            quota: Quota::default(),
            user_quota: UserQuota::default(),
        }
    }
}

impl Default for Quota {
    fn default() -> Self {
        Self {
            sessions: 64,
            memory_mib: 4096,
            regions: 1024,
            completion_queues: 256,
            queue_pairs: 256,
            work_requests: 1 << 16,
            listeners: 32,
            memberships: 32,
        }
    }
}

impl Default for UserQuota {
    fn default() -> Self {
        Self {
            memory_mib: 4 * 4096,
            regions: limits::REGIONS / 4,
            completion_queues: limits::COMPLETION_QUEUES / 4,
            queue_pairs: limits::QUEUE_PAIRS / 4,
            work_requests: 1 << 18,
            listeners: u32::try_from(limits::LISTENERS / 4).unwrap_or(u32::MAX),
            memberships: limits::MEMBERSHIPS / 4,
        }
    }
}

impl Application {
    pub(super) fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let timeout = self.reply_timeout_s;
        refusals.keep(within("application.reply_timeout_s", timeout, 1, 3600));
        refusals.keep(self.quota.validate());
        refusals.keep(self.user_quota.validate());
        refusals.or(())
    }
}

impl Quota {
    fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let mut check = |name: &str, value, low, high| {
            let key = format!("application.quota.{name}");
            refusals.keep(within(&key, value, low, high));
        };
        let pairs = u64::try_from(abi::QUEUE_PAIRS_MAX).unwrap_or(u64::MAX);
        let queues = limits::COMPLETION_QUEUES.into();
        let listeners = u64::try_from(limits::LISTENERS).unwrap_or(u64::MAX);
        check("sessions", self.sessions.into(), 1, 4096);
        check("memory_mib", self.memory_mib, 1, 1 << 24);
        check("regions", self.regions.into(), 1, limits::REGIONS.into());
        check(
            "completion_queues",
            self.completion_queues.into(),
            1,
            queues,
        );
        check("queue_pairs", self.queue_pairs.into(), 1, pairs);
        check("work_requests", self.work_requests.into(), 2, 1 << 30);
        check("listeners", self.listeners.into(), 0, listeners);
        let memberships = limits::MEMBERSHIPS.into();
        check("memberships", self.memberships.into(), 0, memberships);
        refusals.or(())
    }

    /// Bytes of registered memory.
    pub fn memory(&self) -> u64 {
        self.memory_mib << 20
    }
}

impl UserQuota {
    fn validate(&self) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let mut check = |name: &str, value, low, high| {
            let key = format!("application.user_quota.{name}");
            refusals.keep(within(&key, value, low, high));
        };
        // The last eighth of a table is not for one user.
        let most = |table: u32| u64::from(table - table / 8);
        let listeners = u32::try_from(limits::LISTENERS).unwrap_or(u32::MAX);
        check("memory_mib", self.memory_mib, 1, 1 << 24);
        check("regions", self.regions.into(), 1, most(limits::REGIONS));
        let queues = most(limits::COMPLETION_QUEUES);
        check(
            "completion_queues",
            self.completion_queues.into(),
            1,
            queues,
        );
        let pairs = most(limits::QUEUE_PAIRS);
        check("queue_pairs", self.queue_pairs.into(), 1, pairs);
        check("work_requests", self.work_requests.into(), 2, 1 << 30);
        check("listeners", self.listeners.into(), 0, most(listeners));
        let memberships = most(limits::MEMBERSHIPS);
        check("memberships", self.memberships.into(), 0, memberships);
        refusals.or(())
    }
}
