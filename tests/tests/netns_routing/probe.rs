//! Traffic whose losses are counted, flow by flow.

use nix::sys::socket::{setsockopt, sockopt};
use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The port of those that answer, and of those that only listen.
const ECHO: u16 = 7007;
const SINK: u16 = 7009;

/// Each flow sends as often.
const INTERVAL: Duration = Duration::from_millis(10);

/// What is not answered in this time is lost.
const LATE: Duration = Duration::from_millis(3000);

/// How long a thread waits until it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// A thread that works in a namespace until it is told to end.
#[derive(Debug)]
struct Worker<T> {
    end: Arc<AtomicBool>,
    thread: Option<JoinHandle<T>>,
}

impl<T: Send + 'static> Worker<T> {
    fn start(namespace: &str, work: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Self {
        let end = Arc::new(AtomicBool::new(false));
        let (namespace, told) = (namespace.to_owned(), end.clone());
        let thread = thread::spawn(move || {
            netns::enter(&namespace).expect("root may enter it");
            work(&told)
        });
        let thread = Some(thread);
        Self { end, thread }
    }

    fn finish(&mut self) -> T {
        self.end.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it is finished once");
        thread
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl<T> Drop for Worker<T> {
    fn drop(&mut self) {
        self.end.store(true, Ordering::Relaxed);
    }
}

/// A socket of a namespace that is read with patience for [`LOOK`]. What comes while its reader is
/// late waits in it.
fn socket(namespace: &str, port: u16) -> UdpSocket {
    let bind = || UdpSocket::bind((Ipv6Addr::UNSPECIFIED, port));
    let bound = netns::inside(namespace, bind).expect("root may enter it");
    let socket = bound.expect("a free port");
    setsockopt(&socket, sockopt::RcvBufForce, &(16 << 20)).expect("root may");
    socket.set_read_timeout(Some(LOOK)).expect("a time");
    socket
}

fn receive(socket: &UdpSocket, buffer: &mut [u8]) -> Option<(usize, SocketAddr)> {
    match socket.recv_from(buffer) {
        Ok(found) => Some(found),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
        // An ICMP error that an earlier packet caused.
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => None,
        Err(error) => panic!("a socket failed: {error}"),
    }
}

/// Answers every probe in a namespace, until dropped.
#[derive(Debug)]
pub(crate) struct Echo {
    heard: Arc<AtomicUsize>,
    _worker: Worker<()>,
}

impl Echo {
    pub(crate) fn start(namespace: &str) -> Self {
        let socket = socket(namespace, ECHO);
        let heard = Arc::new(AtomicUsize::new(0));
        let count = heard.clone();
        let _worker = Worker::start(namespace, move |end| {
            let mut buffer = [0; 64];
            while !end.load(Ordering::Relaxed) {
                if let Some((len, from)) = receive(&socket, &mut buffer) {
                    count.fetch_add(1, Ordering::Relaxed);
                    // Without a way back the prober counts a loss.
                    let _ = socket.send_to(&buffer[..len], from);
                }
            }
        });
        Self { heard, _worker }
    }

    /// Probes that have come so far, answered or not.
    pub(crate) fn heard(&self) -> usize {
        self.heard.load(Ordering::Relaxed)
    }
}

/// What a flow has seen.
#[derive(Clone, Debug, Default)]
struct Flow {
    sent: Vec<Instant>,
    answered: Vec<bool>,
    slowest: Duration,
}

/// What all flows have seen.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    flows: Vec<Flow>,
}

impl Seen {
    pub(crate) fn sent(&self) -> usize {
        self.flows.iter().map(|flow| flow.sent.len()).sum()
    }

    /// Packets without an answer.
    pub(crate) fn lost(&self) -> usize {
        self.lost_of(|_| true)
    }

    /// Packets sent at `from` or later, and those of them without an answer.
    pub(crate) fn since(&self, from: Instant) -> (usize, usize) {
        let sent = self.flows.iter().flat_map(|flow| &flow.sent);
        let later = sent.filter(|at| **at >= from).count();
        (later, self.lost_of(|at| at >= from))
    }

    fn lost_of(&self, counts: impl Fn(Instant) -> bool) -> usize {
        let all = self.flows.iter();
        let packets = all.flat_map(|flow| flow.sent.iter().zip(&flow.answered));
        packets
            .filter(|(at, answered)| !**answered && counts(**at))
            .count()
    }

    /// Flows that have lost a packet.
    pub(crate) fn hit(&self) -> usize {
        let has_lost = |flow: &&Flow| flow.answered.iter().any(|answered| !answered);
        self.flows.iter().filter(has_lost).count()
    }

    /// The longest time until an answer.
    pub(crate) fn slowest(&self) -> Duration {
        let all = self.flows.iter().map(|flow| flow.slowest);
        all.max().unwrap_or_default()
    }
}

impl std::fmt::Display for Seen {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "lost {} of {} in {} of {} flows, slowest answer {:?}",
            self.lost(),
            self.sent(),
            self.hit(),
            self.flows.len(),
            self.slowest()
        )
    }
}

/// Flows that differ in the source port, from a namespace to an [`Echo`], until finished.
#[derive(Debug)]
pub(crate) struct Probe(Worker<Seen>);

impl Probe {
    pub(crate) fn start(namespace: &str, to: &[IpAddr], flows: usize) -> Self {
        let to: Vec<SocketAddr> = to.iter().map(|to| SocketAddr::new(*to, ECHO)).collect();
        let all = to.into_iter().flat_map(move |to| vec![to; flows]);
        Self(Worker::start(namespace, move |end| {
            probe(all.collect(), end)
        }))
    }

    /// Stops sending, and waits for late answers.
    pub(crate) fn finish(mut self) -> Seen {
        self.0.finish()
    }

    /// Lets it work for a while, and finishes it.
    pub(crate) fn after(self, time: Duration) -> Seen {
        thread::sleep(time);
        self.finish()
    }
}

fn probe(to: Vec<SocketAddr>, end: &AtomicBool) -> Seen {
    let local = |to: &SocketAddr| match to {
        SocketAddr::V4(_) => "0.0.0.0:0",
        SocketAddr::V6(_) => "[::]:0",
    };
    let connect = |to: SocketAddr| {
        let socket = UdpSocket::bind(local(&to)).expect("a free port");
        socket.set_nonblocking(true).expect("it may");
        (socket, to)
    };
    let sockets: Vec<(UdpSocket, SocketAddr)> = to.into_iter().map(connect).collect();
    let mut flows = vec![Flow::default(); sockets.len()];
    let mut next = Instant::now();
    let mut ended = None;
    loop {
        let now = Instant::now();
        if ended.is_some_and(|at| now >= at + LATE) {
            return Seen { flows };
        }
        if ended.is_none() && end.load(Ordering::Relaxed) {
            ended = Some(now);
        }
        if ended.is_none() && now >= next {
            next = now + INTERVAL;
            for (flow, (socket, to)) in flows.iter_mut().zip(&sockets) {
                let number = u32::try_from(flow.sent.len()).expect("a short test");
                flow.sent.push(Instant::now());
                flow.answered.push(false);
                // Refused by this machine's own kernel: not answered, so lost.
                let _ = socket.send_to(&number.to_be_bytes(), to);
            }
        }
        thread::sleep(Duration::from_millis(1));
        for (flow, (socket, _)) in flows.iter_mut().zip(&sockets) {
            take_answers(flow, socket);
        }
    }
}

fn take_answers(flow: &mut Flow, socket: &UdpSocket) {
    let mut buffer = [0; 64];
    while let Some((len, _)) = receive(socket, &mut buffer) {
        let number: [u8; 4] = buffer[..len].try_into().expect("what was sent");
        let number = u32::from_be_bytes(number) as usize;
        flow.slowest = flow.slowest.max(flow.sent[number].elapsed());
        flow.answered[number] = true;
    }
}

/// Sends a packet from a namespace to each of these addresses, and returns those that did not
/// arrive in the other namespace.
pub(crate) fn unreached(from: &str, to: &str, addresses: &[IpAddr]) -> Vec<IpAddr> {
    let socket = socket(to, SINK);
    let mut sink = Worker::start(to, move |end| {
        let mut buffer = [0; 64];
        let mut arrived = BTreeSet::new();
        // After the last one has been sent, those under way still arrive.
        loop {
            let ended = end.load(Ordering::Relaxed);
            match receive(&socket, &mut buffer) {
                Some((len, _)) => {
                    let number: [u8; 4] = buffer[..len].try_into().expect("what was sent");
                    arrived.insert(u32::from_be_bytes(number) as usize);
                }
                None if ended => return arrived,
                None => {}
            }
        }
    });
    let all = addresses.to_vec();
    let mut source = Worker::start(from, move |_| {
        let v4 = UdpSocket::bind("0.0.0.0:0").expect("a free port");
        let v6 = UdpSocket::bind("[::]:0").expect("a free port");
        for (number, address) in (0_u32..).zip(all) {
            let socket = if address.is_ipv4() { &v4 } else { &v6 };
            let sent = socket.send_to(&number.to_be_bytes(), (address, SINK));
            sent.unwrap_or_else(|error| panic!("to {address}: {error}"));
            // As fast as a build with all checks forwards.
            thread::sleep(Duration::from_micros(200));
        }
    });
    source.finish();
    thread::sleep(LATE / 4);
    let arrived = sink.finish();
    let all = addresses.iter().enumerate();
    all.filter(|(number, _)| !arrived.contains(number))
        .map(|(_, address)| *address)
        .collect()
}
