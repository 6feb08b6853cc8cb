//! A multipath, RDMA-like transport for the applications of a host.
