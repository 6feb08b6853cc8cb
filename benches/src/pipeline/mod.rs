//! SW-1, SW-2: the packet path of one worker without I/O: from parse to rewrite, on a full Internet table.

mod switch;

pub use switch::bench;
