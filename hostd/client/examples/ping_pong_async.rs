//! A server that answers the messages of any number of peers at once, and a client that talks to it
//! over several connections at once: one thread, one task for each connection, on tokio.
//!
//! Built by `cargo build -p hostd-client --features tokio --examples`, as
//! target/debug/examples/ping_pong_async. In a laboratory (`fabric lab up`):
//!
//! ```text
//!   fabric lab exec h4 target/debug/examples/ping_pong_async serve 7000 &
//!   fabric lab exec h1 target/debug/examples/ping_pong_async 10.2.4.2:7000 8 1000
//! ```
//!
//! Elsewhere each host needs a running hostd, at /run/hostd/hostd.sock or where HOSTD_SOCKET says.

use hostd_client::{
    Access, Completion, CompletionOpcode, CompletionQueue, CompletionStatus, Context, Error,
    Private, QueuePair, QueuePairOptions, ReceiveRequest, Region, SendRequest,
};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use tokio::time::timeout;

const USAGE: &str =
    "usage: ping_pong_async serve [PORT] | ping_pong_async ADDRESS:PORT [CONNECTIONS [ROUNDS]]";

/// Bytes of a message.
const LEN: usize = 64;

/// Nothing takes longer.
const PATIENCE: Duration = Duration::from_secs(20);

/// One end of a connection.
struct End {
    queue_pair: QueuePair,
    completions: CompletionQueue,
    memory: Region,
}

impl End {
    /// With a receive posted: the peer may send as soon as the connection stands.
    fn new(context: &Context) -> Result<Self, Error> {
        let completions = context.create_completion_queue(8)?;
        let options = QueuePairOptions {
            send_entries: 4,
            receive_entries: 4,
        };
        let mut end = Self {
            queue_pair: context.create_queue_pair(&completions, &completions, options)?,
            completions,
            memory: context.allocate(2 * LEN, Access::LOCAL_WRITE)?,
        };
        end.post_receive()?;
        Ok(end)
    }

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

    /// The number in the next message; `None` if the peer has closed the connection.
    async fn receive(&mut self) -> Result<Option<u64>, Error> {
        loop {
            let Completion { status, opcode, .. } = self.completions.next_async().await?;
            match status {
                CompletionStatus::Success if opcode == CompletionOpcode::Receive => break,
                // One of our own messages has arrived.
                CompletionStatus::Success => {}
                CompletionStatus::Flushed => return Ok(None),
                status => return Err(Error::Protocol(format!("a request failed: {status:?}"))),
            }
        }
        let mut number = [0; 8];
        self.memory.read(LEN, &mut number)?;
        self.post_receive()?;
        Ok(Some(u64::from_le_bytes(number)))
    }
}

async fn serve(port: u16) -> Result<(), Error> {
    let context = Context::open()?;
    let listener = context.listen(IpAddr::from(Ipv6Addr::UNSPECIFIED), port, 64)?;
    println!("listening on port {}", listener.port());
    loop {
        let request = listener.get_request_async().await?;
        let peer = request.peer();
        let mut end = End::new(&context)?;
        tokio::spawn(async move {
            let answered = async {
                let accepted = request.accept_async(&mut end.queue_pair, Private::EMPTY);
                timeout(PATIENCE, accepted)
                    .await
                    .map_err(|_| Error::TimedOut)??;
                let mut count = 0_u64;
                while let Some(number) = end.receive().await? {
                    end.send(number)?;
                    count += 1;
                }
                Ok::<_, Error>(count)
            };
            match answered.await {
                Ok(count) => println!("{peer}: answered {count} messages"),
                Err(error) => eprintln!("{peer}: {error}"),
            }
        });
    }
}

/// Sends numbers and waits for each to come back.
async fn ping(context: Arc<Context>, peer: SocketAddr, rounds: u64) -> Result<(), Error> {
    let mut end = End::new(&context)?;
    let connected = end.queue_pair.connect_async(peer, Private::EMPTY);
    timeout(PATIENCE, connected)
        .await
        .map_err(|_| Error::TimedOut)??;
    for number in 0..rounds {
        end.send(number)?;
        match timeout(PATIENCE, end.receive())
            .await
            .map_err(|_| Error::TimedOut)??
        {
            Some(back) if back == number => {}
            other => return Err(Error::Protocol(format!("{other:?} instead of {number}"))),
        }
    }
    end.queue_pair.disconnect_async().await
}

async fn ping_all(peer: SocketAddr, connections: u32, rounds: u64) -> Result<(), Error> {
    let context = Arc::new(Context::open()?);
    let start = Instant::now();
    let mut tasks = JoinSet::new();
    for _ in 0..connections {
        tasks.spawn(ping(context.clone(), peer, rounds));
    }
    while let Some(ended) = tasks.join_next().await {
        ended.map_err(|error| Error::Protocol(error.to_string()))??;
    }
    let elapsed = start.elapsed();
    println!("{connections} connections, {rounds} rounds of {LEN} bytes on each, {elapsed:?}");
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let number = |at: usize, default: u32| words.get(at).map_or(Ok(default), |word| word.parse());
    let result = match (words.first(), number(1, 4), number(2, 1000)) {
        (Some(&"serve"), ..) if words.len() == 1 => serve(7000).await,
        (Some(&"serve"), Ok(port), _) if words.len() == 2 => match u16::try_from(port) {
            Ok(port) => serve(port).await,
            Err(_) => return usage(),
        },
        (Some(peer), Ok(connections), Ok(rounds)) if words.len() <= 3 => match peer.parse() {
            Ok(peer) => ping_all(peer, connections, u64::from(rounds)).await,
            Err(_) => return usage(),
        },
        _ => return usage(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("ping_pong_async: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
