//! One large message over all paths of a connection. The application posts it once: hostd cuts it
//! into packets, spreads them over the paths that it agreed on with the peer, and completes the
//! request when all have arrived.
//!
//! Built with the other examples by `cargo build -p hostd-client --examples`, as
//! target/debug/examples/many_paths. In a laboratory (`fabric lab up`), where each host has a
//! hostd:
//!
//! ```text
//!   fabric lab exec h4 target/debug/examples/many_paths serve 7002 &
//!   fabric lab exec h1 target/debug/examples/many_paths 10.2.4.2:7002 256
//! ```
//!
//! The number is the message's size in MiB. Elsewhere each host needs a running hostd, at
//! /run/hostd/hostd.sock or where HOSTD_SOCKET says. While the message is under way, `hostctl
//! paths` tells what each path carries: which one a packet takes is the daemon's business, and the
//! library does not see it.

use hostd_client::{
    Access, CompletionQueue, Connected, Context, Error, Private, QueuePair, QueuePairOptions,
    Region, RemoteSlice, SendRequest,
};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: many_paths serve [PORT] | many_paths ADDRESS:PORT [MIB, 1 to 256]";

/// Bytes of a MiB.
const MIB: usize = 1 << 20;

/// The largest message here, in MiB: less than the daemon's default quota of memory.
const LARGEST: usize = 256;

/// No call waits longer than this.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A queue pair for one request at a time.
fn queue_pair(context: &Context) -> Result<(QueuePair, CompletionQueue), Error> {
    let completions = context.create_completion_queue(2)?;
    let options = QueuePairOptions {
        send_entries: 1,
        receive_entries: 1,
    };
    let queue_pair = context.create_queue_pair(&completions, &completions, options)?;
    Ok((queue_pair, completions))
}

/// Prints what the two daemons agreed on.
fn show(connected: &Connected) {
    let Connected {
        peer,
        mtu,
        paths,
        granularity,
        ..
    } = connected;
    println!(
        "connected to {peer}: {paths} path(s), {mtu} bytes in a packet, spread by {granularity:?}"
    );
}

/// Memory that a peer may write to, and the private data that tells it how: key and size in MiB.
fn offer(context: &Context, mib: usize) -> Result<(Region, Private), Error> {
    let access = Access::LOCAL_WRITE.with(Access::REMOTE_WRITE);
    let memory = context.allocate(mib * MIB, access)?;
    let key = Private::new(&memory.rkey().to_le_bytes()).expect("four bytes fit");
    Ok((memory, key))
}

fn serve(port: u16) -> Result<(), Error> {
    let context = Context::open()?;
    let listener = context.listen(IpAddr::from(Ipv6Addr::UNSPECIFIED), port, 1)?;
    println!("listening on port {}", listener.port());
    let request = listener.get_request(Duration::from_secs(3600))?;
    // The peer says how much it will write.
    let mib = match request.private().as_slice() {
        [low, high, ..] => usize::from(u16::from_le_bytes([*low, *high])),
        _ => 0,
    };
    if !(1..=LARGEST).contains(&mib) {
        request.reject(Private::EMPTY);
        return Err(Error::Protocol("a peer that is not many_paths".into()));
    }
    let (_memory, key) = offer(&context, mib)?;
    let (mut queue_pair, _completions) = queue_pair(&context)?;
    show(&request.accept(&mut queue_pair, key, TIMEOUT)?);
    // An RDMA WRITE needs nothing from its receiver.
    queue_pair.wait_disconnected(Duration::from_secs(3600))?;
    println!("the peer has closed the connection");
    Ok(())
}

fn write(peer: SocketAddr, mib: u16) -> Result<(), Error> {
    let context = Context::open()?;
    let len = usize::from(mib) * MIB;
    let memory = context.allocate(len, Access::default())?;
    let (mut queue_pair, mut completions) = queue_pair(&context)?;
    let size = Private::new(&mib.to_le_bytes()).expect("two bytes fit");
    let connected = queue_pair.connect(peer, size, TIMEOUT)?;
    show(&connected);
    let Some(key) = connected.private.as_slice().first_chunk::<4>() else {
        return Err(Error::Protocol("the peer sent no key".into()));
    };
    let remote = RemoteSlice {
        address: 0,
        rkey: u32::from_le_bytes(*key),
    };
    let start = Instant::now();
    // The whole message in one request.
    queue_pair.post_send(&SendRequest::write(1, memory.slice(0, len)?, remote))?;
    let completion = completions.next(TIMEOUT)?;
    if !completion.is_success() {
        let text = format!("the write failed: {:?}", completion.status);
        return Err(Error::Protocol(text));
    }
    let took = start.elapsed();
    let gigabits = f64::from(mib) * 8.0 * 1.048_576e-3 / took.as_secs_f64();
    println!(
        "{mib} MiB in {took:.2?}: {gigabits:.2} Gb/s over {} path(s)",
        connected.paths
    );
    queue_pair.disconnect(TIMEOUT)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["serve"] => serve(7002),
        ["serve", port] => match port.parse() {
            Ok(port) => serve(port),
            Err(_) => return usage(),
        },
        [peer] | [peer, _] => {
            let mib = words.get(1).map_or(Ok(64), |mib| mib.parse::<u16>());
            match (peer.parse(), mib) {
                (Ok(peer), Ok(mib)) if (1..=LARGEST).contains(&mib.into()) => write(peer, mib),
                _ => return usage(),
            }
        }
        _ => return usage(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("many_paths: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
