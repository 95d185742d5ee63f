//! The built-in price table: dated, in US dollars, and never more than a first guess.
//!
//! List prices per hour of one region for each provider. Within a year such tables have been off by a factor of
//! 1.5 to 1.8, and what is paid is seldom the list price: everything goes before this table, `check` says when it
//! is all there is, and `warpmeter_price_table_timestamp_seconds` gives its age.
//!
//! From what the open-source Karpenter providers generate out of the providers' price lists, as collected on the day
//! of each list; Lambda's from its own page. Sizes of one family whose price per GPU is the same are computed from
//! the largest one. Spot prices move within hours; only those of providers that set them by the month are here.

use super::Date;

/// What an instance type has, and what it costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Instance {
    /// The type, as the node label has it.
    pub name: &'static str,
    /// How many devices the driver shows on it.
    pub gpus: u32,
    /// What part of a physical GPU each of them is: numerator, denominator.
    pub part: (u32, u32),
    /// The GPU's model: words of its product name.
    pub model: &'static str,
    /// The list price of the instance per hour, in millionths of a dollar.
    pub on_demand: u64,
    /// That of the same instance on spot, if it is known.
    pub spot: Option<u64>,
}

/// Prices from one place, of one day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct List {
    /// Provider and region.
    pub source: &'static str,
    /// The day on which the provider asked these prices.
    pub as_of: Date,
    /// The instance types.
    pub instances: &'static [Instance],
}

/// The price of a whole GPU of a model, with its part of the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Model {
    /// Words of the product name.
    pub words: &'static str,
    /// The price per hour, in millionths of a dollar.
    pub price: u64,
    /// Whose price that is.
    pub source: &'static str,
    /// Its day.
    pub as_of: Date,
}

/// The currency of the table.
pub const CURRENCY: &str = "USD";

/// Every list.
pub static LISTS: [List; 7] = [
    List { source: "AWS us-east-1", as_of: day(2026, 7, 20), instances: AWS },
    List { source: "AWS us-east-1", as_of: day(2026, 1, 19), instances: AWS_SIZES },
    List { source: "Azure eastus", as_of: day(2026, 6, 18), instances: AZURE },
    List { source: "Azure westus3 and eastus2", as_of: day(2026, 6, 18), instances: AZURE_WEST },
    List { source: "Google Cloud us-central1", as_of: day(2026, 8, 3), instances: GOOGLE },
    List { source: "Google Cloud us-east4", as_of: day(2026, 8, 3), instances: GOOGLE_EAST },
    List { source: "Lambda", as_of: day(2026, 9, 20), instances: LAMBDA },
];

/// An instance type, with the list that it is in. Azure's prefix `Standard_` may be there or not.
pub fn instance(name: &str) -> Option<(&'static List, &'static Instance)> {
    let plain = |name: &str| name.to_ascii_lowercase().trim_start_matches("standard_").to_owned();
    let wanted = plain(name);
    LISTS.iter().find_map(|list| {
        let found = list.instances.iter().find(|instance| plain(instance.name) == wanted);
        found.map(|instance| (list, instance))
    })
}

const AWS: &[Instance] = &[
    row("g4dn.xlarge", 1, "T4", 526_000),
    row("g4dn.12xlarge", 4, "T4", 3_912_000),
    row("g4dn.metal", 8, "T4", 7_824_000),
    row("g5.xlarge", 1, "A10G", 1_006_000),
    row("g5.12xlarge", 4, "A10G", 5_672_000),
    row("g5.48xlarge", 8, "A10G", 16_288_000),
    row("g5g.xlarge", 1, "T4G", 420_000),
    row("g6.xlarge", 1, "L4", 804_800),
    row("g6.12xlarge", 4, "L4", 4_601_600),
    row("g6.48xlarge", 8, "L4", 13_350_400),
    row("gr6.4xlarge", 1, "L4", 1_539_200),
    part("g6f.large", (1, 8), "L4", 202_000),
    part("g6f.2xlarge", (1, 4), "L4", 475_000),
    part("g6f.4xlarge", (1, 2), "L4", 950_000),
    row("g6e.xlarge", 1, "L40S", 1_861_000),
    row("g6e.12xlarge", 4, "L40S", 10_492_640),
    row("g6e.48xlarge", 8, "L40S", 30_131_180),
    row("g7.2xlarge", 1, "RTX PRO 4500", 2_520_000),
    row("g7.48xlarge", 8, "RTX PRO 4500", 28_510_000),
    row("g7e.2xlarge", 1, "RTX PRO 6000", 3_363_000),
    row("g7e.48xlarge", 8, "RTX PRO 6000", 33_144_320),
    row("p3.2xlarge", 1, "V100", 3_060_000),
    row("p3.16xlarge", 8, "V100", 24_480_000),
    row("p3dn.24xlarge", 8, "V100", 31_212_000),
    row("p4d.24xlarge", 8, "A100 40GB", 21_957_642),
    row("p4de.24xlarge", 8, "A100 80GB", 27_447_050),
    row("p5.4xlarge", 1, "H100", 6_880_000),
    row("p5.48xlarge", 8, "H100", 55_040_000),
    row("p5en.48xlarge", 8, "H200", 63_296_000),
    row("p6-b200.48xlarge", 8, "B200", 113_932_800),
    row("p6-b300.48xlarge", 8, "B300", 142_416_000),
];

/// Further sizes of the same families, from a list half a year older.
const AWS_SIZES: &[Instance] = &[
    row("g4dn.2xlarge", 1, "T4", 752_000),
    row("g4dn.4xlarge", 1, "T4", 1_204_000),
    row("g4dn.8xlarge", 1, "T4", 2_176_000),
    row("g4dn.16xlarge", 1, "T4", 4_352_000),
    row("g5.2xlarge", 1, "A10G", 1_212_000),
    row("g5.4xlarge", 1, "A10G", 1_624_000),
    row("g5.8xlarge", 1, "A10G", 2_448_000),
    row("g5.16xlarge", 1, "A10G", 4_096_000),
    row("g5.24xlarge", 4, "A10G", 8_144_000),
    row("g5g.2xlarge", 1, "T4G", 556_000),
    row("g5g.4xlarge", 1, "T4G", 828_000),
    row("g5g.8xlarge", 1, "T4G", 1_372_000),
    row("g5g.16xlarge", 2, "T4G", 2_744_000),
    row("g5g.metal", 2, "T4G", 2_744_000),
    row("g6.2xlarge", 1, "L4", 977_600),
    row("g6.4xlarge", 1, "L4", 1_323_200),
    row("g6.8xlarge", 1, "L4", 2_014_400),
    row("g6.16xlarge", 1, "L4", 3_396_800),
    row("g6.24xlarge", 4, "L4", 6_675_200),
    row("gr6.8xlarge", 1, "L4", 2_446_400),
    part("g6f.xlarge", (1, 8), "L4", 237_500),
    row("g6e.2xlarge", 1, "L40S", 2_242_080),
    row("g6e.4xlarge", 1, "L40S", 3_004_240),
    row("g6e.8xlarge", 1, "L40S", 4_528_560),
    row("g6e.16xlarge", 1, "L40S", 7_577_190),
    row("g6e.24xlarge", 4, "L40S", 15_065_590),
    row("p3.8xlarge", 4, "V100", 12_240_000),
];

const AZURE: &[Instance] = &[
    row("NC4as_T4_v3", 1, "T4", 526_000),
    row("NC64as_T4_v3", 4, "T4", 4_352_000),
    part("NV6ads_A10_v5", (1, 6), "A10", 454_000),
    row("NV36ads_A10_v5", 1, "A10", 3_200_000),
    row("NC6s_v3", 1, "V100", 3_060_000),
    row("NC24s_v3", 4, "V100", 12_240_000),
    row("ND40rs_v2", 8, "V100", 22_032_000),
    row("NC24ads_A100_v4", 1, "A100 80GB", 3_673_000),
    row("NC96ads_A100_v4", 4, "A100 80GB", 14_692_000),
    row("ND96asr_v4", 8, "A100 40GB", 27_197_000),
    row("ND96amsr_A100_v4", 8, "A100 80GB", 32_770_000),
    row("NC40ads_H100_v5", 1, "H100", 6_980_000),
    row("NC80adis_H100_v5", 2, "H100", 13_960_000),
    row("ND96isr_H100_v5", 8, "H100", 98_320_000),
    row("ND128isr_NDR_GB200_v6", 4, "GB200", 108_160_000),
];

const AZURE_WEST: &[Instance] = &[row("ND96isr_H200_v5", 8, "H200", 84_800_000)];

const GOOGLE: &[Instance] = &[
    spot("a2-highgpu-1g", 1, "A100 40GB", 3_673_375, 1_928_000),
    spot("a2-highgpu-2g", 2, "A100 40GB", 7_346_750, 3_856_000),
    spot("a2-highgpu-4g", 4, "A100 40GB", 14_693_500, 7_712_000),
    spot("a2-highgpu-8g", 8, "A100 40GB", 29_387_000, 15_424_000),
    row("a2-megagpu-16g", 16, "A100 40GB", 55_739_500),
    spot("a2-ultragpu-1g", 1, "A100 80GB", 5_068_800, 2_760_000),
    spot("a2-ultragpu-2g", 2, "A100 80GB", 10_137_600, 5_520_000),
    spot("a2-ultragpu-4g", 4, "A100 80GB", 20_275_200, 11_040_000),
    spot("a2-ultragpu-8g", 8, "A100 80GB", 40_550_400, 22_080_000),
    spot("a3-highgpu-1g", 1, "H100", 11_061_250, 6_326_000),
    spot("a3-highgpu-2g", 2, "H100", 22_122_500, 12_652_000),
    spot("a3-highgpu-4g", 4, "H100", 44_245_000, 25_304_000),
    spot("a3-highgpu-8g", 8, "H100", 88_490_000, 50_608_000),
    spot("g2-standard-4", 1, "L4", 706_800, 397_300),
    row("g2-standard-48", 4, "L4", 4_001_600),
    row("g2-standard-96", 8, "L4", 8_003_200),
    spot("g4-standard-48", 1, "RTX PRO 6000", 4_500_000, 1_800_000),
    row("g4-standard-96", 2, "RTX PRO 6000", 8_999_860),
    row("g4-standard-192", 4, "RTX PRO 6000", 17_999_720),
    row("g4-standard-384", 8, "RTX PRO 6000", 35_999_440),
];

const GOOGLE_EAST: &[Instance] = &[row("a3-megagpu-8g", 8, "H100", 92_940_000)];

const LAMBDA: &[Instance] = &[row("gpu_1x_gh200", 1, "GH200", 2_290_000)];

/// The cheapest list price per GPU of the large providers, else of a smaller one.
pub static MODELS: [Model; 18] = [
    Model { words: "T4", price: 526_000, source: "AWS us-east-1", as_of: day(2026, 7, 20) },
    Model { words: "T4G", price: 420_000, source: "AWS us-east-1", as_of: day(2026, 7, 20) },
    Model { words: "L4", price: 706_800, source: "Google Cloud us-central1", as_of: day(2026, 8, 3) },
    Model { words: "A10G", price: 1_006_000, source: "AWS us-east-1", as_of: day(2026, 7, 20) },
    Model { words: "A10", price: 1_290_000, source: "Lambda", as_of: day(2026, 9, 20) },
    Model { words: "V100", price: 2_754_000, source: "Azure eastus", as_of: day(2026, 6, 18) },
    Model { words: "A100 40GB", price: 2_744_705, source: "AWS us-east-1", as_of: day(2026, 7, 20) },
    Model { words: "A100 80GB", price: 3_430_881, source: "AWS us-east-1", as_of: day(2026, 7, 20) },
    Model { words: "H100", price: 6_880_000, source: "AWS us-east-1", as_of: day(2026, 7, 20) },
    Model { words: "H200", price: 7_912_000, source: "AWS us-east-1", as_of: day(2026, 7, 20) },
    Model { words: "GH200", price: 2_290_000, source: "Lambda", as_of: day(2026, 9, 20) },
    Model { words: "B200", price: 14_241_600, source: "AWS us-east-1", as_of: day(2026, 7, 20) },
    Model { words: "GB200", price: 27_040_000, source: "Azure eastus", as_of: day(2026, 6, 18) },
    Model { words: "B300", price: 17_802_000, source: "AWS us-east-1", as_of: day(2026, 7, 20) },
    Model { words: "L40S", price: 1_861_000, source: "AWS us-east-1", as_of: day(2026, 7, 20) },
    Model { words: "RTX PRO 6000", price: 3_363_000, source: "AWS us-east-1", as_of: day(2026, 7, 20) },
    Model { words: "RTX PRO 4500", price: 2_520_000, source: "AWS us-east-1", as_of: day(2026, 7, 20) },
    Model { words: "RTX A6000", price: 1_090_000, source: "Lambda", as_of: day(2026, 9, 20) },
];

const fn row(name: &'static str, gpus: u32, model: &'static str, on_demand: u64) -> Instance {
    Instance { name, gpus, part: (1, 1), model, on_demand, spot: None }
}

const fn spot(name: &'static str, gpus: u32, model: &'static str, on_demand: u64, spot: u64) -> Instance {
    Instance { spot: Some(spot), ..row(name, gpus, model, on_demand) }
}

/// One device that is a part of a physical GPU.
const fn part(name: &'static str, part: (u32, u32), model: &'static str, on_demand: u64) -> Instance {
    Instance { part, ..row(name, 1, model, on_demand) }
}

const fn day(year: u16, month: u8, day: u8) -> Date {
    match Date::new(year, month, day) {
        Some(date) => date,
        // At compile time: a day that does not exist does not compile.
        None => panic!("no such day"),
    }
}
