//! The laboratory: whole fabrics in network namespaces.
