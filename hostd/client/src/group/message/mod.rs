//! What members send each other.

use super::again::{Ready, Standing, Word};
use super::agree::{Agreement, Position};
use super::blame::Heard;
use super::call::{CALL_LEN, Call};
use super::failure::{FAILURE_LEN, Failure, Refusal};
use super::judge::{REMEMBERED, State};
use super::seat::{Attempt, Leafless, Seat, Why};
use crate::Private;
use crate::abi::codec::{DecodeError, Reader, Writer};
use crate::abi::collective::FailureReason;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Members of a group at most.
pub const SIZE_MAX: usize = 64;

/// Bytes before the bytes of a segment.
pub(super) const HEADER: usize = 32;

/// Bytes of the longest message that is not a segment: the table.
pub(super) const CONTROL_LEN: usize = 16 + 18 * SIZE_MAX + SEAT_LEN;

/// Bytes of a member's place in the tree of switches.
const SEAT_LEN: usize = 12;

const _: () = assert!(CONTROL_LEN >= 16 + FAILURE_LEN + REMEMBERED * CALL_LEN);

/// Stands for no rank.
const NOBODY: u16 = u16::MAX;

/// What comes before the bytes of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    /// Which collective of the group this is, from zero on.
    pub(super) sequence: u64,
    pub(super) call: Call,
    /// Which segment from this member to that one in this collective, from zero on.
    pub(super) number: u32,
}

/// A message, without the bytes of its segment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Message {
    /// A segment, and so many places for segments that the sender has again.
    Segment(Header, u16),
    /// Places that the sender has again.
    Credit(u16),
    /// The group has failed.
    Failed(Failure),
    /// Rank 0 tells all who is where.
    Table {
        group: u64,
        members: Vec<SocketAddr>,
        /// The receiver's place in the tree of switches, or why there is none.
        seat: Result<Seat, Leafless>,
    },
    /// The sender ends its part in good order, after so many collectives.
    Goodbye(u64),
    /// The sender asks rank 0 why it stands still, and says what it suspects.
    Appeal(State, Failure),
    /// Rank 0 asks how far the receiver is.
    Inquiry,
    /// The answer.
    State(State),
    /// The sender is at a collective at which all ask for the switches.
    Ready(Ready),
    /// Rank 0: where that goes.
    Word(Word),
    /// Rank 0: nobody uses the switches any more; it asks how far the receiver is.
    Recall(Why),
    /// The answer; or that the sender stops. And whether its leaf has answered it.
    Report(Position, Why, Heard),
    /// Rank 0: what all do next, and at which collective they ask again.
    Plan(Why, u64, Agreement),
    /// The sender stands still, and tells rank 0 what it calls.
    Note(State),
    /// Rank 0 has seen that.
    Noted,
}

fn rank(rank: Option<usize>) -> u16 {
    rank.map_or(NOBODY, |rank| u16::try_from(rank).unwrap_or(NOBODY))
}

fn read_rank(reader: &mut Reader<'_>) -> Result<Option<usize>, DecodeError> {
    match usize::from(reader.u16()?) {
        nobody if nobody == usize::from(NOBODY) => Ok(None),
        rank if rank < SIZE_MAX => Ok(Some(rank)),
        _ => Err(DecodeError::Field("rank")),
    }
}

fn write_state(writer: Writer<CONTROL_LEN>, state: &State) -> Writer<CONTROL_LEN> {
    let calls = &state.calls[..state.calls.len().min(REMEMBERED)];
    let count = u16::try_from(calls.len()).unwrap_or(0);
    let head = writer
        .u64(state.sequence)
        .u16(rank(state.waits_for))
        .u16(count);
    calls
        .iter()
        .fold(head, |writer, call| writer.bytes(&call.to_bytes()))
}

fn read_state(reader: &mut Reader<'_>) -> Result<State, DecodeError> {
    let sequence = reader.u64()?;
    let waits_for = read_rank(reader)?;
    let count = usize::from(reader.u16()?);
    if count > REMEMBERED {
        return Err(DecodeError::Field("calls"));
    }
    let calls = (0..count)
        .map(|_| Call::read(reader))
        .collect::<Result<_, _>>()?;
    Ok(State {
        sequence,
        calls,
        waits_for,
    })
}

type Written = Writer<CONTROL_LEN>;

/// Without leaves it is none: the rank is that of who has none then, and the job tells of the
/// others.
fn write_seat(writer: Written, seat: &Result<Seat, Leafless>) -> Written {
    match seat {
        Ok(seat) => {
            let writer = writer.u32(seat.job).u16(seat.rank).u16(seat.size);
            writer.u16(seat.leaf).u16(seat.leaves)
        }
        Err(none) => {
            let writer = writer.u32(none.others.into()).u16(rank(Some(none.rank)));
            writer.u16(0).u16(0).u16(0)
        }
    }
}

fn read_seat(reader: &mut Reader<'_>) -> Result<Result<Seat, Leafless>, DecodeError> {
    let seat = Seat {
        job: reader.u32()?,
        rank: reader.u16()?,
        size: reader.u16()?,
        leaf: reader.u16()?,
        leaves: reader.u16()?,
    };
    let none = Leafless {
        rank: seat.rank.into(),
        others: seat.job != 0,
    };
    Ok(if seat.leaves > 0 { Ok(seat) } else { Err(none) })
}

fn write_why(writer: Written, why: &Why) -> Written {
    writer.u16(why.reason as u16).u16(rank(why.rank))
}

fn read_why(reader: &mut Reader<'_>) -> Result<Why, DecodeError> {
    let reason = FailureReason::of_number(reader.u16()?.into())?;
    let rank = read_rank(reader)?;
    Ok(Why { reason, rank })
}

fn write_ready(writer: Written, standing: Standing) -> Written {
    match standing {
        Standing::Idle => writer.u32(0),
        Standing::Pending => writer.u32(1),
        Standing::Admitted => writer.u32(2),
        Standing::Failed(why) => write_why(writer.u32(3), &why),
    }
}

fn read_standing(reader: &mut Reader<'_>) -> Result<Standing, DecodeError> {
    Ok(match reader.u32()? {
        0 => Standing::Idle,
        1 => Standing::Pending,
        2 => Standing::Admitted,
        3 => Standing::Failed(read_why(reader)?),
        _ => return Err(DecodeError::Field("standing")),
    })
}

fn write_word(writer: Written, word: Word) -> Written {
    let none = Attempt {
        generation: 0,
        trees: 0,
        first: 0,
    };
    let (number, attempt, next) = match word {
        Word::Join(attempt) => (0, attempt, 0),
        Word::Try(attempt, next) => (1, attempt, next),
        Word::Use => (2, none, 0),
        Word::Wait(next) => (3, none, next),
        Word::Stay(next) => (4, none, next),
    };
    let writer = writer.u16(number).u16(attempt.trees);
    let writer = writer.u32(attempt.generation).u64(next);
    writer.u32(attempt.first.into())
}

fn read_word(reader: &mut Reader<'_>) -> Result<Word, DecodeError> {
    let (number, trees) = (reader.u16()?, reader.u16()?);
    let (generation, next) = (reader.u32()?, reader.u64()?);
    let first = u16::try_from(reader.u32()?).map_err(|_| DecodeError::Field("first"))?;
    let attempt = Attempt {
        generation,
        trees,
        first,
    };
    Ok(match number {
        0 => Word::Join(attempt),
        1 => Word::Try(attempt, next),
        2 => Word::Use,
        3 => Word::Wait(next),
        4 => Word::Stay(next),
        _ => return Err(DecodeError::Field("word")),
    })
}

fn write_position(writer: Written, it: &Position) -> Written {
    let flags = u8::from(it.switched) | u8::from(it.complete) << 1;
    let writer = writer.u64(it.sequence).u32(flags.into()).u64(it.done);
    writer.bytes(&it.call.to_bytes())
}

fn read_position(reader: &mut Reader<'_>) -> Result<Position, DecodeError> {
    let sequence = reader.u64()?;
    let flags = reader.u32()?;
    if flags > 3 {
        return Err(DecodeError::Field("flags"));
    }
    Ok(Position {
        sequence,
        switched: flags & 1 != 0,
        complete: flags & 2 != 0,
        done: reader.u64()?,
        call: Call::read(reader)?,
    })
}

fn write_agreement(writer: Written, it: &Agreement) -> Written {
    let writer = writer.u64(it.sequence).u16(rank(it.holder));
    let writer = writer.u16(it.complete.into()).u64(it.agreed);
    it.done
        .iter()
        .fold(writer, |writer, done| writer.u64(*done))
}

fn read_agreement(reader: &mut Reader<'_>, count: u16) -> Result<Agreement, DecodeError> {
    let (sequence, holder) = (reader.u64()?, read_rank(reader)?);
    let complete = match reader.u16()? {
        0 => false,
        1 => true,
        _ => return Err(DecodeError::Field("complete")),
    };
    let agreed = reader.u64()?;
    if usize::from(count) > SIZE_MAX {
        return Err(DecodeError::Field("members"));
    }
    let done = (0..count).map(|_| reader.u64()).collect::<Result<_, _>>()?;
    Ok(Agreement {
        sequence,
        complete,
        agreed,
        holder,
        done,
    })
}

impl Message {
    pub(super) fn encode(&self) -> Writer<CONTROL_LEN> {
        let begin = |kind, number| Writer::new().u8(kind).u8(0).u16(number);
        match self {
            Self::Segment(header, credits) => begin(1, *credits)
                .u64(header.sequence)
                .bytes(&header.call.to_bytes())
                .u32(header.number),
            Self::Credit(credits) => begin(2, *credits),
            Self::Failed(failure) => begin(3, 0).bytes(&failure.to_bytes()),
            Self::Table {
                group,
                members,
                seat,
            } => {
                let count = u16::try_from(members.len()).unwrap_or(0);
                let head = begin(4, count).u32(0).u64(*group);
                let table = members.iter().fold(head, |writer, member| {
                    writer.address(member.ip()).u16(member.port())
                });
                write_seat(table, seat)
            }
            Self::Goodbye(sequence) => begin(5, 0).u64(*sequence),
            Self::Appeal(state, suspicion) => {
                write_state(begin(6, 0).bytes(&suspicion.to_bytes()), state)
            }
            Self::Inquiry => begin(7, 0),
            Self::State(state) => write_state(begin(8, 0), state),
            Self::Ready(ready) => write_ready(begin(9, ready.parents), ready.standing),
            Self::Word(word) => write_word(begin(10, 0), *word),
            Self::Recall(why) => write_why(begin(11, 0), why),
            Self::Report(position, why, heard) => {
                write_position(write_why(begin(12, *heard as u16), why), position)
            }
            Self::Plan(why, next, agreement) => {
                let count = u16::try_from(agreement.done.len()).unwrap_or(0);
                write_agreement(write_why(begin(13, count), why).u64(*next), agreement)
            }
            Self::Note(state) => write_state(begin(14, 0), state),
            Self::Noted => begin(15, 0),
        }
    }

    /// Reads a message; `bytes` are its first ones, a segment's may follow.
    pub(super) fn decode(bytes: &[u8]) -> Result<Self, DecodeError> {
        let mut reader = Reader::new(bytes);
        let kind = reader.u8()?;
        reader.reserved::<1>()?;
        let count = reader.u16()?;
        Ok(match kind {
            1 => {
                let header = Header {
                    sequence: reader.u64()?,
                    call: Call::read(&mut reader)?,
                    number: reader.u32()?,
                };
                Self::Segment(header, count)
            }
            2 => Self::Credit(count),
            3 => Self::Failed(Failure::read(&mut reader)?),
            4 => {
                reader.reserved::<4>()?;
                let group = reader.u64()?;
                if usize::from(count) > SIZE_MAX {
                    return Err(DecodeError::Field("members"));
                }
                let mut member =
                    || Ok::<_, DecodeError>(SocketAddr::new(reader.address()?, reader.u16()?));
                let members = (0..count).map(|_| member()).collect::<Result<_, _>>()?;
                let seat = read_seat(&mut reader)?;
                Self::Table {
                    group,
                    members,
                    seat,
                }
            }
            5 => Self::Goodbye(reader.u64()?),
            6 => {
                let suspicion = Failure::read(&mut reader)?;
                Self::Appeal(read_state(&mut reader)?, suspicion)
            }
            7 => Self::Inquiry,
            8 => Self::State(read_state(&mut reader)?),
            9 => Self::Ready(Ready {
                parents: count,
                standing: read_standing(&mut reader)?,
            }),
            10 => Self::Word(read_word(&mut reader)?),
            11 => Self::Recall(read_why(&mut reader)?),
            12 => {
                let heard = Heard::ALL.get(usize::from(count)).copied();
                let heard = heard.ok_or(DecodeError::Field("heard"))?;
                let why = read_why(&mut reader)?;
                Self::Report(read_position(&mut reader)?, why, heard)
            }
            13 => {
                let why = read_why(&mut reader)?;
                let next = reader.u64()?;
                Self::Plan(why, next, read_agreement(&mut reader, count)?)
            }
            14 => Self::Note(read_state(&mut reader)?),
            15 => Self::Noted,
            _ => return Err(DecodeError::Kind(kind.into())),
        })
    }
}

const MAGIC: u32 = u32::from_le_bytes(*b"hgr5");

/// What a member says when it connects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hello {
    /// To rank 0: I am `rank` of `size`, and wait for connections at `port`.
    Join {
        rank: u16,
        size: u16,
        port: u16,
        segment: u32,
        /// The switch that it asks.
        leaf: Option<IpAddr>,
    },
    /// To another member: I am `rank` of the group of this number.
    Member { rank: u16, group: u64 },
}

impl Hello {
    pub(super) fn to_private(self) -> Private {
        let writer = Writer::<32>::new().u32(MAGIC);
        let writer = match self {
            Self::Join {
                rank,
                size,
                port,
                segment,
                leaf,
            } => {
                let writer = writer.u16(0).u16(rank).u16(size).u16(port).u32(segment);
                writer.address(leaf.unwrap_or_else(|| Ipv6Addr::UNSPECIFIED.into()))
            }
            Self::Member { rank, group } => writer.u16(1).u16(rank).u64(group),
        };
        Private::new(writer.as_slice()).unwrap_or_default()
    }

    pub(super) fn from_private(private: &Private) -> Option<Self> {
        let mut reader = Reader::new(private.as_slice());
        if reader.u32().ok()? != MAGIC {
            return None;
        }
        let kind = reader.u16().ok()?;
        let rank = reader.u16().ok()?;
        match kind {
            0 => Some(Self::Join {
                rank,
                size: reader.u16().ok()?,
                port: reader.u16().ok()?,
                segment: reader.u32().ok()?,
                leaf: reader.address().ok().filter(|it| !it.is_unspecified()),
            }),
            1 => Some(Self::Member {
                rank,
                group: reader.u64().ok()?,
            }),
            _ => None,
        }
    }
}

impl Refusal {
    pub(super) fn to_private(self) -> Private {
        let writer = Writer::<5>::new().u32(MAGIC).u8(self as u8);
        Private::new(writer.as_slice()).unwrap_or_default()
    }

    pub(super) fn from_private(private: &Private) -> Option<Self> {
        let mut reader = Reader::new(private.as_slice());
        if reader.u32().ok()? != MAGIC {
            return None;
        }
        Self::ALL.get(usize::from(reader.u8().ok()?)).copied()
    }
}

#[cfg(test)]
mod tests;
