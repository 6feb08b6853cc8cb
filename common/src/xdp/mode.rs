//! How packets get between a device and our memory, and where the program runs.

use std::fmt;
use std::str::FromStr;

/// How packets get from the device to our memory and back, best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Mode {
    /// The device reads and writes our frames itself.
    NativeZeroCopy,
    /// The program runs in the driver; the kernel copies.
    NativeCopy,
    /// The program runs in the network stack; the kernel copies. On any device.
    GenericCopy,
}

impl Mode {
    /// Whether the device works on our frames.
    pub fn is_zero_copy(self) -> bool {
        self == Self::NativeZeroCopy
    }

    /// Where the program runs.
    pub(super) fn hook(self) -> Hook {
        match self {
            Self::NativeZeroCopy | Self::NativeCopy => Hook::Native,
            Self::GenericCopy => Hook::Generic,
        }
    }
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NativeZeroCopy => "native zero-copy",
            Self::NativeCopy => "native copy",
            Self::GenericCopy => "generic copy",
        })
    }
}

/// Which modes are acceptable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ModeChoice {
    /// The best that the device offers.
    #[default]
    Best,
    /// This one; opening fails if the device does not offer it.
    Exactly(Mode),
}

impl ModeChoice {
    /// The modes to try, best first.
    pub(super) fn attempts(self) -> &'static [Mode] {
        match self {
            Self::Best => &[Mode::NativeZeroCopy, Mode::NativeCopy, Mode::GenericCopy],
            Self::Exactly(Mode::NativeZeroCopy) => &[Mode::NativeZeroCopy],
            Self::Exactly(Mode::NativeCopy) => &[Mode::NativeCopy],
            Self::Exactly(Mode::GenericCopy) => &[Mode::GenericCopy],
        }
    }
}

impl FromStr for ModeChoice {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "best" => Ok(Self::Best),
            "native-zero-copy" => Ok(Self::Exactly(Mode::NativeZeroCopy)),
            "native-copy" => Ok(Self::Exactly(Mode::NativeCopy)),
            "generic-copy" => Ok(Self::Exactly(Mode::GenericCopy)),
            _ => Err(format!(
                "{text:?} is not an AF_XDP mode: write best, native-zero-copy, native-copy or generic-copy"
            )),
        }
    }
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hook {
    /// In the driver, before the kernel makes a packet of its own of it.
    Native,
    /// In the network stack, on any device.
    Generic,
}

impl Hook {
    /// How the kernel is asked to attach the program.
    pub(super) fn flags(self) -> u32 {
        match self {
            Self::Native => libbpf_sys::XDP_FLAGS_DRV_MODE,
            Self::Generic => libbpf_sys::XDP_FLAGS_SKB_MODE,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_are_read() {
        assert_eq!("best".parse(), Ok(ModeChoice::Best));
        let exact = ModeChoice::Exactly(Mode::GenericCopy);
        assert_eq!("generic-copy".parse(), Ok(exact));
        assert!("zero".parse::<ModeChoice>().unwrap_err().contains("best"));
    }
}
