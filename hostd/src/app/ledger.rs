//! Who holds how much: by session, by user, and in all.
//!
//! ```text
//!   a claim is granted if   the session stays within its quota,
//!                           its user within the user's,
//!                           and the table has room: its last eighth is for users that
//!                           hold less than a sixty-fourth of it
//! ```
//!
//! So a user, or many in league, never take a whole table. A [`Claim`] is given back when it is
//! dropped. Numbers come from the configuration, from the engine's tables and from the kernel: the
//! daemon keeps mappings and descriptors for itself.

use super::refusal::Refusal;
use crate::config::Application;
use crate::edge::command::SessionId;
use crate::limits;
use hostd_client::abi::types::ErrorCode;
use nix::sys::resource::{Resource as Limited, getrlimit};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// What is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Bytes of registered memory and of rings.
    Memory,
    /// Memory regions.
    Regions,
    /// Completion queues.
    CompletionQueues,
    /// Queue pairs.
    QueuePairs,
    /// Room for work requests.
    WorkRequests,
    /// Ports that are listened on.
    Listeners,
    /// Memberships of jobs.
    Memberships,
    /// Mappings of the daemon's address space.
    Mappings,
    /// The daemon's descriptors.
    Descriptors,
    /// Threads that open memory: as long as its owner holds it up.
    Threads,
}

/// How many kinds there are.
const KINDS: usize = 10;

/// Threads that open memory of all applications at a time. The runtime has 512 (tokio's default);
/// the rest unmaps, and is the daemon's own.
const THREADS: u64 = 448;

/// Those of one user.
pub const THREADS_OF_USER: u64 = 32;

/// Those of one session, which asks for one thing after the other.
const THREADS_OF_SESSION: u64 = 2;

impl Resource {
    /// The key of the configuration that bounds it, within a quota; the kernel's for what has none.
    fn key(self) -> &'static str {
        match self {
            Self::Memory => "memory_mib",
            Self::Regions => "regions",
            Self::CompletionQueues => "completion_queues",
            Self::QueuePairs => "queue_pairs",
            Self::WorkRequests => "work_requests",
            Self::Listeners => "listeners",
            Self::Memberships => "memberships",
            Self::Mappings => "vm.max_map_count",
            Self::Descriptors => "RLIMIT_NOFILE",
            Self::Threads => "threads that open memory",
        }
    }

    /// The sections of the configuration that have the key: for a session, and for a user.
    fn sections(self) -> [&'static str; 2] {
        match self {
            Self::Mappings | Self::Descriptors => ["", "half of "],
            Self::Threads => ["", ""],
            _ => ["application.quota.", "application.user_quota."],
        }
    }

    /// What amounts of it count, behind a number; nothing where they count objects.
    fn unit(self) -> &'static str {
        match self {
            Self::Memory => " bytes",
            _ => "",
        }
    }
}

/// An amount of each kind.
type Amounts = [u64; KINDS];

/// Mappings that the daemon keeps for itself: program, libraries, stacks, packet memory, the
/// allocator's, and regions that wait to be unmapped.
const OWN_MAPPINGS: u64 = 8192;

/// Descriptors that the daemon keeps for itself: queues, netlink, operators, collectors, what one
/// message may bring (253), and connections that are being turned away.
const OWN_DESCRIPTORS: u64 = 512;

/// The kernel's default of `vm.max_map_count`, should it not tell.
const MAPPINGS_DEFAULT: u64 = 65_530;

/// The part of a table that is kept for users who hold little.
const RESERVE: u64 = 8;

/// The part of a table that every user may have as long as there is any.
const SHARE: u64 = 64;

/// What may be held at most.
#[derive(Clone, Copy, Debug)]
struct Limits {
    session: Amounts,
    user: Amounts,
    all: Amounts,
}

/// Limits of the kernel that concern the whole daemon.
#[derive(Clone, Copy, Debug)]
struct Machine {
    mappings: u64,
    descriptors: u64,
}

impl Machine {
    fn ask() -> Self {
        let mappings = std::fs::read_to_string("/proc/sys/vm/max_map_count");
        let mappings = mappings.ok().and_then(|it| it.trim().parse().ok());
        // 1024 is the least that any system gives.
        let descriptors = getrlimit(Limited::RLIMIT_NOFILE).map_or(1024, |it| it.0);
        Self {
            mappings: mappings.unwrap_or(MAPPINGS_DEFAULT),
            descriptors,
        }
    }
}

impl Limits {
    fn new(application: &Application, machine: Machine) -> Self {
        const NONE: u64 = u64::MAX;
        let (quota, user) = (&application.quota, &application.user_quota);
        let listeners = u64::try_from(limits::LISTENERS).unwrap_or(NONE);
        let mappings = machine.mappings.saturating_sub(OWN_MAPPINGS);
        let own = OWN_DESCRIPTORS.min(machine.descriptors / 2);
        let descriptors = machine.descriptors - own;
        Self {
            session: [
                quota.memory(),
                quota.regions.into(),
                quota.completion_queues.into(),
                quota.queue_pairs.into(),
                quota.work_requests.into(),
                quota.listeners.into(),
                quota.memberships.into(),
                NONE,
                NONE,
                THREADS_OF_SESSION,
            ],
            user: [
                user.memory_mib << 20,
                user.regions.into(),
                user.completion_queues.into(),
                user.queue_pairs.into(),
                user.work_requests.into(),
                user.listeners.into(),
                user.memberships.into(),
                mappings / 2,
                descriptors / 2,
                THREADS_OF_USER,
            ],
            all: [
                NONE,
                limits::REGIONS.into(),
                limits::COMPLETION_QUEUES.into(),
                limits::QUEUE_PAIRS.into(),
                NONE,
                listeners,
                limits::MEMBERSHIPS.into(),
                mappings,
                descriptors,
                THREADS,
            ],
        }
    }
}

#[derive(Debug)]
struct Held {
    limits: Limits,
    sessions: HashMap<SessionId, Amounts>,
    users: HashMap<u32, Amounts>,
    all: Amounts,
    /// Claims of threads that were refused.
    held_up: u64,
    /// A thread that opened memory is free again.
    back: Arc<Notify>,
}

/// What everybody holds.
#[derive(Clone, Debug)]
pub struct Ledger(Arc<Mutex<Held>>);

/// The account of one session.
#[derive(Clone, Debug)]
pub struct Account {
    ledger: Ledger,
    session: SessionId,
    uid: u32,
}

/// Something that was granted; dropping it gives it back.
#[derive(Debug)]
pub struct Claim {
    account: Account,
    parts: Vec<(Resource, u64)>,
}

impl Ledger {
    /// Nobody holds anything; limits are those of the configuration and of this process.
    pub fn new(application: &Application) -> Self {
        Self::within(Limits::new(application, Machine::ask()))
    }

    fn within(limits: Limits) -> Self {
        Self(Arc::new(Mutex::new(Held {
            limits,
            sessions: HashMap::new(),
            users: HashMap::new(),
            all: [0; KINDS],
            held_up: 0,
            back: Arc::default(),
        })))
    }

    /// Requests that were refused because too much memory was being opened already.
    pub fn held_up(&self) -> u64 {
        self.lock().held_up
    }

    fn lock(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a user holds.
    #[cfg(test)]
    pub(super) fn held_by(&self, uid: u32, resource: Resource) -> u64 {
        let held = self.lock();
        held.users
            .get(&uid)
            .map_or(0, |held| held[resource as usize])
    }

    /// The account of a session of this user.
    pub fn account(&self, session: SessionId, uid: u32) -> Account {
        Account {
            ledger: self.clone(),
            session,
            uid,
        }
    }
}

impl Held {
    fn check(&self, account: &Account, resource: Resource, more: u64) -> Result<(), Refusal> {
        let index = resource as usize;
        let of = |held: Option<&Amounts>| held.map_or(0, |held| held[index]);
        let (session, user) = (
            of(self.sessions.get(&account.session)),
            of(self.users.get(&account.uid)),
        );
        let refuse = |text: String| Err(Refusal::new(ErrorCode::Quota, text));
        let (key, unit, limits) = (resource.key(), resource.unit(), &self.limits);
        let [of_session, of_user] = resource.sections();
        let most = limits.session[index];
        if session.saturating_add(more) > most {
            return refuse(format!(
                "{more}{unit} more than the {session} in use exceed the quota of {most} \
                 ({of_session}{key})"
            ));
        }
        let most = limits.user[index];
        if user.saturating_add(more) > most {
            return refuse(format!(
                "{more}{unit} more than the {user} in use exceed the quota of {most} of user {} \
                 ({of_user}{key})",
                account.uid
            ));
        }
        let table = limits.all[index];
        let sum = self.all[index].saturating_add(more);
        let little = user.saturating_add(more) <= table / SHARE;
        if sum > table || (sum > table - table / RESERVE && !little) {
            return refuse(format!(
                "{more}{unit} more than the {} in use by all applications exceed what hostd has: \
                 {table}, the last eighth for users that hold little ({key})",
                self.all[index]
            ));
        }
        Ok(())
    }

    fn add(&mut self, account: &Account, resource: Resource, more: u64) {
        let index = resource as usize;
        self.sessions.entry(account.session).or_default()[index] += more;
        self.users.entry(account.uid).or_default()[index] += more;
        self.all[index] += more;
    }

    fn subtract(&mut self, account: &Account, resource: Resource, less: u64) {
        let index = resource as usize;
        self.all[index] -= less;
        if let Some(held) = self.sessions.get_mut(&account.session) {
            held[index] -= less;
            if *held == [0; KINDS] {
                self.sessions.remove(&account.session);
            }
        }
        if let Some(held) = self.users.get_mut(&account.uid) {
            held[index] -= less;
            if *held == [0; KINDS] {
                self.users.remove(&account.uid);
            }
        }
    }
}

impl Account {
    /// Claims all of `parts`, or nothing.
    ///
    /// # Errors
    /// A quota, or what the daemon has at all, would be exceeded: the text names the key.
    pub fn claim(&self, parts: &[(Resource, u64)]) -> Result<Claim, Refusal> {
        let mut held = self.ledger.lock();
        for &(resource, more) in parts {
            held.check(self, resource, more)?;
        }
        for &(resource, more) in parts {
            held.add(self, resource, more);
        }
        Ok(Claim {
            account: self.clone(),
            parts: parts.to_vec(),
        })
    }

    /// Claims a thread that opens memory. If there is none, `patience` is how long one is waited
    /// for.
    ///
    /// # Errors
    /// None has come back.
    pub async fn claim_thread(&self, patience: Duration) -> Result<Claim, Refusal> {
        let until = Instant::now() + patience;
        let notify = self.ledger.lock().back.clone();
        loop {
            let mut back = std::pin::pin!(notify.notified());
            // From here on none that comes back is missed.
            back.as_mut().enable();
            match self.claim(&[(Resource::Threads, 1)]) {
                Ok(claim) => return Ok(claim),
                Err(refusal) if timeout_at(until, back).await.is_err() => {
                    self.ledger.lock().held_up += 1;
                    return Err(refusal);
                }
                Err(_) => {}
            }
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut held = self.account.ledger.lock();
        for &(resource, less) in &self.parts {
            held.subtract(&self.account, resource, less);
            if resource == Resource::Threads {
                held.back.notify_waiters();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QPS: Resource = Resource::QueuePairs;

    fn ledger() -> Ledger {
        let machine = Machine {
            mappings: 65_530,
            descriptors: 4096,
        };
        Ledger::within(Limits::new(&Application::default(), machine))
    }

    fn text(refusal: Result<Claim, Refusal>) -> String {
        format!("{:?}", refusal.expect_err("refused"))
    }

    /// HT-3: a session, and a user with many sessions, stay within their quotas, and what is given
    /// back can be had again.
    #[test]
    fn quotas_of_sessions_and_users() {
        let ledger = ledger();
        let account = |session| ledger.account(SessionId(session), 1000);
        let mut claims = Vec::new();
        let sessions = limits::QUEUE_PAIRS / 4 / 256;
        for session in 0..sessions {
            claims.push(account(session).claim(&[(QPS, 256)]).expect("within"));
            assert!(text(account(session).claim(&[(QPS, 1)])).contains("application.quota.queue"));
        }
        let refused = text(account(99).claim(&[(Resource::Regions, 1), (QPS, 1)]));
        assert!(
            refused.contains("application.user_quota.queue"),
            "{refused}"
        );
        // Nothing of a claim that was refused is kept.
        assert_eq!(ledger.lock().all[Resource::Regions as usize], 0);
        claims.pop();
        claims.push(account(99).claim(&[(QPS, 256)]).expect("given back"));
        claims.clear();
        let held = ledger.lock();
        assert!(held.all == [0; KINDS] && held.users.is_empty() && held.sessions.is_empty());
    }

    /// HT-3: the key of memory counts MiB, and the refusal bytes: it says so.
    #[test]
    fn refusals_of_memory_say_what_they_count() {
        let account = ledger().account(SessionId(1), 1000);
        let refused = text(account.claim(&[(Resource::Memory, u64::MAX)]));
        assert!(
            refused.contains(&format!("{} bytes more than", u64::MAX)),
            "{refused}"
        );
        assert!(
            refused.contains("application.quota.memory_mib"),
            "{refused}"
        );
    }

    /// HT-3: many users in league leave a part of each table to those who hold little, who get it
    /// while there is any.
    #[test]
    fn the_rest_is_for_those_who_hold_little() {
        let ledger = ledger();
        let mut claims = Vec::new();
        let mut session = 0;
        let mut next = |uid, count| {
            session += 1;
            ledger
                .account(SessionId(session), uid)
                .claim(&[(QPS, count)])
        };
        for uid in 1..=4 {
            for _ in 0..16 {
                claims.extend(next(uid, 256));
            }
        }
        assert_eq!(claims.len(), 56, "seven eighths");
        assert!(text(next(4, 1)).contains("hold little"));
        claims.push(next(5, 256).expect("its share"));
        assert!(text(next(5, 1)).contains("hold little"));
        for uid in 6..13 {
            claims.push(next(uid, 256).expect("its share"));
        }
        assert!(text(next(13, 1)).contains("16384"), "the table is full");
    }

    /// HT-3: the kernel's limits of the daemon are shared the same way, and a part is its own.
    #[test]
    fn the_daemon_keeps_mappings_and_descriptors() {
        let ledger = ledger();
        for (resource, most) in [
            (Resource::Mappings, (65_530 - OWN_MAPPINGS) / 2),
            (Resource::Descriptors, (4096 - OWN_DESCRIPTORS) / 2),
        ] {
            let account = ledger.account(SessionId(1), 7);
            let all = account.claim(&[(resource, most)]).expect("half");
            assert!(text(account.claim(&[(resource, 1)])).contains("half of"));
            drop(all);
        }
    }
}
