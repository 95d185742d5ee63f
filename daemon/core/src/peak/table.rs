//! Peaks by product name, after NVIDIA's data sheets: written down from memory, and compared with what others quote of
//! the sheets for some products only (docs/roofline.md). So it is not called a sheet's figure.
//!
//! Bandwidth is the sheet's. The tensor rate is that of dense FP16 with FP32 accumulation; where a sheet gives it with
//! sparsity only, half of that, as NVIDIA defines sparsity's gain. A sheet that gives neither leaves it out.

use crate::words::split;

/// One product.
#[derive(Debug)]
pub(super) struct Row {
    /// Its name as the driver gives it, without `NVIDIA` and `Tesla`.
    name: &'static str,
    /// Gigabytes (10⁹) per second of its memory.
    dram: u64,
    /// Hundredths of dense FP16 tensor teraflops (10¹² operations per second).
    tensor: Option<u64>,
    /// The data sheet.
    pub(super) source: &'static str,
}

impl Row {
    /// Bytes per second.
    pub(super) const fn dram(&self) -> u64 {
        self.dram * 1_000_000_000
    }

    /// Operations per second.
    pub(super) fn tensor(&self) -> Option<u64> {
        self.tensor.map(|hundredths| hundredths * 10_000_000_000)
    }
}

/// The row whose name has exactly the words of `model`: a virtual GPU or a variant that is not listed is another
/// product.
pub(super) fn of(model: &str) -> Option<&'static Row> {
    let words = |name: &str| {
        let mut words: Vec<String> = split(name).filter(|word| word != "NVIDIA" && word != "TESLA").collect();
        words.sort_unstable();
        words
    };
    let wanted = words(model);
    TABLE.iter().find(|row| words(row.name) == wanted)
}

const fn row(name: &'static str, dram: u64, tensor: Option<u64>, source: &'static str) -> Row {
    Row { name, dram, tensor, source }
}

const V100: &str = "NVIDIA V100 Tensor Core GPU";
const T4: &str = "NVIDIA T4 Tensor Core GPU";
const A100: &str = "NVIDIA A100 Tensor Core GPU";
const H100: &str = "NVIDIA H100 Tensor Core GPU";
const H200: &str = "NVIDIA H200 Tensor Core GPU";
const GH200: &str = "NVIDIA GH200 Grace Hopper Superchip";
/// Which gives eight of them together.
const DGX_B200: &str = "NVIDIA DGX B200";

static TABLE: [Row; 32] = [
    row("V100-SXM2-16GB", 900, Some(12_500), V100),
    row("V100-SXM2-32GB", 900, Some(12_500), V100),
    row("V100-PCIE-16GB", 900, Some(11_200), V100),
    row("V100-PCIE-32GB", 900, Some(11_200), V100),
    row("V100S-PCIE-32GB", 1134, Some(13_000), V100),
    row("T4", 320, Some(6_500), T4),
    row("A100-SXM4-40GB", 1555, Some(31_200), A100),
    row("A100-PCIE-40GB", 1555, Some(31_200), A100),
    row("A100-SXM4-80GB", 2039, Some(31_200), A100),
    row("A100 80GB PCIe", 1935, Some(31_200), A100),
    row("A30", 933, Some(16_500), "NVIDIA A30 Tensor Core GPU"),
    row("A2", 200, Some(1_800), "NVIDIA A2 Tensor Core GPU"),
    row("A10", 600, Some(12_500), "NVIDIA A10 Tensor Core GPU"),
    row("A10G", 600, None, "NVIDIA A10G Tensor Core GPU"),
    row("A40", 696, Some(14_970), "NVIDIA A40"),
    row("RTX A5000", 768, None, "NVIDIA RTX A5000"),
    row("RTX A6000", 768, None, "NVIDIA RTX A6000"),
    row("L4", 300, Some(12_100), "NVIDIA L4 Tensor Core GPU"),
    row("L40", 864, Some(18_105), "NVIDIA L40"),
    row("L40S", 864, Some(36_205), "NVIDIA L40S"),
    row("RTX 6000 Ada Generation", 960, None, "NVIDIA RTX 6000 Ada Generation"),
    row("H100 80GB HBM3", 3350, Some(98_900), H100),
    row("H100 PCIe", 2000, Some(75_600), H100),
    row("H100 NVL", 3900, Some(83_500), H100),
    row("H200", 4800, Some(98_900), H200),
    row("H200 NVL", 4800, Some(83_500), H200),
    row("GH200 480GB", 4000, Some(98_900), GH200),
    row("GH200 144G HBM3e", 4900, Some(98_900), GH200),
    row("B200", 8000, Some(225_000), DGX_B200),
    row("GeForce RTX 3090", 936, None, "GeForce RTX 3090"),
    row("GeForce RTX 4090", 1008, None, "GeForce RTX 4090"),
    row("GeForce RTX 5090", 1792, None, "GeForce RTX 5090"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::MemoryBus;

    #[test]
    fn a_name_is_all_of_the_words_and_each_product_is_listed_once() {
        for name in TABLE.iter().map(|row| row.name) {
            for written in
                [name.to_owned(), format!("NVIDIA {name}"), format!("Tesla {}", name.to_lowercase())]
            {
                assert_eq!(of(&written).map(|row| row.name), Some(name), "{written}");
            }
            assert!(of(&format!("{name} 1g.10gb")).is_none() && of(&format!("GRID {name}")).is_none());
            assert_eq!(TABLE.iter().filter(|row| row.name == name).count(), 1, "{name}");
        }
    }

    /// The driver's clock and bus width stand in where no sheet is known: so they have to give what the sheets give.
    /// Sheets round, those of HBM3 and HBM3e most.
    #[test]
    fn the_bus_gives_what_the_data_sheets_say_to_within_three_percent() {
        let known = [
            ("V100-SXM2-32GB", 877, 4096),
            ("V100S-PCIE-32GB", 1107, 4096),
            ("T4", 5001, 256),
            ("A100-SXM4-40GB", 1215, 5120),
            ("A100-SXM4-80GB", 1593, 5120),
            ("A100 80GB PCIe", 1512, 5120),
            ("A30", 1215, 3072),
            ("A2", 6251, 128),
            ("A10", 6251, 384),
            ("A40", 7251, 384),
            ("RTX A6000", 8001, 384),
            ("L4", 6251, 192),
            ("L40S", 9001, 384),
            ("H100 80GB HBM3", 2619, 5120),
            ("H100 PCIe", 1593, 5120),
            ("H200", 3201, 6144),
            ("B200", 3996, 8192),
            ("GeForce RTX 4090", 10501, 384),
            ("GeForce RTX 5090", 14001, 512),
        ];
        for (name, clock_mhz, bits) in known {
            let (sheet, bus) = (of(name).unwrap().dram(), MemoryBus { clock_mhz, bits }.bandwidth().unwrap());
            assert!(sheet.abs_diff(bus) * 100 <= sheet * 3, "{name}: {sheet} and {bus}");
        }
    }

    #[test]
    fn every_ridge_is_where_a_gpu_can_have_one() {
        // Operations per byte: far from it, a unit is wrong.
        for row in &TABLE {
            let Some(tensor) = row.tensor() else { continue };
            let ridge = tensor / row.dram();
            assert!((80..=500).contains(&ridge), "{}: {ridge}", row.name);
        }
    }
}
