//! Programs that run beside this one.

use std::process::Child;

/// Processes that end with this.
pub(crate) struct Processes(pub(crate) Vec<Child>);

impl Drop for Processes {
    fn drop(&mut self) {
        for process in &mut self.0 {
            // It may have ended.
            let _ = process.kill();
            let _ = process.wait();
        }
    }
}
