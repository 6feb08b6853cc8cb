//! Open vSwitch with its userspace datapath, if it is installed.

use super::contender::{Contender, Links, ORDINARY};
use crate::rig::{FORWARD_CORE, Namespace, Process, SOURCE_CORE, run, wait_until};
use std::path::Path;
use std::time::Duration;

/// Starts it between links of its own.
///
/// # Errors
/// When it is not installed, or does not come up.
pub(super) fn start(folder: &Path) -> Result<Contender, String> {
    let link = Links::new("ovs", ORDINARY)?;
    let folder = folder.join("ovs");
    std::fs::create_dir(&folder).map_err(|error| error.to_string())?;
    let (name, ports) = ports()?;
    let database = start_database(&link.forwarder, &folder)?;
    let remote = format!("unix:{}/db.sock", folder.display());
    // It binds its forwarding thread itself; the others must not be in its way.
    let mut command = link
        .forwarder
        .command(Some(SOURCE_CORE), Path::new("ovs-vswitchd"));
    command
        .arg(&remote)
        .arg(format!("--unixctl={}/switch.ctl", folder.display()))
        .env("OVS_RUNDIR", &folder);
    let process = Process::start(&mut command, &folder.join("vswitchd.log"))?;
    let control = |line: &str| {
        link.forwarder.run(&format!(
            "env OVS_RUNDIR={} ovs-vsctl --timeout=15 --db={remote} {line}",
            folder.display()
        ))
    };
    control("add-br br0 -- set bridge br0 datapath_type=netdev fail-mode=secure")?;
    for port in ["p0", "p1"] {
        control(&format!(
            "add-port br0 {port} -- set Interface {port} {ports}"
        ))?;
    }
    let flow = format!(
        "in_port=p0,ip,actions=mod_dl_src:{},mod_dl_dst:{},dec_ttl,output:p1",
        link.out_mac, link.sink_mac
    );
    link.forwarder.run(&format!(
        "env OVS_RUNDIR={} ovs-ofctl add-flow br0 {flow}",
        folder.display()
    ))?;
    Contender::new(&name, process, vec![database], true, link)
}

/// What to call Open vSwitch, and the options of its ports: AF_XDP if it was built with it.
fn ports() -> Result<(String, &'static str), String> {
    let version = run("ovs-vswitchd --version")
        .map_err(|_| "Open vSwitch is not installed (openvswitch-switch)".to_owned())?;
    let number = version.split_whitespace().last().unwrap_or_default();
    let number = version
        .lines()
        .next()
        .and_then(|line| line.split_whitespace().last())
        .unwrap_or(number);
    let libraries = run("which ovs-vswitchd")
        .and_then(|path| run(&format!("ldd {}", path.trim())))
        .unwrap_or_default();
    Ok(if libraries.contains("libxdp") {
        let options = "type=afxdp options:n_rxq=1 options:xdp-mode=native";
        (format!("Open vSwitch {number}, AF_XDP"), options)
    } else {
        let options = "type=system";
        (
            format!("Open vSwitch {number}, AF_PACKET (built without AF_XDP)"),
            options,
        )
    })
}

fn start_database(namespace: &Namespace, folder: &Path) -> Result<Process, String> {
    let shown = folder.display();
    run(&format!(
        "ovsdb-tool create {shown}/conf.db /usr/share/openvswitch/vswitch.ovsschema"
    ))?;
    let mut command = namespace.helper("ovsdb-server");
    command
        .arg(format!("--remote=punix:{shown}/db.sock"))
        .arg(format!("--unixctl={shown}/db.ctl"))
        .arg(folder.join("conf.db"));
    let process = Process::start(&mut command, &folder.join("db.log"))?;
    let socket = folder.join("db.sock");
    if !wait_until(Duration::from_secs(5), || socket.exists()) {
        return Err("ovsdb-server does not answer".to_owned());
    }
    let core = 1_u64 << FORWARD_CORE;
    run(&format!(
        "ovs-vsctl --no-wait --db=unix:{shown}/db.sock -- init \
         -- set Open_vSwitch . other_config:pmd-cpu-mask={core:#x}"
    ))?;
    Ok(process)
}
