//! Headroom that is planned with what peers announce of pauses (SW-12).
//!
//! A port takes what its peer says at most once in ten seconds. How much it may take is decided
//! where `[qos]` is compiled.

use super::api::{Event, EventKind, Severity};
use super::state::State;
use crate::id::PortId;
use crate::tables::PortEntry;
use common::schedulers::{LocalPort, PauseAnnouncement};
use common::time::Time;
use common::wire::Mac;
use common::wire::schedule::PauseTerms;

impl State {
    /// What still leaves by port `number` after a pause; `None`: it obeys none, or has no speed.
    pub(super) fn pause_terms(&self, number: usize) -> Option<PauseTerms> {
        let rules = self.policy().ports.get(number)?;
        let facts = self.active.facts(number);
        let facts = facts.filter(|_| rules.flow_control.obeys() != 0)?;
        self.active.config.qos.pause_terms(facts)
    }

    /// The ports by which packets pass, and what is said by them.
    pub(super) fn announced_ports(&self) -> Vec<LocalPort> {
        let ports = self.known_ports().filter(|(_, entry)| entry.up);
        let local = |(number, entry): (usize, &PortEntry)| LocalPort {
            name: entry.name.clone(),
            ifindex: entry.ifindex,
            mac: Mac(entry.mac),
            pauses: self.pause_terms(number),
        };
        ports.map(local).collect()
    }

    /// Plans headroom with what the peers of ports say now.
    pub(super) fn heed_announcements(&mut self, now: Time) {
        let Some(schedulers) = self.schedulers.clone() else {
            return;
        };
        let misfits = self.active.misfits();
        let ports: Vec<_> = self
            .known_ports()
            .map(|(number, entry)| (number, entry.ifindex))
            .collect();
        for (number, ifindex) in ports {
            // That is for the device before the one that the peer knows.
            if misfits.iter().any(|(misfit, _)| *misfit == number) {
                continue;
            }
            // By a link that is down nobody is heard; who was before is likely to come back.
            let said = schedulers.pauses(ifindex, now);
            let is_known = said.is_some() || schedulers.has_listened(ifindex, now);
            if is_known && self.announced.is_settled(number, now) {
                self.take_announcement(number, said, now);
            }
        }
    }

    /// Takes what the peer of a port says, if it said something else before.
    pub(super) fn take_announcement(
        &mut self,
        number: usize,
        said: Option<PauseAnnouncement>,
        now: Time,
    ) {
        let Some(facts) = self.active.facts(number) else {
            return;
        };
        if facts.announced == said {
            return;
        }
        let mut facts = facts.clone();
        facts.announced.clone_from(&said);
        // What peers say makes no policy impossible; if it became so otherwise, that is told where
        // it did.
        let Ok(Some(compiled)) = self.active.prepare_port(number, &facts) else {
            return;
        };
        let cells = |state: &Self| {
            let planned = state.active.headroom.get(number)?.as_ref();
            planned.map(|planned| planned.made_of.cells())
        };
        let before = cells(self);
        let warnings = self.active.take_port(number, facts, &compiled);
        self.set_policy(compiled.policy);
        let after = cells(self);
        let is_bounded = !warnings.is_empty();
        self.announced.note(number, said.is_some(), is_bounded, now);
        if before == after && warnings.is_empty() {
            return;
        }
        let said = said.map_or_else(
            || "its peer announces nothing of pauses any more".to_owned(),
            |said| {
                let response = said.terms.response.map_or_else(
                    || "does not say when it obeys pauses".to_owned(),
                    |span| format!("obeys pauses after {span}"),
                );
                let (name, role, backlog) = (said.name, said.role.name(), said.terms.backlog);
                format!("{name}, a {role}, {response}, with a backlog of {backlog} bytes")
            },
        );
        let shown = |cells: Option<u64>| {
            cells.map_or_else(|| "none".to_owned(), |it| format!("{it} cells"))
        };
        let (before, after) = (shown(before), shown(after));
        let mut text = format!("{said}: headroom of a lossless group is {after}, was {before}");
        let mut severity = Severity::Info;
        if let Some(warning) = warnings.first() {
            text = format!("{text}; {warning}");
            severity = Severity::Warning;
        }
        let name = self.port_name(PortId(u16::try_from(number).expect("fewer ports")));
        let event = Event::new(EventKind::Headroom, text).of_severity(severity);
        self.note_event(event.at(name));
    }
}
