//! Relations that keep a lossless class from losing anything (SW-11).
//!
//! ```text
//!   a queue of a lossless class,          the groups that can feed it
//!   or of its elephants
//!   ECN threshold            <            Σ xoff                     marks come before pauses
//!   limit, if it has one     >            Σ (xoff + headroom)        what was let in stays
//!
//!   a lossless queue:  groups that feed it have headroom            what comes is held back
//!   a lossless group:  xon   <            xoff                       a pause begins before it ends
//! ```
//!
//! The queue that elephants of a lossless class go to counts as a queue of that class: all that the
//! groups let in may wait there.

use super::sections::Sections;
use crate::config::facts::PortFacts;
use crate::limits::{CELL, CLASSES, PRIORITIES};
use crate::tables::policy::{GroupPolicy, Limit, Policy, PortPolicy, Wred};
use common::config::{Refusal, Refusals};
use common::time::Span;
use common::units::Rate;

/// Refuses a policy that breaks relations; what is only unwise is returned. `base_rtt` is the
/// control loop: a mark reaches the receiver, its answer the sender, and what the sender does then
/// the queue.
///
/// # Errors
/// The relations that do not hold, with their numbers.
pub(super) fn check(
    policy: &Policy,
    ports: &[PortFacts],
    sections: &Sections,
    base_rtt: Span,
) -> Result<Vec<String>, Refusals> {
    let mut refusals = Refusals::default();
    let mut warnings: Vec<String> = hook_drops(policy, ports).into_iter().collect();
    warnings.extend((0..CLASSES).flat_map(|class| without_headroom(policy, ports, class)));
    for (number, port) in policy.ports.iter().enumerate() {
        let name = &ports[number].name;
        let group_key = |group, key: &str| sections.group(number, group, key);
        refusals.keep(resumes_below(policy, port, name, &group_key));
        warnings.extend(pauses_nobody(policy, port, name));
        for (class, queue) in port.queues.iter().enumerate() {
            let key = |name: &str| sections.queue(number, class, name);
            let place = place(policy, name, class);
            let feeders = Feeders::of(policy, class);
            if queue.limit.is_none() {
                refusals.keep(is_held_back(policy, class, &key, &place, &feeders));
            }
            if feeders.groups == 0 {
                continue;
            }
            if let Some(wred) = queue.wred {
                refusals.keep(marks_come_first(&key, &place, wred, &feeders));
                // Without a shaper the queue drains as fast as its link carries.
                let speed = ports[number].speed.or(ports[number].link);
                warnings.extend(leaves_room(&place, wred, &feeders, speed, base_rtt));
            }
            if let Some(limit) = queue.limit {
                let guaranteed = u64::from(queue.guaranteed);
                refusals.keep(holds_all(&key, &place, guaranteed, limit, &feeders));
            }
        }
    }
    refusals.or(warnings)
}

/// A queue in words.
fn place(policy: &Policy, port: &str, class: usize) -> String {
    let mut elephants = policy.elephants.iter();
    match elephants.find(|it| usize::from(it.to) == class) {
        Some(it) => format!(
            "{port}, queue {class}, with the elephants of class {}",
            it.from
        ),
        None => format!("{port}, queue {class}"),
    }
}

/// Refuses a lossless queue none of whose groups has headroom at any port: nothing would hold its
/// packets back, neither there nor at the ingress.
fn is_held_back(
    policy: &Policy,
    class: usize,
    key: &dyn Fn(&str) -> String,
    place: &str,
    feeders: &Feeders,
) -> Result<(), Refusal> {
    let maps = &policy.classify;
    let feeds = |priority: &usize| usize::from(maps.class_of_priority[*priority]) == class;
    let Some(priority) = (0..PRIORITIES).find(feeds).filter(|_| feeders.groups == 0) else {
        return Ok(());
    };
    let group = maps.group_of_priority[priority];
    let reason = format!(
        "{place}: true, but group {group}, which priority {priority} belongs to, has no headroom: give it some in \
         [[qos.group]], or the queue a limit"
    );
    Err(Refusal::new(key("lossless"), reason))
}

/// Warnings if packets for a lossless queue arrive at ports where nothing holds them back: one for
/// each group.
fn without_headroom(policy: &Policy, ports: &[PortFacts], class: usize) -> Vec<String> {
    if policy
        .ports
        .iter()
        .all(|it| it.queues[class].limit.is_some())
    {
        return Vec::new();
    }
    let lacking = |group: usize| {
        let all = policy.ports.iter().zip(ports);
        let lacking = all.filter(|(it, _)| !it.groups[group].is_lossless());
        lacking.map(|(_, facts)| facts.name.as_str()).collect()
    };
    let feeding = policy.feeding(class).into_iter().enumerate();
    let groups = feeding.filter(|(_, feeds)| *feeds);
    let lacking = groups.map(|(group, _)| (group, lacking(group)));
    lacking
        .filter(|(_, names): &(usize, Vec<&str>)| !names.is_empty())
        .map(|(group, names)| {
            format!(
                "queue {class} is lossless, but group {group}, which feeds it, has no headroom at {}: what arrives there is lost \
                 when the buffer is full; give it some in [[qos.group]]",
                names.join(", ")
            )
        })
        .collect()
}

/// Refuses a lossless group with a dynamic threshold whose xon, or xon offset, is not below its
/// largest xoff. Its xoff is largest while the group has the whole service region for itself.
fn resumes_below(
    policy: &Policy,
    port: &PortPolicy,
    name: &str,
    key: &dyn Fn(usize, &str) -> String,
) -> Result<(), Refusals> {
    let service = u64::from(policy.regions.service);
    let bytes = |cells: u64| cells * CELL as u64;
    let mut refusals = Refusals::default();
    for (number, group) in port.groups.iter().enumerate() {
        if !group.is_lossless() || !matches!(group.limit, Limit::Dynamic(_)) {
            continue;
        }
        let most = group.xoff(1, service);
        for (part, cells) in [
            ("xon_bytes", group.xon),
            ("xon_offset_bytes", group.xon_offset),
        ] {
            let cells = u64::from(cells);
            refusals.require(
                cells == 0 || cells < most,
                &key(number, part),
                format_args!(
                    "{name}, group {number}: {} is not below {}, the most that it holds when it pauses: its guarantee, and its \
                     share of the {} bytes of service while nobody else has any",
                    bytes(cells),
                    bytes(most),
                    bytes(service)
                ),
            );
        }
    }
    refusals.or(())
}

/// A warning if a lossless group has no way to make its peer wait.
fn pauses_nobody(policy: &Policy, port: &PortPolicy, name: &str) -> Option<String> {
    let lossless = port
        .groups
        .iter()
        .enumerate()
        .filter(|(_, it)| it.is_lossless());
    let silent = lossless
        .map(|(group, _)| group)
        .find(|group| policy.priorities_of(*group) & !port.flow_control.sends() != 0)?;
    Some(format!(
        "{name}: group {silent} has headroom, but qos.flow_control does not pause its peer: what exceeds the headroom is lost"
    ))
}

/// A warning if packets of a lossless group go to a queue that drops when they go back to the
/// uplink group (SW-33).
fn hook_drops(policy: &Policy, ports: &[PortFacts]) -> Option<String> {
    let maps = &policy.classify;
    let class = maps.class_of_priority[usize::from(policy.hook?.priority & 7)];
    let mut uplinks = policy.ports.iter().zip(ports).filter(|(it, _)| it.uplink);
    let (_, port) = uplinks.find(|(it, _)| it.queues[usize::from(class)].limit.is_some())?;
    let lossless = |group: usize| {
        let mut all = policy.ports.iter().filter(|it| it.uplink);
        all.any(|it| it.groups[group].is_lossless()) && policy.priorities_of(group) != 0
    };
    let group = (0..PRIORITIES).find(|group| lossless(*group))?;
    Some(format!(
        "{}, queue {class}: hook flows of the lossless group {group} wait there, and it drops: make the priority of qos.hook \
         lossless, too",
        port.name
    ))
}

/// The lossless groups whose packets wait in queues of a class, of all ports.
struct Feeders {
    groups: u64,
    xoff: u64,
    headroom: u64,
}

impl Feeders {
    fn of(policy: &Policy, class: usize) -> Self {
        let groups: Vec<&GroupPolicy> = policy.feeders(class).collect();
        let service = u64::from(policy.regions.service);
        Self {
            groups: groups.len() as u64,
            xoff: groups
                .iter()
                .map(|group| group.xoff(groups.len() as u64, service))
                .sum(),
            headroom: groups.iter().map(|group| u64::from(group.headroom)).sum(),
        }
    }
}

fn marks_come_first(
    key: &dyn Fn(&str) -> String,
    place: &str,
    wred: Wred,
    feeders: &Feeders,
) -> Result<(), Refusal> {
    let (marks, pauses) = (wred.profile.curve.certain(), feeders.xoff * CELL as u64);
    if pauses > marks {
        return Ok(());
    }
    Err(Refusal::new(
        key("wred.max_bytes"),
        format!(
            "{place}: marks are certain from {marks} bytes, but the {} groups that feed it pause at {pauses} in all: \
             senders would be stopped before they are told to slow down",
            feeders.groups
        ),
    ))
}

/// A warning if what arrives in one control loop exceeds the gap between marks and pauses.
fn leaves_room(
    place: &str,
    wred: Wred,
    feeders: &Feeders,
    speed: Option<Rate>,
    base_rtt: Span,
) -> Option<String> {
    let gap = (feeders.xoff * CELL as u64).saturating_sub(wred.profile.curve.certain());
    let loop_bytes = speed?.bytes_in(base_rtt);
    (gap < loop_bytes).then(|| {
        format!(
            "{place}: the gap between marks and pauses is {gap} bytes, but {loop_bytes} arrive in {} until \
             senders react: there will be pauses that marks could have avoided",
            base_rtt
        )
    })
}

fn holds_all(
    key: &dyn Fn(&str) -> String,
    place: &str,
    guaranteed: u64,
    limit: Limit,
    feeders: &Feeders,
) -> Result<(), Refusal> {
    let let_in = feeders.xoff + feeders.headroom;
    let limit = match limit {
        Limit::Static(cells) => guaranteed + u64::from(cells),
        // It shrinks as the buffer fills: nothing can be promised.
        Limit::Dynamic(_) => 0,
    };
    if limit > let_in {
        return Ok(());
    }
    let bytes = |cells: u64| cells * CELL as u64;
    Err(Refusal::new(
        key("limit_bytes"),
        format!(
            "{place}: it drops at {} bytes, but the {} lossless groups that feed it let in {} (xoff) and {} \
             (headroom): say lossless = true, or a higher limit",
            bytes(limit),
            feeders.groups,
            bytes(feeders.xoff),
            bytes(feeders.headroom)
        ),
    ))
}
