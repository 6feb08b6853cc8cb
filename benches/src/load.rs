//! The traffic source and the sink: XDP programs, so that they cost next to nothing beside what is
//! measured.

use crate::everything::TRAFFIC_CLASS;
use crate::rig::{Namespace, SOURCE_CORE, pin};
use common::sys::LinkSocket;
use libbpf_rs::{Link, MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, ProgramMut};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Scope;
use std::time::{Duration, Instant};

/// BPF_F_TEST_XDP_LIVE_FRAMES.
const LIVE_FRAMES: u32 = 1 << 1;

/// Frames for one system call. Stopping waits for the end of one, so not too many.
const FRAMES_PER_CALL: u32 = 200_000;

/// The same where others wait for their time.
const FLOOD_PER_CALL: u32 = 256;

/// Frames that are offered.
#[derive(Clone, Debug)]
pub struct Offer {
    /// The first of them; the program varies the UDP source port.
    pub frame: Vec<u8>,
    /// Different source ports; a power of two.
    pub flows: u32,
}

impl Offer {
    /// IPv4/UDP frames of `len` bytes from 10.0.0.2 to 10.0.2.2, of [`TRAFFIC_CLASS`], for the
    /// station `destination`.
    ///
    /// # Panics
    /// If `len` is shorter than the headers or longer than a jumbo frame.
    pub fn udp(len: usize, destination: [u8; 6], flows: u32) -> Self {
        assert!((42..=9014).contains(&len), "{len} bytes");
        let ip_len = u16::try_from(len - 14).expect("checked above");
        let mut frame = destination.to_vec();
        frame.extend([2, 0, 0, 0, 0, 1, 8, 0]);
        let mut ip = vec![0x45, TRAFFIC_CLASS];
        ip.extend(ip_len.to_be_bytes());
        ip.extend([0, 0, 0x40, 0, 64, 17, 0, 0, 10, 0, 0, 2, 10, 0, 2, 2]);
        let sum: u32 = ip
            .chunks(2)
            .map(|pair| u32::from(u16::from_be_bytes([pair[0], pair[1]])))
            .sum();
        let folded = (sum & 0xffff) + (sum >> 16);
        let checksum = !u16::try_from(folded).expect("ten words fold once");
        ip[10..12].copy_from_slice(&checksum.to_be_bytes());
        frame.extend(ip);
        frame.extend([0xc0, 0, 0x12, 0xb7]);
        frame.extend((ip_len - 20).to_be_bytes());
        frame.extend([0, 0]);
        frame.resize(len, 0);
        Self { frame, flows }
    }
}

fn load() -> Result<Object, String> {
    // libelf wants alignment, which an allocation has.
    let bytes = Vec::from(include_bytes!(concat!(env!("OUT_DIR"), "/load.bpf.o")));
    ObjectBuilder::default()
        .open_memory(&bytes)
        .and_then(libbpf_rs::OpenObject::load)
        .map_err(|error| format!("load.bpf.c: {error:#}"))
}

fn program<'a>(object: &'a Object, name: &str) -> Result<ProgramMut<'a>, String> {
    object
        .progs_mut()
        .find(|program| program.name() == name)
        .ok_or_else(|| format!("load.bpf.c has no program {name}"))
}

fn set(object: &Object, map: &str, value: &[u8]) -> Result<(), String> {
    object
        .maps()
        .find(|candidate| candidate.name() == map)
        .ok_or_else(|| format!("load.bpf.c has no map {map}"))?
        .update(&0_u32.to_ne_bytes(), value, MapFlags::ANY)
        .map_err(|error| format!("{map}: {error:#}"))
}

fn ifindex(device: &str) -> Result<u32, String> {
    nix::net::if_::if_nametoindex(device).map_err(|error| format!("{device}: {error}"))
}

fn settings(flows: u32, expected: [u8; 6]) -> [u8; 24] {
    let mut value = [0; 24];
    value[..4].copy_from_slice(&flows.to_ne_bytes());
    value[4..10].copy_from_slice(&expected);
    value
}

/// Live frames for one device.
struct Source<'a> {
    object: Object,
    offer: &'a Offer,
    _attached: Link,
}

impl<'a> Source<'a> {
    /// Frames for `device`; the program is attached to `holder`, to which nothing may come.
    fn new(device: &str, holder: &str, offer: &'a Offer) -> Result<Self, String> {
        let object = load()?;
        set(&object, "load_device", &ifindex(device)?.to_ne_bytes())?;
        set(&object, "load_offer", &settings(offer.flows, [0; 6]))?;
        // Each run of a program that is attached nowhere makes the kernel rewrite its dispatcher
        // twice and wait for RCU: the source would be idle for more than half of the time.
        let index = i32::try_from(ifindex(holder)?).map_err(|error| error.to_string())?;
        let attached = program(&object, "offer")?
            .attach_xdp(index)
            .map_err(|error| format!("{holder}: {error:#}"))?;
        Ok(Self {
            object,
            offer,
            _attached: attached,
        })
    }

    /// Offers so many frames, and returns how many are known to have been.
    fn send(&self, frames: u32) -> Result<u64, String> {
        let input = ProgramInput {
            data_in: Some(&self.offer.frame),
            flags: LIVE_FRAMES,
            repeat: frames,
            ..Default::default()
        };
        match program(&self.object, "offer")?.test_run(input) {
            Ok(_) => Ok(frames.into()),
            // A signal, such as that of a process that ended: what was offered until then is
            // unknown.
            Err(error) if error.kind() == libbpf_rs::ErrorKind::Interrupted => Ok(0),
            Err(error) => Err(format!("live frames: {error:#}")),
        }
    }
}

/// Starts a thread that offers frames on `device` of `namespace` until `stop`. It returns how many
/// it offered.
pub fn start<'scope>(
    scope: &'scope Scope<'scope, '_>,
    namespace: &'scope Namespace,
    device: &'scope str,
    offer: &'scope Offer,
    stop: &'scope AtomicBool,
) -> std::thread::ScopedJoinHandle<'scope, Result<u64, String>> {
    scope.spawn(move || {
        pin(SOURCE_CORE)?;
        namespace.enter()?;
        let source = Source::new(device, device, offer)?;
        let mut offered = 0;
        while !stop.load(Ordering::Relaxed) {
            offered += source.send(FRAMES_PER_CALL)?;
        }
        Ok(offered)
    })
}

/// Frames at a steady rate, and others in the time between.
#[derive(Clone, Copy, Debug)]
pub struct Paced<'a> {
    /// The device of the steady ones, and the frames.
    pub steady: (&'a str, &'a Offer),
    /// So many of them in each period.
    pub frames: u32,
    /// The period.
    pub period: Duration,
    /// The device of the others, and the frames, as many as there is time for. Then a device
    /// called `d0` holds their program.
    pub flood: Option<(&'a str, &'a Offer)>,
}

/// Starts a thread that offers what `paced` says in `namespace` until `stop`.
pub fn start_paced<'scope>(
    scope: &'scope Scope<'scope, '_>,
    namespace: &'scope Namespace,
    paced: Paced<'scope>,
    stop: &'scope AtomicBool,
) -> std::thread::ScopedJoinHandle<'scope, Result<(), String>> {
    scope.spawn(move || {
        pin(SOURCE_CORE)?;
        namespace.enter()?;
        let steady = Source::new(paced.steady.0, paced.steady.0, paced.steady.1)?;
        let flood = paced
            .flood
            .map(|(device, offer)| Source::new(device, "d0", offer));
        let flood = flood.transpose()?;
        let mut next = Instant::now();
        while !stop.load(Ordering::Relaxed) {
            steady.send(paced.frames)?;
            next += paced.period;
            while let Some(left) = next.checked_duration_since(Instant::now()) {
                match &flood {
                    Some(flood) => flood.send(FLOOD_PER_CALL).map(drop)?,
                    None => std::thread::sleep(left),
                }
            }
        }
        Ok(())
    })
}

/// The same by a packet socket, which takes jumbo frames, too, and more of the core for each.
pub fn start_by_socket<'scope>(
    scope: &'scope Scope<'scope, '_>,
    namespace: &'scope Namespace,
    device: &'scope str,
    offer: &'scope Offer,
    stop: &'scope AtomicBool,
) -> std::thread::ScopedJoinHandle<'scope, Result<u64, String>> {
    scope.spawn(move || {
        pin(SOURCE_CORE)?;
        namespace.enter()?;
        // Of no EtherType: it receives nothing.
        let socket = LinkSocket::open(0).map_err(|error| error.to_string())?;
        let index = ifindex(device)?;
        let mut frame = offer.frame.clone();
        let mut offered: u64 = 0;
        while !stop.load(Ordering::Relaxed) {
            let flow = u16::try_from(offered % u64::from(offer.flows)).expect("few flows");
            frame[34..36].copy_from_slice(&(0xc000 | flow).to_be_bytes());
            match socket.send(index, &frame) {
                Ok(()) => offered += 1,
                // Frames before it are still on their way.
                Err(error) if is_full(&error) => std::thread::yield_now(),
                Err(error) => return Err(format!("{device}: {error}")),
            }
        }
        Ok(offered)
    })
}

fn is_full(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::WouldBlock
        || error.raw_os_error() == Some(nix::libc::ENOBUFS)
}

/// Drops and counts what reaches a device.
#[derive(Debug)]
pub struct Sink {
    object: Object,
    _link: Link,
}

/// What a sink counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Frames for the expected station.
    pub expected: u64,
    /// All other frames.
    pub other: u64,
}

impl Sink {
    /// Attaches to `device` of `namespace`; frames for the station `expected` are counted as such.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn attach(namespace: &Namespace, device: &str, expected: [u8; 6]) -> Result<Self, String> {
        namespace.inside(|| {
            let object = load()?;
            set(&object, "load_offer", &settings(1, expected))?;
            let index = i32::try_from(ifindex(device)?).map_err(|error| error.to_string())?;
            let link = program(&object, "count")?
                .attach_xdp(index)
                .map_err(|error| format!("{device}: {error:#}"))?;
            Ok(Self {
                object,
                _link: link,
            })
        })
    }

    /// What it counted so far.
    pub fn counts(&self) -> Counts {
        let read = |key: u32| {
            let map = self.object.maps().find(|map| map.name() == "load_counts");
            let values = map.and_then(|map| {
                map.lookup_percpu(&key.to_ne_bytes(), MapFlags::ANY)
                    .ok()
                    .flatten()
            });
            let values = values.unwrap_or_default();
            let numbers = values.iter().filter_map(|value| value.first_chunk::<8>());
            numbers.map(|bytes| u64::from_ne_bytes(*bytes)).sum()
        };
        Counts {
            expected: read(0),
            other: read(1),
        }
    }
}
