//! SIGINT and SIGTERM while a laboratory is built or used.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use indicatif::ProgressBar;
use lab::sweep::sweep;
use lab::{Builder, Lab, LabError, run_dir};

/// Ends the making of a laboratory first, then takes down what is up, then ends this process.
pub(crate) struct Interrupts {
    seen: Arc<AtomicBool>,
    /// A signal is how the user ends it, and no failure.
    expected: Arc<AtomicBool>,
    making: Arc<Mutex<()>>,
}

impl Interrupts {
    /// Watches for signals in the name of these laboratories, whether they are up or not yet.
    pub(crate) fn watch(names: &[&str]) -> Result<Interrupts, LabError> {
        use tokio::signal::unix::{SignalKind, signal};
        let watch = Interrupts {
            seen: Arc::default(),
            expected: Arc::default(),
            making: Arc::default(),
        };
        let (seen, making) = (Arc::clone(&watch.seen), Arc::clone(&watch.making));
        let expected = Arc::clone(&watch.expected);
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(LabError::io("event loop"))?;
        let guard = runtime.enter();
        let mut interrupt = signal(SignalKind::interrupt()).map_err(LabError::io("SIGINT"))?;
        let mut terminate = signal(SignalKind::terminate()).map_err(LabError::io("SIGTERM"))?;
        drop(guard);
        std::thread::spawn(move || {
            runtime.block_on(async {
                tokio::select! {
                    _ = interrupt.recv() => {}
                    _ = terminate.recv() => {}
                }
            });
            seen.store(true, Ordering::SeqCst);
            // A maker that panicked has left what the sweep removes.
            let _made = making.lock();
            let expected = expected.load(Ordering::SeqCst);
            eprintln!(
                "{}",
                if expected {
                    ""
                } else {
                    "\nfabric: interrupted"
                }
            );
            for name in names.iter().filter(|name| run_dir(name).exists()) {
                eprintln!("fabric: taking laboratory '{name}' down");
                if let Err(error) = sweep(name) {
                    eprintln!("fabric: {error}");
                }
            }
            // 128 + SIGINT, as a shell reports it.
            std::process::exit(if expected { 0 } else { 130 });
        });
        Ok(watch)
    }

    /// From now on a signal is the way to end, as the user was told.
    pub(crate) fn expect(&self) {
        self.expected.store(true, Ordering::SeqCst);
    }

    /// Makes a laboratory, showing each step on `bar`.
    pub(crate) fn make(&self, builder: Builder, bar: &ProgressBar) -> Result<Lab, LabError> {
        let making = self.making.lock();
        let made = builder.up_with(&mut |step| {
            bar.set_message(step.to_owned());
            if self.seen.load(Ordering::SeqCst) {
                Err(LabError::Interrupted)
            } else {
                Ok(())
            }
        });
        drop(making);
        self.settle();
        made
    }

    /// Does not return after a signal. Errors that come from taking the laboratory down are not
    /// reported, and a return from `main` would end that half-way.
    pub(crate) fn settle(&self) {
        while self.seen.load(Ordering::SeqCst) {
            std::thread::park();
        }
    }
}
