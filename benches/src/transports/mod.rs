//! HT-1, HT-2: hostd between two hosts, beside bare AF_XDP and the kernel's UDP and TCP, all on
//! veth links in one run.
//!
//! hostd moves packets of the link's MTU with checksums of its own. The kernel's TCP hands segments
//! of 64 KiB from one namespace to the other on veth, and computes no checksum at all: its stream
//! says what an application is used to on one machine, not what a network card does.
//!
//! `paths` has them on a fabric with four paths.

mod bare;
mod bounce;
mod connections;
mod handed;
mod paths;
mod rig;
mod stream;

use crate::measure::{Better, Figure, Group, Subject};
use bare::Bare;
use bounce::{LEN, Sent, Written};
use connections::Connections;
use handed::Handed;
use paths::Paths;
use rig::{End, Hosts};
use std::net::UdpSocket;
use tempfile::TempDir;

/// Groups, in order.
const ROUND_TRIP: usize = 0;
const MESSAGES: usize = 1;
const RATE: usize = 2;
const COST: usize = 3;
const CONNECTIONS: usize = 4;
const CONNECTION: usize = 5;

/// Messages of a stream to an acknowledgement, as with `transport.ack_packets` of hostd.
const ACK_PACKETS: u64 = 8;

/// The bench. Fields go in the order in which they must.
struct Transports {
    groups: Vec<Group>,
    bare: [Bare; 2],
    handed: [Handed; 2],
    acknowledged: [Handed; 2],
    poured: [Handed; 2],
    datagrams: [UdpSocket; 2],
    written: [Written; 2],
    sent: [Sent; 2],
    messages: [End; 2],
    streams: [End; 2],
    connections: Connections,
    /// Last numbers of messages that went to and fro.
    numbers: [u64; 6],
    hosts: Hosts,
    paths: Paths,
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
        groups: groups()
            .into_iter()
            .chain(connections::groups())
            .chain(paths::groups())
            .collect(),
        bare: Bare::pair(&hosts.namespaces, "x0")?,
        handed: handed(&hosts, "x1", 0)?,
        acknowledged: handed(&hosts, "x2", 1)?,
        poured: handed(&hosts, "x3", ACK_PACKETS)?,
        datagrams: hosts.datagrams()?,
        written: [Written(one), Written(other)],
        sent: [Sent::new(near, LEN)?, Sent::new(far, LEN)?],
        messages,
        streams: hosts.ends(7004)?,
        connections: Connections::new(&hosts)?,
        numbers: [0; 6],
        hosts,
        paths: Paths::new()?,
        _folder: folder,
    }))
}

/// Both ends of a link, each with a worker that acknowledges one message of `every`.
fn handed(hosts: &Hosts, link: &str, every: u64) -> Result<[Handed; 2], String> {
    let [near, far] = Bare::pair(&hosts.namespaces, link)?;
    Ok([Handed::new(near, every)?, Handed::new(far, every)?])
}

/// Those of the links, in order.
fn groups() -> [Group; COST + 1] {
    let trips = [
        "bare AF_XDP",
        "kernel, UDP",
        "hostd, WRITE",
        "hostd, SEND",
        "AF_XDP in threads that sleep",
        "the same, acknowledged",
    ];
    let mut to_and_fro = Group::beside_first(
        "64 bytes to and fro, median, both ends polling",
        "µs",
        Better::Low,
        &trips,
    );
    for (of, to) in [(2, 1), (2, 5), (3, 5)] {
        to_and_fro.figures.push(Figure::ratio(&trips, of, to, None));
    }
    let messages = [
        "bare AF_XDP",
        "hostd, SEND",
        "AF_XDP in threads that sleep, 1 in 8 acknowledged",
    ];
    let mut one_way = Group::beside_first(
        "64 bytes one way, one connection",
        "messages/s",
        Better::High,
        &messages,
    );
    one_way.figures.push(Figure::ratio(&messages, 1, 2, None));
    let streams = ["kernel, TCP", "hostd, WRITE of 1 MiB"];
    [
        to_and_fro,
        one_way,
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
        if let Some(group) = group.checked_sub(CONNECTION + 1) {
            return self.paths.turn(group, contender);
        }
        match (group, contender) {
            (CONNECTIONS, 0) => return connections::kernel(&self.hosts),
            (CONNECTIONS, _) => return self.connections.rate(),
            (CONNECTION, _) => return self.connections.cost(self.hosts.daemons()),
            _ => {}
        }
        let number = &mut self.numbers[contender];
        match (group, contender) {
            (ROUND_TRIP, 0) => bounce::measure(&mut self.bare, number),
            (ROUND_TRIP, 1) => bounce::measure(&mut self.datagrams, number),
            (ROUND_TRIP, 2) => bounce::measure(&mut self.written, number),
            (ROUND_TRIP, 3) => bounce::measure(&mut self.sent, number),
            (ROUND_TRIP, 4) => bounce::measure(&mut self.handed, number),
            (ROUND_TRIP, _) => bounce::measure(&mut self.acknowledged, number),
            (MESSAGES, 0) => stream::frames(&mut self.bare),
            (MESSAGES, 2) => handed::messages(&mut self.poured),
            (MESSAGES, _) => stream::messages(&mut self.messages),
            (_, contender) => {
                let stream = if contender == 0 {
                    stream::tcp(vec![self.hosts.stream()?], stream::TURN, &[])?
                } else {
                    stream::writes(&mut self.streams[0], stream::TURN, &self.hosts.daemons())?
                };
                Ok(if group == RATE {
                    stream.rate
                } else {
                    stream.cost
                })
            }
        }
    }

    fn finish(&mut self) -> Result<(), String> {
        self.paths.finish()
    }
}
