//! The vocabulary of the engine: types that all layers use and none owns. It imports no layer, so
//! that layers below the engine do not have to import the engine.
//!
//! ```text
//!   work        requests of applications        completion  how they end
//!   attributes  of queue pairs, and which change of state takes which
//!   queue_pair  what a queue pair is made of    state       its states, and changes of them
//!   connect     what applications tell each other while they connect
//!   event       what the application's side has to know or do
//!   error       why a call is refused           drop        why a packet is lost
//!   id          numbers of objects              access      rights to memory, and its keys
//!   psn         packet sequence numbers         port        ports, and sets of them
//!   route       how packets are addressed       config      how an engine behaves
//!   feedback    what becomes of a packet        flow_control  which pauses are obeyed
//!   change      of multipath connections that carry data
//!   partition   keys of partitions, and who hears whom
//!   traffic     what applications tell of it   service     in which order messages are given out
//!   signalling  which congestion signals are asked for
//!   int_terms   which packets have telemetry
//!   collective  memberships of jobs that switches compute for
//! ```

mod access;
mod attributes;
mod change;
mod collective;
mod completion;
mod config;
mod connect;
mod drop;
mod error;
mod event;
mod feedback;
mod flow_control;
mod id;
mod int_terms;
mod partition;
mod port;
mod psn;
mod queue_pair;
mod route;
mod service;
mod signalling;
mod state;
mod traffic;
mod work;

pub use access::{Access, RegionKeys};
pub use attributes::{Attributes, AttributesRefused};
pub use change::{ChangeRefused, ChangeStanding, MultipathChange, MultipathState, PathStanding};
pub use collective::{
    Buffer, CollectiveConfig, CollectiveRequest, End, EndReason, MemberRequest, Secret,
};
pub use completion::{Completion, CompletionOpcode, Status};
pub use config::{
    Congestion, CongestionScope, Cookies, EngineConfig, Granularity, Multipath, MultipathConfig,
    Spraying,
};
pub use connect::{ConnectionParameters, PrivateData};
pub use drop::{DROP_REASONS, DropCounters, DropReason};
pub use error::EngineError;
pub use event::Event;
pub(crate) use feedback::{Feedback, PacketFate};
pub use flow_control::{Asks, DSCPS, FlowControl, PRIORITIES};
pub use id::{CompletionQueueId, ConnectionId, DomainId, MemberId, SharedQueueId};
pub use int_terms::IntTerms;
pub use partition::{Partitions, PartitionsRefused};
pub use port::{PortId, PortSet};
pub(crate) use psn::Psn;
pub use queue_pair::{QueuePairRequest, SharedQueueRequest};
pub use route::{Direction, Route, Speeds};
pub use service::Service;
pub use signalling::{Signalling, Untagged};
pub use state::{ReadyToReceive, ReadyToSend, State, Transition};
pub use traffic::Traffic;
pub(crate) use work::total;
pub use work::{ATOMIC_LEN, AtomicOperation, Local, ReceiveRequest, SendOpcode, SendRequest, Sge};
