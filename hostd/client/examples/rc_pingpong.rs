//! The ping-pong of libibverbs over hostd: what `ibv_rc_pingpong` does, with the same exchange over
//! TCP, so that the peer may be that program on a host with any RDMA device. The queue pair is set
//! up by hand.
//!
//! Built with the other examples by `cargo build -p hostd-client --examples`, as
//! target/debug/examples/rc_pingpong. It takes the options of `ibv_rc_pingpong`. The index of a
//! GID counts the addresses of the interface that TCP uses, IPv4 first; `--list-gids` shows them.
//!
//! ```text
//!   host with an adapter:  ibv_rc_pingpong -g 1 -c
//!   host with hostd:       rc_pingpong -c 10.2.1.2
//! ```

use clap::Parser;
use hostd_client::{
    Access, ByHand, CompletionOpcode, CompletionQueue, CompletionStatus, Context, Error, QueuePair,
    QueuePairOptions, ReceiveRequest, Region, SendRequest,
};
use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::time::{Duration, Instant};

/// Bytes of what each side tells: LID, queue pair, PSN and GID in hexadecimal, and a zero.
const TOLD: usize = 52;

/// No call waits longer than this.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Names of work requests, as the original has them.
const RECEIVE: u64 = 1;
const SEND: u64 = 2;

/// The original tells where a page begins by a zero.
const PAGE: usize = 4096;

/// The options of `ibv_rc_pingpong` that hostd can follow.
#[derive(Parser, Debug)]
#[command(about = "ibv_rc_pingpong over hostd; without HOST it is the server")]
struct Options {
    /// Port of the exchange over TCP.
    #[arg(short, long, default_value_t = 18515)]
    port: u16,
    /// Bytes of a message.
    #[arg(short, long, default_value_t = 4096)]
    size: usize,
    /// Bytes of payload in a full packet; the same at both sides.
    #[arg(short, long, default_value_t = 1024)]
    mtu: u16,
    /// Receives that are posted at a time.
    #[arg(short, long, default_value_t = 500)]
    rx_depth: u32,
    /// Number of exchanges.
    #[arg(short = 'n', long, default_value_t = 1000)]
    iters: u32,
    /// Own GID, by its index among the addresses of the interface that TCP uses.
    #[arg(short, long, default_value_t = 0)]
    gid_idx: usize,
    /// Own GID, by its address.
    #[arg(long)]
    gid: Option<IpAddr>,
    /// Show the GIDs, and end.
    #[arg(long)]
    list_gids: bool,
    /// Check each message that comes.
    #[arg(short, long)]
    chk: bool,
    /// The server's address or name.
    host: Option<String>,
}

/// What one side tells of its end.
#[derive(Clone, Copy, Debug)]
struct Destination {
    qpn: u32,
    psn: u32,
    gid: Ipv6Addr,
}

impl Destination {
    /// The text of the exchange. An Ethernet port has no LID.
    fn tell(&self) -> [u8; TOLD] {
        let gid = u128::from(self.gid);
        let text = format!("0000:{:06x}:{:06x}:{gid:032x}\0", self.qpn, self.psn);
        text.as_bytes().try_into().expect("fixed widths")
    }

    fn read(bytes: &[u8; TOLD]) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?.trim_end_matches('\0');
        let mut parts = text.split(':').skip(1);
        let mut number = || u32::from_str_radix(parts.next()?, 16).ok();
        let (qpn, psn) = (number()?, number()?);
        let gid = u128::from_str_radix(parts.next()?, 16).ok()?.into();
        Some(Self { qpn, psn, gid })
    }

    fn address(&self) -> IpAddr {
        self.gid.to_canonical()
    }
}

type Failure = Box<dyn std::error::Error>;

/// The addresses of the interface that has `address`, IPv4 first; those of the link alone are left
/// out.
fn gids(address: IpAddr) -> Result<Vec<IpAddr>, Failure> {
    let mut all = Vec::new();
    for interface in nix::ifaddrs::getifaddrs()? {
        let Some(storage) = interface.address else {
            continue;
        };
        let v4 = storage.as_sockaddr_in().map(|it| IpAddr::from(it.ip()));
        let v6 = storage.as_sockaddr_in6().map(|it| it.ip());
        let v6 = v6
            .filter(|it| !it.is_unicast_link_local())
            .map(IpAddr::from);
        if let Some(found) = v4.or(v6) {
            all.push((interface.interface_name, found));
        }
    }
    let own = all.iter().find(|(_, found)| *found == address);
    let (name, _) = own
        .ok_or("TCP uses an address that no interface has")?
        .clone();
    let mut gids: Vec<_> = all
        .into_iter()
        .filter(|it| it.0 == name)
        .map(|it| it.1)
        .collect();
    gids.sort_by_key(|gid| gid.is_ipv6());
    Ok(gids)
}

/// What one side needs: a queue pair, and memory of one message, which goes to and fro.
struct End {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    memory: Region,
    size: usize,
    /// What each message has to be one of, when that is checked.
    expected: Option<Vec<Vec<u8>>>,
}

impl End {
    fn new(context: &Context, options: &Options) -> Result<Self, Error> {
        let completions = context.create_completion_queue(options.rx_depth + 1)?;
        let entries = QueuePairOptions {
            send_entries: 1,
            receive_entries: options.rx_depth,
        };
        let queue_pair = context.create_queue_pair(&completions, &completions, entries)?;
        let memory = context.allocate(options.size.max(1), Access::LOCAL_WRITE)?;
        // The original client sends the first of these, this one the second.
        let mut expected = vec![classic(options.size), telling(options.size)];
        if options.host.is_some() {
            expected.remove(0);
            memory.write(0, &expected[0])?;
        }
        Ok(Self {
            queue_pair,
            completions,
            memory,
            size: options.size,
            expected: options.chk.then_some(expected),
        })
    }

    fn post_receives(&mut self, count: u32) -> Result<(), Error> {
        let local = self.memory.slice(0, self.size)?;
        let wr_id = RECEIVE;
        for _ in 0..count {
            let request = ReceiveRequest { wr_id, local };
            self.queue_pair.post_receive(&request)?;
        }
        Ok(())
    }

    fn post_send(&mut self) -> Result<(), Error> {
        let local = self.memory.slice(0, self.size)?;
        self.queue_pair.post_send(&SendRequest::send(SEND, local))
    }

    /// Compares the message that has come.
    fn check(&self, number: u32) -> Result<(), Failure> {
        let Some(expected) = &self.expected else {
            return Ok(());
        };
        let mut found = vec![0; self.size];
        self.memory.read(0, &mut found)?;
        if expected.contains(&found) {
            return Ok(());
        }
        let wrong = (0..self.size).find(|&n| expected.iter().all(|it| it[n] != found[n]));
        Err(format!("message {number} is wrong, first at byte {wrong:?}").into())
    }

    /// Messages to and fro. The next one leaves when the last one has left and its answer is here.
    fn exchange(&mut self, options: &Options) -> Result<(), Failure> {
        let (mut sent, mut received) = (0, 0);
        let mut posted = options.rx_depth;
        let mut waiting = [true, options.host.is_some()];
        if options.host.is_some() {
            self.post_send()?;
        }
        while sent < options.iters || received < options.iters {
            let completion = self.completions.next(TIMEOUT)?;
            if completion.status != CompletionStatus::Success {
                return Err(format!("a request failed: {:?}", completion.status).into());
            }
            if completion.opcode == CompletionOpcode::Receive {
                received += 1;
                posted -= 1;
                if usize::try_from(completion.byte_len)? != self.size {
                    return Err(format!("{} bytes came", completion.byte_len).into());
                }
                self.check(received)?;
                if posted <= 1 {
                    self.post_receives(options.rx_depth - posted)?;
                    posted = options.rx_depth;
                }
                waiting[0] = false;
            } else {
                sent += 1;
                waiting[1] = false;
            }
            if sent < options.iters && waiting == [false, false] {
                self.post_send()?;
                waiting = [true, true];
            }
        }
        Ok(())
    }
}

/// What `ibv_rc_pingpong -c` sends and looks at: a zero at the beginning of each page.
fn classic(size: usize) -> Vec<u8> {
    let byte = |n| if n % PAGE == 0 { 0 } else { 0x7b };
    (0..size).map(byte).collect()
}

/// The same zeros, and between them bytes that tell where they belong.
fn telling(size: usize) -> Vec<u8> {
    let byte = |n: usize| u8::try_from(n * n / 7 % 251).expect("below 251");
    let byte = |n| if n % PAGE == 0 { 0 } else { byte(n) };
    (0..size).map(byte).collect()
}

/// Connects to the server, or waits for a client.
fn meet(options: &Options) -> io::Result<TcpStream> {
    if let Some(host) = &options.host {
        return TcpStream::connect((host.as_str(), options.port));
    }
    let listener = TcpListener::bind((Ipv6Addr::UNSPECIFIED, options.port))?;
    println!("listening on port {}", listener.local_addr()?.port());
    Ok(listener.accept()?.0)
}

fn told(stream: &mut TcpStream) -> Result<Destination, Failure> {
    let mut bytes = [0; TOLD];
    stream.read_exact(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    Ok(Destination::read(&bytes).ok_or_else(|| format!("the peer tells '{text}'"))?)
}

/// Random bits: packet sequence numbers should not be guessed.
fn random_psn() -> io::Result<u32> {
    let mut bytes = [0; 4];
    std::fs::File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(u32::from_le_bytes(bytes) >> 8)
}

/// Shows what `--gid-idx` counts, for each interface of hostd.
fn list_gids() -> Result<(), Failure> {
    let mut shown = Vec::new();
    for own in Context::open()?.gids()? {
        let of_link = matches!(own.address, IpAddr::V6(v6) if v6.is_unicast_link_local());
        if of_link || shown.contains(&own.interface) {
            continue;
        }
        for (index, gid) in gids(own.address)?.into_iter().enumerate() {
            println!("{} GID {index}: {gid}", own.interface);
        }
        shown.push(own.interface);
    }
    Ok(())
}

fn run(options: &Options) -> Result<(), Failure> {
    if options.list_gids {
        return list_gids();
    }
    let mut stream = meet(options)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    let local = match options.gid {
        Some(gid) => gid,
        None => {
            let gids = gids(stream.local_addr()?.ip().to_canonical())?;
            *gids.get(options.gid_idx).ok_or("no GID has this index")?
        }
    };
    let context = Context::open()?;
    let mut end = End::new(&context, options)?;
    end.post_receives(options.rx_depth)?;
    let gid = match local {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    };
    let psn = random_psn()?;
    let own = Destination {
        qpn: end.queue_pair.number(),
        psn,
        gid,
    };
    println!(
        "local address:  LID 0x0000, QPN {:#08x}, PSN {psn:#08x}, GID {gid}",
        own.qpn
    );
    let by_hand = |remote: Destination| ByHand {
        peer_number: remote.qpn,
        psn,
        peer_psn: remote.psn,
        mtu: options.mtu,
        ..ByHand::new(local, remote.address())
    };
    // The server is ready before the client learns its numbers.
    let remote = if options.host.is_some() {
        stream.write_all(&own.tell())?;
        let remote = told(&mut stream)?;
        stream.write_all(b"done\0")?;
        end.queue_pair.connect_by_hand(&by_hand(remote))?;
        remote
    } else {
        let remote = told(&mut stream)?;
        end.queue_pair.connect_by_hand(&by_hand(remote))?;
        stream.write_all(&own.tell())?;
        stream.read_exact(&mut [0; 5])?;
        remote
    };
    let Destination { qpn, psn, gid } = remote;
    println!("remote address: LID 0x0000, QPN {qpn:#08x}, PSN {psn:#08x}, GID {gid}");
    let start = Instant::now();
    end.exchange(options)?;
    let seconds = start.elapsed().as_secs_f64();
    let bytes = f64::from(options.iters) * 2.0 * f64::from(u32::try_from(options.size)?);
    println!(
        "{bytes:.0} bytes in {seconds:.2} seconds = {:.2} Mbit/sec",
        bytes * 8e-6 / seconds
    );
    let each = seconds * 1e6 / f64::from(options.iters);
    println!(
        "{} iters in {seconds:.2} seconds = {each:.2} usec/iter",
        options.iters
    );
    Ok(())
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.rx_depth < 2 {
        eprintln!("rc_pingpong: --rx-depth is at least 2");
        return ExitCode::from(2);
    }
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rc_pingpong: {error}");
            ExitCode::FAILURE
        }
    }
}
