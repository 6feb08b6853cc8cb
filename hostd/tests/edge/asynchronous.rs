//! Waits as futures: tasks of one thread on both sides of connections.

use crate::rig::{Daemon, PATIENCE, config, pair};
use hostd_client::{
    Access, Completion, CompletionOpcode, CompletionQueue, CompletionStatus, Context, Error,
    ErrorCode, Listener, PathChange, Private, QueuePair, QueuePairAttributes, QueuePairOptions,
    QueuePairState, ReceiveRequest, Region, SendRequest,
};
use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::{LocalSet, spawn_local};
use tokio::time::timeout;

const ANY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

struct End {
    queue_pair: QueuePair,
    queue: CompletionQueue,
    memory: Region,
}

impl End {
    /// With a receive posted.
    fn new(context: &Context) -> Self {
        let queue = context.create_completion_queue(8).expect("a queue");
        let options = QueuePairOptions {
            send_entries: 4,
            receive_entries: 4,
        };
        let queue_pair = context.create_queue_pair(&queue, &queue, options);
        let memory = context.allocate(16, Access::LOCAL_WRITE);
        let mut end = Self {
            queue_pair: queue_pair.expect("a queue pair"),
            queue,
            memory: memory.expect("memory"),
        };
        let local = end.memory.slice(8, 8).expect("inside");
        let request = ReceiveRequest { wr_id: 1, local };
        end.queue_pair.post_receive(&request).expect("posted");
        end
    }

    fn send(&mut self, number: u64) {
        self.memory.write(0, &number.to_le_bytes()).expect("inside");
        let local = self.memory.slice(0, 8).expect("inside");
        let request = SendRequest::send(0, local);
        self.queue_pair.post_send(&request).expect("posted");
    }

    /// The next completion of this kind.
    async fn next(&mut self, wanted: CompletionOpcode) -> Completion {
        loop {
            let completion = within(self.queue.next_async()).await.expect("a completion");
            assert_eq!(completion.status, CompletionStatus::Success);
            if completion.opcode == wanted {
                return completion;
            }
        }
    }

    fn received(&self) -> u64 {
        let mut bytes = [0; 8];
        self.memory.read(8, &mut bytes).expect("inside");
        u64::from_le_bytes(bytes)
    }
}

async fn within<T>(future: impl Future<Output = T>) -> T {
    timeout(PATIENCE, future).await.expect("in time")
}

/// Runs on one thread, so whatever blocks it blocks all.
fn run(future: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    LocalSet::new().block_on(&runtime, future);
}

/// Accepts so many connections, each answered by a task: the number that comes, and one.
async fn serve(context: Arc<Context>, listener: Listener, count: usize) {
    let mut tasks = Vec::new();
    for _ in 0..count {
        let request = within(listener.get_request_async()).await.expect("one");
        let mut end = End::new(&context);
        tasks.push(spawn_local(async move {
            let accepted = request.accept_async(&mut end.queue_pair, Private::EMPTY);
            within(accepted).await.expect("accepted");
            end.next(CompletionOpcode::Receive).await;
            end.send(end.received() + 1);
            let left = within(end.queue_pair.wait_disconnected_async()).await;
            left.expect("the daemon lives")
        }));
    }
    for task in tasks {
        assert_eq!(task.await.expect("no panic"), ErrorCode::Closed);
    }
}

fn listen(context: &Context, b: &Daemon) -> (Listener, SocketAddr) {
    let listener = context.listen(ANY, 0, 64).expect("a listener");
    let peer = SocketAddr::from((b.address, listener.port()));
    (listener, peer)
}

/// Connects an end with another one, which `listener` at `peer` accepts it for.
async fn meet(one: &mut End, other: &mut End, listener: &Listener, peer: SocketAddr) {
    let both = async {
        tokio::join!(one.queue_pair.connect_async(peer, Private::EMPTY), async {
            let request = listener.get_request_async().await?;
            let accepted = request.accept_async(&mut other.queue_pair, Private::EMPTY);
            accepted.await
        })
    };
    let (connected, accepted) = within(both).await;
    connected.expect("connected");
    accepted.expect("accepted");
}

/// HT-1: both sides of many connections on one thread, with a session each, beside a thread that
/// waits for the same session.
#[test]
fn many_connections_live_on_one_thread() {
    const COUNT: usize = 24;
    let (a, b) = pair(&config());
    let (active, passive) = (Arc::new(a.application()), Arc::new(b.application()));
    let (listener, peer) = listen(&passive, &b);
    // While it waits it reads the socket for the tasks, too.
    let lonely = active.listen(ANY, 0, 1).expect("a listener");
    let to_lonely = SocketAddr::from((a.address, lonely.port()));
    let beside = std::thread::spawn(move || lonely.get_request(PATIENCE).map(drop));
    run(async {
        let server = spawn_local(serve(passive.clone(), listener, COUNT));
        let mut tasks = Vec::new();
        for number in 0..COUNT as u64 {
            let context = active.clone();
            tasks.push(spawn_local(async move {
                let mut end = End::new(&context);
                let connected = end.queue_pair.connect_async(peer, Private::EMPTY);
                within(connected).await.expect("connected");
                end.send(10 * number);
                end.next(CompletionOpcode::Receive).await;
                assert_eq!(end.received(), 10 * number + 1);
                within(end.queue_pair.disconnect_async()).await
            }));
        }
        for task in tasks {
            task.await.expect("no panic").expect("disconnected");
        }
        server.await.expect("no panic");
        let mut end = End::new(&passive);
        let refused = within(end.queue_pair.connect_async(to_lonely, Private::EMPTY)).await;
        assert!(
            matches!(refused, Err(Error::ConnectFailed { .. })),
            "{refused:?}"
        );
    });
    beside.join().expect("no panic").expect("a request came");
    drop((active, passive));
    a.wait_empty();
    b.wait_empty();
}

/// HT-1: a future that is given up takes nothing away from the next one.
#[test]
fn futures_that_are_dropped_take_nothing() {
    let (a, b) = pair(&config());
    let (active, passive) = (a.application(), b.application());
    let (listener, peer) = listen(&passive, &b);
    run(async {
        let soon = Duration::from_millis(10);
        assert!(timeout(soon, listener.get_request_async()).await.is_err());
        let (mut one, mut other) = (End::new(&active), End::new(&passive));
        assert!(timeout(soon, one.queue.next_async()).await.is_err());
        meet(&mut one, &mut other, &listener, peer).await;
        other.send(7);
        one.next(CompletionOpcode::Receive).await;
        assert_eq!(one.received(), 7);
        let refused = one.queue_pair.connect_async(peer, Private::EMPTY).await;
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    });
}

/// HT-1: what is waited for beside completions and connections: a daemon, changes of sub-paths,
/// solicited completions, a drained send queue, and the limit of a shared receive queue.
#[test]
fn everything_that_blocks_can_be_awaited() {
    let (a, b) = pair(&config());
    run(async {
        let active = within(Context::connect_within_async(&a.socket, PATIENCE)).await;
        let (active, passive) = (active.expect("it is there"), b.application());
        let (listener, peer) = listen(&passive, &b);
        let (mut one, mut other) = (End::new(&active), End::new(&passive));
        meet(&mut one, &mut other, &listener, peer).await;

        let change = PathChange {
            reorder_packets: Some(77),
            ..PathChange::default()
        };
        let changed = within(one.queue_pair.change_paths_async(&change)).await;
        changed.expect("both make it");
        let nothing = PathChange::default();
        let refused = within(one.queue_pair.change_paths_async(&nothing)).await;
        assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");

        let soon = Duration::from_millis(10);
        let early = timeout(soon, other.queue.wait_solicited_async()).await;
        assert!(early.is_err(), "nothing came");
        let local = one.memory.slice(0, 8).expect("inside");
        let request = SendRequest {
            solicited: true,
            ..SendRequest::send(0, local)
        };
        one.queue_pair.post_send(&request).expect("posted");
        let woken = within(other.queue.wait_solicited_async()).await;
        woken.expect("the daemon lives");
        other.next(CompletionOpcode::Receive).await;

        let drain = QueuePairAttributes {
            notify_drained: Some(true),
            ..QueuePairAttributes::default()
        };
        let drained = QueuePairState::SendQueueDrained;
        one.queue_pair.modify(drained, &drain).expect("legal");
        let told = within(one.queue_pair.wait_drained_async()).await;
        told.expect("the daemon lives");

        let shared = passive.create_shared_queue(16, 0).expect("a shared queue");
        assert!(timeout(soon, shared.wait_limit_async()).await.is_err());
        shared.set_limit(8).expect("possible");
        within(shared.wait_limit_async()).await.expect("told");
    });
}

/// HT-2: the death of the daemon ends every wait.
#[test]
fn every_wait_ends_with_the_daemon() {
    let (a, _b) = pair(&config());
    let context = a.application();
    let (listener, _) = listen(&context, &a);
    let mut end = End::new(&context);
    let shared = context.create_shared_queue(4, 0).expect("a shared queue");
    let mut idle = context.create_completion_queue(4).expect("a queue");
    let mut daemon = Some(a);
    run(async {
        let waits = async {
            tokio::join!(
                end.queue.next_async(),
                listener.get_request_async(),
                end.queue_pair.wait_disconnected_async(),
                end.queue_pair.wait_drained_async(),
                end.queue_pair.wait_last_receive_async(),
                shared.wait_limit_async(),
                idle.wait_solicited_async(),
                async {
                    // The others wait by now: they were polled before.
                    tokio::task::yield_now().await;
                    drop(daemon.take());
                }
            )
        };
        let (completion, request, left, drained, last, limit, solicited, ()) = within(waits).await;
        for ended in [drained, last, limit, solicited] {
            assert!(matches!(ended, Err(Error::DaemonGone)), "{ended:?}");
        }
        assert!(matches!(request, Err(Error::DaemonGone)), "{request:?}");
        assert!(matches!(left, Err(Error::DaemonGone)), "{left:?}");
        // The receive that was posted, and then no more.
        let completion = completion.expect("it is flushed");
        let flushed = (1, CompletionStatus::Flushed);
        assert_eq!((completion.wr_id, completion.status), flushed);
        let completion = within(end.queue.next_async()).await;
        assert!(
            matches!(completion, Err(Error::DaemonGone)),
            "{completion:?}"
        );
    });
}
