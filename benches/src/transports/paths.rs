//! HT-30, HT-34: hostd on one path of a fabric and on all four, beside the kernel's TCP with one
//! and with four connections and its Multipath TCP.
//!
//! Two leaves, four spines and a host at each leaf, whose link is as fast as the four paths
//! together. All contenders' packets go through the same switches. Every turn of the kernel's has
//! connections of its own, since their ports decide about their paths. Multipath TCP has four
//! subflows, from addresses of their own.

use super::bounce::{self, Sent, Streamed};
use super::rig::{End, PATIENCE, connected};
use super::stream::{self, Stream};
use crate::measure::{Better, Bound, Figure, Group};
use hostd_client::{Context, Granularity, PathChange};
use lab::topology::{Options, Qos};
use lab::{Builder, Host, Lab, node_dir};
use socket2::{Domain, Protocol, Socket, Type};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::Duration;

/// Speed of each path, and of the hosts' links, in bit/s.
const PATH: u64 = 100_000_000;
const HOST: u64 = 4 * PATH;

/// How long a turn lasts: many times what TCP needs to find the speed of its path.
const TURN: Duration = Duration::from_millis(1000);

/// Bytes of messages that go to and fro.
const SIZES: [usize; 2] = [64, 64 << 10];

/// Shares of round trips that are asked about.
const SHARES: [(&str, f64); 3] = [("median", 0.5), ("p99", 0.99), ("p99.9", 0.999)];

/// Groups, in order; those of the round trips follow.
const RATE: usize = 0;
const COST: usize = 1;

/// Who sends streams, in order.
const STREAMS: [&str; 5] = [
    "kernel, TCP",
    "kernel, TCP, four connections",
    "kernel, Multipath TCP",
    "hostd, one path at a time",
    "hostd, all paths",
];

/// Who throws messages, in order.
const THROWERS: [&str; 4] = [
    "kernel, TCP",
    "kernel, Multipath TCP",
    "hostd, one path at a time",
    "hostd, all paths",
];

/// What all paths reach at least of one connection of TCP.
const GAIN: f64 = 2.0;

/// Port of hostd's first connection.
const HOSTD_PORT: u16 = 7001;

/// The groups of the fabric.
pub(super) fn groups() -> Vec<Group> {
    let over = "four paths of 100 Mb/s";
    let mut rate = Group::beside_first(
        format!("a stream over {over}"),
        "Mbit/s",
        Better::High,
        &STREAMS,
    );
    rate.figures[3].bound = Some(Bound::AtLeast(GAIN));
    rate.figures.push(Figure::ratio(&STREAMS, 4, 2, None));
    let cost = format!("processor time for a stream over {over}, hosts and switches together");
    let mut groups = vec![
        rate,
        Group::beside_first(cost, "s/GB", Better::Low, &STREAMS),
    ];
    for size in SIZES {
        for (name, _) in SHARES {
            let title = format!("{size} bytes to and fro over {over}, {name}");
            groups.push(Group::beside_first(title, "µs", Better::Low, &THROWERS));
        }
    }
    groups
}

/// The fabric and what is connected over it. Fields go in the order in which they must.
pub(super) struct Paths {
    /// Streams on one path and on all, each with its passive end.
    streams: [[End; 2]; 2],
    /// Messages of each size on one path and on all.
    sent: [[[Sent; 2]; 2]; 2],
    /// Messages of each size by TCP and by Multipath TCP.
    streamed: [[[Streamed; 2]; 2]; 2],
    _listeners: Vec<Socket>,
    _contexts: [Context; 2],
    /// Processes of the fabric.
    daemons: Vec<u32>,
    /// None once it is down.
    lab: Option<Lab>,
}

impl Paths {
    /// Brings the fabric up and connects all.
    ///
    /// # Errors
    /// What kept it from coming up.
    pub(super) fn new() -> Result<Self, String> {
        let options = Options {
            // Eight characters at most, and a process number has up to seven digits.
            name: format!("p{}", std::process::id()),
            leaves: 2,
            spines: 4,
            hosts: 2,
            speed: HOST,
            fabric_speed: Some(PATH),
            qos: Qos::Plain,
            ..Options::default()
        };
        let lab = Builder::new(options)
            .up()
            .map_err(|error| error.to_string())?;
        match Self::over(&lab) {
            Ok(mut paths) => {
                paths.lab = Some(lab);
                Ok(paths)
            }
            Err(why) => Err(lab.down().map_or_else(|error| error.to_string(), |()| why)),
        }
    }

    fn over(lab: &Lab) -> Result<Self, String> {
        prepare_subflows(lab)?;
        let open = |host| {
            Context::connect_within(&node_dir(lab.name(), host).join("hostd.sock"), PATIENCE)
        };
        let contexts = [open("h1"), open("h2")];
        let [near, far] = contexts.map(|context| context.map_err(|error| error.to_string()));
        let contexts = [near?, far?];
        let mut port = HOSTD_PORT;
        let mut ends = |all: bool| {
            port += 1;
            connect(lab, &contexts, port, all)
        };
        let mut both = |len: usize| -> Result<[[Sent; 2]; 2], String> {
            let mut sent = |all| {
                let [near, far] = ends(all)?;
                Ok::<_, String>([Sent::new(near, len)?, Sent::new(far, len)?])
            };
            Ok([sent(false)?, sent(true)?])
        };
        let sent = [both(SIZES[0])?, both(SIZES[1])?];
        let streams = [ends(false)?, ends(true)?];
        let mut listeners = Vec::new();
        let mut streamed = |len: usize| -> Result<[[Streamed; 2]; 2], String> {
            let mut one = |protocol| {
                let (ends, listener) = dial(lab, protocol)?;
                listeners.push(listener);
                let [near, far] = ends.map(|stream| Streamed::new(stream, len));
                let near = near.map_err(|error| error.to_string())?;
                Ok::<_, String>([near, far.map_err(|error| error.to_string())?])
            };
            Ok([one(Protocol::TCP)?, one(Protocol::MPTCP)?])
        };
        let streamed = [streamed(SIZES[0])?, streamed(SIZES[1])?];
        let daemons = lab.daemons().map_err(|error| error.to_string())?;
        let daemons = daemons
            .iter()
            .filter_map(|daemon| daemon.pid?.try_into().ok());
        Ok(Self {
            streams,
            sent,
            streamed,
            _listeners: listeners,
            _contexts: contexts,
            daemons: daemons.collect(),
            lab: None,
        })
    }

    /// The value of a contender in a group.
    pub(super) fn turn(&mut self, group: usize, contender: usize) -> Result<f64, String> {
        let Some(trip) = group.checked_sub(COST + 1) else {
            let stream = self.stream(contender)?;
            return Ok(if group == RATE {
                stream.rate * 1e3
            } else {
                stream.cost
            });
        };
        let (size, (_, share)) = (trip / SHARES.len(), SHARES[trip % SHARES.len()]);
        let number = &mut 0;
        if contender < 2 {
            bounce::quantile(&mut self.streamed[size][contender], number, TURN, share)
        } else {
            bounce::quantile(&mut self.sent[size][contender - 2], number, TURN, share)
        }
    }

    fn stream(&mut self, contender: usize) -> Result<Stream, String> {
        let lab = self.lab.as_ref().expect("up until the end");
        let (protocol, count) = match contender {
            0 => (Protocol::TCP, 1),
            1 => (Protocol::TCP, 4),
            2 => (Protocol::MPTCP, 1),
            _ => return stream::writes(&mut self.streams[contender - 3][0], TURN, &self.daemons),
        };
        let connections = (0..count).map(|_| dial(lab, protocol));
        let connections = connections.collect::<Result<Vec<_>, _>>()?;
        let (connections, _listeners): (Vec<_>, Vec<_>) = connections.into_iter().unzip();
        stream::tcp(connections, TURN, &self.daemons)
    }

    /// Takes the fabric down.
    ///
    /// # Errors
    /// When that fails, or Multipath TCP never had a second subflow.
    pub(super) fn finish(&mut self) -> Result<(), String> {
        let Some(lab) = self.lab.take() else {
            return Ok(());
        };
        let joined = joined(lab.host("h2"));
        lab.down().map_err(|error| error.to_string())?;
        match joined? {
            0 => Err("no subflow joined a connection of Multipath TCP".to_owned()),
            _ => Ok(()),
        }
    }
}

/// Queue pairs of both hosts, connected over all paths or over one.
fn connect(
    lab: &Lab,
    [near, far]: &[Context; 2],
    port: u16,
    all: bool,
) -> Result<[End; 2], String> {
    let to = SocketAddr::new(lab.host("h2").address(false), port);
    let mut ends = connected(near, far, to).map_err(|error| error.to_string())?;
    if !all {
        let change = PathChange {
            granularity: Some(Granularity::Flow),
            ..PathChange::default()
        };
        // The peer makes the change, too.
        let changed = ends[0].queue_pair.change_paths(&change, PATIENCE);
        changed.map_err(|error| format!("one path: {error}"))?;
    }
    Ok(ends)
}

/// Both ends of a connection of the kernel, and the socket that subflows need to join it.
fn dial(lab: &Lab, protocol: Protocol) -> Result<([TcpStream; 2], Socket), String> {
    let (near, far) = (lab.host("h1"), lab.host("h2"));
    let any = SocketAddr::new(far.address(false), 0);
    let fail = |error: std::io::Error| format!("{protocol:?}: {error}");
    let make = || Socket::new(Domain::IPV4, Type::STREAM, Some(protocol));
    let inside = |host: Host<'_>, work: &(dyn Fn() -> std::io::Result<Socket> + Sync)| {
        let done = host.inside(work).map_err(|error| error.to_string())?;
        done.map_err(fail)
    };
    let listener = inside(far, &|| {
        let socket = make()?;
        socket.bind(&any.into())?;
        socket.listen(1)?;
        Ok(socket)
    })?;
    let to = listener.local_addr().map_err(fail)?;
    let active = inside(near, &|| {
        let socket = make()?;
        socket.connect_timeout(&to, PATIENCE)?;
        Ok(socket)
    })?;
    let (passive, _) = listener.accept().map_err(fail)?;
    Ok(([active.into(), passive.into()], listener))
}

/// Gives the first host three more addresses, each for a subflow of every connection.
fn prepare_subflows(lab: &Lab) -> Result<(), String> {
    let (near, far) = (lab.host("h1"), lab.host("h2"));
    let IpAddr::V4(first) = near.address(false) else {
        return Err("h1 has no IPv4 address".to_owned());
    };
    let device = &lab
        .plan()
        .ends("h1")
        .next()
        .ok_or("h1 has no link")?
        .interface;
    let ip = |host: Host<'_>, line: &str| {
        let output = host.run(["ip"].into_iter().chain(line.split(' ')));
        let output = output.map_err(|error| error.to_string())?;
        if output.ok() {
            Ok(())
        } else {
            Err(format!("ip {line}: {}", output.stderr))
        }
    };
    for host in [near, far] {
        ip(host, "mptcp limits set subflows 8 add_addr_accepted 8")?;
    }
    let [a, b, c, last] = first.octets();
    for more in 1..4 {
        let address = format!("{a}.{b}.{c}.{}", last + more);
        ip(near, &format!("address add {address}/24 dev {device}"))?;
        ip(
            near,
            &format!("mptcp endpoint add {address} dev {device} subflow"),
        )?;
    }
    Ok(())
}

/// Subflows that have joined connections which this host accepted.
fn joined(host: Host<'_>) -> Result<u64, String> {
    let output = host.run(["nstat", "-az", "MPTcpExtMPJoinAckRx"]);
    let text = output.map_err(|error| error.to_string())?.stdout;
    let counts = text.lines().filter(|line| line.starts_with("MPTcp"));
    let counts = counts.filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok());
    Ok(counts.sum())
}
