//! Where a file goes: parsing of HOST:PATH, and the receiver's root that nothing leaves.

use crate::failure::Failure;
use crate::options::PORT;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, openat2, renameat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};
use nix::unistd::{UnlinkatFlags, unlinkat};
use std::fs::File;
use std::io::Read;
use std::net::{Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::path::{Component, Path, PathBuf};

/// A target on another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) path: String,
}

impl Target {
    /// HOST:PATH, with an IPv6 address in brackets, or without if it is clear where it ends.
    pub(crate) fn parse(text: &str) -> Result<Self, Failure> {
        let bad = || {
            let hint = "write HOST:PATH, or [ADDRESS]:PATH for an IPv6 address";
            Failure::Target(format!("{text:?} is no target: {hint}"))
        };
        let (host, path) = match text.strip_prefix('[') {
            Some(rest) => rest.split_once("]:").ok_or_else(bad)?,
            None => {
                let colons = text.match_indices(':').map(|(at, _)| text.split_at(at));
                let mut ends = colons.filter(|(host, _)| host.parse::<Ipv6Addr>().is_ok());
                match (ends.next(), ends.next()) {
                    (Some((host, path)), None) => (host, &path[1..]),
                    (Some(_), Some(_)) => return Err(bad()),
                    (None, _) => text.split_once(':').ok_or_else(bad)?,
                }
            }
        };
        if host.is_empty() || host.contains('/') {
            return Err(bad());
        }
        Ok(Self {
            host: host.to_owned(),
            path: path.to_owned(),
        })
    }

    /// The address of the host.
    pub(crate) fn resolve(&self, port: u16) -> Result<SocketAddr, Failure> {
        let port = if port == 0 { PORT } else { port };
        let failed = |reason: String| Failure::Target(format!("host {:?}: {reason}", self.host));
        let mut found = (self.host.as_str(), port)
            .to_socket_addrs()
            .map_err(|error| failed(error.to_string()))?;
        found
            .next()
            .ok_or_else(|| failed("has no address".to_owned()))
    }
}

/// The longest name of a file that Linux has.
const NAME_MAX: usize = 255;

/// The receiver's root.
#[derive(Debug)]
pub(crate) struct Root {
    folder: File,
    path: PathBuf,
}

/// A file that has no name of its own yet.
#[derive(Debug)]
pub(crate) struct Arrival {
    folder: OwnedFd,
    temporary: String,
    name: String,
    /// With the folders below the root.
    path: String,
    /// To be written.
    pub(crate) file: File,
    kept: bool,
}

impl Root {
    /// The folder at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, Failure> {
        let failed = |reason| Failure::File {
            path: path.to_owned(),
            reason,
        };
        let path = path.canonicalize().map_err(failed)?;
        let folder = File::open(&path).map_err(failed)?;
        Ok(Self { folder, path })
    }

    /// Begins a file at `target`, or at `name` in it if it is a folder. The text says what is
    /// wrong, for the sender.
    pub(crate) fn begin(&self, target: &str, name: &str, mode: u32) -> Result<Arrival, String> {
        let inside = Path::new(target)
            .strip_prefix(&self.path)
            .unwrap_or_else(|_| Path::new(target));
        let mut whole = checked(inside, target)?;
        if target.is_empty() || target.ends_with('/') || self.is_folder(&whole) {
            let plain = Path::new(name).file_name().filter(|_| name != "..");
            whole.push(plain.ok_or_else(|| format!("{name:?} is no name for a file"))?);
        }
        let file_name = whole.file_name().and_then(|name| name.to_str());
        let name = file_name
            .ok_or_else(|| format!("{target:?} names no file"))?
            .to_owned();
        if name.len() > NAME_MAX {
            return Err(format!("the name has more than {NAME_MAX} bytes"));
        }
        let parent = whole.parent().unwrap_or_else(|| Path::new("")).to_owned();
        let folder = self
            .open_inside(&parent, OFlag::O_DIRECTORY | OFlag::O_RDONLY, Mode::empty())
            .map_err(|error| match error {
                // What openat2(2) says of RESOLVE_BENEATH.
                Errno::EXDEV => {
                    format!("{target:?} leads out of the receiver's root by a symbolic link")
                }
                other => format!("{target:?}: {}", other.desc()),
            })?;
        let temporary = temporary_name().map_err(|error| format!("/dev/urandom: {error}"))?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW;
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .mode(Mode::from_bits_truncate(mode & 0o777))
            .resolve(ResolveFlag::RESOLVE_BENEATH);
        let file = openat2(&folder, temporary.as_str(), how)
            .map_err(|error| format!("{target:?}: {}", error.desc()))?;
        Ok(Arrival {
            folder,
            temporary,
            name,
            path: whole.to_string_lossy().into_owned(),
            file: File::from(file),
            kept: false,
        })
    }

    fn is_folder(&self, path: &Path) -> bool {
        self.open_inside(path, OFlag::O_DIRECTORY | OFlag::O_RDONLY, Mode::empty())
            .is_ok()
    }

    /// Opens below the root: the kernel refuses every way out, also by symbolic links.
    fn open_inside(&self, path: &Path, flags: OFlag, mode: Mode) -> Result<OwnedFd, Errno> {
        let path = if path.as_os_str().is_empty() {
            Path::new(".")
        } else {
            path
        };
        let resolve = ResolveFlag::RESOLVE_BENEATH | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        let how = OpenHow::new()
            .flags(flags | OFlag::O_CLOEXEC)
            .mode(mode)
            .resolve(resolve);
        openat2(&self.folder, path, how)
    }
}

/// A name that no peer can guess: who knew it could put another file into the place of one that
/// arrives.
fn temporary_name() -> std::io::Result<String> {
    let mut random = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(format!(".{:032x}.hostcp", u128::from_le_bytes(random)))
}

/// The path, if it has only names in it.
fn checked(path: &Path, target: &str) -> Result<PathBuf, String> {
    let mut whole = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => whole.push(name),
            Component::CurDir => {}
            _ => return Err(format!("{target:?} leads out of the receiver's root")),
        }
    }
    Ok(whole)
}

impl Arrival {
    /// Where the file goes, below the root.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// Gives the file its name, in place of one that has it.
    pub(crate) fn keep(mut self) -> Result<(), String> {
        let failed = |error: Errno| format!("{:?}: {}", self.path, error.desc());
        let existing = fstatat(
            &self.folder,
            self.name.as_str(),
            AtFlags::AT_SYMLINK_NOFOLLOW,
        );
        if existing.is_ok_and(is_folder) {
            return Err(format!("{:?} is a folder", self.path));
        }
        renameat(
            &self.folder,
            self.temporary.as_str(),
            &self.folder,
            self.name.as_str(),
        )
        .map_err(failed)?;
        self.kept = true;
        Ok(())
    }
}

fn is_folder(stat: FileStat) -> bool {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT == SFlag::S_IFDIR
}

impl Drop for Arrival {
    fn drop(&mut self) {
        if !self.kept {
            let flags = UnlinkatFlags::NoRemoveDir;
            let _ = unlinkat(&self.folder, self.temporary.as_str(), flags);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn targets_are_parsed() {
        let target = Target::parse("leaf:a:b").expect("a target");
        assert_eq!(
            (target.host.as_str(), target.path.as_str()),
            ("leaf", "a:b")
        );
        let target = Target::parse("[fd00::2]:x").expect("a target");
        assert_eq!(
            (target.host.as_str(), target.path.as_str()),
            ("fd00::2", "x")
        );
        assert_eq!(target.resolve(9).expect("an address").port(), 9);
        let target = Target::parse("fd00::2:x").expect("clear");
        assert_eq!(
            (target.host.as_str(), target.path.as_str()),
            ("fd00::2", "x")
        );
        // The path may begin with "a:".
        for wrong in [
            "",
            "x",
            ":x",
            "/etc/a:b",
            "[fd00::2]",
            "[fd00::2]x",
            "fd00::2:a:b",
        ] {
            assert!(Target::parse(wrong).is_err(), "{wrong}");
        }
    }

    /// HT-3: names of unfinished files cannot be foreseen, so that no peer replaces one; a name
    /// that cannot be given is refused before anything is sent.
    #[test]
    fn unfinished_files_have_random_names() {
        let temporary = tempfile::tempdir().expect("a folder");
        let root = Root::open(temporary.path()).expect("the root");
        let begin = || root.begin("a", "f", 0o644).expect("begun");
        let (first, second) = (begin(), begin());
        let digits = |arrival: &Arrival| {
            let name = arrival.temporary.strip_prefix('.');
            let name = name.and_then(|it| it.strip_suffix(".hostcp"));
            u128::from_str_radix(name.expect("the form"), 16).expect("digits")
        };
        // Of 128 random bits about half differ; with a counter few would.
        let differ = (digits(&first) ^ digits(&second)).count_ones();
        assert!((16..=112).contains(&differ), "{differ} bits");
        let long = "x".repeat(NAME_MAX + 1);
        assert!(root.begin(&long, "f", 0o644).is_err());
        assert!(root.begin("", &long, 0o644).is_err());
    }

    /// Nothing is written outside of the root, and nothing gets its name before it is whole.
    #[test]
    fn the_root_is_not_left() {
        let temporary = tempfile::tempdir().expect("a folder");
        let base = temporary.path().join("root");
        std::fs::create_dir_all(base.join("sub")).expect("folders");
        std::os::unix::fs::symlink("/tmp", base.join("out")).expect("a link");
        std::os::unix::fs::symlink("/etc/passwd", base.join("file")).expect("a link");
        let root = Root::open(&base).expect("the root");
        for wrong in ["../x", "/etc/x", "sub/../../x", "out/x", "nowhere/x", ".."] {
            assert!(root.begin(wrong, "f", 0o644).is_err(), "{wrong}");
        }
        let out = root.begin("out/x", "f", 0o644).expect_err("it leads out");
        assert!(out.ends_with("root by a symbolic link"), "{out}");
        let below = root.begin("sub/deep", "f", 0o644).expect("begun");
        assert_eq!(below.path(), "sub/deep");
        drop(below);
        for wrong in ["..", "/", ""] {
            assert!(root.begin("sub/", wrong, 0o644).is_err(), "{wrong}");
        }
        for (target, place) in [
            ("a", "a"),
            ("sub", "sub/f"),
            ("sub/", "sub/f"),
            ("", "f"),
            ("./sub/b", "sub/b"),
            ("file", "file"),
        ] {
            let mut arrival = root.begin(target, "x/f", 0o600).expect(target);
            arrival.file.write_all(target.as_bytes()).expect("written");
            assert!(
                !base.join(place).exists() || place.len() < 6,
                "not before its time"
            );
            arrival.keep().expect(target);
            let content = std::fs::read(base.join(place)).expect(place);
            assert_eq!(content, target.as_bytes());
            std::fs::remove_file(base.join(place)).expect("removed");
        }
        drop(root.begin("a", "f", 0o644).expect("begun"));
        let absolute = base.canonicalize().expect("a path").join("abs");
        let arrival = root
            .begin(absolute.to_str().expect("UTF-8"), "f", 0o644)
            .expect("inside");
        assert_eq!(arrival.path(), "abs");
        drop(arrival);
        let left: Vec<_> = std::fs::read_dir(&base).expect("listed").collect();
        assert_eq!(left.len(), 2, "{left:?}");
    }
}
