//! The GPU models that a scenario can name, and how MIG divides them.

use serde::Deserialize;

/// A GPU model.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub enum Model {
    /// NVIDIA H100 80GB HBM3: GPM, MIG.
    H100,
    /// NVIDIA A100-SXM4-80GB: MIG, no GPM.
    A100,
    /// Tesla T4: neither.
    T4,
    /// NVIDIA L40S, of Ada: neither.
    L40S,
    /// NVIDIA GeForce GTX 1650: neither, and no tensor pipes.
    #[serde(rename = "GTX 1650")]
    Gtx1650,
}

/// What does not change about a model.
#[derive(Clone, Copy, Debug)]
pub struct Preset {
    /// Product name, as NVML reports it.
    pub name: &'static str,
    /// The name of its chip, as CUPTI has it.
    pub chip: &'static str,
    /// Memory capacity.
    pub memory_mib: u64,
    /// Streaming multiprocessors.
    pub sms: u32,
    /// Warps that one SM can hold.
    pub warps_per_sm: u32,
    /// Power when idle.
    pub idle_w: u32,
    /// Power limit.
    pub max_w: u32,
    /// CUDA compute capability.
    pub capability: (u32, u32),
    /// `nvmlDeviceArchitecture_t`.
    pub architecture: u32,
    /// `nvmlBrandType_t`.
    pub brand: u32,
    /// SM clock under load.
    pub sm_clock_mhz: u32,
    /// Memory clock.
    pub mem_clock_mhz: u32,
    /// Width of the memory's bus, in bits.
    pub memory_bits: u32,
    /// Whether GPM counters exist.
    pub gpm: bool,
    /// Whether the device can be divided by MIG.
    pub mig: bool,
    /// PCI device and vendor id, as NVML packs them.
    pub pci_id: u32,
    /// PCIe generation.
    pub pcie_gen: u32,
    /// NVLink links.
    pub nvlinks: u32,
    /// GPU instances by compute slices: slices, SMs, memory in eighths.
    pub slices: &'static [Slice],
}

/// One size of GPU instance.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// Compute slices, of seven.
    pub compute: u32,
    /// SMs.
    pub sms: u32,
    /// Memory slices, of eight.
    pub memory: u32,
    /// `NVML_GPU_INSTANCE_PROFILE_*`.
    pub profile_id: u32,
    /// The first instance id that the driver gives to this size.
    pub first_id: u32,
    /// How many fit on an empty device.
    pub max: u32,
}

const fn slice(compute: u32, sms: u32, memory: u32, profile_id: u32, first_id: u32, max: u32) -> Slice {
    Slice { compute, sms, memory, profile_id, first_id, max }
}

const H100_SLICES: &[Slice] = &[
    slice(1, 16, 1, 0, 7, 7),
    slice(2, 32, 2, 1, 3, 3),
    slice(3, 60, 4, 2, 1, 2),
    slice(4, 64, 4, 3, 1, 1),
    slice(7, 132, 8, 4, 0, 1),
];
const A100_SLICES: &[Slice] = &[
    slice(1, 14, 1, 0, 7, 7),
    slice(2, 28, 2, 1, 3, 3),
    slice(3, 42, 4, 2, 1, 2),
    slice(4, 56, 4, 3, 1, 1),
    slice(7, 98, 8, 4, 0, 1),
];

impl Model {
    /// The constants of this model.
    pub const fn preset(self) -> Preset {
        match self {
            Self::H100 => Preset {
                name: "NVIDIA H100 80GB HBM3",
                chip: "GH100",
                memory_mib: 81_559,
                sms: 132,
                warps_per_sm: 64,
                idle_w: 72,
                max_w: 700,
                capability: (9, 0),
                architecture: 9,
                brand: 14,
                sm_clock_mhz: 1980,
                mem_clock_mhz: 2619,
                memory_bits: 5120,
                gpm: true,
                mig: true,
                pci_id: 0x2330_10de,
                pcie_gen: 5,
                nvlinks: 18,
                slices: H100_SLICES,
            },
            Self::A100 => Preset {
                name: "NVIDIA A100-SXM4-80GB",
                chip: "GA100",
                memory_mib: 81_920,
                sms: 108,
                warps_per_sm: 64,
                idle_w: 62,
                max_w: 400,
                capability: (8, 0),
                architecture: 7,
                brand: 14,
                sm_clock_mhz: 1410,
                mem_clock_mhz: 1593,
                memory_bits: 5120,
                gpm: false,
                mig: true,
                pci_id: 0x20b2_10de,
                pcie_gen: 4,
                nvlinks: 12,
                slices: A100_SLICES,
            },
            Self::T4 => Preset {
                name: "Tesla T4",
                chip: "TU104",
                memory_mib: 15_360,
                sms: 40,
                warps_per_sm: 32,
                idle_w: 10,
                max_w: 70,
                capability: (7, 5),
                architecture: 6,
                brand: 2,
                sm_clock_mhz: 1590,
                mem_clock_mhz: 5000,
                memory_bits: 256,
                gpm: false,
                mig: false,
                pci_id: 0x1eb8_10de,
                pcie_gen: 3,
                nvlinks: 0,
                slices: &[],
            },
            Self::L40S => Preset {
                name: "NVIDIA L40S",
                chip: "AD102",
                memory_mib: 46_068,
                sms: 142,
                warps_per_sm: 48,
                idle_w: 35,
                max_w: 350,
                capability: (8, 9),
                architecture: 8,
                brand: 14,
                sm_clock_mhz: 2520,
                mem_clock_mhz: 9001,
                memory_bits: 384,
                gpm: false,
                mig: false,
                pci_id: 0x26b9_10de,
                pcie_gen: 4,
                nvlinks: 0,
                slices: &[],
            },
            Self::Gtx1650 => Preset {
                name: "NVIDIA GeForce GTX 1650",
                chip: "TU117",
                memory_mib: 4096,
                sms: 14,
                warps_per_sm: 32,
                idle_w: 5,
                max_w: 75,
                capability: (7, 5),
                architecture: 6,
                brand: 5,
                sm_clock_mhz: 1665,
                mem_clock_mhz: 4001,
                memory_bits: 128,
                gpm: false,
                mig: false,
                pci_id: 0x1f82_10de,
                pcie_gen: 3,
                nvlinks: 0,
                slices: &[],
            },
        }
    }
}

impl Preset {
    /// The instance size that a profile such as `3g.40gb` names, if this model has it.
    pub fn slice(&self, profile: &str) -> Option<Slice> {
        let (compute, _) = profile.split_once("g.")?;
        let compute: u32 = compute.parse().ok()?;
        self.slices.iter().find(|s| s.compute == compute && self.profile(s) == profile).copied()
    }

    /// The profile's name. NVIDIA rounds a slice's share of the memory to whole multiples of 10 GB here.
    pub fn profile(&self, slice: &Slice) -> String {
        format!("{}g.{}gb", slice.compute, slice.memory * 10)
    }

    /// Memory of an instance of this size.
    pub fn slice_mib(&self, slice: &Slice, total_mib: u64) -> u64 {
        total_mib * u64::from(slice.memory) / 8
    }
}
