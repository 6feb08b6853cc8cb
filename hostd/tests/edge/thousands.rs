//! As many queue pairs as the goal says, of one user, through the socket and the rings.

use crate::rig::{Daemon, PATIENCE, config, pair};
use crate::siege::alone;
use hostd::config::Config;
use hostd_client::{
    Access, ByHand, CompletionOpcode, CompletionQueue, Context, Error, ErrorCode, QueuePair,
    QueuePairOptions, ReceiveRequest, Region, SendRequest,
};

/// Queue pairs of the daemon.
const ALL: usize = 10_000;

/// Sessions that have them; one has room for 1024.
const SESSIONS: usize = 10;

const OF_SESSION: usize = ALL / SESSIONS;

/// Lets one user have them.
fn raised() -> Config {
    let mut config = config();
    config.application.quota.queue_pairs = 1024;
    config.application.user_quota.queue_pairs = 10_000;
    config
}

struct Application {
    context: Context,
    queue: CompletionQueue,
    pairs: Vec<QueuePair>,
    memory: Region,
}

const OPTIONS: QueuePairOptions = QueuePairOptions {
    send_entries: 2,
    receive_entries: 2,
};

impl Application {
    fn new(daemon: &Daemon) -> Self {
        let context = daemon.application();
        let queue = context.create_completion_queue(2 * 1024).expect("a queue");
        let pair = |_| context.create_queue_pair(&queue, &queue, OPTIONS);
        let pairs = (0..OF_SESSION).map(pair);
        let pairs = pairs.collect::<Result<_, _>>().expect("queue pairs");
        let memory = context.allocate(16 * OF_SESSION, Access::LOCAL_WRITE);
        Self {
            pairs,
            memory: memory.expect("memory"),
            context,
            queue,
        }
    }

    /// Takes the completions of what was posted; all are well.
    fn settle(&mut self, count: usize, opcode: CompletionOpcode) {
        for _ in 0..count {
            let done = self.queue.next(PATIENCE).expect("a completion");
            assert!(done.is_success() && done.opcode == opcode, "{done:?}");
        }
    }
}

/// Takes each queue pair of two applications to RTS, with its counterpart in the other, and has all
/// of the first one send to them.
fn exchange(daemon: &Daemon, [from, to]: [&mut Application; 2], number: u64) {
    for index in 0..OF_SESSION {
        let (one, other) = (&mut from.pairs[index], &mut to.pairs[index]);
        let reach = |peer_number| ByHand {
            peer_number,
            ..ByHand::new(daemon.address, daemon.address)
        };
        one.connect_by_hand(&reach(other.number())).expect("ready");
        other.connect_by_hand(&reach(one.number())).expect("ready");
        let local = to.memory.slice(16 * index, 8).expect("inside");
        let wr_id = index as u64;
        let receive = ReceiveRequest { wr_id, local };
        other.post_receive(&receive).expect("posted");
    }
    for (index, one) in from.pairs.iter_mut().enumerate() {
        let value = number << 32 | index as u64;
        let place = 16 * index + 8;
        from.memory
            .write(place, &value.to_le_bytes())
            .expect("inside");
        let local = from.memory.slice(place, 8).expect("inside");
        one.post_send(&SendRequest::send(1, local)).expect("posted");
    }
    to.settle(OF_SESSION, CompletionOpcode::Receive);
    from.settle(OF_SESSION, CompletionOpcode::Send);
    for index in 0..OF_SESSION {
        let mut got = [0; 8];
        to.memory.read(16 * index, &mut got).expect("inside");
        assert_eq!(u64::from_le_bytes(got), number << 32 | index as u64);
    }
}

/// HT-1, HT-3: ten thousand queue pairs in one daemon, made through its socket by sessions of one
/// user whose quota is raised to that. Each carries a message to another one, in both directions of
/// the rings; one more is refused by the name of the quota; and all are given back.
#[test]
fn ten_thousand_queue_pairs() {
    if !alone("thousands::ten_thousand_queue_pairs") {
        return;
    }
    let (a, _b) = pair(&raised());
    let mut all: Vec<_> = (0..SESSIONS).map(|_| Application::new(&a)).collect();
    assert_eq!(a.report().queue_pairs.len(), ALL);
    let last = &all[0];
    let more = last
        .context
        .create_queue_pair(&last.queue, &last.queue, OPTIONS);
    match more {
        Err(Error::Refused {
            code: ErrorCode::Quota,
            text,
        }) => {
            assert!(
                text.contains("application.user_quota.queue_pairs"),
                "{text}"
            );
        }
        other => panic!("{:?}", other.map(|pair| pair.number())),
    }
    for (number, both) in all.chunks_exact_mut(2).enumerate() {
        let [from, to] = both else {
            unreachable!("two at a time")
        };
        exchange(&a, [from, to], number as u64);
    }
    let ready = a.report().queue_pairs.into_iter();
    let ready = ready.filter(|(_, pair, _)| pair.state == hostd::verbs::State::ReadyToSend);
    assert_eq!(ready.count(), ALL);
    // A thousand at once, by a session that goes on: none is forgotten.
    let mut first = all.swap_remove(0);
    first.pairs.clear();
    a.wait_for("they are given back", |report| {
        report.queue_pairs.len() == ALL - OF_SESSION
    });
    drop((first, all));
    a.wait_empty();
}
