//! Programs on devices: by links that belong to the process, after a predecessor that is just
//! ending or in place of one that was left behind.

#![allow(unsafe_code, reason = "system calls of libbpf; see each SAFETY")]

use super::error::XdpError;
use super::limits::mtu_limit;
use super::mode::{Hook, Mode};
use super::netdev::Device;
use std::ffi::CStr;
use std::io;
use std::mem::size_of;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Name of the program, by which a leftover is recognised. Only who has CAP_SYS_ADMIN may open a
/// program by its number and so learn its name; the units of the daemons do not grant that, since
/// it would permit nearly everything. So a daemon has to do without: see [`Owner::Untold`].
const PROGRAM: &str = "fabric_steer";

/// A process that was killed lets go of its devices within this many waits.
pub(super) const RETRIES: u32 = 10;
/// One wait.
pub(super) const RETRY_WAIT: Duration = Duration::from_millis(100);

/// The link that keeps a program on a device. Detached once, by whoever comes first.
#[derive(Default)]
pub(super) struct Attachment(Mutex<Option<OwnedFd>>);

impl Attachment {
    /// Puts the program on the device. Waits for a predecessor that is just ending, and replaces
    /// one that was left behind.
    pub(super) fn attach(
        &self,
        device: &Device,
        program: BorrowedFd<'_>,
        hook: Hook,
    ) -> Result<(), XdpError> {
        let link = attach_link(device, program, hook)?;
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(link);
        Ok(())
    }

    pub(super) fn detach(&self) {
        // Closing the last descriptor of a link detaches it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
}

fn attach_link(device: &Device, program: BorrowedFd<'_>, hook: Hook) -> Result<OwnedFd, XdpError> {
    let mut retries = 0;
    loop {
        let error = match create_link(device.ifindex, program, hook) {
            Ok(link) => return Ok(link),
            Err(error) => error,
        };
        if error.raw_os_error() == Some(libc::ERANGE) && device.driver == "veth" {
            return Err(XdpError::PeerMtu {
                ifname: device.name.clone(),
                limit: mtu_limit(Mode::NativeCopy, &device.driver),
            });
        }
        let occupied = matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST));
        let Some(other) = attached(device.ifindex).filter(|_| occupied) else {
            return Err(XdpError::steering(&device.name, "attach", error));
        };
        if other.owner == Owner::Ours && remove(device.ifindex, &other) {
            tracing::warn!(
                "{}: replaced XDP program {} left behind by an earlier process",
                device.name,
                other.id
            );
            continue;
        }
        if !other.owner.may_be_ending() || retries >= RETRIES {
            return Err(other.refusal(&device.name));
        }
        retries += 1;
        std::thread::sleep(RETRY_WAIT);
    }
}

/// Whose program is on a device.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    /// That of a switchd or hostd.
    Ours,
    /// That of somebody else: its name.
    Other(String),
    /// The kernel tells its number, but not its name, to a daemon without CAP_SYS_ADMIN. It may be
    /// that of a predecessor, so it is waited for; it may be that of somebody else, so it is not
    /// taken off. Nothing is lost by that: the program of a predecessor is held by its link, which
    /// no successor could take off, and goes with the process.
    Untold,
}

impl Owner {
    /// By the name of the program, if the kernel tells it.
    fn by_name(name: Option<String>) -> Self {
        match name {
            None => Self::Untold,
            Some(name) if name == PROGRAM => Self::Ours,
            Some(name) => Self::Other(name),
        }
    }

    /// Whether it may be a predecessor that is ending, which is worth waiting for.
    fn may_be_ending(&self) -> bool {
        !matches!(self, Self::Other(_))
    }
}

fn create_link(ifindex: u32, program: BorrowedFd<'_>, hook: Hook) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags: hook.flags(),
        ..Default::default()
    };
    // SAFETY: both descriptors are valid numbers and `options` outlives the call.
    let link = unsafe {
        libbpf_sys::bpf_link_create(
            program.as_raw_fd(),
            ifindex.cast_signed(),
            libbpf_sys::BPF_XDP,
            &raw const options,
        )
    };
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link));
    }
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// A program that is on a device.
struct Attached {
    id: u32,
    owner: Owner,
    flags: u32,
}

impl Attached {
    /// Why the device `ifname`, which it is on, is not taken.
    fn refusal(self, ifname: &str) -> XdpError {
        let (ifname, id) = (ifname.to_owned(), self.id);
        match self.owner {
            Owner::Ours => XdpError::InUse { ifname, id },
            Owner::Other(name) => XdpError::Occupied { ifname, id, name },
            Owner::Untold => XdpError::Taken { ifname, id },
        }
    }
}

fn attached(ifindex: u32) -> Option<Attached> {
    let mut options = libbpf_sys::bpf_xdp_query_opts {
        sz: size_of::<libbpf_sys::bpf_xdp_query_opts>() as libbpf_sys::size_t,
        ..Default::default()
    };
    // SAFETY: `options` is writable, of the size that it says, and outlives the call.
    let result = unsafe { libbpf_sys::bpf_xdp_query(ifindex.cast_signed(), 0, &raw mut options) };
    if result != 0 {
        return None;
    }
    let places = [
        (options.drv_prog_id, libbpf_sys::XDP_FLAGS_DRV_MODE),
        (options.skb_prog_id, libbpf_sys::XDP_FLAGS_SKB_MODE),
        (options.hw_prog_id, libbpf_sys::XDP_FLAGS_HW_MODE),
        (options.prog_id, 0),
    ];
    let (id, flags) = places.into_iter().find(|(id, _)| *id != 0)?;
    Some(Attached {
        id,
        owner: Owner::by_name(program_name(id)),
        flags,
    })
}

/// The name of a program, if this process may know it.
fn program_name(id: u32) -> Option<String> {
    // SAFETY: takes a number and returns a new descriptor or an error.
    let program = unsafe { libbpf_sys::bpf_prog_get_fd_by_id(id) };
    if program < 0 {
        return None;
    }
    // SAFETY: a new descriptor that nobody else has.
    let program = unsafe { OwnedFd::from_raw_fd(program) };
    let mut info = libbpf_sys::bpf_prog_info::default();
    let mut len = u32::try_from(size_of::<libbpf_sys::bpf_prog_info>()).expect("small");
    // SAFETY: `info` is `len` writable bytes.
    let result = unsafe {
        libbpf_sys::bpf_prog_get_info_by_fd(program.as_raw_fd(), &raw mut info, &raw mut len)
    };
    if result != 0 {
        return None;
    }
    let name = info.name.map(i8::cast_unsigned);
    let name = CStr::from_bytes_until_nul(&name).ok()?;
    Some(name.to_string_lossy().into_owned())
}

/// Takes a program off that no link holds. False if a link holds it.
fn remove(ifindex: u32, attached: &Attached) -> bool {
    // SAFETY: takes numbers; no options.
    let result = unsafe {
        libbpf_sys::bpf_xdp_detach(ifindex.cast_signed(), attached.flags, std::ptr::null())
    };
    result == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MG-6: with the capabilities of the units no name of a program can be read. A predecessor is
    /// waited for all the same, and what may be somebody else's is not taken off.
    #[test]
    fn a_program_without_a_name_may_be_that_of_a_predecessor() {
        let on = |name: Option<&str>| Attached {
            id: 7,
            owner: Owner::by_name(name.map(str::to_owned)),
            flags: 0,
        };
        let (untold, ours, other) = (on(None), on(Some(PROGRAM)), on(Some("guard")));
        assert_eq!(
            [&untold, &ours, &other].map(|it| it.owner.may_be_ending()),
            [true, true, false]
        );
        assert_ne!(untold.owner, Owner::Ours);
        let told = untold.refusal("eth0").to_string();
        assert!(told.starts_with("eth0: XDP program 7 "), "{told}");
        assert!(told.contains("bpftool prog show id 7"), "{told}");
        assert!(matches!(ours.refusal("eth0"), XdpError::InUse { .. }));
        let told = other.refusal("eth0").to_string();
        assert!(told.contains("(guard)"), "{told}");
    }
}
