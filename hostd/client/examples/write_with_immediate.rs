//! One process writes into another's memory: RDMA WRITE, whose receiver does nothing, and WRITE
//! with immediate data, which also tells the receiver that it happened.
//!
//! Built with the other examples by `cargo build -p hostd-client --examples`, as
//! target/debug/examples/write_with_immediate. In a laboratory (`fabric lab up`), where each host
//! has a hostd:
//!
//! ```text
//!   fabric lab exec h4 target/debug/examples/write_with_immediate serve 7001 &
//!   fabric lab exec h1 target/debug/examples/write_with_immediate 10.2.4.2:7001 "some text"
//! ```
//!
//! The receiver's key travels in the private data of the connection's set-up. Elsewhere each host
//! needs a running hostd, at /run/hostd/hostd.sock or where HOSTD_SOCKET says.

use hostd_client::{
    Access, Completion, CompletionQueue, Context, Error, Private, QueuePairOptions, ReceiveRequest,
    RemoteSlice, SendRequest, Slice,
};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::process::ExitCode;
use std::time::Duration;

const USAGE: &str =
    "usage: write_with_immediate serve [PORT] | write_with_immediate ADDRESS:PORT [TEXT]";

/// Bytes of memory that the receiver offers.
const LEN: usize = 4096;

/// No call waits longer than this.
const TIMEOUT: Duration = Duration::from_secs(20);

/// One send and one receive are enough here.
const OPTIONS: QueuePairOptions = QueuePairOptions {
    send_entries: 2,
    receive_entries: 1,
};

/// The next completion, if it is a success.
fn next(completions: &mut CompletionQueue) -> Result<Completion, Error> {
    let completion = completions.next(TIMEOUT)?;
    if completion.is_success() {
        Ok(completion)
    } else {
        let text = format!("a request failed: {:?}", completion.status);
        Err(Error::Protocol(text))
    }
}

fn serve(port: u16) -> Result<(), Error> {
    let context = Context::open()?;
    let listener = context.listen(IpAddr::from(Ipv6Addr::UNSPECIFIED), port, 1)?;
    println!("listening on port {}", listener.port());
    let request = listener.get_request(Duration::from_secs(3600))?;

    // Peers who know the key may write here; nobody else can.
    let memory = context.allocate(LEN, Access::LOCAL_WRITE.with(Access::REMOTE_WRITE))?;
    let mut completions = context.create_completion_queue(4)?;
    let mut queue_pair = context.create_queue_pair(&completions, &completions, OPTIONS)?;
    // The immediate data uses up a receive. The payload goes where the writer says, so the receive
    // needs no memory of its own.
    queue_pair.post_receive(&ReceiveRequest {
        wr_id: 0,
        local: Slice::EMPTY,
    })?;
    let key = Private::new(&memory.rkey().to_le_bytes()).expect("four bytes fit");
    request.accept(&mut queue_pair, key, TIMEOUT)?;

    // All that was written before the immediate data arrived is in place when it completes.
    let completion = next(&mut completions)?;
    let Some(immediate) = completion.immediate else {
        return Err(Error::Protocol("a message without immediate data".into()));
    };
    // The immediate data is 32 bits of the writer's choice: here, how many bytes lie in all.
    let len = LEN.min(usize::try_from(immediate).unwrap_or(LEN));
    let mut text = vec![0; len];
    memory.read(0, &mut text)?;
    println!("{len} bytes: {}", String::from_utf8_lossy(&text));
    queue_pair.wait_disconnected(TIMEOUT)?;
    Ok(())
}

fn write(peer: SocketAddr, text: &str) -> Result<(), Error> {
    let context = Context::open()?;
    // Only sent from, so no access for anybody.
    let memory = context.allocate(LEN, Access::default())?;
    memory.write(0, text.as_bytes())?;
    let mut completions = context.create_completion_queue(4)?;
    let mut queue_pair = context.create_queue_pair(&completions, &completions, OPTIONS)?;
    let connected = queue_pair.connect(peer, Private::EMPTY, TIMEOUT)?;
    let key = connected.private.as_slice().first_chunk::<4>();
    let Some(key) = key else {
        return Err(Error::Protocol("the peer sent no key".into()));
    };
    let rkey = u32::from_le_bytes(*key);

    // The first half silently, the second half with a notice. Addresses of a region are offsets, so
    // the peer's memory begins at zero.
    let half = text.len() / 2;
    let remote = |address| RemoteSlice { address, rkey };
    let first = memory.slice(0, half)?;
    let second = memory.slice(half, text.len() - half)?;
    let place = u64::try_from(half).expect("less than a page");
    let total = u32::try_from(text.len()).expect("less than a page");
    queue_pair.post_send(&SendRequest::write(1, first, remote(0)))?;
    let second = SendRequest::write(2, second, remote(place)).with_immediate(total);
    queue_pair.post_send(&second)?;
    // A write completes when the peer's daemon has acknowledged it; requests complete in order.
    for number in 1..=2 {
        let completion = next(&mut completions)?;
        println!("write {number} of 2 is done");
        assert_eq!(completion.wr_id, number, "requests complete in order");
    }
    queue_pair.disconnect(TIMEOUT)
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["serve"] => serve(7001),
        ["serve", port] => match port.parse() {
            Ok(port) => serve(port),
            Err(_) => return usage(),
        },
        [peer] | [peer, _] => {
            let text = words.get(1).copied().unwrap_or("a text, in two parts");
            match peer.parse() {
                Ok(peer) if !text.is_empty() && text.len() <= LEN => write(peer, text),
                _ => return usage(),
            }
        }
        _ => return usage(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("write_with_immediate: {error}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("{USAGE}");
    ExitCode::from(2)
}
