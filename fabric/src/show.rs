//! Tables of a laboratory.

use comfy_table::presets::UTF8_BORDERS_ONLY;
use comfy_table::{Cell, Table};
use common::units::Rate;
use lab::control::DaemonStatus;
use lab::{Lab, run_dir};
use serde_json::json;

/// A table in the style of all that the command prints.
pub(crate) fn table(header: &[&str]) -> Table {
    let mut table = Table::new();
    table
        .load_style(UTF8_BORDERS_ONLY)
        .set_header(header.iter().map(Cell::new));
    table
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

/// Nodes with their daemons and addresses, then links.
pub(crate) fn status(lab: &Lab) {
    let options = lab.options();
    println!(
        "laboratory '{}': {} leaves, {} spines, {} hosts; links of {}, MTU {}, {} queue(s); files in {}",
        options.name,
        options.leaves,
        options.spines,
        options.hosts,
        Rate::from_bps(options.speed),
        options.mtu,
        options.queues,
        run_dir(&options.name).display(),
    );
    let daemons = match lab.daemons() {
        Ok(daemons) => daemons,
        Err(error) => {
            println!("no daemon runs: {error}");
            Vec::new()
        }
    };
    let mut nodes = table(&["node", "daemon", "pid", "state", "restarts", "IPv4", "IPv6"]);
    for node in &lab.plan().nodes {
        let daemon = daemons.iter().find(|daemon| daemon.node == node.name);
        let host = lab.host(&node.name);
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
        row.extend([
            host.address(false).to_string(),
            host.address(true).to_string(),
        ]);
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
    let value = json!({
        "options": lab.options(),
        "nodes": lab.plan().nodes,
        "links": lab.plan().links,
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
