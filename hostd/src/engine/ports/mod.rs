//! What the engine knows of its ports.

pub(super) mod pacer;
