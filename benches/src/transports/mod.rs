//! HT-1, HT-2: hostd between two hosts, beside bare AF_XDP and the kernel's UDP and TCP, all on
//! veth links in one run.
//!
//! hostd moves packets of the link's MTU with checksums of its own. The kernel's TCP hands segments
//! of 64 KiB from one namespace to the other on veth, and computes no checksum at all: its stream
//! says what an application is used to on one machine, not what a network card does.

mod bare;
mod bounce;
mod rig;
mod stream;

use crate::measure::{Better, Figure, Group, Subject};
use bare::Bare;
use bounce::{Sent, Written};
use rig::{End, Hosts};
use std::net::UdpSocket;
use tempfile::TempDir;

/// Groups, in order.
const ROUND_TRIP: usize = 0;
const MESSAGES: usize = 1;
const RATE: usize = 2;

/// The bench. Fields go in the order in which they must.
struct Transports {
    groups: [Group; 4],
    bare: [Bare; 2],
    datagrams: [UdpSocket; 2],
    written: [Written; 2],
    sent: [Sent; 2],
    messages: [End; 2],
    streams: [End; 2],
    /// Last numbers of messages that went to and fro.
    numbers: [u64; 4],
    hosts: Hosts,
    _folder: TempDir,
}

/// Brings both hosts up and connects all.
///
/// # Errors
/// What kept them from coming up.
pub fn prepare() -> Result<Box<dyn Subject>, String> {
    let folder = tempfile::tempdir().map_err(|error| error.to_string())?;
    let hosts = Hosts::new(folder.path())?;
    let [one, other] = hosts.ends(7001)?;
    let [near, far] = hosts.ends(7002)?;
    let mut messages = hosts.ends(7003)?;
    stream::get_ready(&mut messages[1])?;
    Ok(Box::new(Transports {
        groups: groups(),
        bare: Bare::pair(&hosts.namespaces)?,
        datagrams: hosts.datagrams()?,
        written: [Written(one), Written(other)],
        sent: [Sent::new(near)?, Sent::new(far)?],
        messages,
        streams: hosts.ends(7004)?,
        numbers: [0; 4],
        hosts,
        _folder: folder,
    }))
}

fn groups() -> [Group; 4] {
    let trips = ["bare AF_XDP", "kernel, UDP", "hostd, WRITE", "hostd, SEND"];
    let mut to_and_fro = Group::beside_first(
        "64 bytes to and fro, median, both ends polling",
        "µs",
        Better::Low,
        &trips,
    );
    to_and_fro.figures.push(Figure::ratio(&trips, 2, 1, None));
    let streams = ["kernel, TCP", "hostd, WRITE of 1 MiB"];
    [
        to_and_fro,
        Group::beside_first(
            "64 bytes one way, one connection",
            "messages/s",
            Better::High,
            &["bare AF_XDP", "hostd, SEND"],
        ),
        Group::beside_first("a stream, one connection", "Gbit/s", Better::High, &streams),
        Group::beside_first(
            "processor time for a stream, both hosts together",
            "s/GB",
            Better::Low,
            &streams,
        ),
    ]
}

impl Subject for Transports {
    fn groups(&self) -> &[Group] {
        &self.groups
    }

    fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
        let number = &mut self.numbers[contender];
        match (group, contender) {
            (ROUND_TRIP, 0) => bounce::measure(&mut self.bare, number),
            (ROUND_TRIP, 1) => bounce::measure(&mut self.datagrams, number),
            (ROUND_TRIP, 2) => bounce::measure(&mut self.written, number),
            (ROUND_TRIP, _) => bounce::measure(&mut self.sent, number),
            (MESSAGES, 0) => stream::frames(&mut self.bare),
            (MESSAGES, _) => stream::messages(&mut self.messages),
            (_, contender) => {
                let stream = if contender == 0 {
                    stream::tcp(self.hosts.stream()?)?
                } else {
                    stream::writes(&mut self.streams[0], self.hosts.daemons())?
                };
                Ok(if group == RATE {
                    stream.rate
                } else {
                    stream.cost
                })
            }
        }
    }
}
