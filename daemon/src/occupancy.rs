//! `occupancy`: how many warps of a kernel an SM can hold, in words.
//!
//! The daemon cannot say this of the kernels that it sees launched: their registers and static shared memory are known
//! to the driver in their own process only (`cuFuncGetAttribute`, or `-Xptxas -v` when they are compiled).

use std::fmt::Write;

use clap::Args;
use warpmeter_core::occupancy::{Impossible, Launch, Limiter, Limits, Occupancy, occupancy, one_more};

/// A kernel's launch.
#[derive(Debug, Args)]
pub(crate) struct Arguments {
    /// Compute capability of the GPU, such as 9.0.
    #[arg(long, value_name = "MAJOR.MINOR", value_parser = capability)]
    cc: (u32, u32),
    /// Threads of a block, such as 256 or 16x16.
    #[arg(long, value_name = "THREADS", value_parser = threads)]
    block: u32,
    /// Registers of a thread; without them, the answer is what the rest allows.
    #[arg(long)]
    registers: Option<u32>,
    /// Bytes of shared memory of a block, static and dynamic together.
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    shared: u32,
}

/// What there is to say of it.
///
/// # Errors
///
/// The compute capability is not known here, or no GPU that has it can run such a kernel.
pub(crate) fn explain(arguments: &Arguments) -> Result<String, String> {
    let (major, minor) = arguments.cc;
    let Some(limits) = Limits::of(arguments.cc) else {
        let known: Vec<String> = Limits::known().map(|(major, minor)| format!("{major}.{minor}")).collect();
        return Err(format!(
            "compute capability {major}.{minor} is not known; known are {}",
            known.join(", ")
        ));
    };
    let launch = Launch { block: arguments.block, registers: arguments.registers, shared: arguments.shared };
    let found = occupancy(limits, launch).map_err(|why| {
        format!("no GPU of compute capability {major}.{minor} can run this: {}", limit(why))
    })?;
    let lines = describe(limits, launch, &found);
    Ok(lines.join("\n") + "\n")
}

fn describe(limits: &Limits, launch: Launch, found: &Occupancy) -> Vec<String> {
    let (major, minor) = limits.capability;
    let mut lines = vec![
        format!(
            "an SM of compute capability {major}.{minor} holds {} warps, {} blocks, 65536 registers and {} KiB of shared memory",
            limits.warps, limits.blocks, limits.shared_kib
        ),
        format!("a block of {} threads is {} warps", launch.block, found.warps_per_block),
    ];
    let limiters: Vec<&str> = found.limiters().map(Limiter::label).collect();
    for (limiter, blocks) in found.blocks_by {
        let mark = if blocks == Some(found.blocks) { "  <- the least" } else { "" };
        let blocks = blocks.map_or_else(|| "not known".to_owned(), |blocks| format!("{blocks} blocks"));
        lines.push(format!("  by {:14} {blocks:>9}{mark}", limiter.label()));
    }
    lines.push(format!(
        "theoretical occupancy: {} of {} warps, {} %, limited by {}",
        found.warps,
        found.of,
        found.warps * 100 / found.of,
        limiters.join(" and ")
    ));
    if launch.registers.is_none() {
        lines.push("the number of registers is not given: this is the most that the rest allows".to_owned());
    }
    lines.extend(one_more(limits, launch).map(|more| advice(launch, more, found.blocks + 1)));
    lines
}

/// What lets one more block fit.
fn advice(launch: Launch, more: Launch, blocks: u32) -> String {
    let mut line = format!("{blocks} blocks fit with");
    let mut joint = "";
    if let Some(registers) = more.registers.filter(|_| more.registers != launch.registers) {
        let _written = write!(line, " at most {registers} registers a thread");
        joint = " and";
    }
    if more.shared != launch.shared {
        let _written = write!(line, "{joint} at most {} bytes of shared memory a block", more.shared);
    }
    line
}

fn limit(why: Impossible) -> String {
    match why {
        Impossible::Block(most) => format!("a block has from 1 to {most} threads"),
        Impossible::Registers(most) => format!("a thread has at most {most} registers"),
        Impossible::BlockRegisters(most) => {
            format!("a block's threads have at most {most} registers together: use fewer, or a smaller block")
        }
        Impossible::Shared(most) => format!("a block has at most {most} bytes of shared memory"),
    }
}

fn capability(text: &str) -> Result<(u32, u32), String> {
    let parts =
        text.split_once('.').and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
    parts.ok_or_else(|| "wants two numbers such as 9.0".to_owned())
}

/// The product of up to three sizes.
fn threads(text: &str) -> Result<u32, String> {
    let wanted = || "wants a number of threads, or sizes such as 16x16".to_owned();
    let sizes: Option<Vec<u32>> = text.split('x').map(|size| size.parse().ok()).collect();
    let sizes = sizes.filter(|sizes| sizes.len() <= 3).ok_or_else(wanted)?;
    sizes.into_iter().try_fold(1, u32::checked_mul).ok_or_else(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(cc: &str, block: &str, registers: Option<u32>, shared: u32) -> Result<String, String> {
        explain(&Arguments { cc: capability(cc)?, block: threads(block)?, registers, shared })
    }

    #[test]
    fn the_limit_is_named_and_what_would_lift_it() {
        let said = said("9.0", "16x16", Some(64), 20_000).unwrap();
        assert!(
            said.contains("theoretical occupancy: 32 of 64 warps, 50 %, limited by registers\n"),
            "{said}"
        );
        assert!(said.contains("by registers       4 blocks  <- the least\n"), "{said}");
        assert!(said.ends_with("5 blocks fit with at most 48 registers a thread\n"), "{said}");
    }

    #[test]
    fn what_is_not_given_is_not_taken_for_nothing() {
        let said = said("8.9", "256", None, 24 * 1024 + 1).unwrap();
        assert!(
            said.contains("by registers      not known\n") && said.contains("24 of 48 warps, 50 %"),
            "{said}"
        );
        assert!(said.contains("the number of registers is not given"), "{said}");
        assert!(said.ends_with("4 blocks fit with at most 24576 bytes of shared memory a block\n"), "{said}");
    }

    #[test]
    fn what_cannot_be_is_refused_with_the_reason() {
        let cases = [
            (said("6.1", "256", None, 0), "not known; known are 7.0, 7.5, "),
            (said("9.0", "2048", None, 0), "a block has from 1 to 1024 threads"),
            (said("9.0", "1024", Some(128), 0), "use fewer, or a smaller block"),
            (said("9.0", "32", None, 1 << 20), "at most 232448 bytes of shared memory"),
            (said("nine", "32", None, 0), "wants two numbers"),
            (said("9.0", "16x16x2x2", None, 0), "wants a number of threads"),
            (said("9.0", "65536x65536", None, 0), "wants a number of threads"),
        ];
        for (said, reason) in cases {
            assert!(said.as_ref().is_err_and(|said| said.contains(reason)), "{said:?} {reason}");
        }
    }
}
