//! A per-node daemon that says where paid GPU time goes, per pod.
fn main() {}
