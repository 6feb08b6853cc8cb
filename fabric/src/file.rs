//! The file that the demonstration copies.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use lab::LabError;
use sha2::{Digest, Sha256};

/// Least size of the file, in bytes.
const SIZE: u64 = 256 << 20;

/// Joins shared libraries of this machine until the file is large enough: real data, no zeros.
pub(crate) fn make(path: &Path) -> Result<PathBuf, LabError> {
    let context = || path.display().to_string();
    let mut file = File::create(path).map_err(LabError::io(context()))?;
    let mut size = 0;
    for library in libraries() {
        let mut source =
            File::open(&library).map_err(LabError::io(library.display().to_string()))?;
        size += io::copy(&mut source, &mut file).map_err(LabError::io(context()))?;
        if size >= SIZE {
            break;
        }
    }
    file.flush().map_err(LabError::io(context()))?;
    Ok(path.to_path_buf())
}

/// Shared libraries of the Rust toolchain and of the system, in a fixed order.
fn libraries() -> Vec<PathBuf> {
    let sysroot = Command::new("rustc").args(["--print", "sysroot"]).output();
    let sysroot = sysroot.map(|o| String::from_utf8_lossy(&o.stdout).trim().to_owned());
    let toolchain = sysroot
        .map(|root| Path::new(&root).join("lib"))
        .unwrap_or_default();
    let mut found = Vec::new();
    for folder in [
        toolchain,
        "/usr/lib/x86_64-linux-gnu".into(),
        "/usr/bin".into(),
    ] {
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries
            .filter(|entry| {
                entry
                    .metadata()
                    .is_ok_and(|m| m.is_file() && m.len() > 1 << 20)
            })
            .map(|entry| entry.path())
            .collect();
        files.sort();
        found.extend(files);
    }
    found
}

/// SHA-256 of a file, in hexadecimal.
pub(crate) fn digest(path: &Path) -> Result<String, LabError> {
    let context = || path.display().to_string();
    let mut file = File::open(path).map_err(LabError::io(context()))?;
    let mut hash = Sha256::new();
    let mut block = vec![0; 1 << 20];
    loop {
        match file.read(&mut block).map_err(LabError::io(context()))? {
            0 => break,
            length => hash.update(&block[..length]),
        }
    }
    Ok(hash
        .finalize()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}
