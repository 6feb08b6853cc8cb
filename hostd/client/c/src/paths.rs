//! What is asked of a connection and its sub-paths.

use crate::connection::address;
use crate::context::timeout;
use crate::failure::{Failure, answer};
use crate::layout::{HostdConnOptions, HostdPathChange, HostdQp, HostdTraffic};
use crate::pointer::{Input, Output, Text};
use crate::{handle, small};
use hostd_client::{
    Congestion, ConnectionOptions, Granularity, PathChange, PathIds, PathWeights, QueuePair,
    Service, Traffic, TrafficPattern, TrafficPriority,
};
use std::ffi::{c_char, c_int};

/// How a connection retries if nothing is said.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_default_conn_options(
    options: *mut HostdConnOptions,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let mut options = unsafe { Output::new(options, 1) };
    answer(|| {
        options.check("options")?;
        let usual = ConnectionOptions::default();
        options.put(
            0,
            HostdConnOptions {
                timeout: usual.timeout,
                retry_count: usual.retry_count,
                rnr_retry: usual.rnr_retry,
                min_rnr_timer: usual.min_rnr_timer,
                responder_resources: usual.responder_resources,
                initiator_depth: usual.initiator_depth,
            },
        );
        Ok(0)
    })
}

/// How the next connection retries.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_set_conn_options(
    qp: *mut HostdQp,
    options: *const HostdConnOptions,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let options = unsafe { Input::new(options, 1) };
    answer(|| {
        let named = options.one("options")?;
        let options = ConnectionOptions {
            timeout: named.timeout,
            retry_count: named.retry_count,
            rnr_retry: named.rnr_retry,
            min_rnr_timer: named.min_rnr_timer,
            responder_resources: named.responder_resources,
            initiator_depth: named.initiator_depth,
        };
        handle::with(qp, |pair: &mut QueuePair| {
            pair.set_options(&options)?;
            Ok(0)
        })
    })
}

/// Where the next connection comes from.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_bind_qp(qp: *mut HostdQp, address: *const c_char) -> c_int {
    // SAFETY: what the header asks of the caller.
    let text = unsafe { Text::new(address) };
    answer(|| {
        let from = self::address(text)?;
        handle::with(qp, |pair: &mut QueuePair| {
            pair.bind(from)?;
            Ok(0)
        })
    })
}

/// The service of the next connection.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_set_service(qp: *mut HostdQp, service: u32) -> c_int {
    answer(|| {
        let all = [Service::Ordered, Service::Unordered, Service::Idempotent];
        let chosen = one_of(&all, service, "service")?;
        handle::with(qp, |pair: &mut QueuePair| {
            pair.choose_service(chosen)?;
            Ok(0)
        })
    })
}

/// The congestion control of the next connection.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn hostd_set_congestion(qp: *mut HostdQp, congestion: u32) -> c_int {
    answer(|| {
        let chosen = one_of(&Congestion::ALL, congestion, "congestion")?;
        handle::with(qp, |pair: &mut QueuePair| {
            pair.choose_congestion(chosen)?;
            Ok(0)
        })
    })
}

/// What is sent.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_describe_traffic(
    qp: *mut HostdQp,
    traffic: *const HostdTraffic,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let traffic = unsafe { Input::new(traffic, 1) };
    answer(|| {
        let told = traffic.one("traffic")?;
        let patterns = [
            TrafficPattern::Unknown,
            TrafficPattern::Pairs,
            TrafficPattern::ManyToOne,
            TrafficPattern::AllToAll,
        ];
        let priorities = [
            TrafficPriority::Normal,
            TrafficPriority::Low,
            TrafficPriority::High,
        ];
        let traffic = Traffic {
            block: told.block,
            pattern: one_of(&patterns, told.pattern, "pattern")?,
            priority: one_of(&priorities, told.priority, "priority")?,
        };
        handle::with(qp, |pair: &mut QueuePair| {
            pair.describe_traffic(&traffic)?;
            Ok(0)
        })
    })
}

/// Changes sub-paths.
///
/// # Safety
/// The pointers are as the header asks.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn hostd_change_paths(
    qp: *mut HostdQp,
    change: *const HostdPathChange,
    timeout_ms: c_int,
) -> c_int {
    // SAFETY: what the header asks of the caller.
    let change = unsafe { Input::new(change, 1) };
    answer(|| {
        let change = path_change(change.one("change")?)?;
        handle::with(qp, |pair: &mut QueuePair| {
            pair.change_paths(&change, timeout(timeout_ms))?;
            Ok(0)
        })
    })
}

fn path_change(named: &HostdPathChange) -> Result<PathChange, Failure> {
    if named.mask >= 1 << 4 {
        return Err(Failure::argument(format!("mask: {:#x}", named.mask)));
    }
    let has = |bit: u32| named.mask >> bit & 1 == 1;
    let granularities = [Granularity::Flow, Granularity::Flowlet, Granularity::Packet];
    let granularity = match has(0) {
        true => Some(one_from(
            1,
            &granularities,
            named.granularity,
            "granularity",
        )?),
        false => None,
    };
    let paths = named.weight_paths.iter().zip(&named.weights);
    let count = small(named.weight_count).map(usize::from);
    let pairs: Vec<(u8, u8)> = paths.map(|(path, weight)| (*path, *weight)).collect();
    let weights = count.and_then(|count| PathWeights::new(pairs.get(..count)?));
    let weights = weights.ok_or_else(|| {
        let text = format!("weight_count: {} is too many", named.weight_count);
        Failure::argument(text)
    })?;
    Ok(PathChange {
        add: PathIds(named.add),
        remove: PathIds(named.remove),
        weights,
        granularity,
        reorder_packets: has(1).then_some(named.reorder_packets),
        reorder_time_us: has(2).then_some(named.reorder_time_us),
        flowlet_timeout_us: has(3).then_some(named.flowlet_timeout_us),
    })
}

/// The value with this number, from zero on.
fn one_of<T: Copy>(all: &[T], number: u32, what: &str) -> Result<T, Failure> {
    one_from(0, all, number, what)
}

/// The value with this number, of which the first has the number `first`.
fn one_from<T: Copy>(first: u8, all: &[T], number: u32, what: &str) -> Result<T, Failure> {
    let index = small(number).and_then(|number| number.checked_sub(first));
    let found = index.and_then(|index| all.get(usize::from(index)));
    found.copied().ok_or_else(|| {
        let last = usize::from(first) + all.len() - 1;
        Failure::argument(format!("{what}: {number} is none of {first} to {last}"))
    })
}
