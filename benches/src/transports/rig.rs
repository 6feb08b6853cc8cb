//! Two hosts with links between them: one for hostd, four for bare AF_XDP, one that is the kernel's
//! alone and keeps its offloads.

use crate::rig::{Namespace, Process, wait_until};
use hostd_client::{
    Access, CompletionQueue, Context, Private, QueuePair, QueuePairOptions, Region, RemoteSlice,
};
use lab::settings::binary;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Nothing that is set up takes longer.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// Addresses of the two ends, on hostd's link and on the kernel's.
const HOSTD: [&str; 2] = ["10.0.0.1", "10.0.0.2"];
const KERNEL: [&str; 2] = ["10.0.1.1", "10.0.1.2"];

/// Requests that a queue pair holds.
pub(super) const DEPTH: u32 = 512;

/// Bytes of memory of an end; messages use it again and again.
pub(super) const MEMORY: usize = 8 << 20;

/// One of two connected queue pairs.
#[derive(Debug)]
pub(super) struct End {
    pub(super) queue_pair: QueuePair,
    pub(super) completions: CompletionQueue,
    pub(super) memory: Region,
    /// Key of the other end's memory.
    rkey: u32,
}

impl End {
    fn new(context: &Context) -> Result<Self, hostd_client::Error> {
        let completions = context.create_completion_queue(4 * DEPTH)?;
        let options = QueuePairOptions {
            send_entries: DEPTH,
            receive_entries: 2 * DEPTH,
        };
        Ok(Self {
            queue_pair: context.create_queue_pair(&completions, &completions, options)?,
            completions,
            memory: context.allocate(MEMORY, Access::LOCAL_WRITE.with(Access::REMOTE_WRITE))?,
            rkey: 0,
        })
    }

    /// Memory of the other end, from `address` on.
    pub(super) fn remote(&self, address: u64) -> RemoteSlice {
        RemoteSlice {
            address,
            rkey: self.rkey,
        }
    }
}

/// The hosts. Fields go in the order in which they must: applications, daemons, namespaces.
#[derive(Debug)]
pub(super) struct Hosts {
    contexts: [Context; 2],
    daemons: [Process; 2],
    /// The near and the far one; `x0` to `x3` of each are those of bare AF_XDP.
    pub(super) namespaces: [Namespace; 2],
    /// Where the daemons have their sockets.
    folder: PathBuf,
}

impl Hosts {
    /// Brings them up; logs and sockets go to `folder`.
    pub(super) fn new(folder: &Path) -> Result<Self, String> {
        let namespaces = [Namespace::new("near")?, Namespace::new("far")?];
        let [near, far] = &namespaces;
        for link in ["x0", "x1", "x2", "x3"] {
            near.link(link, far, link)?;
        }
        near.link("h0", far, "h0")?;
        near.run(&format!(
            "ip link add name k0 type veth peer name k0 netns {}",
            far.name()
        ))?;
        for (side, namespace) in namespaces.iter().enumerate() {
            namespace.run("ip link set k0 up")?;
            namespace.run(&format!("ip address add {}/24 dev k0", KERNEL[side]))?;
            namespace.run(&format!("ip address add {}/24 dev h0", HOSTD[side]))?;
        }
        let daemons = [
            start(&namespaces[0], folder, "near")?,
            start(&namespaces[1], folder, "far")?,
        ];
        let contexts = [connect(folder, "near")?, connect(folder, "far")?];
        Ok(Self {
            contexts,
            daemons,
            namespaces,
            folder: folder.to_owned(),
        })
    }

    /// Process numbers of the daemons.
    pub(super) fn daemons(&self) -> [u32; 2] {
        self.daemons.each_ref().map(Process::pid)
    }

    /// Two queue pairs that are connected through `port`.
    pub(super) fn ends(&self, port: u16) -> Result<[End; 2], String> {
        let [near, far] = &self.contexts;
        connected(near, far, reach(port)).map_err(|error| error.to_string())
    }

    /// A session more with each of the daemons.
    pub(super) fn sessions(&self) -> Result<[Context; 2], String> {
        Ok([
            connect(&self.folder, "near")?,
            connect(&self.folder, "far")?,
        ])
    }

    /// Two UDP sockets that are connected to each other over the kernel's link.
    pub(super) fn datagrams(&self) -> Result<[UdpSocket; 2], String> {
        let [near, far] = &self.namespaces;
        let bind = |address: &str| {
            let bound = UdpSocket::bind((address, 7));
            bound.map_err(|error| error.to_string())
        };
        let sockets = [
            near.inside(|| bind(KERNEL[0]))?,
            far.inside(|| bind(KERNEL[1]))?,
        ];
        for (socket, peer) in sockets.iter().zip([KERNEL[1], KERNEL[0]]) {
            let connected = socket
                .connect((peer, 7))
                .and_then(|()| socket.set_nonblocking(true));
            connected.map_err(|error| error.to_string())?;
        }
        Ok(sockets)
    }

    /// A listener of TCP at the far one, and a port that the kernel chooses.
    pub(super) fn listener(&self) -> Result<(TcpListener, SocketAddr), String> {
        let bind = || {
            let listener = TcpListener::bind((KERNEL[1], 0))?;
            let to = listener.local_addr()?;
            Ok((listener, to))
        };
        let fail = |error: std::io::Error| error.to_string();
        self.namespaces[1].inside(|| bind().map_err(fail))
    }

    /// The two ends of a TCP connection over the kernel's link.
    pub(super) fn stream(&self) -> Result<[TcpStream; 2], String> {
        let near = &self.namespaces[0];
        let (listener, address) = self.listener()?;
        let active = near.inside(|| TcpStream::connect(address).map_err(|e| e.to_string()))?;
        let (passive, _) = listener.accept().map_err(|error| error.to_string())?;
        Ok([active, passive])
    }
}

/// Where a listener of the far one at `port` is reached.
pub(super) fn reach(port: u16) -> SocketAddr {
    let address: IpAddr = HOSTD[1].parse().expect("an address");
    SocketAddr::new(address, port)
}

/// A queue pair of `near` and one of `far`, connected to each other through the far one's address.
pub(super) fn connected(
    near: &Context,
    far: &Context,
    to: SocketAddr,
) -> Result<[End; 2], hostd_client::Error> {
    let (mut active, mut passive) = (End::new(near)?, End::new(far)?);
    let listener = far.listen(IpAddr::from(Ipv4Addr::UNSPECIFIED), to.port(), 1)?;
    std::thread::scope(|scope| {
        let accepted = scope.spawn(|| {
            let request = listener.get_request(PATIENCE)?;
            request.accept(&mut passive.queue_pair, Private::EMPTY, PATIENCE)
        });
        let connected = active.queue_pair.connect(to, Private::EMPTY, PATIENCE);
        accepted.join().expect("it does not panic")?;
        connected
    })?;
    (active.rkey, passive.rkey) = (passive.memory.rkey(), active.memory.rkey());
    Ok([active, passive])
}

fn start(namespace: &Namespace, folder: &Path, name: &str) -> Result<Process, String> {
    let program = binary("hostd").map_err(|error| error.to_string())?;
    let config = folder.join(format!("{name}.toml"));
    // A speed that the pacer never reaches here.
    let text = format!(
        "[admin]\nsocket = \"{0}/{name}.admin\"\n[application]\nsocket = \"{0}/{name}.sock\"\n\
         [metrics]\nenabled = false\n[[interface]]\nname = \"h0\"\nspeed = \"100Gbps\"\n",
        folder.display()
    );
    std::fs::write(&config, text).map_err(|error| error.to_string())?;
    let mut command = namespace.helper(&program.display().to_string());
    command.args(["run", "-c"]).arg(&config);
    Process::start(&mut command, &folder.join(format!("{name}.log")))
}

/// A session with a daemon, once it answers.
fn connect(folder: &Path, name: &str) -> Result<Context, String> {
    let socket = folder.join(format!("{name}.sock"));
    let mut context = Err("it was not tried".to_owned());
    wait_until(PATIENCE, || {
        context = Context::connect(&socket).map_err(|error| error.to_string());
        context.is_ok()
    });
    context.map_err(|error| {
        let log = std::fs::read_to_string(folder.join(format!("{name}.log")));
        format!("hostd: {error}; its log: {}", log.unwrap_or_default())
    })
}
