//! AF_XDP: the boundary between the kernel and the engines.
//!
//! ```text
//!   frame   Frame, the linear token for one buffer; FramePool, a worker's store of free ones
//!   queue   QueueIo, what an engine sees of a port's queue, real or simulated
//! ```

pub mod frame;
pub mod queue;
