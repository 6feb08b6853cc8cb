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

/// Name of the program, by which a leftover is recognised.
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
        if other.name != PROGRAM {
            return Err(XdpError::Occupied {
                ifname: device.name.clone(),
                id: other.id,
                name: other.name,
            });
        }
        if remove(device.ifindex, &other) {
            tracing::warn!(
                "{}: replaced XDP program {} left behind by an earlier process",
                device.name,
                other.id
            );
            continue;
        }
        // Held by a link: its process lives, or is ending.
        retries += 1;
        if retries > RETRIES {
            return Err(XdpError::InUse {
                ifname: device.name.clone(),
                id: other.id,
            });
        }
        std::thread::sleep(RETRY_WAIT);
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
    name: String,
    flags: u32,
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
        name: program_name(id).unwrap_or_else(|| "unknown".to_owned()),
        flags,
    })
}

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
