//! Who plays: the devices of the simulated node, and the pods on them.

/// The devices, as a scenario of the simulator.
pub(crate) const SCENARIO: &str = r#"
[[gpu]]
model = "H100"

[[gpu]]
model = "H100"
mig = [{ profile = "3g.40gb" }, { profile = "1g.10gb" }, { profile = "1g.10gb" }]

[[gpu]]
model = "H100"
"#;

/// The GPU that is granted in replicas, by its index, and in how many.
pub(crate) const SHARED: (usize, u32) = (2, 4);

/// A device of the node: a whole GPU by index, or an instance of one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Gpu(usize),
    Mig(usize, usize),
    Replica(usize, u32),
}

/// A pod and the program in it.
#[derive(Debug)]
pub(crate) struct Role {
    pub(crate) namespace: &'static str,
    pub(crate) name: &'static str,
    pub(crate) team: &'static str,
    pub(crate) place: Place,
    /// Program and options.
    pub(crate) program: &'static [&'static str],
    /// What there is to see.
    pub(crate) story: &'static str,
}

/// The pods.
pub(crate) const CAST: [Role; 7] = [
    Role {
        namespace: "research",
        name: "trainer-busy",
        team: "vision",
        place: Place::Gpu(0),
        program: &[
            "trainer",
            "--kernel-us",
            "1000",
            "--kernels",
            "20",
            "--host-us",
            "500",
            "--blocking-sync",
        ],
        story: "whole GPU, trains without waiting",
    },
    Role {
        namespace: "research",
        name: "trainer-waits",
        team: "vision",
        place: Place::Mig(1, 0),
        program: &["waiter", "--wait", "disk", "--read-kib", "32768", "--blocking-sync"],
        story: "MIG 3g.40gb, reads each batch from disk",
    },
    Role {
        namespace: "notebooks",
        name: "notebook-ada",
        team: "nlp",
        place: Place::Mig(1, 1),
        program: &["notebook", "--blocking-sync"],
        story: "MIG 1g.10gb, one kernel and then nothing",
    },
    Role {
        namespace: "serving",
        name: "server",
        team: "search",
        place: Place::Replica(2, 0),
        program: &["server", "--blocking-sync"],
        story: "1 of 4 replicas, bursts of requests",
    },
    Role {
        namespace: "batch",
        name: "embedder",
        team: "search",
        place: Place::Replica(2, 1),
        program: &["hog", "--blocking-sync"],
        story: "1 of 4 replicas, takes more than its quarter",
    },
    Role {
        namespace: "batch",
        name: "augmenter",
        team: "vision",
        place: Place::Replica(2, 3),
        program: &["waiter", "--wait", "lock", "--wait-us", "40000", "--kernels", "10", "--blocking-sync"],
        story: "1 of 4 replicas, a loader thread computes each batch",
    },
    Role {
        namespace: "serving",
        name: "forgotten",
        team: "search",
        place: Place::Replica(2, 2),
        program: &["noop"],
        story: "1 of 4 replicas, never opens its GPU",
    },
];

impl Role {
    /// The pod's UID, made from its name so that runs are alike.
    pub(crate) fn uid(&self) -> String {
        let hash = fnv(self.name);
        let tail = fnv(self.namespace) & 0xffff_ffff_ffff;
        format!(
            "{:08x}-{:04x}-4{:03x}-8{:03x}-{tail:012x}",
            hash >> 32,
            (hash >> 16) & 0xffff,
            hash & 0xfff,
            (hash >> 12) & 0xfff
        )
    }

    /// The identifier of its only container.
    pub(crate) fn container(&self) -> String {
        let part = |part: u32| fnv(&format!("{}{part}", self.name));
        format!("{:016x}{:016x}{:016x}{:016x}", part(0), part(1), part(2), part(3))
    }
}

/// FNV-1a, 64 bits: names in, well-spread digits out.
fn fnv(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}
