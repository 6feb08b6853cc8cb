//! Collectives that switches compute: the vectors of all members go to the leaf, which adds them
//! and gives each the result.
//!
//! ```no_run
//! use hostd_client::compute::{Element, Member, Membership, Operation};
//! use hostd_client::{Access, Context};
//! use std::time::Duration;
//!
//! # fn main() -> Result<(), hostd_client::Error> {
//! let context = Context::open()?;
//! let region = context.allocate(1 << 20, Access::LOCAL_WRITE)?;
//! // Member 2 of 4 at this leaf. The members agreed on the job's number before.
//! let membership = Membership::new(0x00c0_ffee, 1, 2, 4);
//! let mut member = Member::join(&context, &membership, Duration::from_secs(30))?;
//! let vector = region.slice(0, 1 << 20)?;
//! // In place: the sum of the vectors of all members.
//! member.allreduce(
//!     (Operation::Sum, Element::F32),
//!     vector,
//!     vector,
//!     Duration::from_secs(10),
//! )?;
//! # Ok(())
//! # }
//! ```
//!
//! All members do the same collectives in the same order, with vectors of the same length. When one
//! is lost, or the switch, all others get [`Error::Collective`], which names the reason, the rank
//! of who is to blame, and how much of the result is in place. The rest of the output is as it was
//! then, so a collective that was done in place can go on from there by other means. The
//! membership has ended: the members that are left join anew, with a larger generation.

mod member;
mod posts;

pub use crate::abi::collective::{FailureReason, Level, Membership};
pub use member::{Member, Pending};
pub(crate) use posts::{Posts, leaf, note_fallback};
pub use reduce::{Element, Operation};

#[cfg(doc)]
use crate::Error;
