//! Tables of a laboratory.

use std::collections::BTreeMap;

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Cell, Table};
use common::units::Rate;
use lab::control::DaemonStatus;
use lab::topology::Daemons;
use lab::wiring::tap_name;
use lab::{Lab, namespace, node_dir, run_dir};
use serde_json::json;

/// A table in the style of all that the command prints.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_BORDERS_ONLY)
        .set_header(header.iter().map(Cell::new));
    table
}

/// How many there are of what is called `one`, or `several`.
pub(crate) fn counted(number: impl Into<u64>, one: &str, several: &str) -> String {
    match number.into() {
        1 => format!("1 {one}"),
        number => format!("{number} {several}"),
    }
}

/// A number with its thousands apart.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Laboratories with their sizes, and how many of their daemons run.
pub(crate) fn list(labs: &[Lab], as_json: bool) {
    let counts = |lab: &Lab| {
        let daemons = lab.daemons().unwrap_or_default();
        (daemons.iter().filter(|it| it.ready).count(), daemons.len())
    };
    if as_json {
        let row = |lab: &Lab| {
            let (ready, daemons) = counts(lab);
            json!({
                "name": lab.name(),
                "up": lab.is_up(),
                "leaves": lab.options().leaves,
                "spines": lab.options().spines,
                "hosts": lab.options().hosts,
                "daemons": daemons,
                "ready": ready,
            })
        };
        println!("{:#}", json!(labs.iter().map(row).collect::<Vec<_>>()));
        return;
    }
    if labs.is_empty() {
        println!("no laboratory is up");
        return;
    }
    let mut rows = table(&[
        "laboratory",
        "state",
        "leaves",
        "spines",
        "hosts",
        "daemons ready",
    ]);
    for lab in labs {
        let options = lab.options();
        let (ready, daemons) = counts(lab);
        rows.add_row([
            lab.name().to_owned(),
            if lab.is_up() {
                "up"
            } else {
                "left by a killed run"
            }
            .to_owned(),
            options.leaves.to_string(),
            options.spines.to_string(),
            options.hosts.to_string(),
            format!("{ready} of {daemons}"),
        ]);
    }
    println!("{rows}");
}

/// Nodes with their daemons and addresses, then links.
pub(crate) fn status(lab: &Lab) {
    let options = lab.options();
    println!(
        "laboratory '{}': {}, {}, {}; links of {}, MTU {}, {}; files in {}",
        options.name,
        counted(options.leaves, "leaf", "leaves"),
        counted(options.spines, "spine", "spines"),
        counted(options.hosts, "host", "hosts"),
        Rate::from_bps(options.speed),
        options.mtu,
        counted(options.queues, "queue", "queues"),
        run_dir(&options.name).display(),
    );
    let daemons = match lab.daemons() {
        Ok(daemons) => daemons,
        Err(error) => {
            println!("no daemon runs: {error}");
            Vec::new()
        }
    };
    let has_vlans = lab.plan().vlans > 0;
    let mut header = vec!["node", "daemon", "pid", "state", "restarts", "IPv4", "IPv6"];
    header.extend(has_vlans.then_some("VLAN"));
    let mut nodes = table(&header);
    for node in &lab.plan().nodes {
        let daemon = daemons.iter().find(|daemon| daemon.node == node.name);
        let host = lab.host(&node.name);
        // In one network of all hosts the switches have no addresses.
        let has_addresses = !(lab.plan().l2 && node.role.is_switch());
        let address = |v6| match has_addresses {
            true => host.address(v6).to_string(),
            false => "-".to_owned(),
        };
        let mut row = vec![node.name.clone()];
        row.extend(match daemon {
            Some(d) => [
                d.program.clone(),
                d.pid.map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
                state(d).to_owned(),
                d.restarts.to_string(),
            ],
            None => ["-", "-", "-", "-"].map(str::to_owned),
        });
        row.extend([address(false), address(true)]);
        if has_vlans {
            let vlan = lab.plan().vlan_of(&node.name);
            row.push(vlan.map_or_else(|| "-".to_owned(), |vlan| vlan.to_string()));
        }
        nodes.add_row(row);
    }
    println!("{nodes}");
    let down: Vec<String> = lab
        .links_down()
        .iter()
        .map(|(a, b)| format!("{a}–{b}"))
        .collect();
    if !down.is_empty() {
        println!("links pulled: {}", down.join(", "));
    }
    for (place, (a, b)) in options.taps.iter().enumerate() {
        let tap = namespace(&options.name, &tap_name(place + 1));
        println!("tap on {a}–{b}: ip netns exec {tap} tcpdump -i lower");
    }
}

/// What can be tried on the nodes of a laboratory that has just come up: a node, and a command that
/// works there.
pub(crate) fn hints(lab: &Lab) -> Vec<String> {
    // A host that is alone, or alone in its VLAN, has nobody to ask.
    let plan = lab.plan();
    let asked = |host: &&str| *host != "h1" && plan.vlan_of(host) == plan.vlan_of("h1");
    let last = lab.hosts().into_iter().rfind(asked);
    let address = last.map(|host| lab.host(host).address(false));
    let ping = address.map(|address| format!("h1 ping -c 3 {address}"));
    let second = match lab.options().daemons {
        Daemons::All | Daemons::Switches => "leaf1 switchctl ports".to_owned(),
        Daemons::KernelRouters => "leaf1 ip -s link".to_owned(),
        Daemons::Nothing => {
            let file = node_dir(&lab.options().name, "leaf1").join("switchd.toml");
            // Nothing forwards yet, so nothing answers a ping.
            return vec![format!("leaf1 switchd --config {}", file.display())];
        }
    };
    ping.into_iter().chain([second]).collect()
}

fn state(daemon: &DaemonStatus) -> &'static str {
    match (daemon.pid, daemon.ready) {
        (Some(_), true) => "ready",
        (Some(_), false) => "starting",
        (None, _) => "down",
    }
}

/// The same for programs.
pub(crate) fn status_json(lab: &Lab) {
    let vlan_of = |host: &str| Some((host.to_owned(), lab.plan().vlan_of(host)?));
    let vlans: BTreeMap<_, _> = lab.hosts().into_iter().filter_map(vlan_of).collect();
    let value = json!({
        "options": lab.options(),
        "nodes": lab.plan().nodes,
        "links": lab.plan().links,
        "vlans": vlans,
        "down": lab.links_down(),
        "daemons": lab.daemons().unwrap_or_default(),
    });
    println!("{value:#}");
}

#[cfg(test)]
mod tests {
    use super::grouped;

    #[test]
    fn thousands_are_apart() {
        let texts = [0, 999, 1000, 1_234_567].map(grouped);
        assert_eq!(texts, ["0", "999", "1,000", "1,234,567"]);
    }
}
