//! Runs a command line of bash in a guest: `cargo run -p guest --example guest -- uname -r`.

use std::time::{Duration, Instant};

use guest::{Guest, Options};

/// Longer than anything that somebody waits for.
const LIMIT: Duration = Duration::from_secs(3600);

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let start = Instant::now();
    let mut guest = Guest::boot(&Options::default())?;
    eprintln!("the guest is up after {:.1?}", start.elapsed());
    let output = guest.run(&words.join(" "), LIMIT)?;
    drop(guest);
    std::process::exit(output.status);
}
