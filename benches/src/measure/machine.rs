//! What else the machine did, to distinguish a slow machine from a slow program.
//!
//! The kernel counts for each thread how long it was ready to run and had to wait for a core
//! (`/proc/PID/schedstat`, second field), and for the machine how long a hypervisor ran somebody
//! else instead (`steal` in `/proc/stat`).

use serde::Serialize;
use std::fmt;

/// What the results were measured on.
#[derive(Clone, Debug, Serialize)]
pub struct Facts {
    /// Name of the processor.
    pub processor: String,
    /// Its architecture.
    pub architecture: &'static str,
    /// Cores that this process may use.
    pub cores: usize,
    /// Release of the kernel.
    pub kernel: String,
}

impl Facts {
    /// Those of this machine.
    pub fn read() -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let processors = read("/proc/cpuinfo");
        let model = processors
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or("unknown", |(_, model)| model.trim());
        Self {
            processor: model.to_owned(),
            architecture: std::env::consts::ARCH,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

impl fmt::Display for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            processor,
            architecture,
            cores,
            kernel,
        } = self;
        write!(
            f,
            "{processor} ({architecture}), {cores} cores, Linux {kernel}"
        )
    }
}

/// The kernel's counters at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Nanoseconds that this thread ran.
    ran: u64,
    /// Nanoseconds that it waited for a core.
    waited: u64,
    /// Ticks of all cores.
    total: u64,
    /// Of these, without work.
    idle: u64,
    /// Of these, taken by the hypervisor.
    stolen: u64,
}

/// What happened between two moments, as shares between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Load {
    /// Of the time that what measures wanted to run, the share that it waited for a core.
    pub waited: f64,
    /// Share of all cores' time that the hypervisor took.
    pub stolen: f64,
    /// Share of all cores' time that was used, by the bench and by others.
    pub busy: f64,
}

impl Counters {
    /// Now, for this thread. A file that is missing counts nothing.
    pub fn read() -> Self {
        Self::read_of("thread-self")
    }

    /// Now, for the first threads of other processes, all together.
    pub fn read_processes(pids: &[u32]) -> Self {
        let each = pids.iter().map(|pid| Self::read_of(&pid.to_string()));
        // What is of the machine is the same in all of them.
        each.reduce(|sum, one| Self {
            ran: sum.ran + one.ran,
            waited: sum.waited + one.waited,
            ..one
        })
        .unwrap_or_default()
    }

    fn read_of(task: &str) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        Self::parse(
            &read(format!("/proc/{task}/schedstat")),
            &read("/proc/stat".to_owned()),
        )
    }

    /// From the texts of `/proc/thread-self/schedstat` and `/proc/stat` (proc_pid_schedstat(5),
    /// proc_stat(5)).
    fn parse(schedstat: &str, stat: &str) -> Self {
        let numbers = |line: &str| -> Vec<u64> {
            let words = line.split_whitespace();
            words.map_while(|word| word.parse().ok()).collect()
        };
        let thread = numbers(schedstat);
        let cores = stat.lines().find_map(|line| line.strip_prefix("cpu "));
        // user nice system idle iowait irq softirq steal; guests follow, and are in user and nice
        // already.
        let cores = numbers(cores.unwrap_or_default());
        let at = |numbers: &[u64], n| numbers.get(n).copied().unwrap_or(0);
        Self {
            ran: at(&thread, 0),
            waited: at(&thread, 1),
            total: cores.iter().take(8).sum(),
            idle: at(&cores, 3) + at(&cores, 4),
            stolen: at(&cores, 7),
        }
    }

    /// What happened since `before`.
    pub fn since(&self, before: &Self) -> Load {
        let share = |part: u64, whole: u64| {
            #[expect(clippy::cast_precision_loss, reason = "a share for people")]
            let share = part as f64 / whole.max(1) as f64;
            share
        };
        let waited = self.waited.saturating_sub(before.waited);
        let ran = self.ran.saturating_sub(before.ran);
        let total = self.total.saturating_sub(before.total);
        let idle = self.idle.saturating_sub(before.idle);
        let stolen = self.stolen.saturating_sub(before.stolen);
        Load {
            waited: share(waited, ran + waited),
            stolen: share(stolen, total),
            busy: share(total.saturating_sub(idle + stolen), total),
        }
    }
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "waited for a core {:.1} % of the time, {:.1} % stolen by the hypervisor, cores {:.0} % busy",
            self.waited * 100.0,
            self.stolen * 100.0,
            self.busy * 100.0
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loads_are_differences_of_counters() {
        let before = Counters::parse("1000 500 3\n", "cpu  10 0 10 60 10 5 5 0 7 0\ncpu0 1 2 3\n");
        let after = Counters::parse(
            "4000 1500 9\n",
            "cpu  40 5 20 80 20 5 10 20 9 0\ncpu0 9 9\n",
        );
        let load = after.since(&before);
        assert!((load.waited - 0.25).abs() < 1e-9);
        // Of 100 ticks 30 were idle and 20 stolen.
        assert!((load.stolen - 0.2).abs() < 1e-9);
        assert!((load.busy - 0.5).abs() < 1e-9);
        assert_eq!(Counters::parse("", "intr 5"), Counters::default());
        assert_eq!(
            before.since(&after),
            Load::default(),
            "counters that went back"
        );
    }

    #[test]
    fn this_machine_has_facts_and_counters() {
        let facts = Facts::read();
        assert!(facts.cores > 0 && !facts.kernel.is_empty(), "{facts}");
        assert!(Counters::read().total > 0);
        let own = Counters::read_processes(&[std::process::id()]);
        assert!(own.total > 0 && Counters::read_processes(&[]) == Counters::default());
    }
}
