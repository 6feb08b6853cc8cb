//! Two processes send one message to and fro: SEND and RECV, the simplest use of a queue pair.
//!
//! Built with the other examples by `cargo build -p hostd-client --examples`, as
//! target/debug/examples/ping_pong. In a laboratory (`fabric lab up`), where each host has a
//! hostd:
//!
//! ```text
//!   fabric lab exec h4 target/debug/examples/ping_pong serve 7000 &
//!   fabric lab exec h1 target/debug/examples/ping_pong 10.2.4.2:7000 1000
//! ```
//!
//! Elsewhere each host needs a running hostd, at /run/hostd/hostd.sock or where HOSTD_SOCKET says.

use hostd_client::{
    Access, Completion, CompletionOpcode, CompletionQueue, CompletionStatus, Context, Error,
    Private, QueuePair, QueuePairOptions, ReceiveRequest, Region, SendRequest,
};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::{Duration, Instant};

const USAGE: &str = "usage: ping_pong serve [PORT] | ping_pong ADDRESS:PORT [ROUNDS]";

/// Bytes of a message.
const LEN: usize = 64;

/// No call waits longer than this.
const TIMEOUT: Duration = Duration::from_secs(20);

/// What one side needs: a queue pair, memory to send from and to receive into, and the queue in
/// which the daemon says what has been done.
struct End {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    memory: Region,
}

impl End {
    fn new(context: &Context) -> Result<Self, Error> {
        // Every request that may be outstanding needs a place for its completion.
        let completions = context.create_completion_queue(8)?;
        let options = QueuePairOptions {
            send_entries: 4,
            receive_entries: 4,
        };
        let queue_pair = context.create_queue_pair(&completions, &completions, options)?;
        // The first half is sent, the second half is received into. LOCAL_WRITE lets the daemon
        // place messages there; without REMOTE_WRITE peers cannot address the memory themselves.
        let memory = context.allocate(2 * LEN, Access::LOCAL_WRITE)?;
        Ok(Self {
            queue_pair,
            completions,
            memory,
        })
    }

    /// Tells the daemon where the next message goes. A SEND whose receiver has no receive posted
    /// has to be repeated, so receives are posted early.
    fn post_receive(&mut self) -> Result<(), Error> {
        let local = self.memory.slice(LEN, LEN)?;
        let request = ReceiveRequest { wr_id: 0, local };
        self.queue_pair.post_receive(&request)
    }

    fn send(&mut self, number: u64) -> Result<(), Error> {
        self.memory.write(0, &number.to_le_bytes())?;
        let local = self.memory.slice(0, LEN)?;
        self.queue_pair.post_send(&SendRequest::send(number, local))
    }

    /// Waits for a message and returns its number; `None` if the peer has closed the connection.
    fn receive(&mut self) -> Result<Option<u64>, Error> {
        loop {
            let Completion { status, opcode, .. } = self.completions.next(TIMEOUT)?;
            match status {
                CompletionStatus::Success if opcode == CompletionOpcode::Receive => break,
                // One of our own messages has arrived: its bytes may be overwritten from now on.
                CompletionStatus::Success => {}
                // The connection has ended, and the receive that was posted comes back unused.
                CompletionStatus::Flushed => return Ok(None),
                status => return Err(Error::Protocol(format!("a request failed: {status:?}"))),
            }
        }
        let mut number = [0; 8];
        self.memory.read(LEN, &mut number)?;
        Ok(Some(u64::from_le_bytes(number)))
    }
}

fn serve(port: u16) -> Result<(), Error> {
    let context = Context::open()?;
    let listener = context.listen(IpAddr::from(Ipv6Addr::UNSPECIFIED), port, 1)?;
    println!("listening on port {}", listener.port());
    let request = listener.get_request(Duration::from_secs(3600))?;
    println!("connected to {}", request.peer());
    let mut end = End::new(&context)?;
    // Before the connection stands: the peer may send at once.
    end.post_receive()?;
    request.accept(&mut end.queue_pair, Private::EMPTY, TIMEOUT)?;
    while let Some(number) = end.receive()? {
        end.post_receive()?;
        end.send(number)?;
    }
    println!("the peer has closed the connection");
    Ok(())
}

fn ping(peer: SocketAddr, rounds: u64) -> Result<(), Error> {
    let context = Context::open()?;
    let mut end = End::new(&context)?;
    let connected = end.queue_pair.connect(peer, Private::EMPTY, TIMEOUT)?;
    println!("connected over {} path(s)", connected.paths);
    let start = Instant::now();
    for number in 0..rounds {
        end.post_receive()?;
        end.send(number)?;
        match end.receive()? {
            Some(back) if back == number => {}
            other => return Err(Error::Protocol(format!("{other:?} instead of {number}"))),
        }
    }
    let each = start.elapsed() / u32::try_from(rounds).unwrap_or(u32::MAX).max(1);
    println!("{rounds} rounds of {LEN} bytes, {each:?} each");
    end.queue_pair.disconnect(TIMEOUT)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["serve"] => serve(7000),
        ["serve", port] => match port.parse() {
            Ok(port) => serve(port),
            Err(_) => return usage(),
        },
        [peer] | [peer, _] => {
            let rounds = words.get(1).map_or(Ok(1000), |rounds| rounds.parse());
            match (peer.parse(), rounds) {
                (Ok(peer), Ok(rounds)) => ping(peer, rounds),
                _ => return usage(),
            }
        }
        _ => return usage(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ping_pong: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
