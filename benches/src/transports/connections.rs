//! Connections that are set up and ended, by several applications at once.

use super::rig::{Hosts, PATIENCE, reach};
use super::stream::spent_by;
use crate::measure::{Better, Bound, Figure, Group, Term};
use hostd_client::{
    CompletionQueue, Context, Error, Listener, Private, QueuePair, QueuePairOptions,
};
use std::io::Read;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::time::Instant;

/// Applications on each host, each with a counterpart on the other one.
const APPLICATIONS: u16 = 4;

/// Connections of each in a turn, one after the other.
const EACH: u32 = 25;

/// Those of the kernel in a turn. Few enough that ports are left, for each waits a minute.
const EACH_OF_KERNEL: u32 = 50;

/// Ports of the first application.
const PORT: u16 = 7100;

/// Milliseconds of its processor time that a connection may cost a daemon: then a thousand a second
/// take one core, however busy the machine is.
const MOST: f64 = 1.0;

const NAME: &str = "hostd, RDMA CM";

const OPTIONS: QueuePairOptions = QueuePairOptions {
    send_entries: 2,
    receive_entries: 2,
};

/// The groups: how many a second, beside the kernel's TCP, and what one costs a daemon.
pub(super) fn groups() -> [Group; 2] {
    let rate = Group::beside_first(
        "connections set up and ended, four applications at once",
        "a second",
        Better::High,
        &["kernel, TCP", NAME],
    );
    let mut cost = Group::beside_first(
        "processor time of a daemon for a connection that is set up and ended",
        "ms",
        Better::Low,
        &[NAME],
    );
    cost.figures.push(Figure {
        name: NAME.to_owned(),
        unit: "ms",
        of: vec![Term::of(0)],
        to: Vec::new(),
        bound: Some(Bound::AtMost(MOST)),
    });
    [rate, cost]
}

/// An application on each host, the far one of which listens.
#[derive(Debug)]
struct Couple {
    near: (Context, CompletionQueue),
    far: (Context, CompletionQueue),
    listener: Listener,
    to: SocketAddr,
}

impl Couple {
    fn new(near: Context, far: Context, to: SocketAddr) -> Result<Self, Error> {
        let any = IpAddr::from(Ipv4Addr::UNSPECIFIED);
        Ok(Self {
            near: (near.clone(), near.create_completion_queue(8)?),
            listener: far.listen(any, to.port(), 4)?,
            far: (far.clone(), far.create_completion_queue(8)?),
            to,
        })
    }

    /// Connects and ends, again and again.
    fn play(&self) -> Result<(), Error> {
        std::thread::scope(|scope| {
            let accepts = scope.spawn(|| (0..EACH).try_for_each(|_| self.accept()));
            let connects = (0..EACH).try_for_each(|_| self.connect());
            accepts.join().expect("it does not panic").and(connects)
        })
    }

    fn connect(&self) -> Result<(), Error> {
        let mut pair = pair(&self.near)?;
        pair.connect(self.to, Private::EMPTY, PATIENCE)?;
        pair.disconnect(PATIENCE)
    }

    fn accept(&self) -> Result<(), Error> {
        let request = self.listener.get_request(PATIENCE)?;
        let mut pair = pair(&self.far)?;
        request
            .accept(&mut pair, Private::EMPTY, PATIENCE)
            .map(drop)
    }
}

fn pair((context, queue): &(Context, CompletionQueue)) -> Result<QueuePair, Error> {
    context.create_queue_pair(queue, queue, OPTIONS)
}

/// All applications.
#[derive(Debug)]
pub(super) struct Connections(Vec<Couple>);

impl Connections {
    /// With sessions of their own.
    pub(super) fn new(hosts: &Hosts) -> Result<Self, String> {
        let couple = |port| {
            let [near, far] = hosts.sessions()?;
            Couple::new(near, far, reach(port)).map_err(|error| error.to_string())
        };
        let couples = (PORT..PORT + APPLICATIONS).map(couple);
        couples.collect::<Result<_, _>>().map(Self)
    }

    /// Milliseconds that a connection costs each of the daemons.
    pub(super) fn cost(&self, daemons: [u32; 2]) -> Result<f64, String> {
        let before = spent_by(&daemons)?;
        self.rate()?;
        let connections = f64::from(u32::from(APPLICATIONS) * EACH);
        Ok((spent_by(&daemons)? - before) * 1e3 / 2.0 / connections)
    }

    /// Connections a second through the daemons.
    pub(super) fn rate(&self) -> Result<f64, String> {
        rate(APPLICATIONS, EACH, |number| {
            let played = self.0[usize::from(number)].play();
            played.map_err(|error| error.to_string())
        })
    }
}

/// Connections of TCP a second.
pub(super) fn kernel(hosts: &Hosts) -> Result<f64, String> {
    let listeners = (0..APPLICATIONS).map(|_| hosts.listener());
    let listeners = listeners.collect::<Result<Vec<_>, _>>()?;
    rate(APPLICATIONS, EACH_OF_KERNEL, |number| {
        let (listener, to) = &listeners[usize::from(number)];
        hosts.namespaces[0].inside(|| connect_often(listener, *to))
    })
}

fn connect_often(listener: &TcpListener, to: SocketAddr) -> Result<(), String> {
    let accept = || listener.accept().map(drop);
    let played = std::thread::scope(|scope| {
        let accepts = scope.spawn(|| (0..EACH_OF_KERNEL).try_for_each(|_| accept()));
        let connects = (0..EACH_OF_KERNEL).try_for_each(|_| {
            let mut stream = TcpStream::connect(to)?;
            // The other end has seen and ended it.
            stream.read(&mut [0]).map(drop)
        });
        accepts.join().expect("it does not panic").and(connects)
    });
    played.map_err(|error| error.to_string())
}

/// How many things a second `threads` threads do, each of them `each`.
fn rate(
    threads: u16,
    each: u32,
    work: impl Fn(u16) -> Result<(), String> + Sync,
) -> Result<f64, String> {
    let began = Instant::now();
    std::thread::scope(|scope| {
        let work = &work;
        let all: Vec<_> = (0..threads)
            .map(|number| scope.spawn(move || work(number)))
            .collect();
        all.into_iter()
            .try_for_each(|one| one.join().expect("it does not panic"))
    })?;
    Ok(f64::from(u32::from(threads) * each) / began.elapsed().as_secs_f64())
}
