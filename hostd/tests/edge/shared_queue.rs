//! Applications with shared receive queues.

use crate::raw::Raw;
use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd_client::abi::answer::{Event, FromDaemon, Reply};
use hostd_client::abi::message::Request;
use hostd_client::abi::ring::RingMemory;
use hostd_client::abi::types::ObjectKind;
use hostd_client::{
    Access, CompletionQueue, CompletionStatus, Context, Error, ErrorCode, Private, QueuePair,
    QueuePairOptions, ReceiveRequest, Region, SendRequest, SharedQueue,
};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

const BUFFER: usize = 4096;
const CLIENTS: usize = 4;

struct Server {
    context: Context,
    queue: CompletionQueue,
    shared: SharedQueue,
    memory: Region,
}

impl Server {
    fn new(daemon: &Daemon) -> Self {
        let context = daemon.application();
        let queue = context.create_completion_queue(256).expect("a queue");
        let shared = context.create_shared_queue(16, 0).expect("a shared queue");
        let memory = context
            .allocate(16 * BUFFER, Access::LOCAL_WRITE)
            .expect("memory");
        Self {
            context,
            queue,
            shared,
            memory,
        }
    }

    fn queue_pair(&self) -> QueuePair {
        let options = QueuePairOptions {
            send_entries: 4,
            receive_entries: 8,
        };
        self.context
            .create_sharing_queue_pair(&self.queue, &self.queue, &self.shared, options)
            .expect("a queue pair")
    }

    fn post(&mut self, wr_id: u64) {
        let place = usize::try_from(wr_id).expect("small") * BUFFER;
        let local = self.memory.slice(place, BUFFER).expect("inside");
        self.shared
            .post_receive(&ReceiveRequest { wr_id, local })
            .expect("posted");
    }
}

struct Client {
    queue: CompletionQueue,
    queue_pair: QueuePair,
    memory: Region,
}

impl Client {
    fn new(daemon: &Daemon) -> Self {
        let context = daemon.application();
        let queue = context.create_completion_queue(256).expect("a queue");
        let queue_pair = context
            .create_queue_pair(&queue, &queue, QueuePairOptions::default())
            .expect("a queue pair");
        let memory = context.allocate(BUFFER, Access::LOCAL_WRITE);
        Self {
            queue,
            queue_pair,
            memory: memory.expect("memory"),
        }
    }

    /// Sends `len` bytes, and does not wait for them.
    fn send(&mut self, wr_id: u64, len: usize) {
        let local = self.memory.slice(0, len).expect("inside");
        self.queue_pair
            .post_send(&SendRequest::send(wr_id, local))
            .expect("posted");
    }
}

fn connect(client: &mut Client, server: &Server, address: IpAddr) -> QueuePair {
    let any = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    let listener = server.context.listen(any, 0, 1).expect("a listener");
    let peer = SocketAddr::new(address, listener.port());
    let mut queue_pair = server.queue_pair();
    std::thread::scope(|scope| {
        let accepted = scope.spawn(move || {
            let request = listener.get_request(PATIENCE).expect("a request");
            request
                .accept(&mut queue_pair, Private::EMPTY, PATIENCE)
                .expect("accepted");
            queue_pair
        });
        client
            .queue_pair
            .connect(peer, Private::EMPTY, PATIENCE)
            .expect("connected");
        accepted.join().expect("accepted")
    })
}

/// HT-1, HT-2: sixteen buffers serve four connections that send more; each message comes once and
/// whole; the limit is told once; one connection that ends takes no buffer along.
#[test]
fn a_few_buffers_serve_many_connections() {
    let (a, b) = pair(&config());
    {
        let mut server = Server::new(&b);
        let mut clients: Vec<_> = (0..CLIENTS).map(|_| Client::new(&a)).collect();
        let mut ends: Vec<_> = clients
            .iter_mut()
            .map(|client| connect(client, &server, b.address))
            .collect();
        let local = server.memory.slice(0, 1).expect("inside");
        let refused = ends[0].post_receive(&ReceiveRequest { wr_id: 0, local });
        assert!(matches!(refused, Err(Error::SharedReceives)), "{refused:?}");
        for wr_id in 0..16 {
            server.post(wr_id);
        }
        b.wait_for("they are posted", |report| report.edge.receives == 16);
        server.shared.set_limit(8).expect("possible");
        let early = server.shared.wait_limit(Duration::from_millis(20));
        assert!(!early.expect("the daemon lives"), "sixteen are posted");
        for (index, client) in clients.iter_mut().enumerate() {
            client
                .memory
                .write(0, &[u8::try_from(index).expect("few"); BUFFER])
                .expect("inside");
            for number in 0..40 {
                client.send(number, usize::try_from(number).expect("small") * 100);
            }
        }
        let mut next = [0; CLIENTS];
        for turn in 0..40 * CLIENTS {
            let completion = server.queue.next(PATIENCE).expect("a message");
            assert_eq!(completion.status, CompletionStatus::Success);
            let from = ends
                .iter()
                .position(|end| end.id() == completion.queue_pair)
                .expect("one of them");
            let place = usize::try_from(completion.wr_id).expect("small") * BUFFER;
            let mut got = vec![0; completion.byte_len as usize];
            server.memory.read(place, &mut got).expect("inside");
            assert_eq!(got.len(), 100 * next[from], "in order");
            assert!(got.iter().all(|byte| usize::from(*byte) == from));
            next[from] += 1;
            if turn == 12 {
                assert!(server.shared.wait_limit(PATIENCE).expect("told"));
            }
            server.post(completion.wr_id);
        }
        let again = server.shared.wait_limit(Duration::from_millis(20));
        assert!(!again.expect("the daemon lives"), "it was not set again");
        for client in &mut clients {
            for _ in 0..40 {
                let done = client.queue.next(PATIENCE).expect("a completion");
                assert!(done.is_success(), "{done:?}");
            }
        }
        clients[0].queue_pair.disconnect(PATIENCE).expect("closed");
        let last = ends[0].wait_last_receive(PATIENCE);
        assert!(last.expect("the daemon lives"), "its last receive");
        assert_eq!(server.queue.poll().expect("sound"), None, "none is flushed");
        clients[1].send(1, 77);
        let completion = server.queue.next(PATIENCE).expect("a message");
        assert_eq!(completion.byte_len, 77);
    }
    a.wait_empty();
    b.wait_empty();
}

/// HT-2, HT-3: a shared queue counts as a queue pair and for its receives against the quotas of who
/// made it, and what it held is given back.
#[test]
fn shared_queues_count() {
    let mut small = config();
    small.application.quota.queue_pairs = 2;
    let (a, _b) = pair(&small);
    let context = a.application();
    let first = context.create_shared_queue(4, 0).expect("the first");
    let _second = context.create_shared_queue(4, 4).expect("the second");
    let refused = context.create_shared_queue(4, 0).expect_err("the third");
    assert!(refused.to_string().contains("queue_pairs"), "{refused}");
    drop(first);
    drop(context.create_shared_queue(4, 0).expect("given back"));
    for (entries, limit) in [(0, 0), (1 << 20, 0), (4, 5)] {
        let refused = context.create_shared_queue(entries, limit);
        let refused = refused.expect_err("not possible");
        let code = |error: &Error| match error {
            Error::Refused { code, .. } => Some(*code),
            _ => None,
        };
        assert_eq!(code(&refused), Some(ErrorCode::InvalidArgument));
        let text = refused.to_string();
        let says = |range: &str| text.contains(range);
        assert!(
            says("1 to 16384 receives") || says("between 1 and 16384"),
            "{text}"
        );
    }
}

/// HT-3: shared queues of others are not there; one whose ring is broken takes its queue pairs with
/// it, and nothing else; one that is used cannot be given back.
#[test]
fn broken_and_foreign_queues() {
    let (a, _b) = pair(&config());
    let owner = Raw::greeted(&a);
    let create = |raw: &Raw| {
        let request = Request::CreateSharedQueue {
            entries: 8,
            limit: 0,
        };
        let (memfd, ring) = RingMemory::<64>::create(c"ring", 8).expect("memory");
        let (reply, _) = raw.ask(&request, &[memfd.as_fd()]);
        let Reply::SharedQueue { handle, slot, .. } = reply else {
            panic!("{reply:?}");
        };
        (handle, slot, ring.producer())
    };
    let (handle, slot, mut ring) = create(&owner);
    let thief = Raw::greeted(&a);
    let queue_pair = |raw: &Raw, shared| {
        let reply = raw.create(&Request::CreateCompletionQueue { entries: 16 });
        let Reply::CompletionQueue { handle: cq, .. } = reply else {
            panic!("{reply:?}");
        };
        Request::CreateQueuePair {
            send_cq: cq,
            receive_cq: cq,
            send_entries: 4,
            receive_entries: 4,
            shared,
        }
    };
    let foreign = queue_pair(&thief, handle);
    match thief.create(&foreign) {
        Reply::Error { code, .. } => assert_eq!(code, ErrorCode::NotFound),
        other => panic!("{other:?}"),
    }
    let kind = ObjectKind::SharedQueue;
    for request in [
        Request::LimitSharedQueue {
            queue: handle,
            limit: 1,
        },
        Request::Destroy { kind, handle },
    ] {
        assert_eq!(thief.refused(&request, &[]), ErrorCode::NotFound);
    }
    let reply = owner.create(&queue_pair(&owner, handle));
    let Reply::QueuePair {
        handle: sharing, ..
    } = reply
    else {
        panic!("{reply:?}");
    };
    let (_, other, _) = create(&owner);
    let busy = Request::Destroy { kind, handle };
    assert_eq!(owner.refused(&busy, &[]), ErrorCode::InUse);
    ring.push(&[0xff; 64]).expect("a sound ring");
    ring.publish();
    owner.ring(slot);
    owner.ring(other);
    let told = owner.next().map(|(message, _)| message);
    let closed = Event::Disconnected {
        qp: sharing,
        reason: ErrorCode::Protocol,
    };
    let last = Event::LastReceiveTaken { qp: sharing };
    let mut told = vec![told];
    told.push(owner.next().map(|(message, _)| message));
    assert!(told.contains(&Some(FromDaemon::Event(closed))), "{told:?}");
    assert!(told.contains(&Some(FromDaemon::Event(last))), "{told:?}");
    assert_eq!(a.report().edge.broken_queues, 2, "the queue and its user");
    crate::raw::is_well(&a);
}

/// HT-1: a receive of several pieces from a shared queue is filled one piece after the other; what
/// takes from such a queue has no receives of its own.
#[test]
fn shared_receives_have_pieces() {
    let (a, b) = pair(&config());
    let mut server = Server::new(&b);
    let mut client = Client::new(&a);
    let mut queue_pair = connect(&mut client, &server, b.address);
    let pieces: Vec<_> = (0..7)
        .map(|n| server.memory.slice(n * 1000, 10 + n).expect("inside"))
        .collect();
    let refused = queue_pair.post_receive_list(0, &pieces);
    assert!(matches!(refused, Err(Error::SharedReceives)), "{refused:?}");
    let many = vec![pieces[0]; QueuePair::SGE_MAX + 1];
    let refused = server.shared.post_receive_list(0, &many);
    assert!(
        matches!(refused, Err(Error::TooManyPieces(_))),
        "{refused:?}"
    );
    server.shared.post_receive_list(5, &pieces).expect("posted");
    let bytes: Vec<u8> = (0..91).collect();
    client.memory.write(0, &bytes).expect("inside");
    client.send(1, 91);
    let received = server.queue.next(PATIENCE).expect("a completion");
    assert!(received.is_success(), "{received:?}");
    assert_eq!((received.wr_id, received.byte_len), (5, 91));
    let mut gathered = Vec::new();
    for n in 0..7 {
        let mut part = vec![0; 10 + n];
        server.memory.read(n * 1000, &mut part).expect("inside");
        gathered.extend(part);
    }
    assert_eq!(gathered, bytes);
}
