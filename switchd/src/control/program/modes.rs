//! Which groups choose their next hops in a mode of their own.

use super::groups::Groups;
use super::prefixes::Prefixes;
use super::spec::Spec;
use crate::config::ecmp::GroupMode;
use crate::id::GroupId;
use crate::tables::dlb::Mode;

/// The mode of each of `count` groups: `common`, or that of the first of `chosen` that means the
/// group. `chosen` may name routes and objects that do not exist yet.
pub(super) fn modes_of_groups(
    chosen: &[GroupMode],
    common: Mode,
    count: usize,
    groups: &Groups,
    prefixes: &Prefixes,
) -> Vec<Mode> {
    let mut modes = vec![common; count];
    // The first one last, so that it counts.
    for chosen in chosen.iter().rev() {
        // One for each MTU of its routes.
        let of_object = groups.iter().filter_map(|(group, spec, _)| match spec {
            Spec::Object(id, _) if chosen.object == Some(*id) => Some(group),
            _ => None,
        });
        let of_prefixes = chosen.prefixes.iter();
        let of_prefixes = of_prefixes.filter_map(|prefix| prefixes.group_of(prefix));
        for GroupId(id) in of_prefixes.chain(of_object) {
            if let Some(mode) = modes.get_mut(id as usize) {
                *mode = chosen.mode;
            }
        }
    }
    modes
}
