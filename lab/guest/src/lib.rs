//! A guest: a virtual machine with Debian's kernel, for tests of what the kernel of this machine
//! lacks (VLANs, bridges that filter them, VRFs, tunnels, netem, Soft-RoCE).
//!
//! ```text
//!   test ── starts, dies with it ──► qemu ┌────────────────────────────┐
//!     │                                   │ Debian's kernel            │
//!     ├── port "control" ─────────────────┤ agent: runs scripts        │
//!     ├── shared folder (9p) ─────────────┤ /run/guest: their output   │
//!     │   the host's files, read only (9p)┤ /, under a layer in memory │
//!     └── its namespace ── tap ───────────┤ eth0, if asked for         │
//!                                         └────────────────────────────┘
//! ```
//!
//! The guest sees the files of its host where they are, so every program of the host runs in it,
//! the binaries that cargo built too. What it writes is in its memory and ends with it.
//!
//! qemu emulates the processors in software (no `/dev/kvm` is needed), so the guest is five to
//! twenty times as slow as its host: tests in it show that something works, never how fast.
//!
//! Names of tests that boot one begin with `a_guest_`, so that scripts/test can run them beside the
//! others. `scripts/setup --guest` installs what it takes. This depends on `netns` alone, so that
//! the tests of each crate can use it.

mod cpio;
mod kernel;
mod machine;
mod selected;

pub use machine::{Guest, Nic, Options, Script};
pub use netns::Output;
pub use selected::{run_selected, run_selected_in};

use kernel::Kernel;

/// The emulator.
const QEMU: &str = "qemu-system-x86_64";

/// Whether a guest can be booted here. Tests that need one return early when not;
/// [`netns::skip`] has said so.
///
/// # Panics
/// When `REQUIRE_NETNS=1` promises what the test needs.
#[must_use]
#[track_caller]
pub fn available() -> bool {
    if !netns::privileged() {
        return false;
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let qemu = std::env::split_paths(&path).any(|folder| folder.join(QEMU).is_file());
    let missing = match Kernel::find() {
        Err(error) => error.to_string(),
        Ok(_) if !qemu => format!("{QEMU} is not installed"),
        Ok(_) => return true,
    };
    netns::skip(&format!("no guest: {missing}; run `scripts/setup --guest`"));
    false
}
