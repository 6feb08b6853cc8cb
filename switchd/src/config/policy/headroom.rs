//! `[qos.headroom]`: what lossless groups get beyond their threshold, and whether a shared pool is
//! large enough (SW-12).

use super::ports::concerns;
use crate::config::facts::PortFacts;
use crate::config::qos::{self, Group, HeadroomPort, HeadroomSize, Peer, Qos};
use crate::config::rules::cells;
use crate::limits::CLASSES;
use crate::packet::wire_len;
use crate::tables::policy::{FlowControl, GroupPolicy, Policy, PortPolicy};
use crate::traffic::device_limit::worst_backlog;
use crate::traffic::headroom::{Breakdown, Cable, Headroom};
use crate::traffic::pfc_tx::quanta_time;
use common::config::{Refusal, Refusals, within};
use common::schedulers::PauseAnnouncement;
use common::time::Span;
use common::units::Rate;
use common::wire::ethernet;
use common::wire::schedule::{PauseTerms, Role};

/// What a hostd may hand to its device in a row: `transport.pacer_burst` as it is shipped.
const HOSTD_BACKLOG: u64 = 131_072;

/// Computed headroom of a port: what it is made of, and where the numbers of its peer are from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Planned {
    /// Its terms.
    pub made_of: Breakdown,
    /// The peer's response time.
    pub response_from: String,
    /// The peer's backlog.
    pub backlog_from: String,
    /// Cells of both that the peer announced, if they are more than it may take.
    pub wanted: Option<u64>,
}

/// How the origin of what a peer announced begins.
const ANNOUNCED: &str = "announced by ";

impl Qos {
    pub(super) fn check_headroom(&self) -> Result<(), Refusals> {
        let of = &self.headroom;
        let mut refusals = Refusals::default();
        let key = |name: &str| format!("qos.headroom.{name}");
        let all = HeadroomPort {
            ports: Vec::new(),
            cable_metres: Some(of.cable_metres),
            cable_delay_nanoseconds: Some(of.cable_delay_nanoseconds),
            peer: Some(of.peer),
            peer_response_nanoseconds: Some(of.peer_response_nanoseconds),
            peer_backlog_bytes: Some(of.peer_backlog_bytes),
        };
        refusals.keep(all.check(&key));
        let gap = of.poll_gap_microseconds;
        refusals.keep(within(&key("poll_gap_microseconds"), gap, 0, 1_000_000));
        let shortest = of.shortest_frame_bytes.into();
        refusals.keep(within(&key("shortest_frame_bytes"), shortest, 60, 9216));
        let percent = of.announced_percent.into();
        refusals.keep(within(&key("announced_percent"), percent, 0, 50));
        for (place, port) in of.port.iter().enumerate() {
            let key = |name: &str| format!("qos.headroom.port[{place}].{name}");
            refusals.keep(port.check(&key));
        }
        refusals.or(())
    }

    /// Headroom of a port, from its speeds, what `[qos.headroom]` says, and what its peer
    /// announced, which may take `share` cells more than what is planned without it.
    pub(super) fn computed(
        &self,
        key: &str,
        facts: &PortFacts,
        share: u64,
    ) -> Result<Planned, Refusal> {
        let Some(link) = facts.link else {
            let reason = format!(
                "cannot be computed for {}, which has no speed: give it a link_speed, or a number of bytes",
                facts.name
            );
            return Err(Refusal::new(key, reason));
        };
        let (without, mut from) = self.headroom_of(facts, link);
        let of_peer = |of: &Headroom| {
            let made_of = of.breakdown();
            made_of.response.cells + made_of.peer_backlog.cells
        };
        let wanted = self.announced(facts, &without, &mut from);
        let allowed = of_peer(&without).saturating_add(share);
        let is_cut = of_peer(&wanted) > allowed;
        let planned = if is_cut {
            for from in from.iter_mut().filter(|from| from.starts_with(ANNOUNCED)) {
                from.push_str(", cut");
            }
            wanted.with_peer_within(allowed)
        } else {
            wanted
        };
        Ok(Planned {
            made_of: planned.breakdown(),
            response_from: from[0].clone(),
            backlog_from: from[1].clone(),
            wanted: is_cut.then(|| of_peer(&wanted)),
        })
    }

    /// What the headroom of a port with a link of this speed depends on, whatever its peer says of
    /// itself; and where the numbers of the peer are from: response, backlog.
    fn headroom_of(&self, facts: &PortFacts, link: Rate) -> (Headroom, [String; 2]) {
        let of = self.cable_and_peer(&facts.name);
        let own = self.own_backlog(facts, link);
        // What a peer in software does is not known here: it is planned to be as late as this
        // switch, and its device to hold what its shipped configuration lets it hold.
        let (response, peer) = match of.peer {
            Peer::Hardware => (None, 0),
            Peer::Switchd => (Some(self.poll_gap()), own),
            Peer::Hostd => (Some(self.poll_gap()), HOSTD_BACKLOG),
        };
        let from = |name: &str, number: u64| match number {
            0 => format!("qos.headroom.peer: {}", of.peer.name()),
            _ => format!("qos.headroom.{name}"),
        };
        let from = [
            from("peer_response_nanoseconds", of.peer_response_nanoseconds),
            from("peer_backlog_bytes", of.peer_backlog_bytes.into()),
        ];
        let headroom = Headroom {
            speed: link,
            cable: match of.cable_delay_nanoseconds {
                0 => Cable::Metres(of.cable_metres),
                delay => Cable::Delay(Span::from_nanos(delay)),
            },
            longest: longest(facts),
            shortest: of.shortest_frame_bytes.into(),
            response: match of.peer_response_nanoseconds {
                0 => response,
                nanos => Some(Span::from_nanos(nanos)),
            },
            ring: facts.ring,
            gap: self.poll_gap(),
            own,
            peer: match of.peer_backlog_bytes {
                0 => peer,
                bytes => bytes.into(),
            },
        };
        (headroom, from)
    }

    /// The same with what the peer announced, where no number is configured.
    fn announced(&self, facts: &PortFacts, without: &Headroom, from: &mut [String; 2]) -> Headroom {
        let mut headroom = *without;
        let Some(announced) = self.heard(facts) else {
            return headroom;
        };
        let of = self.cable_and_peer(&facts.name);
        let said = format!("{ANNOUNCED}{}", announced.name);
        if of.peer_response_nanoseconds == 0 {
            // A host does not know how late it is: as late as this switch.
            headroom.response = Some(announced.terms.response.unwrap_or_else(|| self.poll_gap()));
            from[0] = match announced.terms.response {
                Some(_) => said.clone(),
                None => "qos.headroom.poll_gap_microseconds".to_owned(),
            };
        }
        if of.peer_backlog_bytes == 0 {
            headroom.peer = announced.terms.backlog.into();
            from[1] = said;
        }
        headroom
    }

    /// What the peer of a port announced, if it is heeded.
    fn heard<'a>(&self, facts: &'a PortFacts) -> Option<&'a PauseAnnouncement> {
        let announced = facts.announced.as_ref();
        announced.filter(|_| self.headroom.announced_percent > 0)
    }

    /// What still leaves by a port after a pause, for its peer; `None`: it has no speed.
    pub fn pause_terms(&self, facts: &PortFacts) -> Option<PauseTerms> {
        let backlog = self.own_backlog(facts, facts.link?);
        Some(PauseTerms {
            response: Some(self.poll_gap()),
            backlog: u32::try_from(backlog).unwrap_or(u32::MAX),
        })
    }

    /// The most that lies in our device, a frame aside.
    fn own_backlog(&self, facts: &PortFacts, link: Rate) -> u64 {
        match facts.speed {
            Some(speed) => worst_backlog(speed, facts.burst, link, self.poll_gap()),
            None => u64::from(facts.transmit_ring) * wire_len(u64::from(longest(facts))),
        }
    }

    /// Cells that the announcement of a peer may take for each group: an equal part of
    /// `announced_percent` of the buffer, so that all peers together take no more.
    pub(super) fn announced_share(&self, ports: &[PortFacts]) -> u64 {
        let computed = |facts: &PortFacts| {
            (0..CLASSES)
                .filter_map(|number| self.group_of(&facts.name, number))
                .filter(|group| group.headroom == HeadroomSize::Auto)
                .count() as u64
        };
        let groups: u64 = ports.iter().map(computed).sum();
        let percent = u64::from(self.headroom.announced_percent);
        u64::from(cells(self.buffer.size_bytes)) * percent / 100 / groups.max(1)
    }

    /// Whether these ports, with the rings that they have, leave room for all that their peers may
    /// announce.
    pub(in crate::config) fn has_room_for_peers(&self, ports: &[PortFacts]) -> bool {
        let most = PauseAnnouncement {
            role: Role::Switch,
            name: String::new(),
            terms: PauseTerms {
                response: Some(Span::from_nanos(u32::MAX.into())),
                backlog: u32::MAX,
            },
        };
        let with_most = |facts: &PortFacts| PortFacts {
            announced: Some(most.clone()),
            ..facts.clone()
        };
        let ports: Vec<PortFacts> = ports.iter().map(with_most).collect();
        self.compile_all(&ports).is_ok()
    }

    /// The port whose peer announced the most, beyond what is planned without; `None`: no peer did.
    pub(super) fn most_announced(&self, ports: &[PortFacts]) -> Option<usize> {
        let excess = |facts: &PortFacts| {
            self.heard(facts)?;
            let (without, mut from) = self.headroom_of(facts, facts.link?);
            let with = self.announced(facts, &without, &mut from).breakdown();
            Some(with.cells().saturating_sub(without.breakdown().cells()))
        };
        let all = ports.iter().enumerate();
        let all = all.filter_map(|(number, facts)| Some((excess(facts)?, number)));
        all.max().map(|(_, number)| number)
    }

    /// Peers that announced more than is planned with.
    pub(super) fn peer_warnings(
        &self,
        headroom: &[Option<Planned>],
        ports: &[PortFacts],
    ) -> Vec<String> {
        let mut warnings = Vec::new();
        for (planned, facts) in headroom.iter().zip(ports) {
            let (Some(planned), Some(announced)) = (planned, self.heard(facts)) else {
                continue;
            };
            let (port, peer) = (&facts.name, &announced.name);
            if let Some(wanted) = planned.wanted {
                let got = planned.made_of.response.cells + planned.made_of.peer_backlog.cells;
                warnings.push(format!(
                    "{port}: {peer} announces that {wanted} cells may still come after a pause, and headroom holds {got} of \
                     them: qos.headroom.announced_percent allows no more, so lossless groups may lose packets there"
                ));
            }
            let of = self.cable_and_peer(port);
            let backlog = announced.terms.backlog;
            if of.peer_backlog_bytes > 0 && backlog > of.peer_backlog_bytes {
                warnings.push(format!(
                    "{port}: {peer} announces a backlog of {backlog} bytes, more than qos.headroom.peer_backlog_bytes, {}: \
                     lossless groups may lose packets there",
                    of.peer_backlog_bytes
                ));
            }
            let response = announced.terms.response.map_or(0, Span::nanos);
            if of.peer_response_nanoseconds > 0 && response > of.peer_response_nanoseconds {
                warnings.push(format!(
                    "{port}: {peer} announces that it obeys pauses after {response} ns, more than \
                     qos.headroom.peer_response_nanoseconds, {}: lossless groups may lose packets there",
                    of.peer_response_nanoseconds
                ));
            }
        }
        warnings
    }

    /// The section that says what a group of a port is like: later tables replace earlier ones.
    fn group_of(&self, port: &str, number: usize) -> Option<&Group> {
        let its = |group: &&Group| {
            let mut groups = group.groups.iter();
            concerns(&group.ports, port) && groups.any(|it| usize::from(*it) == number)
        };
        self.group.iter().rev().find(its)
    }

    /// Frames that the receive ring of a port with a lossless group must hold; `None`: it has no
    /// such group, or no speed. What peers announce changes nothing in it: the ring is read each
    /// gap, and no more arrives until then than the line carries.
    pub(in crate::config) fn ring_needed(&self, facts: &PortFacts) -> Option<u64> {
        let is_lossless = (0..CLASSES).any(|number| {
            let group = self.group_of(&facts.name, number);
            group.is_some_and(|group| group.headroom != HeadroomSize::None)
        });
        let link = facts.link.filter(|_| is_lossless)?;
        Some(self.headroom_of(facts, link).0.ring_needed())
    }

    /// `[qos.headroom]` as it is for the port `name`.
    fn cable_and_peer(&self, name: &str) -> qos::Headroom {
        let mut of = self.headroom.clone();
        let its = |it: &&HeadroomPort| concerns(&it.ports, name);
        for own in self.headroom.port.iter().filter(its) {
            // A length that is said of this port is not that of a measured delay of all.
            if own.cable_metres.is_some() {
                of.cable_delay_nanoseconds = 0;
            }
            set(&mut of.cable_metres, own.cable_metres);
            set(&mut of.cable_delay_nanoseconds, own.cable_delay_nanoseconds);
            // Nor are numbers of one peer those of another.
            if own.peer.is_some() {
                (of.peer_response_nanoseconds, of.peer_backlog_bytes) = (0, 0);
            }
            set(&mut of.peer, own.peer);
            set(
                &mut of.peer_response_nanoseconds,
                own.peer_response_nanoseconds,
            );
            set(&mut of.peer_backlog_bytes, own.peer_backlog_bytes);
        }
        of
    }

    /// The longest time between two looks of a worker at a port that is planned for.
    fn poll_gap(&self) -> Span {
        Span::from_micros(self.headroom.poll_gap_microseconds)
    }

    /// What headroom cannot make good at a worker that is as late as planned: a receive ring that
    /// runs over, and pauses that end before they are refreshed.
    pub(super) fn lateness_warnings(&self, policy: &Policy, ports: &[PortFacts]) -> Vec<String> {
        let ports = policy.ports.iter().zip(ports);
        ports
            .filter_map(|(port, facts)| Some((port, facts, facts.link?)))
            .flat_map(|(port, facts, link)| {
                [
                    self.short_ring(port, facts, link),
                    self.short_pause(port, facts, link),
                    other_shaper(port, facts, link),
                ]
            })
            .flatten()
            .collect()
    }

    fn short_ring(&self, port: &PortPolicy, facts: &PortFacts, link: Rate) -> Option<String> {
        let needed = self.headroom_of(facts, link).0.ring_needed();
        let is_lossless = port.groups.iter().any(GroupPolicy::is_lossless);
        // A ring of 0 is none: a frame is accounted when it arrives.
        let is_short = facts.ring > 0 && u64::from(facts.ring) < needed;
        (is_lossless && is_short).then(|| {
            format!(
                "{}: its receive ring (memory.ring) holds {} frames, but up to {needed} arrive in \
                 qos.headroom.poll_gap_microseconds, {}: what does not fit is lost where no headroom helps",
                facts.name,
                facts.ring,
                self.poll_gap()
            )
        })
    }

    fn short_pause(&self, port: &PortPolicy, facts: &PortFacts, link: Rate) -> Option<String> {
        let (FlowControl::Pause { quanta, .. } | FlowControl::Pfc { quanta, .. }) =
            port.flow_control
        else {
            return None;
        };
        let half = quanta_time(quanta, link).divided_by(2);
        let is_short = port.flow_control.sends() != 0 && half < self.poll_gap();
        is_short.then(|| {
            format!(
                "{}: half a pause of {quanta} qos.flow_control.quanta is {half}, less than qos.headroom.poll_gap_microseconds, \
                 {}: a refresh can come when the peer sends again",
                facts.name,
                self.poll_gap()
            )
        })
    }
}

/// A warning if a port with pauses is shaped to another speed than its link has: pauses, and what
/// arrives after them, count by the link.
fn other_shaper(port: &PortPolicy, facts: &PortFacts, link: Rate) -> Option<String> {
    let shaper = facts.speed.filter(|speed| *speed != link)?;
    (port.flow_control != FlowControl::Off).then(|| {
        format!(
            "{}: it is shaped to {shaper}, and pauses and headroom count by the {link} of its link: if that is not what bits \
             take there, say so with link_speed, here and at the peer",
            facts.name
        )
    })
}

impl HeadroomPort {
    fn check(&self, key: &dyn Fn(&str) -> String) -> Result<(), Refusals> {
        let mut refusals = Refusals::default();
        let mut check = |name: &str, value: Option<u64>, most| {
            if let Some(value) = value {
                refusals.keep(within(&key(name), value, 0, most));
            }
        };
        check("cable_metres", self.cable_metres.map(u64::from), 100_000);
        let delay = self.cable_delay_nanoseconds;
        check("cable_delay_nanoseconds", delay, 1_000_000_000);
        let response = self.peer_response_nanoseconds;
        check("peer_response_nanoseconds", response, 1_000_000_000);
        let backlog = self.peer_backlog_bytes.map(u64::from);
        check("peer_backlog_bytes", backlog, 1 << 30);
        refusals.or(())
    }
}

/// The longest frame of a port.
fn longest(facts: &PortFacts) -> u32 {
    u32::from(facts.mtu) + u32::try_from(ethernet::HEADER_LEN).expect("14")
}

fn set<T>(value: &mut T, own: Option<T>) {
    if let Some(own) = own {
        *value = own;
    }
}

/// Refuses a pool that is smaller than the headroom of one group.
pub(super) fn check_pool(
    policy: &Policy,
    pool: Option<u32>,
    ports: &[PortFacts],
) -> Result<(), Refusals> {
    let Some(pool) = pool else { return Ok(()) };
    let mut refusals = Refusals::default();
    for (port, facts) in policy.ports.iter().zip(ports) {
        for (group, rules) in port.groups.iter().enumerate() {
            refusals.require(
                rules.headroom <= pool,
                "qos.buffer.shared_headroom_bytes",
                format_args!(
                    "the headroom of {}, group {group}, {} cells, exceeds the pool of {pool} cells",
                    facts.name, rules.headroom
                ),
            );
        }
    }
    refusals.or(())
}
