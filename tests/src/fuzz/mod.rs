//! Fuzzing: every reader of bytes from outside is a line in [`TARGETS`].
//!
//! A target takes any bytes and must come back: no panic, no overflow, no endless loop. Where more
//! can be said of every input, it says it: what was read and written again is read the same, a
//! rewritten header has a right checksum, an engine gives every frame back.
//!
//! ```text
//!   corpus/<target>/   inputs that are kept: real frames, and what once failed
//!   targets.rs         readers of one message
//!   settings.rs        what operators write
//!   netlink.rs hosts.rs switch.rs   state machines that are fed a series
//!   attack.rs management.rs         the transport engine against well-formed packets, and against
//!                      connection messages; victim.rs has what must hold of it
//!   feedback.rs trims.rs offers.rs  the same against acknowledgements with marks, against packets
//!                      that look trimmed, and against offers of multipath
//!   application.rs     the daemon against an application, with the memory that they share
//!   compute.rs   in-network compute against members, strangers and parents that say anything
//!   collective/  members of jobs against a switch that says anything
//!   flows.rs     flow analysis against packets of any connections
//!   traffic.rs   what the switch is told of its queues, and the books
//!   program.rs         how a series is read from one input
//!   mutate.rs          new inputs from old ones, from a seed
//!   run.rs             replay, explore, report
//! ```

mod application;
mod attack;
mod collective;
mod compute;
mod feedback;
mod flows;
mod hosts;
mod management;
mod mutate;
mod netlink;
mod offers;
mod program;
mod run;
mod settings;
mod switch;
mod targets;
mod traffic;
mod trims;
mod victim;

pub use run::{Failure, explore, replay};

/// A reader of bytes from outside.
#[derive(Clone, Copy, Debug)]
pub struct Target {
    /// Its name, and that of its corpus.
    pub name: &'static str,
    /// Reads the input; a panic is a finding.
    pub run: fn(&[u8]),
}

const fn target(name: &'static str, run: fn(&[u8])) -> Target {
    Target { name, run }
}

/// Everything that reads what others wrote.
pub const TARGETS: &[Target] = &[
    target("ethernet", targets::ethernet),
    target("csig", targets::csig),
    target("mac", targets::mac),
    target("arp", targets::arp),
    target("ipv4", targets::ipv4),
    target("ipv6", targets::ipv6),
    target("udp", targets::udp),
    target("icmp", targets::icmp),
    target("pause", targets::pause),
    target("schedule", targets::schedule),
    target("roce", targets::roce),
    target("icrc", targets::icrc),
    target("ack_blocks", feedback::blocks),
    target("cm", targets::cm),
    target("compute", targets::compute),
    target("frame", targets::frame),
    target("netlink", netlink::decode),
    target("netlink_follow", netlink::follow),
    target("app_request", targets::app_request),
    target("app_reply", targets::app_reply),
    target("app_work", targets::app_work),
    target("app_ring", targets::app_ring),
    target("host_frames", hosts::frames),
    target("host_dialogue", hosts::dialogue),
    target("host_attack", attack::packets),
    target("host_management", management::messages),
    target("host_feedback", feedback::acknowledgements),
    target("host_trims", trims::packets),
    target("host_offers", offers::negotiations),
    target("host_compute", collective::members),
    target("host_application", application::steps),
    target("switch_parse", switch::parse),
    target("switch_compute", compute::steps),
    target("switch_flows", flows::packets),
    target("switch_turns", switch::turns),
    target("switch_config", settings::switch_config),
    target("aiecn_model", settings::aiecn_model),
    target("switch_admin", settings::switch_admin),
    target("host_config", settings::host_config),
    target("host_admin", settings::host_admin),
];
