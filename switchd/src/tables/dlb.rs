//! What control tells the workers about dynamic load balancing: a part of the tables.

use super::flowlet::{DEFAULT_ENTRIES, Mode, Settings};
use super::quality::Scale;
use super::sprayed::HostSprayed;
use super::tables::GroupId;
use common::time::Span;

/// How the groups spread flows over their members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dynamic {
    settings: Settings,
    /// By group; those beyond the end are in the mode of `settings`.
    modes: Vec<Mode>,
    /// Some group chooses by more than the hash.
    is_on: bool,
    /// How the quality of ports is computed.
    pub scale: Scale,
    /// Flows that no group may spread in another way than by their hash.
    pub spray: HostSprayed,
    /// Entries of the flow table of each worker.
    pub flows: usize,
}

impl Default for Dynamic {
    /// Static ECMP.
    fn default() -> Self {
        Self::new(Settings::default())
    }
}

impl Dynamic {
    /// These settings for all groups.
    pub fn new(settings: Settings) -> Self {
        Self {
            settings,
            modes: Vec::new(),
            is_on: settings.mode != Mode::Off,
            scale: Scale::default(),
            spray: HostSprayed::default(),
            flows: DEFAULT_ENTRIES,
        }
    }

    /// The same with modes of their own for groups, by number.
    #[must_use]
    pub fn with_modes(&self, modes: Vec<Mode>) -> Self {
        let is_on = self.settings.mode != Mode::Off || modes.iter().any(|mode| *mode != Mode::Off);
        Self {
            modes,
            is_on,
            ..self.clone()
        }
    }

    /// The mode of groups without one of their own.
    pub fn common(&self) -> Mode {
        self.settings.mode
    }

    /// Silence after which flows are forgotten.
    pub fn ageing(&self) -> Span {
        self.settings.ageing
    }

    /// Modes of their own of the groups, by number.
    pub fn modes(&self) -> &[Mode] {
        &self.modes
    }

    /// Whether any group chooses by more than the hash. If not, nothing is to be measured or remembered.
    #[inline]
    pub fn is_on(&self) -> bool {
        self.is_on
    }

    /// How a group chooses.
    #[inline]
    pub fn mode(&self, group: GroupId) -> Mode {
        let own = self.modes.get(group.index()).copied();
        own.unwrap_or(self.settings.mode)
    }

    /// How a group spreads its flows.
    #[inline]
    pub fn settings(&self, group: GroupId) -> Settings {
        Settings {
            mode: self.mode(group),
            ..self.settings
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// SW-4: each group has its own mode, or the common one; it is on as soon as one of them is.
    #[test]
    fn groups_have_modes_of_their_own() {
        let off = Dynamic::default();
        assert!(!off.is_on());
        let one = off.with_modes(vec![Mode::Off, Mode::Packet]);
        let modes = [0, 1, 2].map(|group| one.settings(GroupId(group)).mode);
        assert_eq!(modes, [Mode::Off, Mode::Packet, Mode::Off]);
        assert!(one.is_on() && !one.with_modes(vec![Mode::Off]).is_on());
        let flowlet = Dynamic::new(Settings {
            mode: Mode::Flowlet,
            ..Settings::default()
        });
        let except = flowlet.with_modes(vec![Mode::Off]);
        assert!(except.is_on());
        assert_eq!(except.mode(GroupId(7)), Mode::Flowlet);
    }
}
