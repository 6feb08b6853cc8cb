//! The engine's vocabulary of work, in one place for those around it: the applications' edge
//! converts to it, and stages do not import one another.

pub use crate::message::region::{Access, RegionKeys, RegionMemory};
pub use crate::message::work::{
    Completion, CompletionOpcode, ReceiveRequest, SendOpcode, SendRequest, Status,
};
pub use crate::transport::{State, Transition};
