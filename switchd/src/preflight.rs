//! What is checked before anything is opened, so that the message names the cause.

use crate::config::{Config, Fitted, Machine, PortSettings, comments};
use common::config::{Refusal, Refusals};
use common::netlink::{Filter, filters};
use common::xdp::XdpError;
use common::xdp::netdev::Device;
use std::io;

/// Capabilities by number (linux/capability.h) and name.
const CAP_NET_ADMIN: (u32, &str) = (12, "CAP_NET_ADMIN");
const CAP_NET_RAW: (u32, &str) = (13, "CAP_NET_RAW");
const CAP_SYS_ADMIN: u32 = 21;
const CAP_BPF: (u32, &str) = (39, "CAP_BPF");

/// Why switchd does not start, or ended.
#[derive(Debug, thiserror::Error)]
pub enum SwitchError {
    /// Values of the configuration do not fit this machine.
    #[error("configuration: {0}")]
    Config(Refusals),
    /// Capabilities are missing.
    #[error(
        "not permitted: {missing} lacking; run as root, or grant them (systemd: AmbientCapabilities=)"
    )]
    Capabilities {
        /// Their names.
        missing: String,
    },
    /// A device or the packet memory.
    #[error(transparent)]
    Xdp(#[from] XdpError),
    /// The admin socket.
    #[error("admin socket {path}: {error}")]
    Admin {
        /// The socket.
        path: String,
        /// Why not.
        error: io::Error,
    },
    /// The HTTP listener.
    #[error("metrics.listen {address}: {error}")]
    Metrics {
        /// The address.
        address: String,
        /// Why not.
        error: io::Error,
    },
    /// The kernel's tables.
    #[error("netlink: {0}")]
    Netlink(io::Error),
    /// Threads, descriptors, signals.
    #[error("{what}: {error}")]
    System {
        /// What was being done.
        what: &'static str,
        /// Why not.
        error: io::Error,
    },
}

impl SwitchError {
    /// A value of the configuration does not fit this machine.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self::Config(refusal.into())
    }

    pub(crate) fn system(what: &'static str) -> impl Fn(io::Error) -> Self {
        move |error| Self::System { what, error }
    }
}

/// Checks the capabilities that AF_XDP and requests for neighbours need.
///
/// # Errors
/// Some are missing; the error names them.
pub fn capabilities() -> Result<(), SwitchError> {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let effective = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|text| u64::from_str_radix(text.trim(), 16).ok());
    // Without /proc the kernel's own refusals have to do.
    match effective.map(missing) {
        Some(missing) if !missing.is_empty() => Err(SwitchError::Capabilities { missing }),
        _ => Ok(()),
    }
}

fn missing(effective: u64) -> String {
    let has = |number: u32| effective & (1 << number) != 0;
    let needed = [CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF];
    let replaced = |number: u32| number == CAP_BPF.0 && has(CAP_SYS_ADMIN);
    let lacks = |(number, _): &(u32, &str)| !(has(*number) || replaced(*number));
    let names: Vec<&str> = needed
        .into_iter()
        .filter(lacks)
        .map(|(_, name)| name)
        .collect();
    names.join(", ")
}

/// Where the kernel says whether it forwards: whether for IPv6, and the file.
pub const KERNEL_FORWARDING: [(bool, &str); 2] = [
    (false, "/proc/sys/net/ipv4/ip_forward"),
    (true, "/proc/sys/net/ipv6/conf/all/forwarding"),
];

/// Whether the kernel forwards IPv4, and IPv6. It does if it does not say, of which
/// [`unreadable`] tells.
pub fn kernel_forwards() -> [bool; 2] {
    KERNEL_FORWARDING.map(|(_, path)| !is_zero(path))
}

/// A sentence about settings of the kernel that cannot be read, so that others stand for them. It
/// always has those of IPv4.
pub fn unreadable() -> Option<String> {
    let (_, path) = KERNEL_FORWARDING[0];
    let error = std::fs::read_to_string(path).err()?;
    Some(format!(
        "the kernel's settings cannot be read ({path}: {error}): switchd takes it that the kernel \
         forwards, and that all others are as Linux has them; it has to see /proc/sys"
    ))
}

/// Whether a file of /proc holds a zero.
pub fn is_zero(path: &str) -> bool {
    std::fs::read_to_string(path).is_ok_and(|text| text.trim() == "0")
}

/// A sentence about what packets pass in the kernel and not in switchd, if there is something.
///
/// # Errors
/// The kernel refuses to tell.
pub fn passed_by() -> io::Result<Option<String>> {
    Ok(of_filters(&filters()?.found))
}

fn of_filters(found: &[Filter]) -> Option<String> {
    let found: Vec<String> = found.iter().map(Filter::to_string).collect();
    (!found.is_empty()).then(|| {
        format!(
            "packets that switchd forwards do not pass what the kernel has for forwarded ones: {}",
            found.join(", ")
        )
    })
}

/// A sentence about tables that only root may see: whether there are any.
fn of_hidden(programs: &[&str]) -> Option<String> {
    (!programs.is_empty()).then(|| {
        format!(
            "whether there are tables of the older {} cannot be seen without root: packets that \
             switchd forwards do not pass them",
            programs.join(" and ")
        )
    })
}

/// What an operator should know of the machine and `config` before the start, a sentence each.
pub fn warnings(config: &Config) -> Vec<String> {
    let takes_over = config.workers.takeover_milliseconds > 0;
    let off = KERNEL_FORWARDING.iter().filter(|(_, path)| is_zero(path));
    let off = off.filter(|_| takes_over);
    let passed_by = match filters() {
        Ok(seen) => [of_filters(&seen.found), of_hidden(&seen.hidden)],
        Err(error) => {
            let what = "whether filters of the kernel are passed by cannot be seen";
            [Some(format!("{what}: {error}")), None]
        }
    };
    off.map(|(_, path)| {
        format!(
            "{path} is 0: while a worker is absent (workers.takeover_milliseconds) or switchd \
                 restarts, the kernel does not forward in its place; set it to 1"
        )
    })
    .chain(unreadable())
    .chain(passed_by.into_iter().flatten())
    .collect()
}

/// A warning for each pattern in `ports` that matches no interface yet.
pub fn unmatched(config: &Config) -> Vec<String> {
    // Without an answer there is nothing to compare with.
    let Ok(devices) = devices(config) else {
        return Vec::new();
    };
    let facts = devices.iter().map(|(port, it)| config.facts_of(port, it));
    config.pattern_warnings(&facts.collect::<Vec<_>>())
}

/// The ports of the configuration with their devices.
///
/// # Errors
/// An interface is missing, or there is no port and none can come; a file that the configuration
/// names cannot be used.
pub fn devices(config: &Config) -> Result<Vec<(PortSettings, Device)>, SwitchError> {
    let compute = config.compute.secret();
    compute.map_err(|error| SwitchError::system("in-network compute")(io::Error::other(error)))?;
    let present = Device::list().map_err(SwitchError::system("list of interfaces"))?;
    let names: Vec<String> = present
        .into_iter()
        .filter(|device| !config.leaves_out(&device.name, &device.driver))
        .map(|device| device.name)
        .collect();
    config
        .resolve_ports(&names)
        .map_err(SwitchError::refused)?
        .into_iter()
        .map(|port| {
            let device = Device::lookup(&port.name)?;
            Ok((port, device))
        })
        .collect()
}

/// What the ports with these devices are given on this machine.
///
/// # Errors
/// `[qos]` does not fit them.
pub fn fit(config: &Config, devices: &[(PortSettings, Device)]) -> Result<Fitted, SwitchError> {
    let facts = devices.iter().map(|(port, it)| config.facts_of(port, it));
    let machine = Machine {
        memory: common::sys::memory_bytes(),
        queues: &rx_queues(devices),
    };
    let fitted = config.fit(facts.collect(), Some(machine));
    fitted.map_err(SwitchError::Config)
}

/// The number of receive queues of each device.
pub fn rx_queues(devices: &[(PortSettings, Device)]) -> Vec<u32> {
    devices.iter().map(|(_, device)| device.rx_queues).collect()
}

/// What follows from `config` for the interfaces that are there now, as comments behind it; why
/// nothing does, if so.
pub fn derived(config: &Config) -> String {
    let values = || -> Result<_, SwitchError> {
        let Fitted {
            compiled, facts, ..
        } = fit(config, &devices(config)?)?;
        let made_of = compiled.headroom.iter().map(Option::as_ref);
        Ok(config.derived_of(facts.iter().zip(made_of)))
    };
    match values() {
        Ok(values) => format!("\n{}", comments(&values)),
        Err(error) => {
            let error = error.to_string().replace('\n', " ");
            format!("\n# nothing is derived for ports: {error}\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lacking_capabilities_are_named() {
        assert_eq!(missing(u64::MAX), "");
        assert_eq!(missing(0), "CAP_NET_ADMIN, CAP_NET_RAW, CAP_BPF");
        assert_eq!(missing(1 << 12 | 1 << 13 | 1 << 21), "");
    }
}
