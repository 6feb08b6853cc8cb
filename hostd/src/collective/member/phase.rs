//! Where a membership is.
//!
//! ```text
//!                 ADMIT                    closed, broken              LEFT, ERROR, silence
//!   ┌─────────┐            ┌─────────┐                 ┌─────────┐                    ┌──────┐
//!   │ joining ├───────────▶│ running ├────────────────▶│ leaving ├───────────────────▶│ over │
//!   └─┬─────┬─┘            └────┬────┘                 └─────────┘                    └──────┘
//!     │     │ closed            │                           ▲                            ▲
//!     │     └───────────────────┼───────────────────────────┘                            │
//!     │ REFUSE, silence         │ ERROR, silence                                         │
//!     └─────────────────────────┴────────────────────────────────────────────────────────┘
//! ```

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The switch is asked to admit the member, again and again.
    Joining,
    /// Collectives are done.
    Running,
    /// The switch is told that the member leaves, again and again.
    Leaving,
    /// Nothing more is sent.
    Over,
}

/// What happens to a membership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// ADMIT of this attempt.
    Admitted,
    /// REFUSE of it.
    Refused,
    /// ERROR of the epoch.
    Ended,
    /// LEFT.
    Left,
    /// The switch is silent for too long.
    Silent,
    /// The application closed the membership, or its memory is gone, or a collective cannot
    /// be done.
    Closed,
}

impl Phase {
    /// The next phase; `None` if this does not happen here.
    pub(super) const fn next(self, input: Input) -> Option<Self> {
        match (self, input) {
            (Self::Joining, Input::Admitted) => Some(Self::Running),
            (Self::Joining, Input::Refused | Input::Silent) => Some(Self::Over),
            (Self::Joining | Self::Running, Input::Closed) => Some(Self::Leaving),
            (Self::Running, Input::Ended | Input::Silent) => Some(Self::Over),
            (Self::Leaving, Input::Left | Input::Ended | Input::Refused | Input::Silent) => {
                Some(Self::Over)
            }
            (Self::Joining, Input::Ended | Input::Left)
            | (Self::Running, Input::Admitted | Input::Refused | Input::Left)
            | (Self::Leaving, Input::Admitted | Input::Closed)
            | (Self::Over, _) => None,
        }
    }

    /// Its name, for operators.
    pub(crate) const fn label(self) -> &'static str {
        match self {
            Self::Joining => "joining",
            Self::Running => "running",
            Self::Leaving => "leaving",
            Self::Over => "over",
        }
    }
}
