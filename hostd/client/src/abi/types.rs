//! Values that messages are made of.

use super::PRIVATE_MAX;
use super::codec::{DecodeError, Reader};
use super::record::Record;

/// What a region allows (`ibv_access_flags`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access(u32);

impl Access {
    /// The daemon may place received messages there.
    pub const LOCAL_WRITE: Self = Self(1);
    /// Peers may write there with RDMA WRITE; needs [`Self::LOCAL_WRITE`].
    pub const REMOTE_WRITE: Self = Self(2);
    /// Peers may read there with RDMA READ.
    pub const REMOTE_READ: Self = Self(4);
    /// Peers may do atomic operations there; needs [`Self::LOCAL_WRITE`].
    pub const REMOTE_ATOMIC: Self = Self(8);

    /// Memory windows may be bound there (`IBV_ACCESS_MW_BIND`).
    pub const BIND: Self = Self(16);
    /// Of a memory window: its first byte has address zero (`IBV_ACCESS_ZERO_BASED`).
    pub const ZERO_BASED: Self = Self(32);

    /// What both allow together.
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether everything in `other` is allowed.
    pub const fn allows(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The flags as they cross the boundary.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// The flags as an application gives them, which may be any: see [`Self::fault_of_region`] and
    /// [`Self::fault_of_queue_pair`].
    pub(super) const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// Why a region cannot have these flags; `None` if it can. The rule of ibv_reg_mr(3).
    pub fn fault_of_region(self) -> Option<&'static str> {
        let lacks_write = !self.allows(Self::LOCAL_WRITE);
        if self.0 >= 1 << 5 {
            Some(
                "only LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ, REMOTE_ATOMIC and BIND are flags of a region",
            )
        } else if lacks_write && self.allows(Self::REMOTE_WRITE) {
            Some("REMOTE_WRITE needs LOCAL_WRITE")
        } else if lacks_write && self.allows(Self::REMOTE_ATOMIC) {
            Some("REMOTE_ATOMIC needs LOCAL_WRITE")
        } else {
            None
        }
    }

    /// Why a queue pair cannot have these flags; `None` if it can.
    pub fn fault_of_queue_pair(self) -> Option<&'static str> {
        (self.0 >= 1 << 4).then_some(
            "only LOCAL_WRITE, REMOTE_WRITE, REMOTE_READ and REMOTE_ATOMIC are flags of a queue pair",
        )
    }
}

/// Data that the applications exchange in the set-up of a connection.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Private {
    bytes: [u8; PRIVATE_MAX],
    len: u8,
}

impl std::fmt::Debug for Private {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Private({:02x?})", self.as_slice())
    }
}

impl Private {
    /// None at all.
    pub const EMPTY: Self = Self {
        bytes: [0; PRIVATE_MAX],
        len: 0,
    };

    /// `data`, or `None` if it is longer than [`PRIVATE_MAX`].
    pub fn new(data: &[u8]) -> Option<Self> {
        let mut whole = Self::EMPTY;
        whole.bytes.get_mut(..data.len())?.copy_from_slice(data);
        whole.len = u8::try_from(data.len()).ok()?;
        Some(whole)
    }

    /// The data.
    pub fn as_slice(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }

    pub(super) fn write(&self, record: Record) -> Record {
        record.u8(self.len).bytes(&self.bytes)
    }

    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, DecodeError> {
        let len = usize::from(reader.u8()?);
        let bytes = reader.bytes::<PRIVATE_MAX>()?;
        let data = bytes.get(..len).ok_or(DecodeError::Field("private"))?;
        Self::new(data).ok_or(DecodeError::Field("private"))
    }
}

/// What the scheduler of sub-paths decides for at once (MPR 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Granularity {
    /// A whole flow.
    Flow = 1,
    /// A burst between pauses.
    Flowlet = 2,
    /// Every packet.
    Packet = 3,
}

impl Granularity {
    pub(super) fn from_byte(byte: u8) -> Result<Self, DecodeError> {
        match byte {
            1 => Ok(Self::Flow),
            2 => Ok(Self::Flowlet),
            3 => Ok(Self::Packet),
            _ => Err(DecodeError::Field("granularity")),
        }
    }
}

/// Kinds of objects that a session holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum ObjectKind {
    /// A memory region.
    Region = 1,
    /// A completion queue.
    CompletionQueue = 2,
    /// A queue pair.
    QueuePair = 3,
    /// A listener for connections.
    Listener = 4,
    /// A shared receive queue.
    SharedQueue = 5,
    /// A memory window.
    Window = 6,
    /// A membership of a job.
    Member = 7,
}

impl ObjectKind {
    pub(super) fn from_number(number: u16) -> Result<Self, DecodeError> {
        match number {
            1 => Ok(Self::Region),
            2 => Ok(Self::CompletionQueue),
            3 => Ok(Self::QueuePair),
            4 => Ok(Self::Listener),
            5 => Ok(Self::SharedQueue),
            6 => Ok(Self::Window),
            7 => Ok(Self::Member),
            _ => Err(DecodeError::Field("kind")),
        }
    }
}

/// Why a request was refused or a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
pub enum ErrorCode {
    /// In good order. An application that ends without a word has its connections closed by its
    /// hostd in the same way: what matters has to be said in messages.
    Closed = 0,
    /// The bytes are no request, or come at the wrong time.
    BadMessage = 1,
    /// The versions do not understand each other.
    BadVersion = 2,
    /// The user may not use the daemon.
    NotPermitted = 3,
    /// A quota would be exceeded.
    Quota = 4,
    /// There is no such object.
    NotFound = 5,
    /// A value is not possible.
    InvalidArgument = 6,
    /// Not possible in the present state of the object.
    InvalidState = 7,
    /// The memory cannot be registered.
    BadMemory = 8,
    /// The port is taken.
    AddressInUse = 9,
    /// There is no way to the address.
    Unreachable = 10,
    /// The peer's application refused.
    Rejected = 11,
    /// The peer did not answer.
    TimedOut = 12,
    /// The daemon is shutting down.
    ShuttingDown = 13,
    /// The daemon failed.
    Internal = 14,
    /// The application broke the rules of its own rings. Libraries of before 3.8 are told it for
    /// [`Self::Access`], [`Self::InvalidRequest`] and [`Self::RequestFailed`], too.
    Protocol = 15,
    /// Nobody listens there, or the peer cannot connect at present.
    Refused = 16,
    /// Other objects depend on the object.
    InUse = 17,
    /// The peer has no room for another connection, or as many requests wait there as its
    /// application lets wait.
    Busy = 18,
    /// The peer used a key, a range or a right that it does not have (`IBV_EVENT_QP_ACCESS_ERR`;
    /// 3.8).
    Access = 19,
    /// The peer sent a request that is not possible (`IBV_EVENT_QP_REQ_ERR`; 3.8).
    InvalidRequest = 20,
    /// A request of this side failed: its completion says how (3.8).
    RequestFailed = 21,
}

impl ErrorCode {
    const ALL: [Self; 22] = [
        Self::Closed,
        Self::BadMessage,
        Self::BadVersion,
        Self::NotPermitted,
        Self::Quota,
        Self::NotFound,
        Self::InvalidArgument,
        Self::InvalidState,
        Self::BadMemory,
        Self::AddressInUse,
        Self::Unreachable,
        Self::Rejected,
        Self::TimedOut,
        Self::ShuttingDown,
        Self::Internal,
        Self::Protocol,
        Self::Refused,
        Self::InUse,
        Self::Busy,
        Self::Access,
        Self::InvalidRequest,
        Self::RequestFailed,
    ];

    /// The same for a library that is older than 3.8: it knows [`Self::Protocol`] for all of them.
    #[must_use]
    pub const fn for_older(self) -> Self {
        match self {
            Self::Access | Self::InvalidRequest | Self::RequestFailed => Self::Protocol,
            other => other,
        }
    }

    pub(super) fn from_number(number: u32) -> Result<Self, DecodeError> {
        let index = usize::try_from(number).map_err(|_| DecodeError::Field("code"))?;
        Self::ALL
            .get(index)
            .copied()
            .ok_or(DecodeError::Field("code"))
    }

    /// What it means, for people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Closed => "closed in good order",
            Self::BadMessage => "malformed request",
            Self::BadVersion => "version not understood",
            Self::NotPermitted => "not permitted",
            Self::Quota => "quota exceeded",
            Self::NotFound => "no such object",
            Self::InvalidArgument => "invalid argument",
            Self::InvalidState => "not possible in this state",
            Self::BadMemory => "memory cannot be registered",
            Self::AddressInUse => "port already in use",
            Self::Unreachable => "no route to the address",
            Self::Rejected => "the peer's application refused",
            Self::TimedOut => "the peer does not answer",
            Self::ShuttingDown => "hostd is shutting down",
            Self::Internal => "internal error of hostd",
            Self::Protocol => "the rules of the protocol were broken",
            Self::InUse => "the object is in use",
            Self::Busy => "the peer takes no more connection requests at present",
            Self::Refused => "connection refused: nobody listens there",
            Self::Access => "the peer used memory that it may not use",
            Self::InvalidRequest => "the peer sent a request that is not possible",
            Self::RequestFailed => "a request of this side failed: its completion says how",
        }
    }
}
