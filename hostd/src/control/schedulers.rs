//! Who spreads packets over paths: this host, or the switches behind its interfaces (MG-9).

use super::interfaces::{Interface, Interfaces};
use super::link::LinkState;
use super::port::Announce;
use crate::app::socket::Applications;
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
        let up = |it: &&Interface| it.link.state() == LinkState::Up;
        let ports = || interfaces.iter().filter(up).map(local).collect();
        if let Err(error) = run(shared, ports).await {
            tracing::error!("nothing is announced: {error}");
        }
    }
}

/// What peers and this host tell each other, if they are to.
pub type Peers = Option<SharedSchedulers>;

/// What events of the port lead to: applications are told, and so is at once the peer of a link
/// that has come up.
pub fn on_events(applications: Applications, peers: Peers) -> Announce {
    Announce::new(move |event| {
        peers.iter().for_each(SharedSchedulers::hurry);
        applications.announce(event);
    })
}
