//! Two members of a job at one host against a switch that says anything (HT-50, SW-42).
//!
//! The first byte chooses a key; the others are steps, each with what it takes: messages whose
//! fields count from what the members sent, bytes that are none, collectives, the time, ways that
//! come and go, and memory and memberships that end. Whatever is said, memory is bounded, nothing
//! is written but results in the order of their bytes, every collective ends once, and in the end
//! everything is free.

mod member;

use super::program::Program;
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::compute::{Element, Join, Key, Message, Operation, Packet, Work};
use common::xdp::frame::{FramePool, Region};
use hostd::engine::Engine;
use hostd::memory::{HeapMemory, RegionMemory};
use hostd::stats::EngineStatistics;
use hostd::verbs::{
    Access, Buffer, CollectiveConfig, CollectiveRequest, Completion, CompletionQueueId, DomainId,
    EndReason, EngineConfig, EngineError, MemberRequest, PortId, RegionKeys, Route, Secret, Status,
};
use member::{
    AT, FILL, JOB, LEAF, OWN, PAYLOAD, PORT, Part, Posted, SECRET, UNTOUCHED, VECTOR, datagram,
    read,
};

const FRAMES: u32 = 32;

/// The slots that members ask for.
const SLOTS: u16 = 8;

/// Collectives of a member at a time, each with a place for its result.
const POSTS: u32 = 4;
const PLACE: usize = 1 << 10;

/// Vectors lie in front of the results.
const RESULTS: usize = PLACE;
const MEMORY: usize = RESULTS + 2 * POSTS as usize * PLACE;

/// Time in which everything ends when the switch is silent: the longest lease, and more.
const PATIENCE: Span = Span::from_secs(180);

/// Times that the engine wakes in that time, at most.
const WAKES: u32 = 100_000;

struct Host {
    engine: Engine<HeapMemory>,
    pool: FramePool,
    domain: DomainId,
    cq: CompletionQueueId,
    memory: HeapMemory,
    keys: RegionKeys,
    key: Option<Key>,
    parts: [Part; 2],
    /// By place: what it held when its last collective ended.
    settled: Vec<Option<Vec<u8>>>,
    posts: u64,
    room: usize,
    /// Somebody else may have written a message.
    is_raw: bool,
    ends: Ends,
    now: Time,
}

/// How collectives ended.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Ends {
    /// With a result.
    done: u64,
    /// With an error, and those of them of which a part was in place.
    failed: u64,
    partly: u64,
}

/// See the module.
pub(super) fn members(input: &[u8]) {
    play(input);
}

/// The same; what was counted.
fn play(input: &[u8]) -> (EngineStatistics, Ends) {
    let mut program = Program::new(input);
    let mut host = Host::new(program.u8() & 1 != 0);
    host.transmit();
    while !program.is_over() {
        host.step(&mut program);
        host.check();
    }
    host.close()
}

fn route() -> Route {
    Route {
        source: OWN,
        source_mac: [4; 6],
        destination_mac: [2; 6],
        mtu: 1500,
        rate: Rate::from_gbps(10),
    }
}

fn request(domain: DomainId, cq: CompletionQueueId, rank: u16, generation: u32) -> MemberRequest {
    let join = Join {
        slots: SLOTS,
        payload: PAYLOAD,
        operations: 0xfe,
        elements: 0xff,
        ..Join::new(generation, rank, 4)
    };
    MemberRequest {
        domain,
        cq,
        max_wr: POSTS,
        job: JOB,
        rank,
        join,
    }
}

/// Bytes of a chunk that a frame grants.
fn admitted(frame: &[u8]) -> Option<u32> {
    let packet = Packet::read(frame.get(AT..)?).ok()?;
    match packet.message {
        Message::Admit(terms) => Some(terms.payload.into()),
        _ => None,
    }
}

impl Host {
    fn new(has_key: bool) -> Self {
        let mut engine = Engine::new(EngineConfig {
            collective: Some(CollectiveConfig {
                leaf: LEAF,
                port: PORT,
                secret: has_key.then_some(Secret(SECRET)),
                class: 2,
                slots: SLOTS,
                memberships: 2,
                staging: 2 * u64::from(SLOTS) * u64::from(PAYLOAD),
                join_timeout: Span::from_secs(1),
                rto_min: Span::from_millis(1),
                rto_initial: Span::from_millis(20),
            }),
            ..EngineConfig::default()
        });
        let now = Time::from_nanos(1_000_000_000);
        engine.begin_turn(now);
        engine.set_route(LEAF, route()).expect("legal");
        let domain = engine.create_domain().expect("room");
        let cq = engine.create_completion_queue().expect("room");
        let mut bytes = vec![VECTOR; RESULTS];
        bytes.resize(MEMORY, UNTOUCHED);
        let memory = HeapMemory::new(bytes);
        let registered = engine.register(domain, memory.clone(), 0, Access::LOCAL_WRITE);
        let keys = registered.expect("room");
        let parts = [1, 3].map(|rank| {
            let created = engine.create_member(&request(domain, cq, rank, 1));
            Part::new(created.expect("room"), rank, 1)
        });
        Self {
            engine,
            pool: FramePool::new(Region::heap(FRAMES, 2048, 0)),
            domain,
            cq,
            memory,
            keys,
            key: has_key.then(|| Key::of_job(&SECRET, JOB)),
            parts,
            settled: vec![None; 2 * POSTS as usize],
            posts: 0,
            room: FRAMES as usize,
            is_raw: false,
            ends: Ends::default(),
            now,
        }
    }

    /// The low half of a byte is what is done, the highest bit which member it is about; without
    /// the one below, what there is to send leaves then.
    fn step(&mut self, program: &mut Program<'_>) {
        let byte = program.u8();
        let which = usize::from(byte >> 7);
        match byte & 0x0f {
            0..=5 => {
                let part = &self.parts[which];
                let standing = self.engine.member_statistics(part.id);
                let epoch = standing.map_or(0, |it| it.epoch);
                let frame = part.message(epoch, self.key.as_ref(), program);
                self.receive(&frame);
            }
            6 | 7 => self.post(which, program),
            8 => self.now += Span::from_micros(program.u16().into()),
            9 => self.now += Span::from_millis(u64::from(program.u8()) * 10),
            10 | 11 => self.answer(),
            12 => {
                self.is_raw = true;
                let frame = datagram(program.block(), LEAF, PORT, PORT, program.u8());
                self.receive(&frame);
            }
            13 => {
                self.is_raw = true;
                self.receive(program.block());
            }
            14 => self.change(which, program.u8()),
            _ => self.lead(program.u8()),
        }
        if byte & 0x40 == 0 {
            self.transmit();
        }
        self.collect();
    }

    fn phase(&self, which: usize) -> Option<&'static str> {
        let standing = self.engine.member_statistics(self.parts[which].id);
        standing.map(|it| it.phase)
    }

    fn receive(&mut self, bytes: &[u8]) {
        self.engine.begin_turn(self.now);
        let before = [0, 1].map(|which| self.phase(which));
        if let Some(frame) = self.pool.take_filled(bytes) {
            self.engine.receive(frame, &mut self.pool, self.now);
        }
        for (which, before) in before.into_iter().enumerate() {
            if (before, self.phase(which)) == (Some("joining"), Some("running")) {
                let payload = admitted(bytes).expect("by an admission");
                self.parts[which].payload = payload;
            }
        }
        self.collect();
    }

    /// Posts a collective whose memory is registered, mostly.
    fn post(&mut self, which: usize, program: &mut Program<'_>) {
        let (kind, len, how) = (program.u8(), program.u8(), program.u8());
        let operation = Operation::ALL[usize::from(kind) % 7];
        let element = Element::ALL[usize::from(kind >> 3) % 8];
        let work = match how & 7 {
            0 | 1 if operation.takes(element) => Some(Work::Allreduce(operation, element)),
            2 if operation.takes(element) => Some(Work::Reduce(operation, element)),
            3 => Some(Work::Broadcast),
            4 => None,
            _ => Some(Work::Barrier),
        };
        let has_vector = !matches!(work, None | Some(Work::Barrier));
        // Whole elements, mostly.
        let len = match (has_vector, how & 0x20) {
            (true, 0) => u32::from(len) * 4 / 8 * 8,
            (true, _) => len.into(),
            (false, 0) => 0,
            (false, _) => u32::from(len & 1),
        };
        let root = how & 8 != 0 && has_vector && !matches!(work, Some(Work::Allreduce(..)));
        let in_place = how & 0x10 != 0 && matches!(work, Some(Work::Allreduce(..)));
        let lkey = self.keys.lkey ^ u32::from(how & 0xc0 == 0xc0);
        let part = &self.parts[which];
        let taken = |place: &usize| part.posted.iter().any(|it| it.place == *place);
        let mut places = which * POSTS as usize..(which + 1) * POSTS as usize;
        let Some(place) = places.find(|place| !taken(place)) else {
            return;
        };
        let at = RESULTS + place * PLACE;
        let output = Buffer {
            addr: at as u64,
            lkey,
        };
        let input = if in_place {
            output
        } else {
            Buffer { addr: 0, lkey }
        };
        self.posts += 1;
        let posted = Posted {
            wr_id: self.posts,
            work,
            len,
            root,
            in_place,
            place,
        };
        let request = CollectiveRequest {
            wr_id: posted.wr_id,
            work,
            root,
            len,
            input,
            output,
            shared: false,
        };
        self.clear(place);
        // It may end at once, and then it is in the list.
        self.parts[which].posted.push_back(posted);
        self.engine.begin_turn(self.now);
        let id = self.parts[which].id;
        if self.engine.post_collective(id, request).is_err() {
            self.parts[which].posted.pop_back();
        }
    }

    /// A place is as it was when its collective ended, and is used again.
    fn clear(&mut self, place: usize) {
        let at = RESULTS + place * PLACE;
        if let Some(settled) = self.settled[place].take() {
            assert_eq!(
                self.memory.to_vec()[at..at + PLACE],
                settled,
                "written late"
            );
        }
        assert!(self.memory.copy_in(at as u64, &[UNTOUCHED; PLACE]));
    }

    /// The switch answers all that it heard, as it should.
    fn answer(&mut self) {
        for which in 0..2 {
            while let Some(heard) = self.parts[which].heard.pop_front() {
                let part = &self.parts[which];
                let standing = self.engine.member_statistics(part.id);
                let epoch = standing.map_or(0, |it| it.epoch);
                if let Some(frame) = part.right(heard, epoch, self.key.as_ref()) {
                    self.receive(&frame);
                }
            }
        }
    }

    /// A membership ends, and another one takes its place, or memory ends.
    fn change(&mut self, which: usize, how: u8) {
        self.engine.begin_turn(self.now);
        let id = self.parts[which].id;
        match how % 4 {
            0 => {
                let why = EndReason::all().nth(usize::from(how >> 2) % EndReason::COUNT);
                let why = why.expect("below their number");
                self.engine.withdraw_member(id, why).expect("exists");
            }
            1 => {
                // What has completed is taken first: the new life would have it.
                self.collect();
                self.engine.destroy_member(id).expect("exists");
                while let Some(posted) = self.parts[which].posted.pop_front() {
                    self.settle_place(posted.place);
                }
                let Part {
                    rank, generation, ..
                } = self.parts[which];
                let generation = generation + 1;
                let request = request(self.domain, self.cq, rank, generation);
                let created = self.engine.create_member(&request);
                self.parts[which] = Part::new(created.expect("made way"), rank, generation);
            }
            2 => {
                let lkey = self.keys.lkey;
                self.engine.deregister(lkey).expect("exists");
                let memory = self.memory.clone();
                let rights = Access::LOCAL_WRITE;
                let registered = self.engine.register(self.domain, memory, 0, rights);
                self.keys = registered.expect("room");
            }
            _ => {
                let taken = request(self.domain, self.cq, self.parts[which].rank, 9);
                let more = MemberRequest { rank: 2, ..taken };
                let refused = [taken, more].map(|it| self.engine.create_member(&it));
                assert_eq!(
                    refused,
                    [Err(EngineError::Busy), Err(EngineError::TooMany)],
                    "memberships are bounded"
                );
            }
        }
    }

    /// Ways to the switch, and room in their queues, come and go.
    fn lead(&mut self, how: u8) {
        match how % 4 {
            0 => self.engine.set_routes(LEAF, &[]).expect("legal"),
            1 => self.engine.set_route(LEAF, route()).expect("legal"),
            2 => self.room = usize::from(how >> 2) % 3,
            _ => self.room = FRAMES as usize,
        }
    }

    /// What leaves is what members may say, and is heard. Whether there was anything.
    fn transmit(&mut self) -> bool {
        self.engine.set_room(PortId::FIRST, self.room);
        self.engine.begin_turn(self.now);
        let mut out = Vec::new();
        self.engine
            .transmit(&mut self.pool, self.now, &mut out, FRAMES as usize);
        for (_, frame) in &out {
            let packet = read(frame.bytes(), self.key.as_ref());
            assert_eq!(packet.job, JOB);
            let part = self.parts.iter_mut().find(|it| it.rank == packet.rank);
            part.expect("a member").hear(&packet);
        }
        let sent = !out.is_empty();
        out.into_iter().for_each(|(_, frame)| self.pool.give(frame));
        self.collect();
        sent
    }

    fn collect(&mut self) {
        while let Some(completion) = self.engine.poll_completion(self.cq) {
            self.completed(&completion);
        }
        while self.engine.next_event().is_some() {}
    }

    /// A collective ended: what is in place is a result, and nothing behind it was written.
    fn completed(&mut self, completion: &Completion) {
        let of = |it: &&mut Part| it.id.number() == completion.qpn;
        let part = self.parts.iter_mut().find(of).expect("a member");
        let posted = part.posted.pop_front().expect("it ended twice");
        assert_eq!(completion.wr_id, posted.wr_id, "they end in order");
        let is_done = completion.status == Status::Success;
        let done = completion.byte_len;
        assert_eq!(completion.imm.is_none(), is_done, "a result or an error");
        assert!(done <= posted.len && (!is_done || done == posted.len));
        if is_done {
            part.done(&posted);
        }
        self.ends.done += u64::from(is_done);
        self.ends.failed += u64::from(!is_done);
        self.ends.partly += u64::from(!is_done && done > 0);
        self.settle_place(posted.place);
        let written = if posted.gets() { done as usize } else { 0 };
        let place = self.settled[posted.place].as_deref().unwrap_or_default();
        let (in_place, rest) = place.split_at(written);
        assert!(self.is_raw || in_place.iter().all(|&byte| byte == FILL));
        assert!(rest.iter().all(|&byte| byte == UNTOUCHED), "out of order");
    }

    fn settle_place(&mut self, place: usize) {
        let at = RESULTS + place * PLACE;
        self.settled[place] = Some(self.memory.to_vec()[at..at + PLACE].to_vec());
    }

    /// What holds after every step.
    fn check(&mut self) {
        assert!(self.engine.members().count() <= 2);
        for it in self.engine.members() {
            assert!(it.slots <= SLOTS.into() && it.waiting <= POSTS as usize);
            let (slots, window) = (it.slots as u64, u64::from(it.window));
            assert!(it.phase != "running" || window <= slots);
            assert!(u64::from(it.under_way) <= slots);
        }
        assert_eq!(self.pool.free_frames(), FRAMES as usize, "frames are lost");
    }

    /// Nobody says anything any more: all collectives end, then all memberships, and all is free.
    fn close(mut self) -> (EngineStatistics, Ends) {
        self.lead(1);
        self.lead(3);
        self.settle();
        for part in &self.parts {
            assert!(part.posted.is_empty(), "collectives hang");
            let standing = self.engine.member_statistics(part.id).expect("exists");
            let is_over = (standing.phase, standing.end.is_some()) == ("over", true);
            assert!(is_over, "{standing:?}");
        }
        for place in 0..self.settled.len() {
            self.clear(place);
        }
        assert!(
            self.memory.to_vec()[..RESULTS]
                .iter()
                .all(|&it| it == VECTOR)
        );
        for which in 0..2 {
            let id = self.parts[which].id;
            self.engine.destroy_member(id).expect("exists");
        }
        self.settle();
        self.check();
        assert_eq!(self.engine.members().count(), 0, "members are left");
        self.engine.deregister(self.keys.lkey).expect("exists");
        self.engine.destroy_completion_queue(self.cq).expect("idle");
        self.engine.destroy_domain(self.domain).expect("idle");
        let statistics = self.engine.statistics();
        assert_eq!(statistics.rx_packets, statistics.settled(), "packets");
        (statistics.clone(), self.ends)
    }

    fn settle(&mut self) {
        let end = self.now + PATIENCE;
        let mut wakes = 0;
        while self.now < end {
            while self.transmit() {}
            let next = self.engine.next_deadline();
            if next >= end {
                break;
            }
            self.now = next.max(self.now + Span::from_micros(1));
            wakes += 1;
            assert!(wakes < WAKES, "the engine wakes without end");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::victim::reached;
    use super::*;
    use common::wire::compute::Reason;
    use hostd::verbs::DropReason;

    /// HT-50: the corpus has collectives that end in each way, memberships that do, and messages
    /// that are dropped for each reason.
    #[test]
    fn the_corpus_reaches_members() {
        let all = reached("host_compute", play);
        for reason in [
            DropReason::NotRoce,
            DropReason::CollectiveMalformed,
            DropReason::CollectiveChecksum,
            DropReason::CollectiveSource,
            DropReason::CollectiveKey,
            DropReason::CollectiveMember,
            DropReason::CollectiveEnded,
            DropReason::CollectiveUpward,
            DropReason::CollectiveEpoch,
            DropReason::CollectivePhase,
            DropReason::CollectiveTerms,
            DropReason::CollectiveRepeated,
            DropReason::CollectiveUnlike,
        ] {
            let dropped = all.iter().map(|it| it.0.drops.get(reason)).sum::<u64>();
            assert!(dropped > 0, "{reason:?}");
        }
        for reason in [
            EndReason::Told(Reason::MemberLost),
            EndReason::Told(Reason::UnknownJob),
            EndReason::SwitchLost,
            EndReason::NoAnswer,
            EndReason::Memory,
            EndReason::Closed,
        ] {
            let ended = |it: &EngineStatistics| it.collective.ends[reason.index()];
            assert!(all.iter().any(|it| ended(&it.0) > 0), "{reason:?}");
        }
        let sums = all.iter().map(|it| it.0.collective.sums);
        let [partials, cuts, again] = sums.fold([0; 3], |[partials, cuts, again], it| {
            [
                partials + it.partials,
                cuts + it.cuts,
                again + it.retransmissions,
            ]
        });
        assert!(partials > 0 && cuts > 0 && again > 0);
        let ends = all.iter().map(|it| it.1);
        let [done, failed, partly] = ends.fold([0; 3], |[done, failed, partly], it| {
            [done + it.done, failed + it.failed, partly + it.partly]
        });
        assert!(
            done > 30 && failed > 10 && partly > 2,
            "{done} {failed} {partly}"
        );
    }
}
