//! Which users may connect.

use crate::config::Application;
use nix::unistd::{Group, User};
use std::collections::HashSet;

/// Who may connect.
#[derive(Clone, Debug, Default)]
pub struct Permissions {
    users: HashSet<u32>,
    groups: HashSet<u32>,
}

impl Permissions {
    /// The users and groups of the configuration; names that the system does not know are reported
    /// and permit nobody.
    pub fn resolve(application: &Application) -> Self {
        let mut permissions = Self::default();
        // Root could do as it likes anyway, and the daemon may be tried out as any user.
        permissions
            .users
            .extend([0, nix::unistd::Uid::effective().as_raw()]);
        for name in &application.users {
            let known = || {
                User::from_name(name)
                    .ok()
                    .flatten()
                    .map(|user| user.uid.as_raw())
            };
            match name.parse().ok().or_else(known) {
                Some(uid) => drop(permissions.users.insert(uid)),
                None => tracing::warn!(%name, "application.users: no such user"),
            }
        }
        for name in &application.groups {
            let known = || {
                Group::from_name(name)
                    .ok()
                    .flatten()
                    .map(|group| group.gid.as_raw())
            };
            match name.parse().ok().or_else(known) {
                Some(gid) => drop(permissions.groups.insert(gid)),
                None => tracing::warn!(%name, "application.groups: no such group"),
            }
        }
        permissions
    }

    /// Whether a user with these groups may connect.
    pub fn allow(&self, uid: u32, groups: impl IntoIterator<Item = u32>) -> bool {
        self.users.contains(&uid) || groups.into_iter().any(|gid| self.groups.contains(&gid))
    }
}
