//! SW-1, SW-4, SW-10 to SW-34: a switch on veth under overload: what comes out when more goes in than can be forwarded.

mod contender;

pub use contender::{bench, reflect};
