//! Applications with a completion queue, a queue pair and memory, and connections between them.

use crate::rig::{Daemon, PATIENCE};
use hostd_client::{
    Access, CompletionQueue, Context, Listener, Private, QueuePair, QueuePairOptions, Region,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

/// One application.
pub(crate) struct End {
    pub(crate) context: Context,
    pub(crate) queue: CompletionQueue,
    pub(crate) queue_pair: QueuePair,
    pub(crate) memory: Region,
}

impl End {
    /// An application whose completion queue has so many entries, with memory that peers of the
    /// queue pair may use so.
    pub(crate) fn new(daemon: &Daemon, entries: u32, (len, access): (usize, Access)) -> Self {
        let context = daemon.application();
        let queue = context.create_completion_queue(entries).expect("a queue");
        let queue_pair = context
            .create_queue_pair(&queue, &queue, QueuePairOptions::default())
            .expect("a queue pair");
        let memory = context.allocate(len, access).expect("memory");
        Self {
            context,
            queue,
            queue_pair,
            memory,
        }
    }

    /// A listener at a port that is free.
    pub(crate) fn listener(&self) -> Listener {
        let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
        self.context.listen(any, 0, 8).expect("a listener")
    }

    /// Connects to a listener of `peer`'s, at `address`. Returns the address that `peer` saw.
    pub(crate) fn connect(&mut self, peer: &mut Self, address: IpAddr) -> IpAddr {
        let listener = peer.listener();
        let target = SocketAddr::new(address, listener.port());
        let queue_pair = &mut peer.queue_pair;
        std::thread::scope(|scope| {
            let accepting = scope.spawn(move || {
                let request = listener.get_request(PATIENCE).expect("a request");
                let seen = request.peer();
                request
                    .accept(queue_pair, Private::EMPTY, PATIENCE)
                    .expect("accepted");
                seen
            });
            self.queue_pair
                .connect(target, Private::EMPTY, PATIENCE)
                .expect("connected");
            accepting.join().expect("accepted")
        })
    }
}
