//! Ports that come and go while the switch runs (SW-1): takes the steps that the slots decide.
//!
//! ```text
//!   links changed ─▶ Slots ─ Open ──▶ opener ─ Port ─▶ tables, steering program, Attach ─▶ workers
//!                          ─ Close ─▶ program off, tables, Detach ─▶ workers ─ queues ─▶ opener
//! ```

use super::api::{Event, EventKind, Severity};
use super::opener::{Done, Job, Unopened, short_ring};
use super::port_handle::PortHandle;
use super::porter::{Leaving, Porter};
use super::slots::{Carriers, LinkChange, LinkState, Slot, Slots, Stage, Step};
use super::state::State;
use crate::config::{Config, PortFacts, PortSettings};
use crate::id::PortId;
use crate::tables::{PortEntry, PortSpeeds};
use crate::worker::events::{Detached, QueueCommand};
use common::config::Refusals;
use common::schedulers::SharedSchedulers;
use common::time::{Span, Time};
use common::units::Rate;
use common::xdp::netdev::Device;
use common::xdp::{
    AfXdpQueue, BridgeMaps, Mode, Port, PortOptions, Prefixes, PuntLimit, Role, mtu_limit,
};
use std::collections::HashSet;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::SystemTime;

/// What a port is opened with: its program shares `prefixes` and `bridges` with others, and lists
/// the addresses `local` from the start.
pub fn port_options(
    config: &Config,
    settings: &PortSettings,
    (prefixes, bridges): (Option<Arc<Prefixes>>, Option<Arc<BridgeMaps>>),
    local: Vec<IpAddr>,
) -> PortOptions {
    PortOptions {
        role: Role::Switch,
        mode: settings.mode,
        local,
        prefixes,
        bridges,
        storm_limits: Some(config.bridge.storm_limits()),
        punt_limit: Some(PuntLimit {
            packets_per_second: config.punt.packets_per_second,
        }),
        patience: Span::from_millis(config.workers.takeover_milliseconds),
        receive_ring: None,
        // The kernel may forward meanwhile.
        begin_with_worker: true,
    }
}

/// Warns of a device that takes VLAN tags off.
pub fn warn_of_stripped_tags(device: &Device) {
    if device.strips_vlan_tags {
        tracing::warn!(
            "{}: the device may take VLAN tags off before XDP sees them. What had one is then \
             routed as if it had none, and nothing is bridged: {}",
            device.name,
            how_to_keep_tags(device)
        );
    }
}

/// What makes a device leave VLAN tags where XDP programs see them.
pub(super) fn how_to_keep_tags(device: &Device) -> String {
    let name = &device.name;
    // A tag that the other end has not put into the frame yet is in none here.
    let other_end = if device.driver == "veth" {
        ", and the same with txvlan at its other end"
    } else {
        ""
    };
    format!("ethtool -K {name} rxvlan off{other_end}")
}

pub(super) fn port_id(slot: usize) -> PortId {
    PortId(u16::try_from(slot).expect("fewer slots than numbers"))
}

impl State {
    /// From now on ports come and go: `slots` has the state of now, `porter` opens and closes.
    pub fn begin_to_follow_ports(&mut self, slots: Slots, porter: Porter, now: Time) {
        self.slots = slots;
        self.porter = Some(porter);
        self.ports.resize_with(self.slots.iter().count(), || None);
        self.follow_links(&[], now);
    }

    /// These interfaces changed: ports come, go, or have another name, link or speed.
    pub(super) fn follow_links(&mut self, links: &[u32], now: Time) {
        self.note_links();
        self.adopt_devices(links);
        // A port that has come up is announced at once.
        self.schedulers.iter().for_each(SharedSchedulers::hurry);
        if self.porter.is_none() {
            return;
        }
        let mirror = self.routing.mirror();
        let (steps, refused) = self.slots.follow(mirror, &self.active.config, now);
        for name in refused {
            let text = "it matches the configuration, but there is no room for another port: \
                        memory.spare_queues";
            self.note_port(Severity::Error, &name, text);
        }
        for (slot, step) in steps {
            match step {
                Step::Open => self.open_port(slot),
                Step::Close => self.close_port(slot),
                Step::Rename(settings) => self.rename_port(slot, settings),
                Step::Forget => self.note_forgotten(slot),
            }
        }
    }

    /// Goes on with what workers and the opener have done, and with ports that are to be tried
    /// again.
    pub fn tend_ports(&mut self, now: Time) {
        let Some(porter) = &mut self.porter else {
            return;
        };
        let detached: Vec<_> = porter.detached.try_iter().collect();
        for Detached {
            worker,
            port,
            queues,
        } in detached
        {
            if let Some(leaving) = porter.leaving.get_mut(&port.index()) {
                leaving.waiting.remove(&worker);
                leaving.queues.extend(queues);
            }
        }
        let done = porter.opener.take_done();
        self.close_left();
        let is_news = !done.is_empty();
        for done in done {
            match done {
                Done::Opened {
                    slot,
                    local,
                    result,
                } => match result {
                    Ok(port) => self.take_port(slot, *port, &local),
                    Err(unopened) => self.note_unopened(slot, unopened, now),
                },
                Done::Closed { slot } => {
                    let mirror = self.routing.mirror();
                    self.slots.closed(slot, mirror, now);
                }
            }
        }
        if is_news || now >= self.slots.deadline() {
            self.follow_links(&[], now);
        }
    }

    /// Notes an event of the port called `name`.
    fn note_port(&mut self, severity: Severity, name: &str, text: impl Into<String>) {
        let event = Event::new(EventKind::Port, text).of_severity(severity);
        self.note_event(event.at(name));
    }

    /// Counts links that came up or went down.
    fn note_links(&mut self) {
        let mirror = self.routing.mirror();
        let state = |slot: &Slot| {
            let link = match slot.ifindex() {
                Some(ifindex) => mirror.link(ifindex),
                None => mirror.link_named(slot.name()),
            };
            (slot.stage != Stage::Vacant).then(|| (LinkState::of(link), Carriers::of(link)))
        };
        let states: Vec<_> = self.slots.iter().map(state).collect();
        let at = SystemTime::now();
        for (slot, state) in states.into_iter().enumerate() {
            let Some((state, carriers)) = state else {
                continue;
            };
            let change = self.slots.link_mut(slot).note(state, carriers, at);
            let Some(LinkChange { is_up, unseen }) = change else {
                continue;
            };
            let name = self.slots.get(slot).map_or("", Slot::name).to_owned();
            let (kind, mut text) = if is_up {
                (EventKind::LinkUp, "the link is up".to_owned())
            } else {
                let why = state.why_down().unwrap_or_default();
                (EventKind::LinkDown, format!("the link is down: {why}"))
            };
            if unseen > 0 {
                text += &format!("; before that it flapped {unseen} times, too fast to be told");
            }
            self.note_event(Event::new(kind, text).at(name));
        }
    }

    /// Takes over the speeds and MTUs that these interfaces have now.
    fn adopt_devices(&mut self, links: &[u32]) {
        let changed = |slot: &Slot| {
            let ifindex = slot.ifindex().filter(|index| links.contains(index))?;
            let is_up = slot.link.now?.is_up();
            Some((slot.settings.clone()?, ifindex)).filter(|_| is_up)
        };
        let changed: Vec<_> = self.slots.iter().map(changed).collect();
        for (slot, port) in changed.into_iter().enumerate() {
            let Some((settings, ifindex)) = port else {
                continue;
            };
            let device = Device::lookup(&settings.name).ok();
            let Some(device) = device.filter(|it| it.ifindex == ifindex) else {
                continue;
            };
            let Some(known) = self.ports[slot].as_ref().map(|it| &it.device) else {
                continue;
            };
            if known.speed == device.speed && known.mtu == device.mtu {
                continue;
            }
            let speed = device.speed;
            self.change_device(slot, &settings, device);
            if let Some(speed) = speed {
                self.adopt_speed(slot, &settings, speed);
            }
            self.wake_workers();
        }
    }

    /// The link of a port has another speed: quanta count by it, and the shaper follows it if it is
    /// told to.
    pub(super) fn adopt_speed(&mut self, slot: usize, settings: &PortSettings, device: Rate) {
        let shaper = settings.speed.of(Some(device));
        let link = settings.link.of(Some(device), shaper);
        let port = &self.routing.publisher().ports()[slot];
        if (port.speed, port.link) == (shaper, link) {
            return;
        }
        let burst = settings.burst_bytes(shaper);
        let speeds = PortSpeeds {
            shaper,
            link,
            burst,
        };
        self.routing.set_speed(port_id(slot), speeds);
        let text = format!("the link has a speed of {device} now");
        self.note_port(Severity::Info, &settings.name, text);
    }

    fn wake_workers(&self) {
        self.workers.iter().for_each(|worker| worker.waker.wake());
    }

    fn open_port(&mut self, slot: usize) {
        let Some(settings) = self.slots.get(slot).and_then(|it| it.settings.clone()) else {
            return;
        };
        let local = self.routing.program().listed_locals().collect();
        let options = port_options(
            &self.active.config,
            &settings,
            (self.told.prefixes.clone(), self.told.bridges.clone()),
            local,
        );
        if let Some(porter) = &self.porter {
            porter.opener.order(Job::Open {
                slot,
                settings,
                options,
                config: Box::new(self.active.config.clone()),
                longest_ring: self.active.longest_ring,
            });
        }
    }

    fn note_unopened(&mut self, slot: usize, unopened: Unopened, now: Time) {
        let name = self.slots.get(slot).map_or("", Slot::name).to_owned();
        let Unopened { why, is_unfit, mtu } = unopened;
        if is_unfit {
            self.slots.unfit(slot, why, &self.active.config, now);
        } else if self.slots.failed(slot, why.clone(), mtu, now) {
            let text = format!("it cannot be opened, and is tried again: {why}");
            self.note_port(Severity::Error, &name, text);
        }
    }

    /// Takes a port into use that is open. Its program was told the addresses `local`.
    fn take_port(&mut self, slot: usize, port: Port, local: &[IpAddr]) {
        let Some(settings) = self.slots.get(slot).and_then(|it| it.settings.clone()) else {
            return;
        };
        let device = &port.device;
        let mut facts = self.active.config.facts_of(&settings, device);
        let short = short_ring(facts.ring, port.receive_ring, self.active.longest_ring);
        facts.ring = port.receive_ring;
        let link = self.routing.mirror().link(device.ifindex);
        // It may have gone, or be another one by now.
        let is_there = link.is_some_and(|link| link.name == settings.name);
        if !is_there {
            return self.abandon_port(slot, port, None);
        }
        if let Err(refusals) = self.fit_policy(slot, facts) {
            let why = format!("[qos] does not allow it: {refusals}");
            return self.abandon_port(slot, port, Some(why));
        }
        let entry = settings.entry(device);
        let limit = mtu_limit(port.mode, &device.driver);
        let ifindex = device.ifindex;
        warn_of_stripped_tags(device);
        self.slots.opened(slot, ifindex, limit);
        let mut text = format!("it is a port now: {} mode", port.mode);
        let mut severity = Severity::Info;
        if let Some(short) = short {
            text = format!("{text}; {short}");
            severity = Severity::Warning;
        }
        let queues = self.install_port(slot, port, local);
        let changes = self.routing.set_port(port_id(slot), entry);
        self.steer(&changes);
        self.hand_out(slot, queues);
        self.wake_workers();
        self.note_links();
        self.note_port(severity, &settings.name, text);
        // What its link negotiated while it was opened was told before it was a port.
        self.adopt_devices(&[ifindex]);
    }

    /// Puts `[qos]` in force for what a port is now: its headroom depends on speed and MTU.
    ///
    /// # Errors
    /// It does not fit together with this port. Then nothing has changed.
    fn fit_policy(&mut self, slot: usize, facts: PortFacts) -> Result<(), Refusals> {
        let Some(compiled) = self.active.prepare_port(slot, &facts)? else {
            self.active.forget_misfit(slot);
            return Ok(());
        };
        for warning in self.active.take_port(slot, facts, &compiled) {
            tracing::warn!("{warning}");
        }
        self.set_policy(compiled.policy);
        Ok(())
    }

    /// Tries again to put `[qos]` in force for ports that it did not fit. What it is refused for
    /// stays a problem.
    pub(super) fn fit_misfits(&mut self) {
        for (slot, facts) in self.active.misfits() {
            let name = facts.name.clone();
            match self.fit_policy(slot, facts.clone()) {
                Ok(()) => {
                    let text = "[qos] is in force for its speed and MTU of now";
                    self.note_port(Severity::Info, &name, text);
                }
                Err(refusals) => self.active.note_misfit(slot, facts, refusals.to_string()),
            }
        }
    }

    /// The device of an open port is another one, or has another speed or MTU.
    pub(super) fn change_device(&mut self, slot: usize, settings: &PortSettings, device: Device) {
        let mut facts = self.active.config.facts_of(settings, &device);
        // It keeps the ring that it was opened with.
        if let Some(Some(handle)) = self.ports.get(slot) {
            facts.ring = handle.receive_ring;
        }
        let before = self.active.facts(slot);
        facts.announced = before.and_then(|before| before.announced.clone());
        match self.fit_policy(slot, facts.clone()) {
            // What the others were refused for may have been this one.
            Ok(()) => self.fit_misfits(),
            Err(refusals) => {
                let text = format!("[qos] does not fit any more, and stays as it is: {refusals}");
                self.active.note_misfit(slot, facts, refusals.to_string());
                self.note_port(Severity::Error, &settings.name, text);
            }
        }
        if let Some(Some(handle)) = self.ports.get_mut(slot) {
            handle.device = device;
        }
    }

    /// Keeps an open port, and tells its program what others know already: local addresses here,
    /// the rest with the next changes. Returns its queues.
    fn install_port(&mut self, slot: usize, port: Port, local: &[IpAddr]) -> Vec<AfXdpQueue> {
        let (handle, queues) = PortHandle::split(port);
        let listed: HashSet<IpAddr> = self.routing.program().listed_locals().collect();
        let known: HashSet<IpAddr> = local.iter().copied().collect();
        self.ports[slot] = Some(handle);
        self.told.forget_port(slot);
        for address in known.difference(&listed) {
            self.tell_local(slot, *address, false);
        }
        for address in listed.difference(&known) {
            self.tell_local(slot, *address, true);
        }
        queues
    }

    /// Gives the queues of a port to the workers, as at the start.
    fn hand_out(&mut self, slot: usize, queues: Vec<AfXdpQueue>) {
        let count = self.workers.len();
        let mut hands: Vec<Vec<AfXdpQueue>> = (0..count).map(|_| Vec::new()).collect();
        for (number, queue) in queues.into_iter().enumerate() {
            hands[(slot + number) % count].push(queue);
        }
        if self.porter.is_none() {
            return;
        }
        let before = self.slots.succeed(slot);
        if let Some(before) = &before {
            self.forget_port(slot, before);
        }
        let Some(porter) = &mut self.porter else {
            return;
        };
        for (worker, queues) in hands.into_iter().enumerate() {
            let command = QueueCommand::Attach {
                port: port_id(slot),
                queues,
                is_new: before.is_some(),
            };
            porter.tell(worker, command);
        }
        porter.flush(self.workers.iter().map(|it| (&it.queues, &it.waker)));
    }

    /// Another port has this slot from now on: its counters begin again, and the worker holds no
    /// queue of it.
    pub(super) fn forget_port(&mut self, slot: usize, before: &str) {
        self.baseline.forget(before);
        self.traffic.held[slot] = 0;
    }

    /// Closes a port that was just opened and is not taken into use.
    fn abandon_port(&mut self, slot: usize, port: Port, why: Option<String>) {
        self.slots.abandoned(slot, why);
        let (handle, queues) = PortHandle::split(port);
        if let Some(porter) = &self.porter {
            porter.opener.order(Job::Close {
                slot,
                handle: Some(Box::new(handle)),
                queues,
            });
        }
    }

    /// Has the workers let go of a port.
    fn close_port(&mut self, slot: usize) {
        if let Some(handle) = &self.ports[slot] {
            // If the interface is still there, the kernel has its packets from now on.
            handle.steering.detach();
        }
        self.active.forget_misfit(slot);
        self.told.forget_failures(slot);
        let before = &self.routing.publisher().ports()[slot];
        let entry = PortEntry {
            ifindex: 0,
            up: false,
            ..before.clone()
        };
        let name = entry.name.clone();
        let changes = self.routing.set_port(port_id(slot), entry);
        self.steer(&changes);
        let workers: HashSet<usize> = (0..self.workers.len()).collect();
        if let Some(porter) = &mut self.porter {
            for worker in 0..self.workers.len() {
                let port = port_id(slot);
                porter.tell(worker, QueueCommand::Detach { port });
            }
            let leaving = Leaving {
                waiting: workers,
                queues: Vec::new(),
            };
            porter.leaving.insert(slot, leaving);
        }
        self.close_left();
        let why = self.slots.get(slot).and_then(Slot::why_down);
        let text = format!("it is no port any more: {}", why.unwrap_or_default());
        self.note_port(Severity::Warning, &name, text);
    }

    /// Hands workers the commands that they have room for, and closes the ports that all have let
    /// go.
    fn close_left(&mut self) {
        let Some(porter) = &mut self.porter else {
            return;
        };
        porter.flush(self.workers.iter().map(|it| (&it.queues, &it.waker)));
        let all = porter.leaving.iter();
        let left = all.filter(|(_, leaving)| leaving.waiting.is_empty());
        let left: Vec<usize> = left.map(|(slot, _)| *slot).collect();
        for slot in left {
            let queues = porter.leaving.remove(&slot).map(|it| it.queues);
            porter.opener.order(Job::Close {
                slot,
                handle: self.ports[slot].take().map(Box::new),
                queues: queues.unwrap_or_default(),
            });
        }
    }

    pub(super) fn note_forgotten(&mut self, slot: usize) {
        let name = self.slots.get(slot).map_or("", Slot::name).to_owned();
        let mut text = "it is forgotten: its interface is gone, and the configuration has it by a \
                        pattern only"
            .to_owned();
        match self.active.prepare_without(slot) {
            Ok(None) => {}
            Ok(Some(compiled)) => {
                self.active.leave_port(slot, &compiled);
                self.set_policy(compiled.policy);
                // What others were refused for may have been this one.
                self.fit_misfits();
            }
            Err(refusals) => {
                text.push_str("; [qos] stays as it was with it, and is not allowed without: ");
                text.push_str(&refusals.to_string());
            }
        }
        self.note_port(Severity::Info, &name, text);
    }

    /// The interface of a port has another name, under which it stays a port.
    fn rename_port(&mut self, slot: usize, settings: PortSettings) {
        let Some(handle) = &self.ports[slot] else {
            return;
        };
        let device = Device {
            name: settings.name.clone(),
            ..handle.device.clone()
        };
        self.change_device(slot, &settings, device.clone());
        let before = &self.routing.publisher().ports()[slot];
        let text = format!("it was {} before", before.name);
        self.baseline.rename(&before.name, &settings.name);
        let entry = PortEntry {
            name: settings.name.clone(),
            mtu: u16::try_from(mtu_limit(Mode::NativeCopy, &device.driver)).unwrap_or(u16::MAX),
            ..before.clone()
        };
        let name = settings.name.clone();
        let changes = self.routing.set_port(port_id(slot), entry);
        self.steer(&changes);
        self.note_port(Severity::Info, &name, text);
    }
}
