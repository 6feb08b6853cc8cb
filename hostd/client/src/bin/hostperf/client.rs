//! The active side.

use crate::end::{End, PATIENCE, Plan};
use crate::measurement::{Failure, Options, SIZE_MAX, Test};
use crate::statistics::{Bandwidth, Latency};
use hostd_client::{
    CompletionOpcode, Congestion, Context, Error, ReceiveRequest, RemoteSlice, SendRequest, Slice,
};
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::time::{Duration, Instant};

/// Measures, and prints.
pub(crate) fn run(socket: &Path, test: Test, options: &Options) -> Result<(), Failure> {
    let usage = |text: String| Failure::Usage(text);
    let duration = Duration::try_from_secs_f64(options.duration)
        .map_err(|error| usage(format!("--duration: {error}")))?;
    let mut found = (plain(&options.host), options.port)
        .to_socket_addrs()
        .map_err(|error| usage(format!("{}: {error}", options.host)))?;
    let peer = found
        .next()
        .ok_or_else(|| usage(format!("{} has no address", options.host)))?;
    let context = Context::connect(socket)?;
    let sizes: Vec<u32> = match options.all {
        true => (1..=SIZE_MAX.ilog2()).map(|power| 1 << power).collect(),
        false => vec![options.size],
    };
    // It stands above the first result, and not above what may fail before.
    let mut heading = Some(if test == Test::Latency {
        Latency::heading()
    } else {
        Bandwidth::heading()
    });
    let mut objects = Vec::new();
    for size in sizes {
        let depth = if test == Test::Latency {
            1
        } else {
            options.depth
        };
        let plan = Plan { test, size, depth };
        let limit = Limit {
            messages: options.iterations.unwrap_or(u64::MAX),
            time: duration,
        };
        let limit = if options.iterations.is_some() {
            Limit {
                time: Duration::MAX,
                ..limit
            }
        } else {
            limit
        };
        let to = (peer, options.congestion);
        let (line, json) = measure(&context, to, plan, limit)?;
        if options.json {
            objects.push(json);
        } else {
            if let Some(heading) = heading.take() {
                println!("{heading}");
            }
            println!("{line}");
        }
    }
    if options.json {
        println!("[{}]", objects.join(","));
    }
    Ok(())
}

/// A host without the brackets that may stand around an IPv6 address.
pub(crate) fn plain(host: &str) -> &str {
    let inside = host.strip_prefix('[').and_then(|it| it.strip_suffix(']'));
    inside.unwrap_or(host)
}

/// When a measurement ends.
#[derive(Clone, Copy, Debug)]
struct Limit {
    messages: u64,
    time: Duration,
}

impl Limit {
    fn goes_on(&self, messages: u64, since: Instant) -> bool {
        messages < self.messages && (self.time == Duration::MAX || since.elapsed() < self.time)
    }
}

fn measure(
    context: &Context,
    (peer, congestion): (SocketAddr, Option<Congestion>),
    plan: Plan,
    limit: Limit,
) -> Result<(String, String), Failure> {
    let mut end = End::new(context, plan)?;
    if let Some(congestion) = congestion {
        end.queue_pair.choose_congestion(congestion)?;
    }
    if plan.test != Test::Write {
        let local = if plan.test == Test::Latency {
            end.message(0)?
        } else {
            Slice::EMPTY
        };
        for wr_id in 0..u64::from(plan.depth) + 2 {
            end.queue_pair
                .post_receive(&ReceiveRequest { wr_id, local })?;
        }
    }
    let connected = end
        .queue_pair
        .connect(peer, plan.to_private(), PATIENCE)
        .map_err(|reason| Failure::Connect { peer, reason })?;
    let result = if plan.test == Test::Latency {
        let latency = Latency::new(plan.size, &ping(&mut end, limit)?);
        (latency.line(), latency.json())
    } else {
        let key = connected
            .private
            .as_slice()
            .first_chunk()
            .map(|key| u32::from_le_bytes(*key));
        let rkey = key.ok_or_else(|| Failure::Usage("the server tells no key".to_owned()))?;
        let (messages, time) = pour(&mut end, rkey, limit)?;
        let (size, paths) = (plan.size, connected.paths);
        let bandwidth = Bandwidth {
            size,
            messages,
            time,
            paths,
        };
        (bandwidth.line(), bandwidth.json())
    };
    match end.queue_pair.disconnect(PATIENCE) {
        Ok(()) | Err(Error::Refused { .. }) => Ok(result),
        Err(error) => Err(error.into()),
    }
}

/// Keeps as many messages on their way as the plan says; returns how many arrived in what time.
fn pour(end: &mut End, rkey: u32, limit: Limit) -> Result<(u64, Duration), Failure> {
    let plan = end.plan;
    let depth = u64::from(plan.depth);
    // A credit stands for half of the depth, and the server has receives for twice the depth.
    let step = depth.div_ceil(2);
    let (mut sent, mut done, mut taken) = (0_u64, 0_u64, 0_u64);
    let started = Instant::now();
    loop {
        while limit.goes_on(sent, started) && may_send(plan, sent, done, taken) {
            let local = end.message(sent)?;
            let address = u64::try_from(end.offset(sent)).unwrap_or(0);
            let request = match plan.test {
                Test::Write => SendRequest::write(sent, local, RemoteSlice { address, rkey }),
                _ => SendRequest::send(sent, local),
            };
            end.queue_pair.post_send(&request)?;
            sent += 1;
        }
        if done == sent && !limit.goes_on(sent, started) {
            return Ok((done, started.elapsed()));
        }
        let completion = end.next()?;
        match completion.opcode {
            CompletionOpcode::Send | CompletionOpcode::Write => done += 1,
            _ => {
                taken += step;
                let local = Slice::EMPTY;
                let wr_id = completion.wr_id;
                end.queue_pair
                    .post_receive(&ReceiveRequest { wr_id, local })?;
            }
        }
    }
}

fn may_send(plan: Plan, sent: u64, done: u64, taken: u64) -> bool {
    let depth = u64::from(plan.depth);
    let posted = plan.test != Test::Send || sent < taken + 2 * depth;
    sent - done < depth && posted
}

/// Sends a message, waits for it to come back, and so on.
fn ping(end: &mut End, limit: Limit) -> Result<Vec<Duration>, Failure> {
    let mut times = Vec::new();
    let started = Instant::now();
    while limit.goes_on(u64::try_from(times.len()).unwrap_or(u64::MAX), started) {
        let begun = Instant::now();
        let local = end.message(0)?;
        let message = SendRequest {
            signaled: false,
            ..SendRequest::send(0, local)
        };
        end.queue_pair.post_send(&message)?;
        let completion = end.next()?;
        times.push(begun.elapsed());
        let wr_id = completion.wr_id;
        end.queue_pair
            .post_receive(&ReceiveRequest { wr_id, local })?;
    }
    Ok(times)
}
