//! A leaf that computes for the members of one daemon, at the other end of its cable.

use crate::rig::Peer;
use crate::switch::Switch;
use common::wire::compute::{HEADER_LEN, guard, is_guarded};
use common::wire::ethernet::{self, Mac, ethertype};
use common::wire::ip::{protocol, v4};
use common::wire::udp;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// Its address: that of the second host.
pub(crate) const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// The port of switches.
const PORT: u16 = 4795;

const HEADERS: usize = ethernet::HEADER_LEN + v4::HEADER_LEN + udp::HEADER_LEN;

/// The leaf on a thread of its own.
pub(crate) struct Leaf {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Leaf {
    /// At the end of a cable.
    pub(crate) fn start(peer: Peer, mut switch: Switch) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let Ok(frame) = peer.from.recv_timeout(Duration::from_millis(20)) else {
                    continue;
                };
                for answer in answers(&mut switch, &frame) {
                    // Full: lost, as on a real cable.
                    let _ = peer.to.try_send(answer);
                }
                peer.wake.write(1).expect("a counter that is never full");
            }
        });
        Self {
            stop,
            thread: Some(thread),
        }
    }
}

impl Drop for Leaf {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        if !std::thread::panicking() {
            ended.expect("it ran").expect("members keep the rules");
        }
    }
}

/// The frames that answer one.
fn answers(switch: &mut Switch, frame: &[u8]) -> Vec<Vec<u8>> {
    let ip = v4::Packet::new_checked(&frame[ethernet::HEADER_LEN..]).expect("IPv4");
    assert!(ip.verify_checksum() && ip.dst() == ADDRESS);
    let datagram = udp::Datagram::new_checked(ip.payload()).expect("UDP");
    assert_eq!((datagram.src_port(), datagram.dst_port()), (PORT, PORT));
    assert!(is_guarded(&datagram, ip.src().into(), ip.dst().into()));
    let all = switch.answer((ip.src().into(), ip.dst().into()), datagram.payload());
    all.iter().map(|it| framed(frame, ip.src(), it)).collect()
}

/// A frame that goes back to where `frame` came from.
fn framed(frame: &[u8], to: Ipv4Addr, message: &[u8]) -> Vec<u8> {
    let mut answer = vec![0; HEADERS + message.len()];
    let len = u16::try_from(udp::HEADER_LEN + message.len()).expect("short");
    let header = v4::Repr {
        src: ADDRESS,
        dst: to,
        traffic_class: 0,
        ident: 0,
        ttl: 64,
        protocol: protocol::UDP,
        payload_len: len,
    };
    header.emit(&mut answer[ethernet::HEADER_LEN..]);
    let [dst, src] = [6, 0].map(|at| Mac(frame[at..at + 6].try_into().expect("six bytes")));
    ethernet::emit(&mut answer, dst, src, ethertype::IPV4);
    let at = HEADERS - udp::HEADER_LEN;
    udp::emit(&mut answer[at..], PORT, PORT, len);
    answer[HEADERS..].copy_from_slice(message);
    assert!(HEADER_LEN <= message.len());
    guard(&mut answer[at..], ADDRESS.into(), to.into());
    answer
}
