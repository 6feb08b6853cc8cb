//! \[4\] Forward: from a destination address to a next hop and its port, or to the reason why there
//! is none.
//!
//! ```text
//!   stage   what a worker keeps for it: routes, flow table, gauges
//!   batch   the packets of a batch, looked up together
//!   fib     prefix -> group; changed in place while workers read it
//!   choice  group -> next hop
//!   route   next hop -> port and MAC address, or drop, or wait for the address
//!   bridge  frames between the stations of a bridge
//!   ecmp    which flow a packet belongs to: the hash that names its bucket
//!   dlb     dynamic load balancing: the next hop with the best quality, for each flowlet
//! ```

pub mod batch;
pub mod bridge;
pub mod choice;
pub mod dlb;
pub mod ecmp;
pub mod fib;
pub mod route;
pub mod stage;
