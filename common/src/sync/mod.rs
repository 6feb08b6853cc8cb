//! Lock-free cores between threads.
