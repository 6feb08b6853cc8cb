//! Pairs from data, for connections that were there before the switch looked: what one direction
//! acknowledges is what the other has just asked.
//!
//! PSNs of connections begin at random and move at their own pace, so among the connections between
//! two hosts seldom more than one fits. When several fit it is tried again at the next look.

use crate::flows::{Key, is_covered};
use common::wire::roce::PSN_MASK;
use std::collections::HashMap;
use std::net::IpAddr;

/// How far an acknowledgement may be behind the last request: a window of many megabytes, and what
/// passes between two reads of slots.
const WINDOW: u32 = 1 << 15;

/// A direction that has no other yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Single {
    pub(super) key: Key,
    /// Its last request, read after all that is acknowledged.
    pub(super) request: Option<u32>,
    /// What it acknowledged last.
    pub(super) acknowledged: Option<u32>,
}

/// Whether what `acknowledged` says can be about these requests.
pub(super) fn is_possible(request: u32, acknowledged: u32) -> bool {
    is_covered(acknowledged, request)
}

/// The requests from one host to another, sorted.
type Requests = HashMap<(IpAddr, IpAddr), Vec<(u32, Key)>>;

/// The direction that is acknowledged, if only one can be meant.
fn meant(requests: &[(u32, Key)], acknowledged: u32) -> Option<Key> {
    // Those from `acknowledged` on, over the end of the numbers.
    let start = requests.partition_point(|(psn, _)| *psn < acknowledged);
    let (before, from) = requests.split_at(start);
    let near = |(psn, _): &&(u32, Key)| psn.wrapping_sub(acknowledged) & PSN_MASK <= WINDOW;
    let near: Vec<_> = from.iter().chain(before).take_while(near).take(3).collect();
    match near[..] {
        [(_, key)] => Some(*key),
        // Connections at rest have all acknowledged.
        [(first, key), (second, _), ..] if *first == acknowledged && second != first => Some(*key),
        _ => None,
    }
}

/// The directions that belong together.
pub(super) fn pairs(singles: &[Single]) -> Vec<(Key, Key)> {
    let mut requests = Requests::new();
    for single in singles {
        if let Some(psn) = single.request {
            let hosts = (single.key.source(), single.key.destination());
            requests.entry(hosts).or_default().push((psn, single.key));
        }
    }
    requests.values_mut().for_each(|all| all.sort_unstable());
    // For each direction the one that it is paired with; `None`: there are several.
    let mut found: HashMap<Key, Option<Key>> = HashMap::new();
    for single in singles {
        let hosts = (single.key.destination(), single.key.source());
        let other = single.acknowledged.and_then(|psn| {
            let requests = requests.get(&hosts)?;
            meant(requests, psn)
        });
        let Some(other) = other else { continue };
        for (key, other) in [(single.key, other), (other, single.key)] {
            let known = found.entry(key).or_insert(Some(other));
            if *known != Some(other) {
                *known = None;
            }
        }
    }
    let mutual = |(key, other): (&Key, &Option<Key>)| {
        let other = (*other)?;
        (*key < other && found.get(&other) == Some(&Some(*key))).then_some((*key, other))
    };
    found.iter().filter_map(mutual).collect()
}
