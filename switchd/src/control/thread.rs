//! The control thread's loop.
//!
//! ```text
//!   netlink readable ─┐
//!   worker events    ─┤                ┌─ program the tables
//!   timers           ─┼─▶ one thread ──┼─ ask the kernel for neighbours
//!   admin socket     ─┤                ├─ answer
//!   HTTP             ─┤                ├─ feed the watchdog
//!   SIGHUP           ─┤                └─ read the configuration again
//!   SIGTERM, SIGINT  ─┘
//! ```

use super::admin;
use super::own_errors::OwnErrors;
use super::state::{State, heartbeat_age, lock};
use super::status_text;
use crate::preflight;
use crate::worker::events::WorkerEvent;
use common::metrics::{Families, Source};
use common::netlink::{NeighbourKey, Requests};
use common::schedulers;
use common::sys::{Waker, monotonic};
use common::time::{Span, Time};
use crossbeam_channel::Receiver;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::io::unix::AsyncFd;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::Notify;

/// Questions to the kernel that may be open at a time; others wait for their turn.
const QUESTIONS: usize = 256;

/// Questions that may wait: all next hops. Workers ask again for what exceeds it when the next
/// packet comes.
const WAITING: usize = crate::limits::MAX_NEXT_HOPS;

/// How often it is looked whether the kernel is to be told of stations that sent frames.
const STATIONS: Duration = Duration::from_millis(250);

/// A worker must have turned within this time for the watchdog to be fed.
const ALIVE: Span = super::state::STANDSTILL;

/// How often a setting of the kernel is read that it tells of in no message.
const SETTINGS: Duration = Duration::from_secs(1);

/// How often it is looked for what peers announced, beside the times that they say something else.
const ANNOUNCED: Duration = Duration::from_secs(1);

/// How often it is looked for filters of the kernel.
const FILTERS: Duration = Duration::from_secs(5);

/// What the thread works with.
#[derive(Debug)]
pub struct Control {
    /// All that it knows.
    pub state: Arc<Mutex<State>>,
    /// Events from the workers.
    pub events: Receiver<WorkerEvent>,
    /// Wakes the thread when there are events.
    pub waker: Waker,
    /// How often control confirms to the kernel the next hops that are in use.
    pub keep_alive: Duration,
    /// How often it is asked for gateways that it does not know.
    pub retry: Duration,
    /// The tables changed: there may be gateways to ask for.
    pub changed: Notify,
}

/// Neighbours that the kernel is being asked for.
type Questions = HashSet<NeighbourKey>;

fn questions(open: &Mutex<Questions>) -> MutexGuard<'_, Questions> {
    open.lock().unwrap_or_else(PoisonError::into_inner)
}

struct HttpSource(Arc<Mutex<State>>);

impl Source for HttpSource {
    fn scrape(&self) -> Families {
        lock(&self.0).scrape(monotonic())
    }

    fn health(&self) -> Result<(), String> {
        let problems = lock(&self.0).problems(monotonic());
        if problems.is_empty() {
            Ok(())
        } else {
            Err(problems.join("; "))
        }
    }
}

/// Lets tasks wait until a descriptor of the daemon is readable.
#[expect(
    deprecated,
    reason = "the replacement is unsafe, for descriptors that others may close; this one is owned"
)]
fn readiness(fd: OwnedFd) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::new(fd)
}

impl Control {
    /// Works until a signal asks to end.
    ///
    /// # Errors
    /// The kernel cannot be followed any more, or refused a descriptor.
    pub async fn run(
        &self,
        admin: common::admin::Listener,
        http: Option<tokio::net::TcpListener>,
    ) -> io::Result<()> {
        let mut terminate = signal(SignalKind::terminate())?;
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut hangup = signal(SignalKind::hangup())?;
        let admin = tokio::spawn(admin::serve(admin, self.state.clone()));
        let source = Arc::new(HttpSource(self.state.clone()));
        let http = http.map(|listener| tokio::spawn(common::metrics::serve(listener, source)));
        let result = tokio::select! {
            result = self.follow_kernel() => result,
            result = self.serve_workers() => result,
            result = self.refresh_stations() => result,
            () = self.feed_watchdog() => Ok(()),
            () = self.tell_status() => Ok(()),
            () = self.watch_thresholds() => Ok(()),
            () = self.follow_traffic() => Ok(()),
            () = self.watch_settings() => Ok(()),
            () = self.watch_filters() => Ok(()),
            () = self.announce() => Ok(()),
            () = self.heed_announcements() => Ok(()),
            () = self.watch_flows() => Ok(()),
            () = self.obey_hangups(&mut hangup) => Ok(()),
            _ = terminate.recv() => Ok(()),
            _ = interrupt.recv() => Ok(()),
        };
        lock(&self.state).end_flows(monotonic());
        admin.abort();
        if let Some(http) = http {
            http.abort();
        }
        result
    }

    /// Programs changes of the kernel as they arrive.
    async fn follow_kernel(&self) -> io::Result<()> {
        let socket: OwnedFd = lock(&self.state)
            .routing
            .watch()
            .as_fd()
            .try_clone_to_owned()?;
        let socket = readiness(socket)?;
        loop {
            let (more, deadline) = {
                let mut state = lock(&self.state);
                let more = state.follow(monotonic())?;
                (more, state.routing.deadline())
            };
            self.changed.notify_one();
            if more {
                // Others have their turn in between.
                tokio::task::yield_now().await;
                continue;
            }
            let sleep = Duration::from(deadline.since(monotonic()));
            tokio::select! {
                ready = socket.readable() => ready?.clear_ready(),
                () = tokio::time::sleep(sleep) => {}
            }
        }
    }

    /// Asks the kernel for what workers miss, keeps next hops alive, and retries gateways.
    async fn serve_workers(&self) -> io::Result<()> {
        let requests = Requests::connect()?;
        let open = Arc::new(Mutex::new(Questions::new()));
        let woken = readiness(self.waker.as_fd().try_clone_to_owned()?)?;
        let mut keep_alive = tokio::time::interval(self.keep_alive);
        let mut retry = tokio::time::interval(self.retry);
        let answered = Arc::new(Notify::new());
        let mut waiting = BTreeSet::new();
        let mut errors = OwnErrors::default();
        loop {
            let wanted: Vec<NeighbourKey> = tokio::select! {
                () = answered.notified() => Vec::new(),
                ready = woken.readable() => {
                    ready?.clear_ready();
                    self.waker.clear();
                    lock(&self.state).tend_ports(monotonic());
                    self.wanted_by_workers(&mut errors)
                }
                () = self.changed.notified() => self.unresolved(),
                _ = retry.tick() => self.unresolved(),
                _ = keep_alive.tick() => lock(&self.state).routing.take_used(),
            };
            let room = WAITING.saturating_sub(waiting.len());
            waiting.extend(wanted.into_iter().take(room));
            let now = monotonic();
            while questions(&open).len() < QUESTIONS
                && let Some(key) = waiting.pop_first()
            {
                self.ask(&requests, &open, &answered, key, now);
            }
        }
    }

    /// Tells the kernel of stations that sent frames which it has not seen, so that its bridges
    /// remember them.
    async fn refresh_stations(&self) -> io::Result<()> {
        let requests = Requests::connect()?;
        let mut last = monotonic();
        loop {
            tokio::time::sleep(STATIONS).await;
            let (now, every) = (monotonic(), lock(&self.state).stations_every());
            if every.is_none_or(|every| now.since(last) < every) {
                continue;
            }
            last = now;
            let used = lock(&self.state).take_used_stations();
            for entry in used {
                // It may have moved meanwhile, or have been flushed.
                if !lock(&self.state).is_station(&entry) {
                    continue;
                }
                if let Err(error) = requests.use_station(&entry).await {
                    tracing::debug!("{entry:?} cannot be kept: {error}");
                }
            }
        }
    }

    /// Gateways that the kernel does not know.
    fn unresolved(&self) -> Vec<NeighbourKey> {
        lock(&self.state).routing.program().unresolved().collect()
    }

    /// Sees to the events of the workers. Neighbours that they miss.
    fn wanted_by_workers(&self, errors: &mut OwnErrors) -> Vec<NeighbourKey> {
        let resolve = |event| match event {
            WorkerEvent::Resolve { ifindex, address } => Some(NeighbourKey { ifindex, address }),
            WorkerEvent::Storm {
                port,
                priority,
                storm,
            } => {
                lock(&self.state).note_storm(port, priority, storm);
                None
            }
            WorkerEvent::Job(notice) => {
                lock(&self.state).note_job(&notice);
                None
            }
            WorkerEvent::OwnError(packet) => {
                if let Err(error) = errors.send(&packet) {
                    lock(&self.state).own_errors_refused += 1;
                    tracing::debug!("an ICMP error to a punted sender cannot be sent: {error}");
                }
                None
            }
            WorkerEvent::Detached | WorkerEvent::Drained { .. } => None,
        };
        self.events.try_iter().filter_map(resolve).collect()
    }

    /// Asks the kernel for a neighbour, unless that is being done or was done a moment ago.
    fn ask(
        &self,
        requests: &Requests,
        open: &Arc<Mutex<Questions>>,
        answered: &Arc<Notify>,
        key: NeighbourKey,
        now: Time,
    ) {
        if questions(open).contains(&key) || !lock(&self.state).routing.may_ask(key, now) {
            return;
        }
        questions(open).insert(key);
        let known = lock(&self.state).routing.mirror().neighbour(&key).is_some();
        let (requests, open, answered) = (requests.clone(), open.clone(), answered.clone());
        tokio::spawn(async move {
            if let Err(error) = requests.use_neighbour(key, known).await {
                tracing::debug!("asking for {} failed: {error}", key.address);
            }
            questions(&open).remove(&key);
            answered.notify_one();
        });
    }

    /// Reads the configuration again when a signal asks for it.
    async fn obey_hangups(&self, hangup: &mut Signal) {
        while hangup.recv().await.is_some() {
            // A refusal is an event, and logged as such.
            let _ = lock(&self.state).reload();
        }
        std::future::pending().await
    }

    /// Samples the buffer, to find thresholds being crossed, and looks after ports that are to be
    /// tried again.
    async fn watch_thresholds(&self) {
        let mut tick = tokio::time::interval(super::thresholds::INTERVAL);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let mut state = lock(&self.state);
            state.sample_thresholds(monotonic());
            state.note_absences(monotonic());
            state.tend_ports(monotonic());
        }
    }

    /// Lets marking thresholds follow the traffic.
    async fn follow_traffic(&self) {
        loop {
            let interval = lock(&self.state).aiecn_interval();
            tokio::time::sleep(interval).await;
            lock(&self.state).follow_traffic(monotonic());
        }
    }

    /// Looks for what the kernel tells of in no message.
    async fn watch_settings(&self) {
        let mut tick = tokio::time::interval(SETTINGS);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            lock(&self.state).note_silent_settings();
        }
    }

    /// Looks for what packets pass in the kernel and not in the workers.
    async fn watch_filters(&self) {
        let mut tick = tokio::time::interval(FILTERS);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            // Of many chains the kernel tells for milliseconds.
            let found = tokio::task::spawn_blocking(preflight::passed_by).await;
            match found.map_err(io::Error::other) {
                Ok(Ok(found)) => lock(&self.state).note_passed_by(found),
                Ok(Err(error)) | Err(error) => {
                    tracing::debug!("filters of the kernel cannot be seen: {error}");
                }
            }
        }
    }

    /// Plans headroom with what peers say of pauses.
    async fn heed_announcements(&self) {
        let Some(shared) = lock(&self.state).schedulers.clone() else {
            return std::future::pending().await;
        };
        let mut tick = tokio::time::interval(ANNOUNCED);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = tick.tick() => {}
                () = shared.news() => {}
            }
            lock(&self.state).heed_announcements(monotonic());
        }
    }

    /// Tells peers how packets are spread here and what follows a pause, and hears the same of them
    /// (MG-9, SW-12), if that is asked for.
    async fn announce(&self) {
        let Some(shared) = lock(&self.state).schedulers.clone() else {
            return std::future::pending().await;
        };
        let ports = || lock(&self.state).announced_ports();
        if let Err(error) = schedulers::run(shared, ports).await {
            // Forwarding goes on without.
            tracing::error!("nothing is announced: {error}");
        }
        std::future::pending().await
    }

    /// Reads what the workers saw of RoCEv2 flows, if they look.
    async fn watch_flows(&self) {
        loop {
            let now = monotonic();
            let next = lock(&self.state).tend_flows(now);
            let Some(next) = next else {
                return std::future::pending().await;
            };
            tokio::time::sleep(next.since(now).into()).await;
        }
    }

    /// Tells systemd how the daemon is, whenever that has changed.
    async fn tell_status(&self) {
        if std::env::var_os("NOTIFY_SOCKET").is_none() {
            return std::future::pending().await;
        }
        let mut told = String::new();
        let mut tick = tokio::time::interval(Duration::from(status_text::INTERVAL));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let text = lock(&self.state).status_text(monotonic());
            if text != told {
                let _ = sd_notify::notify(&[sd_notify::NotifyState::Status(&text)]);
                told = text;
            }
        }
    }

    /// Notifies systemd that the daemon lives, as long as every worker does.
    async fn feed_watchdog(&self) {
        let Some(limit) = sd_notify::watchdog_enabled() else {
            return std::future::pending().await;
        };
        let mut tick = tokio::time::interval(common::sys::watchdog_beat(limit));
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let now = monotonic();
            let stuck = {
                let state = lock(&self.state);
                let ages = state.workers.iter();
                ages.filter(|worker| heartbeat_age(&worker.stats, now) > ALIVE)
                    .count()
            };
            if stuck == 0 {
                let _ = sd_notify::notify(&[sd_notify::NotifyState::Watchdog]);
            } else {
                tracing::error!("{stuck} workers are stuck; the watchdog is not fed");
            }
        }
    }
}
