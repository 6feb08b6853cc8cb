//! From `[qos.trim]` and `[qos.hook]` to what the engine works with (SW-23, SW-33).

use crate::config::qos::{self, Queue, Trim};
use crate::limits::{CELL, PRIORITIES};
use crate::tables::policy::{Hook, Limit, Policy, TrimAt};
use crate::tables::trim::{DSCPS, SIZE_MAX, SIZE_MIN, TrimPolicy, TrimPolicyError};
use common::config::{Refusal, Refusals, require, within};

/// The highest code point.
const DSCP_MAX: u64 = DSCPS as u64 - 1;

impl Trim {
    /// Which packets are trimmed, and to what.
    ///
    /// # Errors
    /// The keys that are impossible; else the first that contradicts another.
    pub(super) fn compile(&self) -> Result<TrimPolicy, Refusals> {
        let mut refusals = Refusals::default();
        let (least, most) = (u64::from(SIZE_MIN), u64::from(SIZE_MAX));
        let size = u64::from(self.size_bytes);
        refusals.keep(within("qos.trim.size_bytes", size, least, most));
        let rtx = refusals.keep(mask("qos.trim.rtx", &self.rtx));
        let control = refusals.keep(mask("qos.trim.control", &self.control));
        let mut policy = TrimPolicy {
            size: self.size_bytes,
            headers_only: self.headers_only,
            rtx: rtx.unwrap_or_default(),
            control: control.unwrap_or_default(),
            ..TrimPolicy::default()
        };
        for (number, &trimmed) in &self.trimmable {
            let key = format!("qos.trim.trimmable.{number}");
            let dscp = number.parse::<usize>().ok().filter(|it| *it < DSCPS);
            let Some(dscp) = dscp else {
                let reason = format!("{number:?} is not within 0 to {DSCP_MAX}");
                refusals.add(Refusal::alone(key, reason));
                continue;
            };
            refusals.keep(within(&key, u64::from(trimmed), 0, DSCP_MAX));
            policy.trimmable |= 1 << dscp;
            policy.trimmed_of[dscp] = trimmed;
        }
        refusals.check()?;
        let checked = policy.check();
        checked.map_err(|error| Refusal::new(key_of(error), error.to_string()))?;
        Ok(policy)
    }
}

/// The code points of a list as bits.
fn mask(key: &str, dscps: &[u8]) -> Result<u64, Refusals> {
    let mut refusals = Refusals::default();
    let mut mask = 0;
    for (place, &dscp) in dscps.iter().enumerate() {
        let key = format!("{key}[{place}]");
        if refusals
            .keep(within(&key, u64::from(dscp), 0, DSCP_MAX))
            .is_some()
        {
            mask |= 1 << dscp;
        }
    }
    refusals.or(mask)
}

/// The key that a contradiction is about.
fn key_of(error: TrimPolicyError) -> String {
    match error {
        TrimPolicyError::Size { .. } => "qos.trim.size_bytes".to_owned(),
        TrimPolicyError::TrimmableControl { .. } => "qos.trim.control".to_owned(),
        TrimPolicyError::Retransmission { .. } => "qos.trim.rtx".to_owned(),
        TrimPolicyError::Range { dscp, .. }
        | TrimPolicyError::TrimmedTrimmable { dscp, .. }
        | TrimPolicyError::TrimmedControl { dscp, .. } => format!("qos.trim.trimmable.{dscp}"),
    }
}

impl qos::Hook {
    /// The rewrite of hook flows.
    ///
    /// # Errors
    /// There is no such priority, or no such code point.
    pub(super) fn compile(self) -> Result<Hook, Refusals> {
        let mut refusals = Refusals::default();
        let Self { priority, dscp } = self;
        let most = PRIORITIES as u64 - 1;
        refusals.keep(within("qos.hook.priority", u64::from(priority), 0, most));
        refusals.keep(within("qos.hook.dscp", u64::from(dscp), 0, DSCP_MAX));
        refusals.or(Hook { priority, dscp })
    }
}

/// Where a queue of this limit trims.
///
/// # Errors
/// The thresholds contradict each other or the limit of the queue, or the queue is lossless.
pub(super) fn trim_at(
    key: &dyn Fn(&str) -> String,
    queue: &Queue,
    guaranteed: u32,
    limit: Option<Limit>,
) -> Result<Option<TrimAt>, Refusal> {
    let Some(bytes) = queue.trim_bytes else {
        require(
            queue.trim_rtx_bytes.is_none(),
            &key("trim_rtx_bytes"),
            "belongs to trim_bytes, and there is none",
        )?;
        return Ok(None);
    };
    let rtx_bytes = queue.trim_rtx_bytes;
    let rtx_bytes = rtx_bytes.unwrap_or_else(|| bytes.saturating_add(bytes / 2));
    require(
        !queue.lossless,
        &key("trim_bytes"),
        format_args!("{bytes}, but the queue is lossless: what is trimmed has lost its payload"),
    )?;
    require(bytes > 0, &key("trim_bytes"), "0 would trim every packet")?;
    require(
        rtx_bytes >= bytes,
        &key("trim_rtx_bytes"),
        format_args!(
            "{rtx_bytes} lies below trim_bytes, {bytes}: retransmissions are trimmed later"
        ),
    )?;
    if let Some(Limit::Static(cells)) = limit {
        let limit = (u64::from(guaranteed) + u64::from(cells)) * CELL as u64;
        for (name, value) in [("trim_bytes", bytes), ("trim_rtx_bytes", rtx_bytes)] {
            require(
                u64::from(value) <= limit,
                &key(name),
                format_args!("{value} exceeds what the queue holds, {limit} bytes"),
            )?;
        }
    }
    Ok(Some(TrimAt { bytes, rtx_bytes }))
}

/// What is possible but unwise.
pub(super) fn warnings(policy: &Policy) -> Vec<String> {
    let mut warnings = Vec::new();
    let maps = &policy.classify;
    for dscp in (0..64_u8).filter(|dscp| policy.trim.trimmable & 1 << dscp != 0) {
        let trimmed = policy.trim.trimmed_of[usize::from(dscp)];
        let queue = maps.class_of_dscp(dscp);
        if queue == maps.class_of_dscp(trimmed) {
            warnings.push(format!(
                "DSCP {dscp} and {trimmed}, which it becomes when it is trimmed, both belong to queue {queue}: a \
                 trimmed packet waits behind what it was trimmed for"
            ));
        }
    }
    if let Some(Hook { priority, dscp }) = policy.hook {
        let found = maps.priority_of_dscp[usize::from(dscp)];
        if found != priority {
            warnings.push(format!(
                "hook flows get priority {priority} and DSCP {dscp}, whose priority is {found}: the next switch \
                 will put them into another queue, unless its map is another"
            ));
        }
    }
    warnings
}
