//! A connection to another member: places for messages, and who has how many of them.
//!
//! ```text
//!   memory   │ receives: window + SPARE places │ sends: window + SPARE places │
//!   place    │ header │ a segment at most      │
//! ```
//!
//! Each side posts a receive for every place. A segment takes a credit of its sender, of which
//! there are `window`; the receiver gives it back when it has taken the segment out. Other messages
//! take spare places: each side has two credits and a failure under way at most. A connection for
//! control has spare places only.

use super::message::{CONTROL_LEN, HEADER, Header, Message};
use crate::abi::options::ConnectionOptions;
use crate::{
    Access, CompletionQueue, Context, Error, QueuePair, QueuePairOptions, ReceiveRequest, Region,
    RemoteSlice, SendRequest, Slice,
};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Places beside those of segments.
pub(super) const SPARE: usize = 4;

/// Places of a connection for control: all that may be under way to one that does not poll.
pub(super) const CONTROL: usize = 10;

/// Segments that may be under way to a member.
pub(super) const WINDOW: usize = 8;

/// About half a second eight times over: a host that takes nothing for so long is lost. Connections
/// of a group are never without a receive, so no time is set for that.
const OPTIONS: ConnectionOptions = ConnectionOptions {
    timeout: 17,
    retry_count: 7,
    rnr_retry: 7,
    min_rnr_timer: 12,
    responder_resources: 0,
    initiator_depth: 0,
};

/// What a work request was, in its `wr_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) control: bool,
    pub(super) peer: usize,
    pub(super) work: Work,
    pub(super) place: usize,
}

/// What a work request does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    Receive = 0,
    Message = 1,
    /// A segment that lies where the caller's vector does.
    Segment = 2,
    /// A segment of which there is a copy.
    Copied = 3,
}

impl Tag {
    fn wr_id(self) -> u64 {
        let number = |value: usize| value as u64 & 0xffff;
        number(self.place)
            | number(self.peer) << 16
            | (self.work as u64) << 32
            | u64::from(self.control) << 40
    }

    pub(super) fn from_wr_id(id: u64) -> Self {
        let number = |shift: u32| usize::from(u16::try_from(id >> shift & 0xffff).unwrap_or(0));
        Self {
            control: id >> 40 & 1 == 1,
            peer: number(16),
            work: match id >> 32 & 3 {
                0 => Work::Receive,
                1 => Work::Message,
                2 => Work::Segment,
                _ => Work::Copied,
            },
            place: number(0),
        }
    }
}

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Asked for; nothing may be sent yet.
    Begun,
    /// It stands.
    Up,
    /// It has ended.
    Ended,
}

/// A segment that has come and waits to be taken.
#[derive(Clone, Debug)]
pub(super) struct Arrived {
    pub(super) header: Header,
    place: usize,
    /// Its bytes, if its place was given back before it was taken.
    aside: Option<Vec<u8>>,
    /// Bytes behind the header.
    pub(super) len: usize,
}

#[derive(Debug)]
pub(super) struct Link {
    pub(super) queue_pair: QueuePair,
    pub(super) phase: Phase,
    memory: Region,
    control: bool,
    peer: usize,
    /// Places for segments: none on a connection for control.
    window: usize,
    /// Places for what is no segment.
    spare: usize,
    /// Bytes of a place.
    place: usize,
    /// Places to send from.
    free: Vec<usize>,
    /// What is posted next.
    sends: Vec<(u64, [Slice; 2])>,
    receives: Vec<ReceiveRequest>,
    /// Segments that have come, in order.
    pub(super) inbox: VecDeque<Arrived>,
    /// Segments that may be sent before the peer says more.
    credits: usize,
    /// Segments taken that the peer was not told of.
    owed: u16,
    /// Segments, those of them that are no copies, and all sends, that are not acknowledged.
    segments_out: usize,
    pub(super) borrowed: usize,
    pub(super) sends_out: usize,
    /// Of a connection for control: since when the peer's host has said nothing though it should.
    silent: Option<Instant>,
    /// Collectives that the peer had done when it ended its part.
    pub(super) left: Option<u64>,
    /// A segment was sent, or something has come.
    pub(super) used: bool,
}

impl Link {
    /// A connection to be made, with all its receives posted. `segment` is zero for control.
    pub(super) fn create(
        context: &Context,
        queue: &CompletionQueue,
        peer: usize,
        segment: usize,
    ) -> Result<Self, Error> {
        let control = segment == 0;
        let window = if control { 0 } else { WINDOW };
        let place = HEADER + segment;
        let place = place.max(CONTROL_LEN).next_multiple_of(64);
        let spare = if control { CONTROL } else { SPARE };
        let places = window + spare;
        let memory = context.allocate(2 * places * place, Access::LOCAL_WRITE)?;
        let entries = u32::try_from(places).unwrap_or(u32::MAX);
        let options = QueuePairOptions {
            send_entries: entries,
            receive_entries: entries,
        };
        let mut queue_pair = context.create_queue_pair(queue, queue, options)?;
        queue_pair.set_options(&OPTIONS)?;
        let mut link = Self {
            queue_pair,
            phase: Phase::Begun,
            memory,
            control,
            peer,
            window,
            spare,
            place,
            free: (0..places).collect(),
            sends: Vec::with_capacity(places),
            receives: Vec::with_capacity(places),
            inbox: VecDeque::with_capacity(places),
            credits: window,
            owed: 0,
            segments_out: 0,
            borrowed: 0,
            sends_out: 0,
            silent: None,
            left: None,
            used: false,
        };
        for place in 0..places {
            link.give_back(place)?;
        }
        link.post()?;
        Ok(link)
    }

    fn tag(&self, work: Work, place: usize) -> u64 {
        let tag = Tag {
            control: self.control,
            peer: self.peer,
            work,
            place,
        };
        tag.wr_id()
    }

    /// Has a place that was read posted again.
    fn give_back(&mut self, place: usize) -> Result<(), Error> {
        self.receives.push(ReceiveRequest {
            wr_id: self.tag(Work::Receive, place),
            local: self.memory.slice(place * self.place, self.place)?,
        });
        Ok(())
    }

    /// Where a send's place begins.
    fn out(&self, place: usize) -> usize {
        (self.window + self.spare + place) * self.place
    }

    /// Whether a segment may be sent. Acknowledgements may come late, so the places for what has to
    /// be said at the end are kept.
    pub(super) fn takes_segment(&self) -> bool {
        let credits = self.credits > 0 && self.segments_out < self.window;
        self.phase == Phase::Up && credits && self.free.len() > 2
    }

    /// Sends a segment, from where it is or from a copy; to be posted with [`Self::post`].
    pub(super) fn send_segment(
        &mut self,
        header: Header,
        body: Slice,
        copy: Option<&[u8]>,
    ) -> Result<(), Error> {
        let place = self.free.pop().expect("looked at before");
        let message = Message::Segment(header, std::mem::take(&mut self.owed));
        let start = self.out(place);
        self.memory.write(start, message.encode().as_slice())?;
        let (work, pieces) = if let Some(bytes) = copy {
            self.memory.write(start + HEADER, bytes)?;
            let whole = self.memory.slice(start, HEADER + bytes.len())?;
            (Work::Copied, [whole, Slice::EMPTY])
        } else {
            self.borrowed += 1;
            (Work::Segment, [self.memory.slice(start, HEADER)?, body])
        };
        self.sends.push((self.tag(work, place), pieces));
        self.credits -= 1;
        self.segments_out += 1;
        self.used = true;
        self.goes_out();
        Ok(())
    }

    /// Sends another message; to be posted with [`Self::post`]. False if there is no place for it,
    /// or no connection.
    pub(super) fn send(&mut self, message: &Message) -> Result<bool, Error> {
        if self.phase != Phase::Up {
            return Ok(false);
        }
        let Some(place) = self.free.pop() else {
            return Ok(false);
        };
        let bytes = message.encode();
        let start = self.out(place);
        self.memory.write(start, bytes.as_slice())?;
        let slice = self.memory.slice(start, bytes.as_slice().len())?;
        let tag = self.tag(Work::Message, place);
        self.sends.push((tag, [slice, Slice::EMPTY]));
        self.goes_out();
        Ok(true)
    }

    /// Gives the daemon what has come together: places to receive in before credits for them.
    pub(super) fn post(&mut self) -> Result<(), Error> {
        if !self.receives.is_empty() && self.phase != Phase::Ended {
            self.queue_pair.post_receives(&self.receives)?;
        }
        self.receives.clear();
        if usize::from(self.owed) * 2 >= self.window && self.owed > 0 && self.free.len() > 2 {
            let credit = Message::Credit(self.owed);
            if self.send(&credit)? {
                self.owed = 0;
            }
        }
        if !self.sends.is_empty() {
            self.queue_pair.post_pairs(&self.sends)?;
            self.sends.clear();
        }
        Ok(())
    }

    /// Has the daemon of the peer asked whether it lives, if nothing else does: a write of no
    /// bytes, of which its application learns nothing. One that is gone ends the connection.
    pub(super) fn probe(&mut self) -> Result<(), Error> {
        if self.phase != Phase::Up || self.sends_out > 0 {
            return Ok(());
        }
        if let Some(place) = self.free.pop() {
            let tag = self.tag(Work::Message, place);
            let nowhere = RemoteSlice::default();
            let probe = SendRequest::write(tag, Slice::EMPTY, nowhere);
            self.queue_pair.post_send(&probe)?;
            self.goes_out();
        }
        Ok(())
    }

    /// A send is under way.
    fn goes_out(&mut self) {
        self.sends_out += 1;
        if self.control {
            self.silent.get_or_insert_with(Instant::now);
        }
    }

    /// For how long the peer's host has acknowledged nothing of what is under way to it. Known of
    /// connections for control only.
    pub(super) fn silence(&self) -> Duration {
        let silent = self.silent.filter(|_| self.phase == Phase::Up);
        silent.map_or(Duration::ZERO, |since| since.elapsed())
    }

    /// A send is over.
    pub(super) fn sent(&mut self, work: Work, place: usize) {
        self.sends_out -= 1;
        self.silent = (self.control && self.sends_out > 0).then(Instant::now);
        self.segments_out -= usize::from(matches!(work, Work::Segment | Work::Copied));
        self.borrowed -= usize::from(work == Work::Segment);
        self.free.push(place);
    }

    /// A message of `len` bytes has come at `place`. A segment waits in the inbox; anything else is
    /// returned. `None` also for what no member sends, with `Err`.
    pub(super) fn came(&mut self, place: usize, len: usize) -> Result<Came, Error> {
        self.used = true;
        let mut bytes = [0; CONTROL_LEN];
        let start = place * self.place;
        let bytes = &mut bytes[..len.min(CONTROL_LEN)];
        // Of a segment the header only.
        let head = HEADER.min(bytes.len());
        self.memory.read(start, &mut bytes[..head])?;
        if bytes.first() != Some(&1) {
            self.memory.read(start + head, &mut bytes[head..])?;
        }
        let Ok(message) = Message::decode(bytes) else {
            return Ok(Came::Garbage);
        };
        let Message::Segment(header, credits) = message else {
            self.give_back(place)?;
            if let Message::Credit(credits) = message {
                return Ok(self.credited(credits));
            }
            return Ok(Came::Message(message));
        };
        let len = len - HEADER;
        self.inbox.push_back(Arrived {
            header,
            place,
            aside: None,
            len,
        });
        Ok(self.credited(credits))
    }

    fn credited(&mut self, credits: u16) -> Came {
        self.credits += usize::from(credits);
        if self.credits > self.window {
            return Came::Garbage;
        }
        Came::Nothing
    }

    /// The place in the inbox of the oldest segment of collective `sequence` or an earlier one.
    /// Those of later ones come behind it, unless this member is helped out with what it lacks.
    pub(super) fn head(&self, sequence: u64) -> Option<usize> {
        let mut all = self.inbox.iter();
        all.position(|it| it.header.sequence <= sequence)
    }

    /// Copies a segment out.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) -> Result<(), Error> {
        let arrived = &self.inbox[at];
        if let Some(bytes) = &arrived.aside {
            into.copy_from_slice(bytes);
            return Ok(());
        }
        self.memory.read(arrived.place * self.place + HEADER, into)
    }

    /// Is done with a segment.
    pub(super) fn take(&mut self, at: usize) -> Result<(), Error> {
        let arrived = self.inbox.remove(at).expect("there is one");
        if arrived.aside.is_some() {
            return Ok(());
        }
        self.owed += 1;
        self.give_back(arrived.place)
    }

    /// Keeps segments of collectives after `sequence` elsewhere, so that those which the peer helps
    /// out with have room: at most a window of them, as it goes on with nothing else before.
    pub(super) fn set_aside(&mut self, sequence: u64) -> Result<(), Error> {
        for at in 0..self.inbox.len() {
            let arrived = &self.inbox[at];
            if arrived.header.sequence <= sequence || arrived.aside.is_some() {
                continue;
            }
            let (place, mut bytes) = (arrived.place, vec![0; arrived.len]);
            self.memory.read(place * self.place + HEADER, &mut bytes)?;
            self.inbox[at].aside = Some(bytes);
            self.owed += 1;
            self.give_back(place)?;
        }
        Ok(())
    }
}

/// What has come.
#[derive(Debug)]
pub(super) enum Came {
    /// Nothing to act on, or a segment.
    Nothing,
    Message(Message),
    /// No member sends this.
    Garbage,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-50: a completion tells which message of which member it is of.
    #[test]
    fn tags_round_trip() {
        for control in [false, true] {
            for work in [Work::Receive, Work::Message, Work::Segment, Work::Copied] {
                for (peer, place) in [(0, 0), (63, 11), (1, 3)] {
                    let tag = Tag {
                        control,
                        peer,
                        work,
                        place,
                    };
                    assert_eq!(Tag::from_wr_id(tag.wr_id()), tag);
                }
            }
        }
    }
}
