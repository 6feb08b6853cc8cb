//! A switch that forwards at a steady rate, alone and beside a job that saturates it (SW-42).
//!
//! ```text
//!     core 0                                             core 1
//!     source  s0 ═ veth ═ p0  switchd  p1 ═ veth ═ k0  sink
//!     member  s2 ═ veth ═ p2
//! ```
//!
//! The job has one member, whose program sends the same contribution as fast as the source has time
//! beside what is forwarded. The switch checks each and answers it with the result, which is as
//! much work as to add it, and more. What is forwarded is a part of what the switch could: a job
//! takes as much of the worker as another port would, and no more.

use super::contender::{Contender, Links, MEASURE, ORDINARY, WARM_UP};
use crate::load::{Offer, Paced, Sink, start_paced};
use crate::rig::mac_bytes;
use common::wire::Mac;
use common::wire::compute::{
    Chunk, Element, Flags, Join, Message, Operation, PAYLOAD_MAX, PORT, Packet, Slot, Work,
};
use common::wire::roce::Flow;
use common::wire::roce::frame::{Addresses, emit_datagram};
use std::net::{Ipv4Addr, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Frames that are forwarded in each period: 0.4 million a second.
const FRAMES: u32 = 800;
const PERIOD: Duration = Duration::from_millis(2);

/// Their length, and their flows.
const LEN: usize = 64;
const FLOWS: u32 = 64;

/// The switch and its member. The source writes this port.
const SWITCH: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 1);
const MEMBER: Ipv4Addr = Ipv4Addr::new(10, 0, 9, 2);
const MEMBER_PORT: u16 = 0xc000;

const JOB: u32 = 1;

/// How long the switch may take to admit the member.
const ADMISSION: Duration = Duration::from_secs(3);

/// The switch, and what its member needs.
pub(super) struct Beside {
    contender: Contender,
    socket: UdpSocket,
    generation: u32,
    macs: [[u8; 6]; 2],
    /// Results for each second of the last turn with a job.
    results: f64,
}

impl Beside {
    /// Starts the switch.
    ///
    /// # Errors
    /// What could not be set up.
    pub(super) fn new(folder: &Path) -> Result<Self, String> {
        let link = Links::new("job", ORDINARY)?;
        link.route(&["10.0.1.2"])?;
        link.forwarder.link("p2", &link.ends, "s2")?;
        // Nothing comes to these: they hold a program.
        link.ends.link("d0", &link.ends, "d1")?;
        let macs = [link.ends.mac("s2")?, link.forwarder.mac("p2")?];
        for (namespace, device, own, other, mac) in [
            (&link.forwarder, "p2", SWITCH, MEMBER, &macs[0]),
            (&link.ends, "s2", MEMBER, SWITCH, &macs[1]),
        ] {
            namespace.run(&format!("ip addr add {own}/24 dev {device}"))?;
            namespace.run(&format!("ip neigh add {other} lladdr {mac} dev {device}"))?;
        }
        let socket = link
            .ends
            .inside(|| socket().map_err(|error| error.to_string()))?;
        let more = "[[port]]\nname = \"p2\"\nspeed = \"100Gbps\"\n[compute]\nenabled = true\n";
        let contender = Contender::start("switchd", folder, link, ("job", more))?;
        Ok(Self {
            contender,
            socket,
            generation: 0,
            macs: macs.map(|mac| mac_bytes(&mac)),
            results: 0.0,
        })
    }

    /// Joins the job, which ends the one before; its epoch.
    fn join(&mut self) -> Result<u32, String> {
        self.generation += 1;
        let join = Join {
            payload: u16::try_from(PAYLOAD_MAX).expect("short"),
            operations: Operation::Sum.bit(),
            elements: Element::F32.bit(),
            ..Join::new(self.generation, 0, 1)
        };
        let packet = packet(0, Flags::default(), Message::Join(join));
        let mut bytes = [0; 2048];
        let len = packet
            .write(None, &mut bytes)
            .map_err(|error| error.to_string())?;
        let end = Instant::now() + ADMISSION;
        while Instant::now() < end {
            self.socket
                .send(&bytes[..len])
                .map_err(|error| error.to_string())?;
            let mut answer = [0; 2048];
            // Results of the job before may be among the answers.
            while let Ok(len) = self.socket.recv(&mut answer) {
                if let Ok(Packet {
                    epoch,
                    message: Message::Admit(terms),
                    ..
                }) = Packet::read(&answer[..len])
                    && terms.generation == self.generation
                {
                    return Ok(epoch);
                }
            }
        }
        Err("the switch admits no member".to_owned())
    }

    /// The contribution that the member sends again and again.
    fn contribution(&self, epoch: u32) -> Result<Offer, String> {
        let chunk = Chunk {
            work: Work::Allreduce(Operation::Sum, Element::F32),
            slot: Slot::of(0, 1),
            sequence: 0,
            contributions: 1,
            complete: 0,
            data: &[0; PAYLOAD_MAX],
        };
        let packet = packet(epoch, Flags::RETRANSMISSION, Message::Contribution(chunk));
        let addresses = Addresses::new(MEMBER.into(), SWITCH.into());
        let flow = Flow {
            src_mac: Mac(self.macs[0]),
            dst_mac: Mac(self.macs[1]),
            addresses: addresses.ok_or("addresses of two versions")?,
            src_port: MEMBER_PORT,
            flow_label: 0,
            traffic_class: 0,
            ttl: 64,
        };
        let at = 14 + 20 + 8;
        let mut frame = vec![0; at + packet.len()];
        let len = u16::try_from(8 + packet.len()).expect("short");
        emit_datagram(&mut frame, &flow, PORT, len);
        let written = packet.write(None, &mut frame[at..]);
        written.map_err(|error| error.to_string())?;
        Ok(Offer { frame, flows: 1 })
    }

    /// Forwards for a turn, beside a job or not; frames for each second.
    ///
    /// # Errors
    /// When nothing can be offered, or the job ended.
    pub(super) fn turn(&mut self, has_job: bool) -> Result<f64, String> {
        let job = if has_job {
            let epoch = self.join()?;
            let ends = &self.contender.link.ends;
            let results = Sink::attach(ends, "s2", self.macs[0])?;
            Some((self.contribution(epoch)?, results))
        } else {
            None
        };
        let link = &self.contender.link;
        let offer = Offer::udp(LEN, mac_bytes(&link.in_mac), FLOWS);
        let paced = Paced {
            steady: ("s0", &offer),
            frames: FRAMES,
            period: PERIOD,
            flood: job.as_ref().map(|(offer, _)| ("s2", offer)),
        };
        let counts = || {
            let results = job.as_ref().map_or(0, |(_, sink)| sink.counts().expected);
            (self.contender.sink.counts().expected, results)
        };
        let stop = AtomicBool::new(false);
        let measured = std::thread::scope(|scope| {
            let source = start_paced(scope, &link.ends, paced, &stop);
            std::thread::sleep(WARM_UP);
            let (began, before) = (Instant::now(), counts());
            std::thread::sleep(MEASURE);
            let after = counts();
            let elapsed = began.elapsed().as_secs_f64();
            stop.store(true, Ordering::Relaxed);
            let joined = source.join().map_err(|_| "the source ended".to_owned())?;
            joined.map(|()| (after.0 - before.0, after.1 - before.1, elapsed))
        });
        let (frames, results, elapsed) = measured?;
        if has_job && results == 0 {
            return Err("the job ended".to_owned());
        }
        #[expect(clippy::cast_precision_loss, reason = "rates for a table")]
        let [frames, results] = [frames, results].map(|count| count as f64 / elapsed);
        if has_job {
            self.results = results;
        }
        Ok(frames)
    }

    /// Results for each second of the last turn with a job.
    pub(super) fn results(&self) -> f64 {
        self.results
    }
}

/// The member's; results that nobody takes are lost there.
fn socket() -> std::io::Result<UdpSocket> {
    let socket = UdpSocket::bind((MEMBER, MEMBER_PORT))?;
    socket.connect((SWITCH, PORT))?;
    socket.set_read_timeout(Some(Duration::from_millis(100)))?;
    Ok(socket)
}

fn packet(epoch: u32, flags: Flags, message: Message<'_>) -> Packet<'_> {
    Packet {
        flags,
        job: JOB,
        epoch,
        rank: 0,
        message,
    }
}
