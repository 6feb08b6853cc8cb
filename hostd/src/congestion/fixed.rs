//! A window of fixed size. Only silence narrows it: after a time-out the first packets feel out
//! whether the network is back, and each acknowledgement opens the window by what it covers, as
//! slow start does (RFC 5681 3.1), until it has its size again.

/// Packets in flight after a time-out.
const RESTART: u32 = 8;

/// See the module.
#[derive(Clone, Debug)]
pub(crate) struct FixedWindow {
    size: u32,
    open: u32,
}

impl FixedWindow {
    /// A window of `size` packets.
    pub(crate) fn new(size: u32) -> Self {
        let size = size.max(1);
        Self { size, open: size }
    }

    pub(crate) fn window(&self) -> u32 {
        self.open
    }

    pub(crate) fn acknowledged(&mut self, packets: u32) {
        self.open = self.open.saturating_add(packets).min(self.size);
    }

    /// Each further time-out in a row halves what is risked, down to one packet.
    pub(crate) fn timed_out(&mut self) {
        self.open = (self.open / 2).clamp(1, RESTART);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_silence_narrows_it() {
        let mut window = FixedWindow::new(100);
        window.acknowledged(5);
        assert_eq!(window.window(), 100);
        window.timed_out();
        assert_eq!(window.window(), RESTART);
        for _ in 0..5 {
            window.timed_out();
        }
        assert_eq!(window.window(), 1);
        window.acknowledged(1);
        assert_eq!(window.window(), 2);
        window.acknowledged(1000);
        assert_eq!(window.window(), 100);
    }
}
