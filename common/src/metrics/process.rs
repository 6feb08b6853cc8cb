//! What the kernel says about this process, under the names that Prometheus' own client libraries
//! use for it.

use super::Families;
use nix::sys::resource::{Resource, getrlimit};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::{SysconfVar, sysconf};
use std::io;
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// Numbers of `/proc/self/stat` (proc(5)).
#[derive(Clone, Copy, Debug, PartialEq)]
struct Stat {
    /// Processor time, in ticks.
    ticks: f64,
    threads: f64,
    /// Start after the boot, in ticks.
    start_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

impl Stat {
    fn parse(text: &str) -> io::Result<Self> {
        // The name of the program is in parentheses and may contain anything.
        let fields = text.rsplit_once(')').map_or("", |(_, rest)| rest);
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        // Numbered from 1 in proc(5); the first field after the name is the third.
        let field = |number: usize| {
            let field = fields.get(number - 3).and_then(|it| it.parse().ok());
            field.ok_or_else(|| io::Error::other(format!("/proc/self/stat: field {number}")))
        };
        Ok(Self {
            ticks: field(14)? + field(15)?,
            threads: field(20)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

fn system(name: SysconfVar, what: &str) -> io::Result<f64> {
    let value = sysconf(name)?.and_then(|value| u32::try_from(value).ok());
    value
        .map(f64::from)
        .ok_or_else(|| io::Error::other(format!("sysconf: {what}")))
}

/// Seconds from the Epoch to the start of the process. Computed once, so that it never moves.
fn started(stat: &Stat, tick: f64) -> io::Result<f64> {
    static STARTED: OnceLock<f64> = OnceLock::new();
    if let Some(started) = STARTED.get() {
        return Ok(*started);
    }
    let since_boot = std::time::Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME)?);
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let now = now.map_err(io::Error::other)?;
    let age = since_boot.as_secs_f64() - stat.start_ticks * tick;
    Ok(*STARTED.get_or_init(|| now.as_secs_f64() - age))
}

impl Families {
    /// Adds the metrics of this process. What the kernel does not say is left out, with a warning
    /// in the log.
    pub fn add_process(&mut self) {
        if let Err(error) = self.try_add_process() {
            tracing::warn!(%error, "metrics of the process");
        }
    }

    fn try_add_process(&mut self) -> io::Result<()> {
        let stat = Stat::parse(&std::fs::read_to_string("/proc/self/stat")?)?;
        let tick = 1.0 / system(SysconfVar::CLK_TCK, "CLK_TCK")?;
        let page = system(SysconfVar::PAGE_SIZE, "PAGE_SIZE")?;
        self.counter(
            "process_cpu_seconds_total",
            "Processor time used, of user and system.",
        )
        .add_f64(&[], stat.ticks * tick);
        for (name, help, value) in [
            ("process_threads", "Threads.", stat.threads),
            (
                "process_virtual_memory_bytes",
                "Virtual memory.",
                stat.virtual_bytes,
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory.",
                stat.resident_pages * page,
            ),
            (
                "process_start_time_seconds",
                "Start of the process since the Epoch.",
                started(&stat, tick)?,
            ),
        ] {
            self.gauge(name, help).add_f64(&[], value);
        }
        self.counter(
            "log_lost_events_total",
            "Events of the log that stderr did not take.",
        )
        .add(&[], crate::log::lost());
        // The descriptor of the folder itself is open while it is read.
        let open = std::fs::read_dir("/proc/self/fd")?
            .count()
            .saturating_sub(1);
        self.gauge("process_open_fds", "Open file descriptors.")
            .add(&[], open as u64);
        self.gauge("process_max_fds", "File descriptors that may be open.")
            .add(&[], getrlimit(Resource::RLIMIT_NOFILE)?.0);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strange_name_is_no_obstacle() {
        let text = "7 (a b) c) S 1 7 7 0 -1 4194560 1 0 0 0 150 50 0 0 20 0 3 0 1000 8192 2 99";
        let stat = Stat {
            ticks: 200.0,
            threads: 3.0,
            start_ticks: 1000.0,
            virtual_bytes: 8192.0,
            resident_pages: 2.0,
        };
        assert_eq!(Stat::parse(text).unwrap(), stat);
        let error = Stat::parse("7 (x) S 1").unwrap_err().to_string();
        assert_eq!(error, "/proc/self/stat: field 14");
    }

    /// MG-5: this test's process is younger than an hour, has a thread and uses memory.
    #[test]
    fn the_process_describes_itself() {
        let mut families = Families::new();
        families.try_add_process().unwrap();
        let text = families.text();
        let value = |name: &str| -> f64 {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            line.unwrap_or_else(|| panic!("{name}: {text}"))
                .parse()
                .unwrap()
        };
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        let age = now.as_secs_f64() - value("process_start_time_seconds");
        assert!((-1.0..86_400.0).contains(&age), "{age}");
        assert!(value("process_threads") >= 1.0);
        assert!(value("process_resident_memory_bytes") >= 65_536.0);
        assert!(value("process_virtual_memory_bytes") >= value("process_resident_memory_bytes"));
        assert!(value("process_open_fds") >= 3.0);
        assert!(value("process_max_fds") >= value("process_open_fds"));
        assert!(value("process_cpu_seconds_total") >= 0.0);
    }
}
