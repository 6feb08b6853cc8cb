//! Ways from own addresses that go elsewhere than those from others, by rules of the kernel that
//! look at the source (`ip rule from`).

use super::Router;
use crate::control::peers::{NoWay, Peer};
use crate::edge::command::Command;
use crate::verbs::Direction;
use common::netlink::Rule;
use std::net::IpAddr;

impl Router {
    /// What packets to `destination` are that leave from `source`: a direction of their own if the
    /// kernel has another way for them than for all others. Without a source it is the one that the
    /// kernel prefers, as for sockets.
    pub(super) async fn direction(
        &mut self,
        destination: IpAddr,
        source: Option<IpAddr>,
    ) -> Result<Direction, String> {
        let usual = Direction::from(destination);
        if self.ruled(destination.is_ipv6()).is_empty() {
            return Ok(usual);
        }
        let others = self.find(destination, None).await;
        let own = match (source, &others) {
            (Some(own), _) => own,
            (None, Ok((_, preferred))) => *preferred,
            (None, Err(no_way)) => return Err(no_way.clone().into_reason()),
        };
        if !self.is_ruled(own) {
            return Ok(usual);
        }
        let theirs = self.find(destination, Some(own)).await;
        let (theirs, _) = theirs.map_err(NoWay::into_reason)?;
        if others.is_ok_and(|(others, _)| others == theirs) {
            return Ok(usual);
        }
        if source.is_none() {
            // It tells the engine which own address the kernel prefers.
            self.make_room(usual, None).await?;
            self.peers.entry(usual).or_default();
            self.look_up(usual).await;
        }
        Ok(Direction {
            source: Some(own),
            ..usual
        })
    }

    /// Looks up the ways from own addresses that rules of the kernel are about, so that who answers
    /// a peer at one of them takes it, too. Those that are like the others are forgotten.
    pub(super) async fn look_up_sources(&mut self, destination: IpAddr) {
        for source in self.ruled(destination.is_ipv6()) {
            let own = Direction {
                destination,
                source: Some(source),
            };
            if self.direction(destination, Some(source)).await != Ok(own) {
                self.forget(own);
            } else if let Err(reason) = self.make_room(own, None).await {
                tracing::warn!(%destination, %source, %reason, "no way of its own");
            } else {
                self.peers.entry(own).or_default();
                self.look_up(own).await;
            }
        }
        let gone = |it: &&Direction| {
            let source = it.source.filter(|_| it.destination == destination);
            source.is_some_and(|own| !self.is_ruled(own))
        };
        let gone: Vec<_> = self.peers.keys().filter(gone).copied().collect();
        gone.into_iter().for_each(|own| self.forget(own));
    }

    /// Packets of this direction, which has an own address, go as all others again.
    fn forget(&mut self, own: Direction) {
        let Some(mut known) = self.peers.remove(&own) else {
            return;
        };
        known.waiting.drain(..).for_each(|waiting| {
            let _ = waiting.send(Err("the kernel's rules have changed".to_owned()));
        });
        if !self.worker.tell(Command::SetRoutes(own, Vec::new())) {
            // Its channel is full.
            self.peers.insert(own, Peer::default());
            self.look_soon();
        }
    }

    /// Own addresses that a rule of the kernel looks at.
    fn ruled(&self, v6: bool) -> Vec<IpAddr> {
        let mirror = self.watch.mirror();
        if mirror.rules().iter().all(|rule| rule.source.is_none()) {
            return Vec::new();
        }
        let own = mirror.addresses().filter(|it| self.is_served(it));
        let own = own.map(|it| it.address).filter(|it| it.is_ipv6() == v6);
        own.filter(|it| self.is_ruled(*it)).collect()
    }

    /// Whether a rule of the kernel looks at this own address, and it is there.
    fn is_ruled(&self, own: IpAddr) -> bool {
        let mirror = self.watch.mirror();
        let mut own_addresses = mirror.addresses().filter(|it| self.is_served(it));
        let mut rules = mirror.rules().into_iter();
        let about = |rule: &Rule| {
            let inverted = rule.is_inverted;
            rule.source.is_some_and(|it| it.contains(&own) != inverted)
        };
        own_addresses.any(|it| it.address == own) && rules.any(about)
    }
}
