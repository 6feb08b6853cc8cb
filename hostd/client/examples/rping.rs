//! The ping of librdmacm over hostd: what `rping` does, so that the peer may be that program on a
//! host with any RDMA device.
//!
//! ```text
//!   client                                        server
//!     │  SEND: address, key, length of its text      │
//!     ├─────────────────────────────────────────────▶│
//!     │                         RDMA READ of the text│
//!     │◀─────────────────────────────────────────────┤
//!     │                              SEND: go ahead  │
//!     │◀─────────────────────────────────────────────┤
//!     │  SEND: where the text is to go               │
//!     ├─────────────────────────────────────────────▶│
//!     │                        RDMA WRITE of the text│
//!     │◀─────────────────────────────────────────────┤
//!     │                              SEND: it is done│
//!     │◀─────────────────────────────────────────────┤
//! ```
//!
//! Built with the other examples by `cargo build -p hostd-client --examples`, as
//! target/debug/examples/rping. It takes the options of `rping` that are listed below.
//!
//! ```text
//!   host with an adapter:  rping -s -V -v
//!   host with hostd:       rping -c -a 10.2.1.2 -C 10 -V -v
//! ```

use clap::{ArgGroup, Parser};
use hostd_client::{
    Access, CompletionOpcode, CompletionQueue, CompletionStatus, Context, Error, Private,
    QueuePair, QueuePairOptions, ReceiveRequest, Region, RemoteSlice, SendRequest,
};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

/// Bytes of a SEND: an address, a key and a length, in the order of the network.
const TELLING: usize = 16;

/// Where what is told lies in the memory for it, and where what comes goes.
const OWN: usize = 0;
const PEERS: usize = TELLING;

/// Receives that are posted at once.
const RECEIVES: u32 = 2;

/// No call waits longer than this.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The options of `rping` that hostd can follow.
#[derive(Parser, Debug)]
#[command(about = "rping over hostd", group = ArgGroup::new("side").required(true))]
struct Options {
    /// Be the server.
    #[arg(short, long, group = "side")]
    server: bool,
    /// Be the client.
    #[arg(short, long, group = "side", requires = "address")]
    client: bool,
    /// The server's address; of the server itself, the one at which it listens.
    #[arg(short, long)]
    address: Option<IpAddr>,
    /// The own address that the client connects from.
    #[arg(short = 'I', long, requires = "client")]
    source: Option<IpAddr>,
    /// The server's port.
    #[arg(short, long, default_value_t = 7174)]
    port: u16,
    /// Bytes of the text, with the zero at its end.
    #[arg(short = 'S', long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(32..=1 << 20))]
    size: u32,
    /// Number of pings; without it the client goes on until it is stopped.
    #[arg(short = 'C', long)]
    count: Option<u32>,
    /// Compare the text that comes back.
    #[arg(short = 'V', long)]
    validate: bool,
    /// Print each ping.
    #[arg(short, long)]
    verbose: bool,
}

type Failure = Box<dyn std::error::Error>;

/// One side.
struct End {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    /// What is told, and what comes.
    talk: Region,
    /// The text: of the client what it sends and, behind it, what comes back.
    text: Region,
    size: usize,
    /// Messages that have come and were not looked at.
    told: Vec<RemoteSlice>,
    lengths: Vec<u32>,
}

impl End {
    fn new(context: &Context, size: usize) -> Result<Self, Error> {
        let completions = context.create_completion_queue(16)?;
        let options = QueuePairOptions {
            send_entries: 8,
            receive_entries: RECEIVES,
        };
        let remote = Access::REMOTE_READ.with(Access::REMOTE_WRITE);
        let mut end = Self {
            queue_pair: context.create_queue_pair(&completions, &completions, options)?,
            completions,
            talk: context.allocate(2 * TELLING, Access::LOCAL_WRITE)?,
            text: context.allocate(2 * size, Access::LOCAL_WRITE.with(remote))?,
            size,
            told: Vec::new(),
            lengths: Vec::new(),
        };
        for _ in 0..RECEIVES {
            end.post_receive()?;
        }
        Ok(end)
    }

    fn post_receive(&mut self) -> Result<(), Error> {
        let local = self.talk.slice(PEERS, TELLING)?;
        let request = ReceiveRequest { wr_id: 0, local };
        self.queue_pair.post_receive(&request)
    }

    /// Tells the peer of `size` bytes of the text from `offset` on.
    fn tell(&mut self, offset: usize) -> Result<(), Failure> {
        let mut telling = [0; TELLING];
        telling[..8].copy_from_slice(&u64::try_from(offset)?.to_be_bytes());
        telling[8..12].copy_from_slice(&self.text.rkey().to_be_bytes());
        telling[12..].copy_from_slice(&u32::try_from(self.size)?.to_be_bytes());
        self.talk.write(OWN, &telling)?;
        let local = self.talk.slice(OWN, TELLING)?;
        self.queue_pair.post_send(&SendRequest::send(0, local))?;
        self.wait(CompletionOpcode::Send).map(drop)
    }

    /// Waits for the end of a request of this kind. What the peer tells meanwhile is kept. False if
    /// the connection has ended.
    fn wait(&mut self, wanted: CompletionOpcode) -> Result<bool, Failure> {
        loop {
            let completion = self.completions.next(TIMEOUT);
            let completion = completion.map_err(|error| format!("{wanted:?}: {error}"))?;
            match completion.status {
                CompletionStatus::Success => {}
                CompletionStatus::Flushed => return Ok(false),
                status => return Err(format!("{wanted:?} failed: {status:?}").into()),
            }
            if completion.opcode == CompletionOpcode::Receive {
                self.keep(usize::try_from(completion.byte_len)?)?;
            }
            if completion.opcode == wanted {
                return Ok(true);
            }
        }
    }

    fn keep(&mut self, len: usize) -> Result<(), Failure> {
        if len != TELLING {
            return Err(format!("{len} bytes came instead of {TELLING}").into());
        }
        let mut telling = [0; TELLING];
        self.talk.read(PEERS, &mut telling)?;
        self.post_receive()?;
        let (address, rest) = telling.split_first_chunk().expect("16 bytes");
        let (rkey, len) = rest.split_first_chunk().expect("8 bytes");
        self.told.push(RemoteSlice {
            address: u64::from_be_bytes(*address),
            rkey: u32::from_be_bytes(*rkey),
        });
        self.lengths.push(u32::from_be_bytes(len.try_into()?));
        Ok(())
    }

    /// What the peer tells next: where, and how many bytes. `None` if the connection has ended.
    fn hear(&mut self) -> Result<Option<(RemoteSlice, usize)>, Failure> {
        while self.told.is_empty() {
            if !self.wait(CompletionOpcode::Receive)? {
                return Ok(None);
            }
        }
        let len = self.lengths.remove(0);
        Ok(Some((self.told.remove(0), usize::try_from(len)?)))
    }

    /// The text that lies at `offset`, up to its zero.
    fn text(&self, offset: usize) -> Result<String, Error> {
        let mut bytes = vec![0; self.size];
        self.text.read(offset, &mut bytes)?;
        let end = bytes.iter().position(|byte| *byte == 0);
        let text = &bytes[..end.unwrap_or(bytes.len())];
        Ok(String::from_utf8_lossy(text).into_owned())
    }
}

/// The text of a ping, as `rping` has it: its number, then letters that begin one later each time.
fn ping(number: u32, size: usize) -> Vec<u8> {
    let mut text = format!("rdma-ping-{number}: ").into_bytes();
    let span = u32::from(b'z' - b'A') + 1;
    let letters = (number..).map(|at| b'A' + u8::try_from(at % span).expect("below 58"));
    let rest = size.saturating_sub(text.len() + 1);
    text.extend(letters.take(rest));
    text.truncate(size - 1);
    text.push(0);
    text
}

fn run_client(options: &Options, server: SocketAddr) -> Result<(), Failure> {
    let context = Context::open()?;
    let size = usize::try_from(options.size)?;
    let mut end = End::new(&context, size)?;
    if let Some(source) = options.source {
        end.queue_pair.bind(source)?;
    }
    end.queue_pair.connect(server, Private::EMPTY, TIMEOUT)?;
    for number in 0..options.count.unwrap_or(u32::MAX) {
        let text = ping(number, size);
        end.text.write(0, &text)?;
        end.tell(0)?;
        end.hear()?.ok_or("the server has left")?;
        end.tell(size)?;
        end.hear()?.ok_or("the server has left")?;
        let mut back = vec![0; size];
        end.text.read(size, &mut back)?;
        if options.validate && back != text {
            return Err(format!("ping {number} came back as '{}'", end.text(size)?).into());
        }
        if options.verbose {
            println!("ping data: {}", end.text(size)?);
        }
    }
    end.queue_pair.disconnect(TIMEOUT)?;
    Ok(())
}

fn run_server(options: &Options) -> Result<(), Failure> {
    let context = Context::open()?;
    let any = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let address = options.address.unwrap_or(any);
    let listener = context.listen(address, options.port, 1)?;
    println!("listening on port {}", listener.port());
    let request = listener.get_request(Duration::from_secs(3600))?;
    let size = usize::try_from(options.size)?;
    let mut end = End::new(&context, size)?;
    request.accept(&mut end.queue_pair, Private::EMPTY, TIMEOUT)?;
    while let Some((source, len)) = end.hear()? {
        if len > size {
            return Err(format!("the client's text has {len} bytes, more than {size}").into());
        }
        let local = end.text.slice(0, len)?;
        let read = SendRequest::read(0, local, source);
        end.queue_pair.post_send(&read)?;
        end.wait(CompletionOpcode::Read)?;
        let text = end.text(0)?;
        if options.verbose {
            println!("server ping data: {text}");
        }
        end.tell(0)?;
        let (target, room) = end.hear()?.ok_or("the client has left in mid-ping")?;
        // With its zero.
        let local = end.text.slice(0, (text.len() + 1).min(room))?;
        let write = SendRequest::write(0, local, target);
        end.queue_pair.post_send(&write)?;
        end.wait(CompletionOpcode::Write)?;
        end.tell(0)?;
    }
    Ok(())
}

fn main() -> ExitCode {
    let options = Options::parse();
    let result = match options.address {
        Some(address) if options.client => {
            run_client(&options, SocketAddr::new(address, options.port))
        }
        _ => run_server(&options),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("rping: {error}");
            ExitCode::FAILURE
        }
    }
}
