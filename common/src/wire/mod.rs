//! Wire formats: bytes to headers and back, one file a protocol.
