//! allocate
