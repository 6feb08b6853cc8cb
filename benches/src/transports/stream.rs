//! Many small messages, and streams of large ones with the processor time that they take.

use super::bare::Bare;
use super::bounce::LOST;
use super::rig::{DEPTH, End};
use crate::rig::{ran, thread_seconds};
use hostd_client::{CompletionOpcode, ReceiveRequest, SendRequest};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::yield_now;
use std::time::{Duration, Instant};

/// How long a turn lasts.
pub(super) const TURN: Duration = Duration::from_millis(150);

/// Bytes of a small message.
const SMALL: usize = 64;

/// Bytes of a large message, and how many are on their way.
const LARGE: usize = 1 << 20;
const LARGE_DEPTH: usize = 4;

/// The calling thread in `/proc`.
const THREAD: &str = "/proc/thread-self";

/// What a stream reached.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Gbit/s.
    pub(super) rate: f64,
    /// Seconds of processor time for a GB.
    pub(super) cost: f64,
}

impl Stream {
    fn new(bytes: u64, elapsed: Duration, ran: f64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "a rate for a table")]
        let gigabytes = bytes as f64 / 1e9;
        Self {
            rate: gigabytes * 8.0 / elapsed.as_secs_f64(),
            cost: ran / gigabytes,
        }
    }
}

fn own_seconds() -> Result<f64, String> {
    ran(Path::new(THREAD)).ok_or_else(|| format!("{THREAD} says nothing"))
}

/// Frames of 64 bytes a second that arrive, one way.
pub(super) fn frames(ends: &mut [Bare; 2]) -> Result<f64, String> {
    let end = AtomicBool::new(false);
    let [near, far] = ends;
    let began = Instant::now();
    let count = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| {
            let mut count = 0;
            while !end.load(Ordering::Relaxed) {
                match far.receive() {
                    0 => yield_now(),
                    some => count += some,
                }
            }
            count
        });
        while began.elapsed() < TURN {
            if near.send(usize::MAX) == 0 {
                yield_now();
            }
        }
        end.store(true, Ordering::Relaxed);
        receiver.join().expect("it does not panic")
    });
    // What is on its way still is not for the next turn.
    while far.receive() > 0 {}
    #[expect(clippy::cast_precision_loss, reason = "a rate for a table")]
    let count = count as f64;
    Ok(count / began.elapsed().as_secs_f64())
}

/// SENDs of 64 bytes a second that arrive, one way. Receives are always posted: the sender knows
/// how many the other end has taken.
pub(super) fn messages(ends: &mut [End; 2]) -> Result<f64, String> {
    let [near, far] = ends;
    let (end, taken) = (AtomicBool::new(false), AtomicU64::new(0));
    let began = Instant::now();
    let sent = std::thread::scope(|scope| {
        let receiver = scope.spawn(|| take(far, &end, &taken));
        let sent = pour(near, &taken, began);
        end.store(true, Ordering::Relaxed);
        receiver.join().expect("it does not panic")?;
        sent
    })?;
    #[expect(clippy::cast_precision_loss, reason = "a rate for a table")]
    let sent = sent as f64;
    Ok(sent / began.elapsed().as_secs_f64())
}

/// Posts the receives that [`messages`] begins with.
pub(super) fn get_ready(end: &mut End) -> Result<(), String> {
    let requests = vec![receive(end)?; DEPTH as usize];
    let posted = end.queue_pair.post_receives(&requests);
    posted.map(drop).map_err(|error| error.to_string())
}

fn receive(end: &End) -> Result<ReceiveRequest, String> {
    let local = end.memory.slice(0, SMALL).map_err(|e| e.to_string())?;
    Ok(ReceiveRequest { wr_id: 0, local })
}

/// Takes messages and posts receives anew until all of a turn have come.
fn take(end: &mut End, over: &AtomicBool, taken: &AtomicU64) -> Result<(), String> {
    let mut fresh = Vec::with_capacity(64);
    loop {
        let ended = over.load(Ordering::Relaxed);
        while fresh.len() < 64 {
            let polled = end.completions.poll().map_err(|e| e.to_string())?;
            let Some(completion) = polled else { break };
            if !completion.is_success() {
                return Err(format!("{completion:?}"));
            }
            fresh.push(receive(end)?);
        }
        if fresh.is_empty() {
            if ended {
                return Ok(());
            }
            yield_now();
            continue;
        }
        let posted = end.queue_pair.post_receives(&fresh);
        let posted = posted.map_err(|error| error.to_string())?;
        if posted < fresh.len() {
            return Err("no room for receives".to_owned());
        }
        taken.fetch_add(fresh.len() as u64, Ordering::Release);
        fresh.clear();
    }
}

/// Sends for the time of a turn, and returns how many were sent and taken.
fn pour(end: &mut End, taken: &AtomicU64, began: Instant) -> Result<u64, String> {
    let local = end.memory.slice(0, SMALL).map_err(|e| e.to_string())?;
    let request = SendRequest::send(0, local);
    let (mut sent, mut done) = (0, 0);
    loop {
        let open = began.elapsed() < TURN;
        let limit = (taken.load(Ordering::Acquire) + u64::from(DEPTH)).min(done + u64::from(DEPTH));
        let mut work = false;
        if open && sent < limit {
            let count = usize::try_from(limit - sent).map_or(64, |room| room.min(64));
            let posted = end.queue_pair.post_sends(&vec![request; count]);
            sent += posted.map_err(|error| error.to_string())? as u64;
            work = true;
        }
        while let Some(completion) = end.completions.poll().map_err(|e| e.to_string())? {
            if !completion.is_success() || completion.opcode != CompletionOpcode::Send {
                return Err(format!("{completion:?}"));
            }
            done += 1;
            work = true;
        }
        if !open && done == sent && taken.load(Ordering::Acquire) == sent {
            return Ok(sent);
        }
        if !work {
            yield_now();
        }
    }
}

/// Processor time of daemons.
pub(super) fn spent_by(daemons: &[u32]) -> Result<f64, String> {
    daemons.iter().map(|daemon| thread_seconds(*daemon)).sum()
}

/// RDMA WRITEs of 1 MiB for the time of a turn; processor time is that of the application and of
/// these daemons.
pub(super) fn writes(end: &mut End, turn: Duration, daemons: &[u32]) -> Result<Stream, String> {
    let spent = || -> Result<f64, String> { Ok(own_seconds()? + spent_by(daemons)?) };
    let (began, before) = (Instant::now(), spent()?);
    let (mut posted, mut done) = (0, 0);
    loop {
        let open = began.elapsed() < turn;
        if open && posted - done < LARGE_DEPTH {
            let at = posted % LARGE_DEPTH * LARGE;
            let local = end.memory.slice(at, LARGE).map_err(|e| e.to_string())?;
            let request = SendRequest::write(0, local, end.remote(at as u64));
            let result = end.queue_pair.post_send(&request);
            result.map_err(|error| error.to_string())?;
            posted += 1;
            continue;
        }
        if done == posted {
            break;
        }
        let completion = end.completions.next(LOST);
        let completion = completion.map_err(|error| error.to_string())?;
        if !completion.is_success() {
            return Err(format!("{completion:?}"));
        }
        done += 1;
    }
    let elapsed = began.elapsed();
    Ok(Stream::new(
        (done * LARGE) as u64,
        elapsed,
        spent()? - before,
    ))
}

/// Streams through TCP for the time of a turn, one for each connection; processor time is that of
/// all ends and of these daemons, through which the packets go.
pub(super) fn tcp(
    connections: Vec<[TcpStream; 2]>,
    turn: Duration,
    daemons: &[u32],
) -> Result<Stream, String> {
    let fail = |error: std::io::Error| error.to_string();
    let (began, before) = (Instant::now(), spent_by(daemons)?);
    let receive = |mut from: TcpStream| -> Result<(u64, f64), String> {
        let (mut buffer, mut bytes) = (vec![0; LARGE], 0);
        loop {
            match from.read(&mut buffer).map_err(fail)? {
                0 => return Ok((bytes, own_seconds()?)),
                some => bytes += some as u64,
            }
        }
    };
    let send = |mut to: TcpStream| -> Result<(u64, f64), String> {
        let buffer = vec![7; LARGE];
        while began.elapsed() < turn {
            to.write_all(&buffer).map_err(fail)?;
        }
        to.shutdown(Shutdown::Write).map_err(fail)?;
        Ok((0, own_seconds()?))
    };
    let (bytes, ran) = std::thread::scope(|scope| {
        let ends = connections.into_iter().flat_map(|[active, passive]| {
            [
                scope.spawn(move || send(active)),
                scope.spawn(move || receive(passive)),
            ]
        });
        let ends: Vec<_> = ends.collect();
        let mut sum = (0, 0.0);
        for end in ends {
            let (bytes, ran) = end.join().expect("it does not panic")?;
            sum = (sum.0 + bytes, sum.1 + ran);
        }
        Ok::<_, String>(sum)
    })?;
    let elapsed = began.elapsed();
    Ok(Stream::new(
        bytes,
        elapsed,
        ran + spent_by(daemons)? - before,
    ))
}
