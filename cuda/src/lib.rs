//! Everything in Warpmeter that touches an NVIDIA library.
