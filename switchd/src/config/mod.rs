//! The configuration of switchd, checked. `etc/switchd.toml` is its manual: every key with its default
//! and its unit, held true by a test.

pub mod ecmp;
mod facts;
mod live;
mod policy;
mod ports;
pub mod qos;
mod rules;
mod schema;
mod speed;
mod validate;

pub use ecmp::Ecmp;
pub use facts::PortFacts;
pub use live::{Change, DEFAULT_PATH, ENV_PREFIX, Source, check_live};
pub use policy::Compiled;
pub use ports::PortSettings;
pub use qos::Qos;
pub use schema::{
    Admin, Config, Log, Memory, Metrics, Neighbours, Netlink, PortDefaults, PortOverride, Stop,
    Workers,
};
pub use speed::Speed;

#[cfg(test)]
mod tests;
