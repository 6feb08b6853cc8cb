//! A daemon without threads and devices: the worker that ships, the sessions of its control thread,
//! and a network that gives every packet back.

use common::sys::Waker;
use common::time::{Span, Time};
use common::units::Rate;
use common::wire::roce::frame::seal;
use common::xdp::frame::{FramePool, Region};
use common::xdp::queue::QueueIo;
use common::xdp::sim::SimQueue;
use crossbeam_channel::Receiver;
use hostd::app::ledger::Ledger;
use hostd::app::session::Session;
use hostd::config::Application;
use hostd::control::link::{Link, Standing, Wanted};
use hostd::control::port::Port;
use hostd::control::questions::{self, Questions, RouterHandle};
use hostd::doorbell::Doorbells;
use hostd::edge::command::{Command, Notices, SessionId, WorkerHandle, channels};
use hostd::edge::region::Released;
use hostd::net::port::NetPort;
use hostd::net::sleep::Sleeper;
use hostd::verbs::{EngineConfig, Partitions, PortId, Route, Speeds};
use hostd::wakes::Wakers;
use hostd::worker::Worker;
use hostd_client::abi::answer::Reply;
use hostd_client::abi::message::Request;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::oneshot;

/// Frames of the daemon.
const FRAMES: u32 = 512;

/// Turns in which the worker does what it is asked for.
pub(super) const PATIENCE: u32 = 2000;

pub(super) const OWN: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
pub(super) const PEER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// The parts of a daemon, without threads.
pub(super) struct Daemon {
    pub(super) runtime: Runtime,
    pub(super) worker: Worker<SimQueue>,
    pub(super) commands: WorkerHandle,
    pub(super) notices: Notices,
    pub(super) routes: RouterHandle,
    pub(super) questions: Questions,
    pub(super) doorbells: Doorbells,
    sleeper: Sleeper,
    wakers: Wakers,
    pub(super) ledger: Ledger,
    pub(super) to_unmap: Receiver<Released>,
    pub(super) queue: SimQueue,
    pub(super) wire: FramePool,
    pub(super) region: std::sync::Arc<Region>,
    pub(super) sessions: u32,
    pub(super) now: Time,
}

impl Daemon {
    pub(super) fn new() -> Self {
        let region = Region::heap(FRAMES, 4096, 0);
        let queue = SimQueue::new(64);
        let waker = Waker::new().expect("an eventfd");
        let (commands, notices, control) = channels(waker.clone());
        let sleeper = Sleeper::new(waker).expect("an epoll");
        let (released, to_unmap) = crossbeam_channel::bounded(64);
        let config = EngineConfig {
            seed: [9; 32],
            reorder_frames: FRAMES / 2,
            ..EngineConfig::default()
        };
        let worker = Worker::new(
            config,
            vec![NetPort::new(vec![queue.clone()])],
            FramePool::new(region.clone()),
            control,
            released,
        );
        let speed = Rate::from_gbps(10);
        let (pacing, link) = (speed, speed);
        let speeds = Speeds { pacing, link };
        let standing = Standing { speeds, mtu: 3000 };
        let link = Arc::new(Link::new(Wanted::default(), standing));
        let port = Port::new(
            "eth0",
            [2, 0, 0, 0, 0, 1],
            2048,
            vec![link],
            Partitions::default(),
        );
        port.follow([(OWN.into(), 24)].into_iter());
        let (routes, questions) = questions::questions(Arc::new(port));
        let runtime = Builder::new_current_thread().enable_time().build();
        Self {
            runtime: runtime.expect("a runtime"),
            worker,
            commands,
            notices,
            routes,
            questions,
            doorbells: sleeper.doorbells().expect("a descriptor"),
            sleeper,
            wakers: Wakers::default(),
            ledger: Ledger::new(&Application::default()),
            to_unmap,
            queue,
            wire: FramePool::new(region.clone()),
            region,
            sessions: 0,
            now: Time::from_nanos(1_000_000_000),
        }
    }

    pub(super) fn session(&mut self, user: u32) -> Session {
        self.sessions += 1;
        let id = SessionId(self.sessions);
        let session = Session::new(
            id,
            Application::default().quota,
            self.ledger.account(id, user),
            self.commands.clone(),
            self.routes.for_user(user),
            self.doorbells.clone(),
            self.wakers.for_user(user),
        );
        session.expect("room")
    }

    /// Carries a request out as the control thread does, while the worker takes turns.
    pub(super) fn ask(
        &mut self,
        session: &mut Session,
        request: Request,
        fds: &[OwnedFd],
    ) -> Option<(Reply, Vec<OwnedFd>)> {
        let (worker, questions, now) = (&mut self.worker, &mut self.questions, self.now);
        let commands = &self.commands;
        let route = Route {
            source: OWN.into(),
            source_mac: [2, 0, 0, 0, 0, 1],
            destination_mac: [2, 0, 0, 0, 0, 2],
            mtu: 3000,
            rate: Rate::from_gbps(10),
        };
        self.runtime.block_on(async {
            let mut carried_out = std::pin::pin!(session.handle(request, fds));
            loop {
                tokio::select! {
                    biased;
                    outcome = &mut carried_out => return outcome.ok(),
                    Some(question) = questions.next() => {
                        let peer = question.destination;
                        let reached = if peer == IpAddr::from(PEER) {
                            commands.tell(Command::SetRoutes(peer.into(), vec![(PortId::FIRST, route)]));
                            Ok(())
                        } else {
                            Err("no route".to_owned())
                        };
                        question.answer(reached);
                    }
                    () = tokio::task::yield_now() => drop(worker.turn(now)),
                }
            }
        })
    }

    /// A turn of the worker, and of the network, which loses every packet if `deaf`.
    pub(super) fn turn(&mut self, deaf: bool) -> usize {
        let turn = self.worker.turn(self.now);
        // Sessions that were quiet for long are looked at once their doorbells ring.
        self.sleeper.look().expect("an epoll");
        self.worker.rang(self.sleeper.rang());
        self.to_unmap.try_iter().for_each(drop);
        let mut passed = 0;
        while let Some(frame) = self.queue.pick_up() {
            let mut bytes = frame.bytes().to_vec();
            self.wire.give(frame);
            passed += 1;
            // From its destination to its source.
            let source: [u8; 4] = bytes[26..30].try_into().expect("four bytes");
            bytes.copy_within(30..34, 26);
            bytes[30..34].copy_from_slice(&source);
            seal(&mut bytes).expect("a frame");
            if !deaf && let Some(frame) = self.wire.take_filled(&bytes) {
                self.queue.deliver(frame);
            }
        }
        if turn.deadline > self.now && passed == 0 {
            self.now = turn.deadline.min(self.now + Span::from_millis(1));
        }
        turn.work + passed
    }

    pub(super) fn drain_notices(&mut self) {
        let notices = &mut self.notices;
        self.runtime.block_on(async {
            loop {
                tokio::select! {
                    biased;
                    notice = notices.next() => assert!(notice.is_some(), "the worker is gone"),
                    () = tokio::task::yield_now() => return,
                }
            }
        });
    }

    /// Ends a session; all that it held is released.
    pub(super) fn end(&mut self, session: Session) {
        let (buried, mut end) = oneshot::channel();
        assert!(self.commands.tell(Command::Close(session.id(), buried)));
        for _ in 0..PATIENCE {
            self.turn(false);
            if end.try_recv().is_ok() {
                return drop(session);
            }
        }
        panic!("a session is not buried");
    }

    /// Nothing is left, and every frame is back.
    pub(super) fn close(self) {
        let Self {
            worker,
            region,
            mut wire,
            mut queue,
            ..
        } = self;
        drop(worker);
        // What the network has not delivered yet is the network's.
        let mut under_way: Vec<_> = std::iter::from_fn(|| queue.pick_up()).collect();
        queue.receive(&mut wire, &mut under_way, usize::MAX);
        under_way.drain(..).for_each(|frame| wire.give(frame));
        drop(wire);
        let free = FramePool::new(region).free_frames();
        assert_eq!(free, FRAMES as usize, "frames are lost");
    }
}
