//! Dynamic thresholds, of groups and of queues.

use crate::tables::policy::{ALPHA, Limit};
use common::config::{Refusal, require};

/// A threshold of 2^`exponent` times what is free.
///
/// # Errors
/// The exponent is out of range.
pub(super) fn dynamic(key: &str, exponent: i8) -> Result<Limit, Refusal> {
    require(
        ALPHA.contains(&exponent),
        key,
        format_args!("{exponent} is not within -8 to 8: the threshold is 2^n times what is free"),
    )?;
    Ok(Limit::Dynamic(exponent))
}
