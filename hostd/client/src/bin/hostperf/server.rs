//! The passive side.

use crate::end::{End, PATIENCE, Plan};
use crate::measurement::{Failure, Test};
use hostd_client::abi::codec::Writer;
use hostd_client::{
    CompletionOpcode, CompletionStatus, ConnectRequest, Context, Error, Private, ReceiveRequest,
    SendRequest, Slice,
};
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// Measurements at a time; each takes a thread and up to 64 MiB of memory.
const MEASUREMENTS: usize = 16;

/// Serves measurements, several at a time, until something is wrong with hostd. One above
/// [`MEASUREMENTS`] is refused, and so is what is no hostperf, before it has cost anything.
pub(crate) fn serve(socket: &Path, port: u16) -> Result<(), Failure> {
    let context = Context::connect(socket)?;
    let any = IpAddr::from(Ipv6Addr::UNSPECIFIED);
    let listener = context.listen(any, port, 16)?;
    println!("serving on port {}", listener.port());
    let running = Arc::new(());
    let mut refused = Refused::default();
    loop {
        let request = match listener.get_request(Duration::from_secs(3600)) {
            Ok(request) => request,
            Err(Error::TimedOut) => continue,
            Err(error) => return Err(error.into()),
        };
        let peer = request.peer();
        let plan = Plan::from_private(&request.private());
        let Some(plan) = plan.filter(|_| Arc::strong_count(&running) <= MEASUREMENTS) else {
            let why = match plan {
                None => "it is no hostperf of this version".to_owned(),
                Some(_) => format!("{MEASUREMENTS} measurements are running"),
            };
            if let Some(count) = refused.note() {
                eprintln!("hostperf: from {peer}: refused, {why}; {count} refused so far");
            }
            request.reject(Private::EMPTY);
            continue;
        };
        // Counted until the thread ends, however it ends.
        let (context, place) = (context.clone(), running.clone());
        std::thread::spawn(move || {
            if let Err(failure) = measure(&context, request, plan) {
                eprintln!("hostperf: from {peer}: {failure}");
            }
            drop(place);
        });
    }
}

/// Requests that were refused.
#[derive(Debug, Default)]
struct Refused(u64);

impl Refused {
    /// One more. Returns how many, each time that they have doubled, lest strangers fill a log.
    fn note(&mut self) -> Option<u64> {
        self.0 += 1;
        self.0.is_power_of_two().then_some(self.0)
    }
}

fn measure(context: &Context, request: ConnectRequest, plan: Plan) -> Result<(), Failure> {
    let mut end = End::new(context, plan)?;
    if plan.test != Test::Write {
        for number in 0..2 * u64::from(plan.depth) {
            post(&mut end, number)?;
        }
    }
    let key = Writer::<4>::new().u32(end.memory.rkey());
    let private = Private::new(key.as_slice()).unwrap_or_default();
    request.accept(&mut end.queue_pair, private, PATIENCE)?;
    match plan.test {
        Test::Write => end
            .queue_pair
            .wait_disconnected(Duration::from_secs(3600))
            .map(drop)?,
        Test::Send => ended_by_peer(credits(&mut end))?,
        Test::Latency => ended_by_peer(pong(&mut end))?,
    }
    Ok(())
}

fn post(end: &mut End, number: u64) -> Result<(), Failure> {
    let local = end.message(number)?;
    Ok(end.queue_pair.post_receive(&ReceiveRequest {
        wr_id: number,
        local,
    })?)
}

/// The peer ends a measurement by closing.
fn ended_by_peer(result: Result<(), Failure>) -> Result<(), Failure> {
    match result {
        Err(Failure::Work(CompletionStatus::Flushed)) => Ok(()),
        other => other,
    }
}

/// Takes messages, and tells the sender after every half of the depth that they are taken.
fn credits(end: &mut End) -> Result<(), Failure> {
    let step = u64::from(end.plan.depth).div_ceil(2);
    let mut taken = 0_u64;
    loop {
        let completion = end.next()?;
        if completion.opcode != CompletionOpcode::Receive {
            continue;
        }
        post(end, completion.wr_id)?;
        taken += 1;
        if taken.is_multiple_of(step) {
            let credit = SendRequest::send(taken, Slice::EMPTY);
            end.queue_pair.post_send(&credit)?;
        }
    }
}

/// Sends every message back.
fn pong(end: &mut End) -> Result<(), Failure> {
    loop {
        let completion = end.next()?;
        if completion.opcode == CompletionOpcode::Receive {
            let local = end.message(completion.wr_id)?;
            let answer = SendRequest {
                signaled: false,
                ..SendRequest::send(0, local)
            };
            end.queue_pair.post_send(&answer)?;
            post(end, completion.wr_id)?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// HT-3: a hundred strangers are told of in seven lines.
    #[test]
    fn strangers_are_told_of_ever_less_often() {
        let mut refused = Refused::default();
        let said: Vec<u64> = (0..100).filter_map(|_| refused.note()).collect();
        assert_eq!(said, [1, 2, 4, 8, 16, 32, 64]);
    }
}
