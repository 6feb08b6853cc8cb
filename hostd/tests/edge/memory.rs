//! HT-3: what an application shares with the daemon is its own memory, all of it there, and stays.

use crate::raw::{Raw, is_well, memory_for};
use crate::rig::{PATIENCE, config, pair};
use crate::siege::alone;
use hostd_client::Error;
use hostd_client::abi::answer::Reply;
use hostd_client::abi::message::Request;
use hostd_client::abi::types::{Access, ErrorCode};
use nix::fcntl::{FcntlArg, SealFlag, fcntl, posix_fallocate};
use nix::sys::memfd::{MFdFlags, memfd_create};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::Instant;

/// Begins a session with all that can be shared, of memory with names of its own, tries to take
/// each away, says so, and ends when it is told.
const TAKER: &str = "
import array, errno, fcntl, mmap, os, socket, struct, sys
path, version = sys.argv[1], int(sys.argv[2])
s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
s.connect(path)
made = []

def memory(name, size, header=b''):
    fd = os.memfd_create('theirs-' + name, os.MFD_ALLOW_SEALING)
    os.posix_fallocate(fd, 0, size)
    mapping = mmap.mmap(fd, size)
    mapping[:len(header)] = header
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    made.append((name, fd, mapping))
    return fd

def ring(name, entries, each):
    header = struct.pack('<4sIII', b'hstd', version, entries, each)
    return memory(name, 256 + entries * each, header)

def ask(kind, body, fds):
    rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', fds))]
    s.sendmsg([struct.pack('<HHI', kind, 0, 5) + body], rights if fds else [])
    reply, controls, _, _ = s.recvmsg(512, 1024)
    assert struct.unpack_from('<H', reply)[0] != 107, reply
    return reply[8:12]

ask(1, struct.pack('<4sHHQ', b'hstd', version, 0, 0xfff), [])
ask(29, b'', [memory('bell', 4096, struct.pack('<4sI', b'hstd', version))])
queue = ask(3, struct.pack('<II', 16384, 0), [ring('completions', 16384, 32)])
works = [ring('sends', 16, 64), ring('receives', 8, 64)]
ask(4, queue + queue + struct.pack('<IIII', 9, 1, 0, 0), works)
ask(24, struct.pack('<II', 64, 0), [ring('shared', 64, 64)])
ask(2, struct.pack('<QQII', 1 << 20, 0, 1, 0), [memory('region', 1 << 20)])

def forbidden(what, name, attempt):
    try:
        attempt()
    except OSError as error:
        assert error.errno == errno.EPERM, (what, name, error)
    else:
        sys.exit(what + ' of ' + name)

def punch(fd):
    import ctypes
    libc = ctypes.CDLL(None, use_errno=True)
    hole = ctypes.c_long(0), ctypes.c_long(4096)
    if libc.fallocate(fd, 3, *hole) != 0:
        raise OSError(ctypes.get_errno(), 'fallocate')

for name, fd, mapping in made:
    forbidden('punching', name, lambda: punch(fd))
    forbidden('MADV_REMOVE', name, lambda: mapping.madvise(9, 0, 4096))
    forbidden('shrinking', name, lambda: os.ftruncate(fd, 0))
    forbidden('growing', name, lambda: os.ftruncate(fd, 1 << 24))
    forbidden('write', name, lambda: os.pwrite(fd, b'x', 0))
    forbidden('another mapping', name, lambda: mmap.mmap(fd, 700))
    mapping[200:204] = b'mine'
print('kept', flush=True)
sys.stdin.readline()
";

/// The names of all memfds that this process has mapped or open.
fn memfds() -> BTreeSet<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our mappings");
    let mapped = maps
        .lines()
        .filter_map(|line| line.split_once("/memfd:"))
        .map(|(_, name)| name.to_owned());
    let open = std::fs::read_dir("/proc/self/fd").expect("our descriptors");
    let open = open.filter_map(|entry| {
        let target = std::fs::read_link(entry.ok()?.path()).ok()?;
        let name = target.to_str()?.strip_prefix("/memfd:")?;
        Some(name.to_owned())
    });
    mapped.chain(open).collect()
}

/// HT-3: an application cannot make a hole in anything that the daemon touches, by no way there is,
/// and the daemon has no memory of its own in it: what an application holds is charged to itself.
#[test]
fn what_is_shared_is_the_applications_and_stays() {
    if !alone("memory::what_is_shared_is_the_applications_and_stays") {
        return;
    }
    let (a, _b) = pair(&config());
    let mut taker = Command::new("/usr/bin/python3")
        .args(["-c", TAKER])
        .arg(&a.socket)
        .arg(hostd_client::abi::VERSION_MAJOR.to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("python3 is there");
    let mut said = String::new();
    let output = taker.stdout.take().expect("piped");
    BufReader::new(output).read_line(&mut said).expect("text");
    assert_eq!(said, "kept\n");
    let kinds = [
        "bell",
        "completions",
        "receives",
        "region",
        "sends",
        "shared",
    ];
    let theirs = kinds.map(|kind| format!("theirs-{kind} (deleted)"));
    assert_eq!(memfds(), BTreeSet::from(theirs));
    let mut input = taker.stdin.take().expect("piped");
    input.write_all(b"\n").expect("told");
    assert!(taker.wait().expect("ended").success());
    a.wait_empty();
    let until = Instant::now() + PATIENCE;
    while !memfds().is_empty() {
        assert!(Instant::now() < until, "{:?} is not given back", memfds());
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    is_well(&a);
}

/// A request, and what the memory that comes with it is called in refusals.
fn creations(cq: u32) -> Vec<(Request, Vec<&'static str>)> {
    let pair = Request::CreateQueuePair {
        send_cq: cq,
        receive_cq: cq,
        send_entries: 16,
        receive_entries: 8,
        shared: 0,
    };
    let shared = Request::CreateSharedQueue {
        entries: 8,
        limit: 0,
    };
    vec![
        (
            Request::CreateCompletionQueue { entries: 64 },
            vec!["completion ring"],
        ),
        (pair, vec!["send ring", "receive ring"]),
        (shared, vec!["shared ring"]),
        (Request::ShareDoorbells, vec!["doorbell page"]),
    ]
}

/// Memory in which something is wrong, instead of `good`, and what the refusal says.
fn spoiled(good: &OwnedFd) -> Vec<(OwnedFd, &'static str)> {
    let size = nix::sys::stat::fstat(good).expect("a file").st_size;
    let memfd = |size, allocated, seals| {
        let fd =
            memfd_create(c"x", MFdFlags::MFD_ALLOW_SEALING | MFdFlags::MFD_CLOEXEC).expect("memfd");
        nix::unistd::ftruncate(&fd, size).expect("size");
        if allocated {
            posix_fallocate(&fd, 0, size).expect("memory");
        }
        fcntl(&fd, FcntlArg::F_ADD_SEALS(seals)).expect("sealed");
        fd
    };
    let shrink = SealFlag::F_SEAL_SHRINK;
    let null = std::fs::File::open("/dev/null").expect("there");
    vec![
        (memfd(size, false, shrink), "bytes are allocated"),
        (memfd(size, true, SealFlag::F_SEAL_GROW), "F_SEAL_SHRINK"),
        (memfd(size + 1, true, shrink), "exactly"),
        (memfd(size - 1, true, shrink), "exactly"),
        (
            memfd(size, true, shrink | SealFlag::F_SEAL_SEAL),
            "sealed against",
        ),
        (memfd(size, true, shrink), "magic"),
        (null.into(), "not a memfd"),
    ]
}

/// HT-3: memory that is not all there, could shrink, has another size, or is no ring, is refused by
/// its name, and nothing is left of the request.
#[test]
fn doubtful_rings_are_refused_by_name() {
    let (a, _b) = pair(&config());
    let raw = Raw::greeted(&a);
    let queue = Request::CreateCompletionQueue { entries: 16 };
    let Reply::CompletionQueue { handle, .. } = raw.create(&queue) else {
        panic!("refused");
    };
    // One that has not shared its doorbells yet, as it has to do before anything else.
    let new = Raw::connect(&a);
    assert!(matches!(
        new.ask(&Request::hello(), &[]).0,
        Reply::Hello { .. }
    ));
    assert_eq!(
        new.refused(&Request::CreateWindow, &[]),
        ErrorCode::BadMessage
    );
    for (request, names) in creations(handle) {
        let good = memory_for(&request);
        let asked = match request {
            Request::ShareDoorbells => &new,
            _ => &raw,
        };
        for (index, name) in names.iter().enumerate() {
            for (bad, why) in spoiled(&good[index]) {
                let memory = memory_for(&request);
                let mut fds: Vec<_> = memory.iter().map(AsFd::as_fd).collect();
                fds[index] = bad.as_fd();
                match asked.ask(&request, &fds).0 {
                    Reply::Error { code, text } => {
                        assert_eq!(code, ErrorCode::BadMemory, "{name}, {why}: {text}");
                        let named = text.starts_with(name) && text.contains(why);
                        assert!(named, "{name}, {why}: {text}");
                    }
                    other => panic!("{name}, {why}: {other:?}"),
                }
            }
        }
        assert_eq!(asked.refused(&request, &[]), ErrorCode::BadMessage);
    }
    assert_eq!(new.create(&Request::ShareDoorbells), Reply::Done);
    let code = raw.refused(&Request::ShareDoorbells, &[]);
    assert_eq!(code, ErrorCode::BadMessage, "a second page");
    let report = a.report();
    let session = &report.sessions[0];
    assert_eq!((session.completion_queues, session.queue_pairs), (1, 0));
    is_well(&a);
}

/// HT-3: what a ring takes of the quota is free again when it is given back.
#[test]
fn rings_count_as_memory() {
    let mut config = config();
    config.application.quota.memory_mib = 1;
    let (a, _b) = pair(&config);
    let context = a.application();
    let first = context.create_completion_queue(1 << 14).expect("half");
    for _ in 0..8 {
        match context.create_completion_queue(1 << 14) {
            Err(Error::Refused { code, text }) => {
                assert_eq!(code, ErrorCode::Quota);
                assert!(text.contains("application.quota.memory_mib"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
    let small = context.create_completion_queue(1 << 12).expect("an eighth");
    drop(first);
    let again = context.create_completion_queue(1 << 14).expect("half");
    let memory = context.allocate(4096, Access::LOCAL_WRITE).expect("little");
    drop((small, again, memory));
}
