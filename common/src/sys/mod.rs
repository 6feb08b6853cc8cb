//! What the daemons need from Linux beside sockets: waiting, the clock, shared memory, limits.
//!
//! Only the thread loops and the edges of the daemons use this; engines get time and memory as
//! arguments.

pub mod alloc;
mod awake;
mod link;
mod memory;
mod process;
mod rights;
mod signal;
mod wait;

pub use awake::Awake;
pub use link::LinkSocket;
pub use memory::{
    Access, Mapping, MappingError, MemlockError, create_memfd, memlock_limit, raise_memlock,
};
pub use process::peer_process;
pub use rights::permit_descriptors;
pub use signal::end_quietly_on_broken_pipe;
pub use wait::{PollSet, Waker, monotonic};

/// What stands at `path`, where a daemon wants its socket and removes an old one, is a socket.
///
/// # Errors
/// It is something else, which must not be removed.
pub fn require_socket(path: &std::path::Path) -> std::io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    if std::fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(());
    }
    let text = format!("{} is no socket, and is left alone", path.display());
    Err(std::io::Error::new(std::io::ErrorKind::AlreadyExists, text))
}

/// How often a daemon tells systemd that it lives, of which systemd waits for `limit`
/// (`WATCHDOG_USEC`, sd_watchdog_enabled(3)): often enough that one beat that is missed, and the
/// next one that is late, are no restart.
pub fn watchdog_beat(limit: std::time::Duration) -> std::time::Duration {
    limit / 4
}

/// The memory of the machine in bytes; nothing if the kernel does not tell.
pub fn memory_bytes() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = text.lines().find_map(|it| it.strip_prefix("MemTotal:"))?;
    let kibibytes: u64 = total.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kibibytes * 1024)
}

/// The CPUs that this process may run on: those that are online, as far as it is not confined.
/// Empty if the kernel does not tell.
pub fn usable_cpus() -> Vec<usize> {
    let found = nix::sched::sched_getaffinity(nix::unistd::Pid::from_raw(0));
    found.map_or_else(
        |_| Vec::new(),
        |set| {
            let all = 0..nix::sched::CpuSet::count();
            all.filter(|cpu| set.is_set(*cpu).unwrap_or(false))
                .collect()
        },
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    /// MG-6: with one beat missed, the next one has as long again before systemd's time is over.
    #[test]
    fn a_missed_beat_is_no_restart() {
        let limit = Duration::from_secs(10);
        let beat = super::watchdog_beat(limit);
        assert!(2 * beat + beat < limit, "{beat:?}");
        assert!(
            beat > Duration::from_secs(1),
            "{beat:?}: the worker is woken for it"
        );
    }
}
