//! The configuration of switchd, checked. `etc/switchd.toml` is its manual: every key with its
//! default and its unit, which a test compares with the code.
//!
//! ```text
//!   file, environment, --set ─▶ schema ─ validate ─▶ Config ─ ports: patterns ─▶ PortSettings
//!                                                      │                           │ devices
//!                                                      ▼                           ▼
//!                                                    [qos] ──▶ policy ◀─ PortFacts of each port
//!                                                                │
//!                                                                ▼
//!                                    Compiled: the traffic manager's Policy, warnings, headroom
//! ```
//!
//! At the start, and at each reload of a changed `[qos]` (`live`). Modules from the ground up:
//!
//! ```text
//!   rules      ranges, patterns and roundings that sections share
//!   facts      what has to be known of a port to compile its policy
//!   speed      the speed of a port, as it is written
//!   rings      the rings of a queue, as they are written
//!   aiecn      [qos.aiecn] as it is written, and checked
//!   qos        [qos] as it is written
//!   ecmp       [ecmp] as it is written, checked, and as the workers need it
//!   csig       [csig] in the same way
//!   int        [int] in the same way
//!   compute    [compute] as it is written, checked, and as the workers need it
//!   flows      [flows] as it is written and checked
//!   iqcn       [iqcn] in the same way
//!   schema     the other sections, and all of them together
//!   ports      from names and patterns to the ports of this machine
//!   policy     from [qos] to the policy, a file for each of its parts
//!   memory     how much the rings of the ports may take, and whether all fits this machine
//!   validate   what can be refused before the devices are known
//!   derived    numbers of ports that follow from all that
//!   live       where a configuration is read from, and what may change while the switch runs
//! ```

pub mod aiecn;
pub mod compute;
pub mod csig;
mod derived;
pub mod ecmp;
mod facts;
pub mod flows;
pub mod int;
pub mod iqcn;
mod live;
mod memory;
mod policy;
mod ports;
pub mod qos;
mod rings;
mod rules;
mod schema;
mod speed;
mod validate;

pub use compute::Compute;
pub use csig::Csig;
pub use derived::{DerivedValue, comments};
pub use ecmp::Ecmp;
pub use facts::PortFacts;
pub use flows::Flows;
pub use int::Int;
pub use iqcn::Iqcn;
pub use live::{Change, DEFAULT_PATH, ENV_PREFIX, Source, check_live};
pub use memory::{Fitted, Machine};
pub use policy::{Compiled, Planned};
pub use ports::PortSettings;
pub use qos::Qos;
pub use rings::{RING_DEFAULT, RingSize};
pub use schema::{
    Admin, Config, Log, Memory, Metrics, Neighbours, Netlink, PortDefaults, PortOverride, Stop,
    Workers,
};
pub use speed::{LinkSpeed, Speed};
pub use validate::LOGGING;

#[cfg(test)]
mod tests;
