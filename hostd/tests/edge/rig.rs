//! Two daemons in this process, joined by a cable in memory: everything is real but the network
//! devices, the kernel's routes and the process boundary.

use common::time::Time;
use common::units::Rate;
use common::xdp::frame::{Frame, FramePool, Region};
use common::xdp::queue::QueueIo;
use crossbeam_channel::{Receiver, Sender};
use hostd::app::socket::{Applications, SocketStatistics, listen_at};
use hostd::config::Config;
use hostd::control::link::{Link, Standing, Wanted};
use hostd::control::port::Port;
use hostd::control::questions::{self, Questions};
use hostd::edge::command::{Command, Notice, Report, SessionId, WorkerHandle, confirm};
use hostd::host::start_worker;
use hostd::net::port::NetPort;
use hostd::verbs::{PortId, Route, Speeds};
use hostd_client::abi::answer::Event;
use hostd_client::{Context, PortEvent};
use nix::sys::eventfd::EventFd;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::sync::oneshot;

/// How long anything in these tests may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes from which on a frame is long: of data, and neither acknowledgements nor set-up.
const LONG: usize = 600;

/// One end of a cable.
struct Plug {
    mac: [u8; 6],
    to: Sender<Vec<u8>>,
    from: Receiver<Vec<u8>>,
    /// Announces frames as a socket does: each time anew, and never read.
    wake_peer: Arc<EventFd>,
    sent: Vec<Frame>,
    /// Long packets are lost, one in so many; zero: none.
    loses: Arc<AtomicU8>,
    long: u8,
}

impl QueueIo for Plug {
    fn receive(&mut self, pool: &mut FramePool, batch: &mut Vec<Frame>, max: usize) -> usize {
        // As a device does.
        let ours = |packet: &Vec<u8>| packet[..6] == self.mac || packet[0] & 1 != 0;
        let packets = self.from.try_iter().take(max).filter(ours);
        let before = batch.len();
        batch.extend(packets.filter_map(|packet| pool.take_filled(&packet)));
        batch.len() - before
    }

    fn transmit_room(&mut self, _: &mut FramePool) -> usize {
        512 - self.to.len().min(512)
    }

    fn transmit(&mut self, batch: &mut Vec<Frame>) -> usize {
        let count = batch.len();
        for frame in batch.drain(..) {
            let loses = self.loses.load(Ordering::Relaxed);
            self.long += u8::from(loses > 0 && frame.len() > LONG);
            let lost = loses > 0 && self.long >= loses;
            if lost {
                self.long = 0;
            } else {
                // Full: lost, as on a real cable.
                let _ = self.to.try_send(frame.bytes().to_vec());
            }
            self.sent.push(frame);
        }
        count
    }

    fn flush(&mut self, pool: &mut FramePool, _: Time) {
        if !self.sent.is_empty() {
            self.wake_peer
                .write(1)
                .expect("a counter that is never full");
        }
        self.sent.drain(..).for_each(|frame| pool.give(frame));
    }

    fn in_flight(&self) -> usize {
        0
    }

    fn backlog(&self) -> u64 {
        0
    }
}

/// A daemon on threads of this process.
pub(crate) struct Daemon {
    pub(crate) address: IpAddr,
    pub(crate) socket: PathBuf,
    pub(crate) worker: WorkerHandle,
    applications: Applications,
    /// What applications see of the cable.
    pub(crate) port: Arc<Port>,
    /// Of its long packets one in so many is lost; zero: none.
    pub(crate) loses: Arc<AtomicU8>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
    region: std::sync::Arc<Region>,
    _folder: tempfile::TempDir,
}

const FRAMES: u32 = 8192;

/// The cable.
fn standing() -> Standing {
    let speed = Rate::from_gbps(10);
    let (pacing, link) = (speed, speed);
    let speeds = Speeds { pacing, link };
    Standing { speeds, mtu: 3000 }
}

fn mac(number: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, number]
}

fn address(number: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, number])
}

/// Which host has an address: the first has number 1, also of the second hundred, and so on. Nobody
/// has the others.
fn host_of(address: IpAddr) -> u8 {
    let last = match address {
        IpAddr::V4(v4) => v4.octets()[3],
        IpAddr::V6(v6) => v6.octets()[15],
    };
    last % 100
}

/// A configuration that lets this user in.
pub(crate) fn config() -> Config {
    let mut config = Config::default();
    config.application.groups.clear();
    config
}

/// Two daemons with the same configuration.
pub(crate) fn pair(config: &Config) -> (Daemon, Daemon) {
    let (a_to_b, from_a) = crossbeam_channel::bounded(1024);
    let (b_to_a, from_b) = crossbeam_channel::bounded(1024);
    let (wake_a, wake_b) = (
        Arc::new(EventFd::new().expect("an eventfd")),
        Arc::new(EventFd::new().expect("an eventfd")),
    );
    let a = Plug {
        mac: mac(1),
        to: a_to_b,
        from: from_b,
        wake_peer: wake_b.clone(),
        sent: Vec::new(),
        loses: Arc::default(),
        long: 0,
    };
    let b = Plug {
        mac: mac(2),
        to: b_to_a,
        from: from_a,
        wake_peer: wake_a.clone(),
        sent: Vec::new(),
        loses: Arc::default(),
        long: 0,
    };
    (start(config, 1, a, wake_a), start(config, 2, b, wake_b))
}

/// The other end of a daemon's cable, for who plays a switch there.
pub(crate) struct Peer {
    /// Frames to the daemon.
    pub(crate) to: Sender<Vec<u8>>,
    /// Frames from it.
    pub(crate) from: Receiver<Vec<u8>>,
    /// Announces frames to it.
    pub(crate) wake: Arc<EventFd>,
}

/// A daemon, the first host, whose cable leads to the second.
pub(crate) fn alone(config: &Config) -> (Daemon, Peer) {
    let (to_peer, from) = crossbeam_channel::bounded(1024);
    let (to, from_peer) = crossbeam_channel::bounded(1024);
    let wake = Arc::new(EventFd::new().expect("an eventfd"));
    let plug = Plug {
        mac: mac(1),
        to: to_peer,
        from: from_peer,
        wake_peer: Arc::new(EventFd::new().expect("an eventfd")),
        sent: Vec::new(),
        loses: Arc::default(),
        long: 0,
    };
    let daemon = start(config, 1, plug, wake.clone());
    (daemon, Peer { to, from, wake })
}

/// Answers that everything can be reached, by what `route` says.
async fn answer_all(
    mut questions: Questions,
    worker: WorkerHandle,
    route: impl Fn(IpAddr) -> Route,
) {
    while let Some(question) = questions.next().await {
        let destination = question.destination;
        worker
            .insist(Command::SetRoutes(
                destination.into(),
                vec![(PortId::FIRST, route(destination))],
            ))
            .await;
        question.answer(Ok(()));
    }
}

fn start(config: &Config, number: u8, plug: Plug, woken: Arc<EventFd>) -> Daemon {
    static SEED: AtomicU8 = AtomicU8::new(1);
    let seed = [SEED.fetch_add(1, Ordering::Relaxed); 32];
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("hostd.sock");
    let listener = listen_at(&socket).expect("the socket");
    let region = Region::heap(FRAMES, 4096, 256);
    let pool = FramePool::new(region.clone());
    let loses = plug.loses.clone();
    let ports = vec![NetPort::new(vec![plug])];
    let mut running = start_worker(
        config,
        seed,
        &[standing().speeds],
        ports,
        pool,
        |sleeper, _| sleeper.watch_socket(woken.as_fd()),
    )
    .expect("a worker");
    let worker = running.worker.clone();
    let link = Link::new(Wanted::default(), standing());
    let port = Arc::new(Port::new(
        "cable",
        mac(number),
        2048,
        vec![Arc::new(link)],
        config.transport.table(),
    ));
    port.follow([(address(number), 24)].into_iter());
    let (routes, questions) = questions::questions(port.clone());
    let applications = Applications::new(
        &config.application,
        worker.clone(),
        routes.clone(),
        running.doorbells.clone(),
    );
    let (stop, mut stopped) = oneshot::channel::<()>();
    let (serving, telling) = (applications.clone(), worker.clone());
    let thread = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.expect("a runtime").block_on(async move {
            // Kept to the end: it is what the worker sleeps on.
            let _woken = woken;
            tokio::spawn(answer_all(questions, telling, move |destination| Route {
                source: address(number),
                source_mac: mac(number),
                destination_mac: mac(host_of(destination)),
                mtu: 3000,
                rate: Rate::from_gbps(10),
            }));
            tokio::spawn(serving.clone().serve(listener));
            loop {
                tokio::select! {
                    _ = &mut stopped => break,
                    notice = running.notices.next() => match notice {
                        Some(Notice::Event(session, event)) => serving.deliver(session, event),
                        Some(Notice::NeedRoute(destination)) => routes.need(destination),
                        Some(Notice::Reset(answer)) => confirm(answer),
                        None => break,
                    },
                }
            }
            running.stop().await;
        });
    });
    Daemon {
        address: address(number),
        socket,
        worker,
        applications,
        port,
        loses,
        stop: Some(stop),
        thread: Some(thread),
        region,
        _folder: folder,
    }
}

impl Daemon {
    /// An application of this daemon.
    pub(crate) fn application(&self) -> Context {
        Context::connect(&self.socket).expect("a session")
    }

    /// How the worker stands.
    pub(crate) fn report(&self) -> Report {
        let (answer, mut reply) = oneshot::channel();
        assert!(
            self.worker.tell(Command::Report(answer)),
            "the worker is gone"
        );
        let until = Instant::now() + PATIENCE;
        loop {
            match reply.try_recv() {
                Ok(report) => return report,
                Err(oneshot::error::TryRecvError::Closed) => panic!("the worker is gone"),
                Err(oneshot::error::TryRecvError::Empty) => {
                    assert!(Instant::now() < until, "the worker stands still");
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
    }

    /// Passes an event on as if the worker had reported it.
    pub(crate) fn deliver(&self, session: SessionId, event: Event) {
        self.applications.deliver(session, event);
    }

    /// Tells applications of an event of the port.
    pub(crate) fn announce(&self, event: PortEvent) {
        self.applications.announce(event);
    }

    /// Counters of the socket.
    pub(crate) fn socket_statistics(&self) -> SocketStatistics {
        self.applications.statistics()
    }

    /// Waits until `holds` is true of the report.
    pub(crate) fn wait_for(&self, what: &str, holds: impl Fn(&Report) -> bool) {
        let until = Instant::now() + PATIENCE;
        while !holds(&self.report()) {
            assert!(Instant::now() < until, "{what}: {:?}", self.report());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until nothing is left of any session.
    pub(crate) fn wait_empty(&self) {
        self.wait_for("everything is released", |report| {
            report.sessions.is_empty() && report.queue_pairs.is_empty()
        });
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let ended = thread.join();
            if !std::thread::panicking() {
                ended.expect("the daemon's threads end well");
                let free = FramePool::new(self.region.clone()).free_frames();
                assert_eq!(free, usize::try_from(FRAMES).unwrap(), "frames were lost");
            }
        }
    }
}
