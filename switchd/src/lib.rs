//! A lossless, congestion-aware switch and router in software.
