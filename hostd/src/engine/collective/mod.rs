//! Collectives that the switch computes (HT-50): memberships, and their messages in and out.

#[cfg(test)]
mod tests;

use super::Engine;
use crate::collective::{Incoming, Member, Way};
use crate::frame::{self, COMPUTE_FRAME, ComputeDatagram};
use crate::limits;
use crate::memory::RegionMemory;
use crate::stats::MemberStatistics;
use crate::verbs::{
    CollectiveRequest, DropReason, EndReason, EngineError, Event, MemberId, MemberRequest, PortId,
    PortSet, Route,
};
use common::time::{Span, Time};
use common::wire::compute::{PAYLOAD_MAX, Packet, RANKS};
use common::wire::{ip, udp};
use common::xdp::frame::{Frame, FramePool};
use std::net::IpAddr;

/// Messages of one member that leave before it is the next one's turn.
const TURN: usize = 16;

/// From one question for the way to the switch to the next.
const ASK_AGAIN: Span = Span::from_millis(100);

/// From one look at a member that waits for its turn to the next.
const LOOK: Span = Span::from_micros(100);

impl<M: RegionMemory> Engine<M> {
    /// Makes a membership of a job, which asks the switch to be admitted at once.
    ///
    /// # Errors
    /// [`EngineError::State`]: the engine takes part in no collectives. [`EngineError::Unknown`]:
    /// there is no such domain, or no such completion queue. [`EngineError::Argument`]: there can
    /// be no such member. [`EngineError::Busy`]: another membership has the rank.
    /// [`EngineError::TooMany`]: there are as many as may be, or results have no room.
    pub fn create_member(&mut self, request: &MemberRequest) -> Result<MemberId, EngineError> {
        let config = self.config.collective.as_ref().ok_or(EngineError::State)?;
        let join = &request.join;
        let possible = usize::from(request.rank) < RANKS
            && request.rank < join.size
            && join.generation > 0
            && join.slots > 0
            && (8..=PAYLOAD_MAX).contains(&usize::from(join.payload))
            && (1..=limits::WORK_REQUESTS).contains(&request.max_wr);
        if !possible {
            return Err(EngineError::Argument);
        }
        if !self.completions.contains(request.cq) {
            return Err(EngineError::Unknown);
        }
        if self.domains.get(request.domain.0).is_none() {
            return Err(EngineError::Unknown);
        }
        let now = self.effects.turn;
        let member = Member::new(request, config, now);
        let (most, staging) = (config.memberships, config.staging);
        let name = (member.job, member.rank);
        if let Some(&known) = self.members.names.get(&name) {
            // One that is only leaving makes way for the next attempt.
            let leaving = self.members.members.get(known);
            if leaving.is_some_and(|it| !it.is_forgotten) {
                return Err(EngineError::Busy);
            }
            self.members.remove(known, now);
        }
        self.make_way(member.staging, most as usize, staging)?;
        let members = &mut self.members;
        members.prepare();
        let kept = member.staging;
        let inserted = members.members.insert(Box::new(member));
        let number = inserted.map_err(|_| EngineError::TooMany)?;
        members.staging += kept;
        members.names.insert(name, number);
        // Room for all, so that none is made when one has something to send.
        let missing = members.members.len().saturating_sub(members.waiting.len());
        members.waiting.reserve(missing);
        if let Some(users) = self.domains.get_mut(request.domain.0) {
            *users += 1;
        }
        self.completions.attach(request.cq, request.max_wr);
        self.statistics.collective.memberships += 1;
        self.schedule_member(number, now);
        Ok(MemberId(number))
    }

    /// Makes room for a member that keeps `kept` bytes. Members that only leave hold no quota any
    /// more, so they make way, the one that has tried for longest first: the switch then finds out
    /// by the lease.
    fn make_way(&mut self, kept: u64, most: usize, staging: u64) -> Result<(), EngineError> {
        let members = &self.members.members;
        let leaving = |number: u32| {
            let member = members.get(number)?;
            Some((member.leaving_since()?, number, member.staging))
        };
        let mut leaving: Vec<_> = members.numbers().filter_map(leaving).collect();
        let held = |(count, bytes): (usize, u64), it: &(Time, u32, u64)| (count + 1, bytes + it.2);
        let (count, bytes) = leaving.iter().fold((0, 0), held);
        let (others, theirs) = (members.len() - count, self.members.staging - bytes);
        if others >= most || kept > staging.saturating_sub(theirs) {
            return Err(EngineError::TooMany);
        }
        leaving.sort_unstable();
        for (_, number, _) in leaving {
            let room = staging.saturating_sub(self.members.staging);
            if self.members.members.len() < most && kept <= room {
                break;
            }
            self.members.remove(number, self.effects.turn);
        }
        Ok(())
    }

    /// Ends a membership: the switch is told. Collectives that were posted end without completion.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such membership.
    pub fn destroy_member(&mut self, id: MemberId) -> Result<(), EngineError> {
        let now = self.effects.turn;
        let member = self.members.members.get_mut(id.0);
        let member = member.filter(|it| !it.is_forgotten);
        let member = member.ok_or(EngineError::Unknown)?;
        let (cq, max_wr, domain) = (member.cq, member.max_wr, member.domain);
        let before = member.is_over();
        member.close(now);
        self.note_end(id.0, before);
        while let Some(member) = self.members.members.get_mut(id.0) {
            if member.next_ended().is_none() {
                break;
            }
            self.completions.release(cq);
        }
        self.completions.detach(cq, max_wr);
        if let Some(users) = self.domains.get_mut(domain) {
            *users -= 1;
        }
        self.schedule_member(id.0, now);
        Ok(())
    }

    /// An application does without the switch from now on, for a reason that is counted: its
    /// collectives under way complete as failed, with what is in place. The number of the job.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such membership.
    pub fn withdraw_member(&mut self, id: MemberId, why: EndReason) -> Result<u32, EngineError> {
        let now = self.effects.turn;
        let member = self.members.members.get_mut(id.0);
        let member = member.filter(|it| !it.is_forgotten);
        let member = member.ok_or(EngineError::Unknown)?;
        let before = member.is_over();
        let job = member.job;
        member.withdraw(now);
        self.note_fallback(why);
        self.note_end(id.0, before);
        self.schedule_member(id.0, now);
        Ok(job)
    }

    /// Counts that an application does without switches from now on.
    pub fn note_fallback(&mut self, why: EndReason) {
        self.statistics.collective.fallbacks[why.index()] += 1;
    }

    /// Whether one more fallback may be told of, where people read it: ten times in a second, as
    /// applications can ask for it as often as they like. All are counted.
    pub fn may_tell_of_fallback(&mut self) -> bool {
        const MOST: u32 = 10;
        let (now, (since, told)) = (self.effects.turn, &mut self.members.told);
        if now.since(*since) >= Span::from_secs(1) {
            (*since, *told) = (now, 0);
        }
        *told = told.saturating_add(1);
        *told <= MOST
    }

    /// The switch that members ask, if there is one.
    pub fn configured_leaf(&self) -> Option<IpAddr> {
        Some(self.config.collective.as_ref()?.leaf)
    }

    /// Appends a collective to those of a membership. What is wrong with its memory, or with what
    /// it asks for, its completion says.
    ///
    /// # Errors
    /// [`EngineError::Unknown`]: there is no such membership. [`EngineError::QueueFull`] and
    /// [`EngineError::CompletionQueueFull`]: there is no room.
    pub fn post_collective(
        &mut self,
        id: MemberId,
        request: CollectiveRequest,
    ) -> Result<(), EngineError> {
        let member = self.members.members.get_mut(id.0);
        let member = member.filter(|it| !it.is_forgotten);
        let member = member.ok_or(EngineError::Unknown)?;
        let checked = member.check();
        self.completions.note_refusal(member.cq, checked)?;
        self.completions.commit(member.cq)?;
        let now = self.effects.turn;
        member.post(request, &self.regions, now);
        self.schedule_member(id.0, now);
        Ok(())
    }

    /// Whether the engine takes part in collectives.
    pub fn has_collectives(&self) -> bool {
        self.config.collective.is_some()
    }

    /// How memberships stand, those that are just ending included.
    pub fn members(&self) -> impl Iterator<Item = MemberStatistics> + '_ {
        let members = &self.members.members;
        let numbers = members.numbers();
        numbers.filter_map(|number| Some(members.get(number)?.statistics(number)))
    }

    /// How a membership stands; `None` if there is no such one.
    pub fn member_statistics(&self, id: MemberId) -> Option<MemberStatistics> {
        Some(self.members.members.get(id.0)?.statistics(id.0))
    }

    /// Takes a packet that is none of RoCE.
    pub(super) fn receive_collective(&mut self, frame: Frame, pool: &mut FramePool, now: Time) {
        let taken = self.take_collective(&frame, now);
        match taken {
            Ok(()) => self.statistics.collective.messages += 1,
            Err(reason) => self.statistics.drops.add(reason),
        }
        pool.give(frame);
    }

    fn take_collective(&mut self, frame: &Frame, now: Time) -> Result<(), DropReason> {
        let Some(config) = &self.config.collective else {
            return Err(DropReason::NotRoce);
        };
        let datagram = ComputeDatagram::parse(frame.bytes())?;
        if datagram.port != config.port {
            return Err(DropReason::NotRoce);
        }
        if !datagram.guarded {
            return Err(DropReason::CollectiveChecksum);
        }
        if (datagram.source, datagram.source_port) != (config.leaf, config.port) {
            return Err(DropReason::CollectiveSource);
        }
        let bytes = &frame.bytes()[datagram.message.clone()];
        let packet = Packet::read(bytes).map_err(|_| DropReason::CollectiveMalformed)?;
        let incoming = Incoming {
            packet,
            bytes,
            ends: (datagram.source, datagram.destination),
            congested: datagram.congested,
        };
        let name = (packet.job, packet.rank);
        let Some(number) = self.members.names.get(&name).copied() else {
            return Err(self.members.stray(&incoming, now));
        };
        let member = self.members.members.get_mut(number);
        let member = member.ok_or(DropReason::CollectiveMember)?;
        let before = member.is_over();
        let taken = member.receive(&incoming, &self.regions, now);
        self.note_end(number, before);
        self.schedule_member(number, now);
        taken
    }

    /// Counts the end of an epoch, if it came since the member was looked at `before`.
    fn note_end(&mut self, number: u32, before: bool) {
        let member = self.members.members.get(number);
        let ended = member
            .filter(|it| it.is_over() && !before)
            .and_then(|it| it.end());
        if let Some(end) = ended {
            self.statistics.collective.ends[end.reason.index()] += 1;
        }
    }

    /// Enters a member where it will be looked at in time, and takes over what has ended.
    fn schedule_member(&mut self, number: u32, now: Time) {
        let Some(member) = self.members.members.get_mut(number) else {
            return;
        };
        member.report_to(&mut self.statistics.collective.sums);
        if !member.is_forgotten {
            while let Some(ended) = member.next_ended() {
                let (cq, completion) = (member.cq, ended.completion(number));
                self.completions.push(cq, completion);
            }
        } else if member.is_over() {
            return self.members.remove(number, now);
        }
        if !member.listed && member.wants_to_send(now) {
            member.listed = true;
            self.members.waiting.push_back(number);
        }
        let deadline = if member.listed {
            member.deadline().max(now + LOOK)
        } else {
            member.deadline()
        };
        let slot = self.members.members.slot(number);
        self.members.timers.at_latest(slot, deadline);
    }

    /// Does what the clocks of members say.
    pub(super) fn expire_members(&mut self, now: Time) {
        while let Some(slot) = self.members.timers.expired(now) {
            let Some(number) = self.members.members.number_of(slot) else {
                continue;
            };
            if let Some(member) = self.members.members.get_mut(number) {
                let before = member.is_over();
                member.expire(now);
                self.note_end(number, before);
            }
            self.schedule_member(number, now);
        }
    }

    /// When members have to be looked at.
    pub(super) fn member_deadline(&self) -> Time {
        let timers = self.members.timers.first();
        if self.members.waiting.is_empty() {
            return timers;
        }
        let ready = self.ports.data_from(self.ports.all());
        timers.min(ready.max(self.out_of_frames_until))
    }

    /// The addresses that members need a way to.
    pub(super) fn leaf(&self) -> Option<IpAddr> {
        let config = self.config.collective.as_ref()?;
        (self.members.members.len() > 0).then_some(config.leaf)
    }

    /// The way to the switch is known, or is another one.
    pub(super) fn members_routed(&mut self, destination: IpAddr) {
        if self.leaf() != Some(destination) {
            return;
        }
        let all: Vec<_> = self.members.members.numbers().collect();
        for number in all {
            self.schedule_member(number, Time::ZERO);
        }
    }

    /// Lets members send until `out` has `end` frames, or none of them may.
    pub(super) fn transmit_collectives(
        &mut self,
        pool: &mut FramePool,
        now: Time,
        out: &mut Vec<(PortId, Frame)>,
        end: usize,
    ) {
        let mut left = self.members.waiting.len();
        // Those that could send nothing stay in front, so that it is their turn when there is room.
        let mut kept = 0;
        while out.len() < end && left > 0 {
            let Some(number) = self.members.waiting.remove(kept) else {
                return;
            };
            left -= 1;
            if let Some(member) = self.members.members.get_mut(number) {
                member.listed = false;
            }
            let before = out.len();
            let until = end.min(before + TURN);
            let turn = self.member_turn(number, pool, now, out, until);
            match turn {
                Turn::Over => {
                    self.schedule_member(number, now);
                    if out.len() > before {
                        left = left.max(1);
                    }
                }
                Turn::NoWay => {
                    self.hold_up(number, None, now);
                    let slot = self.members.members.slot(number);
                    self.members.timers.at_latest(slot, now + ASK_AGAIN);
                }
                // Others may have another port.
                Turn::NoPort if out.len() == before => {
                    self.hold_up(number, Some(kept), now);
                    kept += 1;
                }
                Turn::NoPort => {
                    let last = self.members.waiting.len();
                    self.hold_up(number, Some(last), now);
                }
                Turn::NoFrame => return self.hold_up(number, Some(kept), now),
            }
        }
    }

    /// A member has something to say that cannot leave. `place`: where it goes on to wait.
    fn hold_up(&mut self, number: u32, place: Option<usize>, now: Time) {
        let Some(member) = self.members.members.get_mut(number) else {
            return;
        };
        member.held_up(now);
        member.listed = place.is_some();
        if let Some(place) = place {
            self.members.waiting.insert(place, number);
        }
    }

    fn member_turn(
        &mut self,
        number: u32,
        pool: &mut FramePool,
        now: Time,
        out: &mut Vec<(PortId, Frame)>,
        end: usize,
    ) -> Turn {
        let Some(config) = &self.config.collective else {
            return Turn::Over;
        };
        let (leaf, port, class) = (config.leaf, config.port, config.class);
        let Some(member) = self.members.members.get_mut(number) else {
            return Turn::Over;
        };
        let (before, source) = (member.is_over(), member.source);
        let ways = way(self.ports.routes(leaf, source), self.ports.working());
        if ways.is_empty() {
            if now >= self.members.ask_from {
                self.members.ask_from = now + ASK_AGAIN;
                self.notify(Event::NeedRoute { destination: leaf });
            }
            return Turn::NoWay;
        }
        let mut turn = Turn::Over;
        while out.len() < end && member.wants_to_send(now) {
            let Some(chosen) = ways.and(self.ports.free(now)).first() else {
                turn = Turn::NoPort;
                break;
            };
            let route = {
                let mut routes = self.ports.routes(leaf, source);
                routes.find(|(number, _)| *number == chosen).map(|it| *it.1)
            };
            let Some(route) = route else { break };
            let own = source.unwrap_or(route.source);
            member.source = Some(own);
            let Some(flow) = frame::flow(&route, own, leaf, class) else {
                break;
            };
            let at = frame::compute_at(flow.addresses);
            let way = Way {
                source: own,
                leaf,
                most: room(&route, leaf),
            };
            let Some(mut packet) = pool.take() else {
                self.wait_for_frames(now);
                turn = Turn::NoFrame;
                break;
            };
            pool.resize(&mut packet, COMPUTE_FRAME.min(pool.capacity()));
            let message = packet.bytes_mut().get_mut(at..).unwrap_or_default();
            let Some(len) = member.transmit(way, message, &self.regions, now) else {
                pool.give(packet);
                break;
            };
            frame::emit_compute(packet.bytes_mut(), &flow, port, len);
            pool.resize(&mut packet, at + len);
            self.ports.depart(chosen, at + len, now);
            out.push((chosen, packet));
        }
        self.note_end(number, before);
        turn
    }
}

/// The ports of these routes, without those that do not work as long as others do.
fn way<'a>(routes: impl Iterator<Item = (PortId, &'a Route)>, working: PortSet) -> PortSet {
    let all = routes
        .map(|(port, _)| port)
        .fold(PortSet::NONE, PortSet::with);
    let best = all.and(working);
    if best.is_empty() { all } else { best }
}

/// Bytes of a message that fit into a packet of this route.
fn room(route: &Route, leaf: IpAddr) -> usize {
    let header = if leaf.is_ipv4() {
        ip::v4::HEADER_LEN
    } else {
        ip::v6::HEADER_LEN
    };
    usize::from(route.mtu).saturating_sub(header + udp::HEADER_LEN)
}

/// How a member's turn ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// It may have more, but it is the next one's turn, or it has nothing more.
    Over,
    /// No port that it may leave through is free.
    NoPort,
    /// There is no frame, for others neither.
    NoFrame,
    /// No way to the switch is known.
    NoWay,
}
