//! The kernel that the guest boots: Debian's own, which `scripts/setup --guest` has unpacked.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::cpio::Archive;

/// Where `scripts/setup --guest` unpacks the kernel's package.
const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/guest/kernel");

/// A program that needs no library: the initramfs has none.
const BUSYBOX: &str = "/bin/busybox";

/// What the guest needs before it sees the host's files. Everything else it loads from there.
const MODULES: &[&str] = &[
    "virtio_pci",
    "virtio_console",
    "9pnet_virtio",
    "9p",
    "overlay",
];

/// A kernel with its modules.
#[derive(Debug)]
pub(crate) struct Kernel {
    folder: PathBuf,
    version: String,
}

impl Kernel {
    /// The one that is there.
    ///
    /// # Errors
    /// When there is none: what is missing.
    pub(crate) fn find() -> io::Result<Self> {
        let missing = |error| named(Path::new(FOLDER), &error);
        let folder = Path::new(FOLDER).canonicalize().map_err(missing)?;
        let modules = folder.join("lib/modules");
        let mut entries = modules
            .read_dir()
            .map_err(|error| named(&modules, &error))?;
        let entry = entries
            .next()
            .ok_or_else(|| io::Error::other(format!("{} is empty", modules.display())))??;
        let version = entry.file_name().to_string_lossy().into_owned();
        Ok(Self { folder, version })
    }

    /// The folder with `boot/` and `lib/modules/`.
    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The compressed kernel.
    pub(crate) fn image(&self) -> PathBuf {
        self.folder.join(format!("boot/vmlinuz-{}", self.version))
    }

    /// The initramfs, in which `init` is process 1.
    ///
    /// # Errors
    /// When a module or busybox is missing.
    pub(crate) fn initramfs(&self, init: &str) -> io::Result<Vec<u8>> {
        let read = |path: &Path| std::fs::read(path).map_err(|error| named(path, &error));
        let mut archive = Archive::default();
        archive.folder("bin");
        archive.file("bin/busybox", &read(Path::new(BUSYBOX))?);
        archive.file("init", init.as_bytes());
        archive.folder("modules");
        for (number, path) in self.modules()?.iter().enumerate() {
            archive.file(&format!("modules/{number:02}.ko"), &read(path)?);
        }
        Ok(archive.finish())
    }

    /// Files of [`MODULES`] and of what they need, in the order in which they can be loaded.
    fn modules(&self) -> io::Result<Vec<PathBuf>> {
        let mut files: Vec<PathBuf> = Vec::new();
        for module in MODULES {
            let output = Command::new("modprobe")
                .arg("--dirname")
                .arg(&self.folder)
                .args(["--set-version", &self.version, "--show-depends", module])
                .output()
                .map_err(|error| named(Path::new("modprobe"), &error))?;
            if !output.status.success() {
                let why = String::from_utf8_lossy(&output.stderr);
                return Err(io::Error::other(format!("module {module}: {}", why.trim())));
            }
            // "insmod FILE", or "builtin NAME".
            for line in String::from_utf8_lossy(&output.stdout).lines() {
                let file = line.strip_prefix("insmod ").map(|file| file.trim().into());
                if let Some(file) = file.filter(|file| !files.contains(file)) {
                    files.push(file);
                }
            }
        }
        Ok(files)
    }
}

/// An error that says which file it is about.
pub(crate) fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}
