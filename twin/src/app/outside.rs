//! What the daemon is told of the outside: by the kernel, and by operators.

use super::App;
use hostd::edge::command::Command;
use hostd::verbs::{MultipathChange, PortId, Route};
use std::net::IpAddr;
use tokio::sync::oneshot;

impl<const BYTES: bool> App<BYTES> {
    /// Tells the daemon how packets to `destination` are addressed.
    pub fn route(&self, destination: IpAddr, routes: Vec<(PortId, Route)>) {
        self.tell(Command::SetRoutes(destination.into(), routes));
    }

    /// Tells the daemon that the link of a port is up, or is not.
    pub fn set_link(&self, port: PortId, up: bool) {
        self.tell(Command::SetLinkUp(port, up));
    }

    /// Asks for a change of a connection that carries data, as an operator does.
    pub fn change(&self, qpn: u32, change: MultipathChange) {
        let (answer, _) = oneshot::channel();
        self.tell(Command::ChangeMultipath(qpn, change, answer));
    }
}
