//! Who spreads packets over paths: this host, or the switches behind its interfaces (MG-9).

use super::interfaces::{Interface, Interfaces};
use crate::config::Config;
use common::schedulers::{LocalPort, SharedSchedulers, run};
use common::wire::Mac;

/// Columns of the table: key in the JSON, and heading.
pub(super) const COLUMNS: &[(&str, &str)] = &[
    ("port", "interface"),
    ("own", "spreads"),
    ("peer", "peer"),
    ("role", "is a"),
    ("theirs", "spreads"),
    ("by_packet", "packets by"),
    ("response_nanoseconds", "obeys pauses after ns"),
    ("backlog_bytes", "with a backlog of bytes"),
];

/// Tells peers how packets are spread here and what follows a pause, and hears the same of them.
pub fn announce(
    shared: SharedSchedulers,
    interfaces: &Interfaces,
    config: &Config,
) -> impl Future<Output = ()> + use<> {
    let (interfaces, pauses) = (interfaces.clone(), config.pause_terms());
    async move {
        let local = |interface: &Interface| LocalPort {
            name: interface.name.clone(),
            ifindex: interface.ifindex,
            mac: Mac(interface.mac),
            pauses,
        };
        let ports = || interfaces.iter().map(local).collect();
        if let Err(error) = run(shared, ports).await {
            tracing::error!("nothing is announced: {error}");
        }
    }
}
