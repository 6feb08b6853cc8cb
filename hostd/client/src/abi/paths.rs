//! What an application tells of its traffic, and asks of the sub-paths of a queue pair (3.3) and of
//! the service that its messages get (3.4), and the congestion control that it has (3.8).

use super::codec::{DecodeError, Reader};
use super::record::{Record, header};
use super::types::Granularity;

/// How urgent traffic is among that of a host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TrafficPriority {
    /// Nothing is said.
    #[default]
    Normal = 0,
    /// It may wait for others.
    Low = 1,
    /// Others may wait for it.
    High = 2,
}

/// Who talks to whom.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TrafficPattern {
    /// Nothing is said.
    #[default]
    Unknown = 0,
    /// One to one, as in a ring.
    Pairs = 1,
    /// Many send to the peer at a time.
    ManyToOne = 2,
    /// All to all.
    AllToAll = 3,
}

/// What an application tells of what it sends on a queue pair; the default says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Bytes of the pieces in which it sends. With granularity "flowlet" each may take a path of
    /// its own. Zero: nothing is said.
    pub block: u32,
    /// Who talks to whom.
    pub pattern: TrafficPattern,
    /// How urgent it is.
    pub priority: TrafficPriority,
}

/// A set of sub-paths: Path ID p is bit p mod 8 of byte p / 8.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathIds(pub [u8; 32]);

impl PathIds {
    /// With this one, too.
    #[must_use]
    pub const fn with(mut self, path: u8) -> Self {
        self.0[(path / 8) as usize] |= 1 << (path % 8);
        self
    }

    /// Those that are in it, in order.
    pub fn iter(&self) -> impl Iterator<Item = u8> + '_ {
        (0..=u8::MAX).filter(|path| self.0[usize::from(path / 8)] >> (path % 8) & 1 == 1)
    }
}

/// Weights that one change can have.
pub const WEIGHTS_MAX: usize = 32;

/// New weights of sub-paths: Path ID and weight, 1 to 100, at most [`WEIGHTS_MAX`] of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathWeights {
    count: u8,
    pairs: [(u8, u8); WEIGHTS_MAX],
}

impl PathWeights {
    /// These; `None` if they are too many.
    pub fn new(weights: &[(u8, u8)]) -> Option<Self> {
        let mut pairs = [(0, 0); WEIGHTS_MAX];
        pairs.get_mut(..weights.len())?.copy_from_slice(weights);
        let count = u8::try_from(weights.len()).ok()?;
        Some(Self { count, pairs })
    }

    /// All of them.
    pub fn as_slice(&self) -> &[(u8, u8)] {
        &self.pairs[..usize::from(self.count)]
    }
}

/// What is to become other on a connection that carries data; what is not named stays as it is. The
/// sub-paths in force, granularity, tolerance and flowlet time-out hold for both directions, and
/// the peer is asked. Weights are the sender's own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathChange {
    /// Sub-paths that come into force. Each carries data once a probe of it was answered.
    pub add: PathIds,
    /// Sub-paths that carry no new packets any more.
    pub remove: PathIds,
    /// Shares of packets, or of flowlets, against those of other sub-paths.
    pub weights: PathWeights,
    /// What takes one path.
    pub granularity: Option<Granularity>,
    /// Packets by which one may be overtaken before it is taken for lost.
    pub reorder_packets: Option<u16>,
    /// Microseconds by which a packet may be late before it is taken for lost: 100 to 65,535.
    pub reorder_time_us: Option<u16>,
    /// Microseconds of a pause that ends a flowlet.
    pub flowlet_timeout_us: Option<u16>,
}

/// What became of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum PathOutcome {
    /// The peer has not answered yet.
    Pending = 0,
    /// Both sides have made it.
    Made = 1,
    /// The peer refused it, and nothing has changed.
    Refused = 2,
}

impl PathOutcome {
    pub(super) fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        match byte {
            0 => Ok(Self::Pending),
            1 => Ok(Self::Made),
            2 => Ok(Self::Refused),
            _ => Err(DecodeError::Field("outcome")),
        }
    }
}

/// In which order messages of a queue pair are given out, and what the application puts up with
/// (HT-39). Both ends have to ask for it: the earlier one here is what both get.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Service {
    /// Each message after those before it, as with any reliable connection (`IBV_QPT_RC`).
    #[default]
    Ordered = 0,
    /// Each message once, as soon as it is whole. Completions come in any order, on both sides, and
    /// receives are taken in the order in which messages become whole.
    Unordered = 1,
    /// The same, for messages that may be carried out twice, or in parts. Packets of an RDMA WRITE
    /// without immediate data are placed as they come, each by itself.
    Idempotent = 2,
}

impl Service {
    fn of_number(number: u8) -> Result<Self, DecodeError> {
        match number {
            0 => Ok(Self::Ordered),
            1 => Ok(Self::Unordered),
            2 => Ok(Self::Idempotent),
            _ => Err(DecodeError::Field("service")),
        }
    }
}

/// Algorithms of congestion control: what each goes by, and whom it suits, is in hostd's
/// documentation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Congestion {
    /// A window of fixed size until a switch marks or trims a packet, then [`Self::Nscc`].
    #[default]
    Auto = 0,
    /// A window of fixed size.
    Fixed = 1,
    /// NSCC of Ultra Ethernet: by delay, marks and trims.
    Nscc = 2,
    /// Swift: by the round trip.
    Swift = 3,
    /// Swift by congestion signals, which hostd has to have enabled.
    SwiftCsig = 4,
    /// DCTCP: by the part of packets that is marked.
    Dctcp = 5,
    /// DCQCN: by notifications of congestion; also with plain peers.
    Dcqcn = 6,
    /// TIMELY: by how the round trip changes.
    Timely = 7,
    /// Poseidon: by congestion signals, which hostd has to have enabled.
    Poseidon = 8,
    /// HPCC: by telemetry, which hostd has to have enabled.
    Hpcc = 9,
    /// RTTCC: by the round trips of probes of its own.
    Rttcc = 10,
}

impl Congestion {
    /// All of them, by number.
    pub const ALL: [Self; 11] = [
        Self::Auto,
        Self::Fixed,
        Self::Nscc,
        Self::Swift,
        Self::SwiftCsig,
        Self::Dctcp,
        Self::Dcqcn,
        Self::Timely,
        Self::Poseidon,
        Self::Hpcc,
        Self::Rttcc,
    ];

    /// As hostd's configuration has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Fixed => "fixed",
            Self::Nscc => "nscc",
            Self::Swift => "swift",
            Self::SwiftCsig => "swift-csig",
            Self::Dctcp => "dctcp",
            Self::Dcqcn => "dcqcn",
            Self::Timely => "timely",
            Self::Poseidon => "poseidon",
            Self::Hpcc => "hpcc",
            Self::Rttcc => "rttcc",
        }
    }

    fn of_number(number: u8) -> Result<Self, DecodeError> {
        let found = Self::ALL.get(usize::from(number)).copied();
        found.ok_or(DecodeError::Field("congestion"))
    }
}

/// What an application asks about the sub-paths of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathRequest {
    /// Tell of the traffic from now on.
    Describe(Traffic),
    /// Change sub-paths and their use. The reply names the change.
    Change(PathChange),
    /// What became of a change with this name.
    Outcome(u16),
    /// Ask for this service in the connection that the queue pair will get (3.4).
    Serve(Service),
    /// Steer what the queue pair sends by this algorithm in the connection that it will get (3.8).
    Steer(Congestion),
}

const DESCRIBE: u16 = 36;
const CHANGE: u16 = 37;
const OUTCOME: u16 = 38;
const SERVE: u16 = 39;
const STEER: u16 = 43;

const HAS_GRANULARITY: u8 = 1;
const HAS_PACKETS: u8 = 2;
const HAS_TIME: u8 = 4;
const HAS_TIMEOUT: u8 = 8;

impl PathRequest {
    /// The record with this tag, for a queue pair.
    pub(super) fn encode(&self, qp: u32, tag: u32) -> Record {
        match self {
            Self::Describe(traffic) => header(DESCRIBE, tag)
                .u32(qp)
                .u32(traffic.block)
                .u8(traffic.pattern as u8)
                .u8(traffic.priority as u8)
                .u16(0),
            Self::Change(change) => change.write(header(CHANGE, tag).u32(qp)),
            Self::Outcome(change) => header(OUTCOME, tag).u32(qp).u16(*change).u16(0),
            Self::Serve(service) => {
                let record = header(SERVE, tag).u32(qp).u8(*service as u8);
                record.bytes(&[0; 3])
            }
            Self::Steer(congestion) => {
                let record = header(STEER, tag).u32(qp).u8(*congestion as u8);
                record.bytes(&[0; 3])
            }
        }
    }

    /// The queue pair and the request; `None` if `kind` is none of these.
    pub(super) fn decode(
        kind: u16,
        r: &mut Reader<'_>,
    ) -> Result<Option<(u32, Self)>, DecodeError> {
        if !(DESCRIBE..=SERVE).contains(&kind) && kind != STEER {
            return Ok(None);
        }
        let qp = r.u32()?;
        let request = match kind {
            DESCRIBE => Self::Describe(Traffic::read(r)?),
            CHANGE => Self::Change(PathChange::read(r)?),
            OUTCOME => {
                let change = r.u16()?;
                r.reserved::<2>()?;
                Self::Outcome(change)
            }
            SERVE => {
                let service = Service::of_number(r.u8()?)?;
                r.reserved::<3>()?;
                Self::Serve(service)
            }
            _ => {
                let congestion = Congestion::of_number(r.u8()?)?;
                r.reserved::<3>()?;
                Self::Steer(congestion)
            }
        };
        Ok(Some((qp, request)))
    }
}

impl Traffic {
    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let block = r.u32()?;
        let pattern = match r.u8()? {
            0 => TrafficPattern::Unknown,
            1 => TrafficPattern::Pairs,
            2 => TrafficPattern::ManyToOne,
            3 => TrafficPattern::AllToAll,
            _ => return Err(DecodeError::Field("pattern")),
        };
        let priority = match r.u8()? {
            0 => TrafficPriority::Normal,
            1 => TrafficPriority::Low,
            2 => TrafficPriority::High,
            _ => return Err(DecodeError::Field("priority")),
        };
        r.reserved::<2>()?;
        Ok(Self {
            block,
            pattern,
            priority,
        })
    }
}

impl PathChange {
    fn write(&self, record: Record) -> Record {
        let bit = |is: bool, bit: u8| if is { bit } else { 0 };
        let given = bit(self.granularity.is_some(), HAS_GRANULARITY)
            | bit(self.reorder_packets.is_some(), HAS_PACKETS)
            | bit(self.reorder_time_us.is_some(), HAS_TIME)
            | bit(self.flowlet_timeout_us.is_some(), HAS_TIMEOUT);
        let record = record
            .bytes(&self.add.0)
            .bytes(&self.remove.0)
            .u8(given)
            .u8(self.granularity.map_or(0, |it| it as u8))
            .u16(self.reorder_packets.unwrap_or(0))
            .u16(self.reorder_time_us.unwrap_or(0))
            .u16(self.flowlet_timeout_us.unwrap_or(0))
            .u8(self.weights.count)
            .bytes(&[0; 3]);
        let pairs = self.weights.pairs.iter();
        pairs.fold(record, |record, (path, weight)| {
            record.u8(*path).u8(*weight)
        })
    }

    /// Ranges are the engine's to look at.
    fn read(r: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let (add, remove) = (PathIds(r.bytes()?), PathIds(r.bytes()?));
        let (given, granularity) = (r.u8()?, r.u8()?);
        if given >= 1 << 4 {
            return Err(DecodeError::Field("given"));
        }
        let granularity = match given & HAS_GRANULARITY {
            0 => None,
            _ => Some(Granularity::from_byte(granularity)?),
        };
        let has = |bit: u8| given & bit != 0;
        let (packets, time, timeout) = (r.u16()?, r.u16()?, r.u16()?);
        let count = r.u8()?;
        r.reserved::<3>()?;
        if usize::from(count) > WEIGHTS_MAX {
            return Err(DecodeError::Field("weights"));
        }
        let mut pairs = [(0, 0); WEIGHTS_MAX];
        for pair in &mut pairs {
            *pair = (r.u8()?, r.u8()?);
        }
        let weights = PathWeights::new(&pairs[..usize::from(count)]);
        Ok(Self {
            add,
            remove,
            weights: weights.unwrap_or_default(),
            granularity,
            reorder_packets: has(HAS_PACKETS).then_some(packets),
            reorder_time_us: has(HAS_TIME).then_some(time),
            flowlet_timeout_us: has(HAS_TIMEOUT).then_some(timeout),
        })
    }
}
