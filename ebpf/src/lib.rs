//! What the kernel of this node offers to Warpmeter's probes.
