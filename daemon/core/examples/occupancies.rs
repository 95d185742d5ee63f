//! The occupancy of very many launches, a line each, for `tests/occupancy/check.sh` to compare.

use std::io::Write;

use warpmeter_core::occupancy::{Launch, Limits, occupancy};

fn main() -> std::io::Result<()> {
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    let blocks: Vec<u32> =
        [1, 31, 33, 63, 65, 100, 1000, 1023].into_iter().chain((1..=32).map(|n| n * 32)).collect();
    for limits in Limits::known().filter_map(Limits::of) {
        let most = limits.shared_per_block();
        let edges = (0..=most / 1024).flat_map(|kib| [kib * 1024, kib * 1024 + 1, kib * 1024 + 1023]);
        let sizes: Vec<u32> = edges.chain([most]).filter(|size| *size <= most).collect();
        for block in &blocks {
            let by_registers =
                (0..=255).flat_map(|registers| [(registers, 0), (registers, 20_000), (registers, most)]);
            let by_shared = sizes.iter().flat_map(|size| [(0, *size), (32, *size), (96, *size)]);
            for (registers, shared) in by_registers.chain(by_shared) {
                let launch = Launch { block: *block, registers: Some(registers), shared };
                let found = occupancy(limits, launch).map_or(0, |found| found.blocks);
                let ((major, minor), warps, per_sm) =
                    (limits.capability, limits.warps, limits.shared_kib * 1024);
                writeln!(
                    out,
                    "{major} {minor} {warps} {per_sm} {most} {block} {registers} {shared} {found}"
                )?;
            }
        }
    }
    out.flush()
}
