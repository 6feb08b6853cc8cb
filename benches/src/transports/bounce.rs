//! A message to and fro.
//!
//! Whoever waits polls, and lets others run between two looks: a machine of two cores has more that
//! poll than cores when daemons are between the applications.

use super::bare::Bare;
use super::rig::{End, MEMORY};
use hostd_client::{CompletionOpcode, ReceiveRequest, SendRequest};
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// How long a turn lasts on a link.
const TURN: Duration = Duration::from_millis(100);

/// Bytes of a message on a link.
pub(super) const LEN: usize = 64;

/// Where messages are written to.
const TARGET: usize = 4096;

/// Nothing on its way takes longer.
pub(super) const LOST: Duration = Duration::from_secs(5);

/// Something that sends a message and sees one come.
pub(super) trait Ball: Send {
    /// Sends the message with this number, from 1 on.
    fn throw(&mut self, number: u64) -> Result<(), String>;

    /// Whether the message with this number has come.
    fn catch(&mut self, number: u64) -> Result<bool, String>;
}

/// The median time to and fro, in microseconds. The numbers go on where the last turn ended.
pub(super) fn measure<B: Ball>(ends: &mut [B; 2], number: &mut u64) -> Result<f64, String> {
    quantile(ends, number, TURN, 0.5)
}

/// The time to and fro, in microseconds, that this share of the messages of a turn stays within.
pub(super) fn quantile<B: Ball>(
    ends: &mut [B; 2],
    number: &mut u64,
    turn: Duration,
    share: f64,
) -> Result<f64, String> {
    let end = AtomicBool::new(false);
    let [near, far] = ends;
    let mut next = *number;
    let mut times = Vec::new();
    let played = std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut expected = *number + 1;
            while !end.load(Ordering::Relaxed) {
                if far.catch(expected)? {
                    far.throw(expected)?;
                    expected += 1;
                } else {
                    yield_now();
                }
            }
            Ok(())
        });
        let own = play(near, turn, &mut next, &mut times);
        end.store(true, Ordering::Relaxed);
        let others: Result<(), String> = other.join().expect("it does not panic");
        own.and(others)
    });
    *number = next;
    played?;
    times.sort_unstable();
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a short list"
    )]
    let place = (times.len() as f64 * share) as usize;
    Ok(times[place.min(times.len() - 1)].as_secs_f64() * 1e6)
}

fn play<B: Ball>(
    ball: &mut B,
    turn: Duration,
    number: &mut u64,
    times: &mut Vec<Duration>,
) -> Result<(), String> {
    let began = Instant::now();
    while began.elapsed() < turn || times.is_empty() {
        *number += 1;
        let thrown = Instant::now();
        ball.throw(*number)?;
        while !ball.catch(*number)? {
            if thrown.elapsed() > LOST {
                return Err(format!("message {number} does not come back"));
            }
            yield_now();
        }
        times.push(thrown.elapsed());
    }
    Ok(())
}

impl Ball for Bare {
    fn throw(&mut self, _: u64) -> Result<(), String> {
        while self.send(1) == 0 {
            yield_now();
        }
        Ok(())
    }

    fn catch(&mut self, _: u64) -> Result<bool, String> {
        Ok(self.receive() > 0)
    }
}

impl Ball for UdpSocket {
    fn throw(&mut self, number: u64) -> Result<(), String> {
        let mut message = [0; LEN];
        message[..8].copy_from_slice(&number.to_le_bytes());
        self.send(&message).map(drop).map_err(|e| e.to_string())
    }

    fn catch(&mut self, _: u64) -> Result<bool, String> {
        match self.recv(&mut [0; LEN]) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// RDMA WRITE, and polling of the memory that is written to.
pub(super) struct Written(pub(super) End);

impl Ball for Written {
    fn throw(&mut self, number: u64) -> Result<(), String> {
        let mut write = || {
            self.0.memory.write(0, &number.to_le_bytes())?;
            let local = self.0.memory.slice(0, LEN)?;
            let remote = self.0.remote(TARGET as u64);
            let request = SendRequest {
                signaled: false,
                ..SendRequest::write(number, local, remote)
            };
            self.0.queue_pair.post_send(&request)
        };
        write().map_err(|error| error.to_string())
    }

    fn catch(&mut self, number: u64) -> Result<bool, String> {
        let mut bytes = [0; 8];
        let read = self.0.memory.read(TARGET, &mut bytes);
        read.map_err(|error| error.to_string())?;
        Ok(u64::from_le_bytes(bytes) == number)
    }
}

/// SEND, and polling of the completion queue.
pub(super) struct Sent {
    end: End,
    /// Bytes of a message.
    len: usize,
}

impl Sent {
    /// With a receive posted, for messages of `len` bytes.
    pub(super) fn new(end: End, len: usize) -> Result<Self, String> {
        let mut sent = Self { end, len };
        sent.post_receive().map_err(|error| error.to_string())?;
        Ok(sent)
    }

    fn post_receive(&mut self) -> Result<(), hostd_client::Error> {
        let local = self.end.memory.slice(MEMORY / 2, self.len)?;
        let request = ReceiveRequest { wr_id: 0, local };
        self.end.queue_pair.post_receive(&request)
    }
}

impl Ball for Sent {
    fn throw(&mut self, number: u64) -> Result<(), String> {
        let mut send = || {
            let local = self.end.memory.slice(0, self.len)?;
            let request = SendRequest {
                signaled: false,
                ..SendRequest::send(number, local)
            };
            self.end.queue_pair.post_send(&request)
        };
        send().map_err(|error| error.to_string())
    }

    fn catch(&mut self, _: u64) -> Result<bool, String> {
        let polled = self.end.completions.poll();
        let Some(completion) = polled.map_err(|error| error.to_string())? else {
            return Ok(false);
        };
        if !completion.is_success() || completion.opcode != CompletionOpcode::Receive {
            return Err(format!("{completion:?}"));
        }
        self.post_receive().map_err(|error| error.to_string())?;
        Ok(true)
    }
}

/// Messages of `len` bytes through a connection of the kernel.
pub(super) struct Streamed {
    stream: TcpStream,
    /// What is sent, and where what comes is put.
    bytes: Vec<u8>,
    /// How much of the message that comes has come.
    come: usize,
}

impl Streamed {
    /// # Errors
    /// When the kernel does not let it be polled.
    pub(super) fn new(stream: TcpStream, len: usize) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        Ok(Self {
            stream,
            bytes: vec![7; len],
            come: 0,
        })
    }
}

impl Ball for Streamed {
    fn throw(&mut self, _: u64) -> Result<(), String> {
        let mut left = &self.bytes[..];
        while !left.is_empty() {
            match self.stream.write(left) {
                Ok(count) => left = &left[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => yield_now(),
                Err(error) => return Err(error.to_string()),
            }
        }
        Ok(())
    }

    fn catch(&mut self, _: u64) -> Result<bool, String> {
        match self.stream.read(&mut self.bytes[self.come..]) {
            Ok(0) => Err("the connection has ended".to_owned()),
            Ok(count) => {
                self.come = (self.come + count) % self.bytes.len();
                Ok(self.come == 0)
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }
}
