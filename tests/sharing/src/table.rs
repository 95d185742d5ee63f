//! The table of the matrix.
