//! Why packets are lost: one table makes the reasons, their names and their meanings.

/// Makes the enum `DropReason` from a table, so that its parts cannot disagree. A line of the table
/// is a sentence that says what the reason means, as documentation, then the variant and the label:
///
/// ```
/// common::drop_reasons! {
///     /// The packet is cut.
///     Truncated => "truncated",
/// }
/// assert_eq!(DropReason::Truncated.label(), "truncated");
/// assert_eq!(DropReason::Truncated.describe(), "The packet is cut.");
/// ```
#[macro_export]
macro_rules! drop_reasons {
    ($($(#[doc = $doc:literal])+ $variant:ident => $label:literal,)+) => {
        /// Why a packet was lost here. Each loss has exactly one reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl DropReason {
            /// All reasons, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Number of reasons.
            pub const COUNT: usize = Self::ALL.len();

            /// The reason's place in a table of counters.
            pub const fn index(self) -> usize {
                self as usize
            }

            /// The name in metrics and in tables.
            pub const fn label(self) -> &'static str {
                match self {
                    $(Self::$variant => $label,)+
                }
            }

            /// What it means, in a sentence.
            pub const fn describe(self) -> &'static str {
                match self {
                    $(Self::$variant => concat!($($doc),+).trim_ascii(),)+
                }
            }
        }
    };
}
