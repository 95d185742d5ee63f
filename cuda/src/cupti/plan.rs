//! Which metrics are sampled, how often, and into how much memory.

use std::ffi::CStr;

use warpmeter_core::time::SECOND;

use super::fault::Fault;
use super::sys::Setup;

/// What a metric counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Quantity {
    /// Percent of SM cycles with a warp resident.
    SmActive,
    /// Percent of the warps that could be resident, per elapsed cycle.
    SmOccupied,
    /// Percent of cycles with a tensor pipe active.
    Tensor,
    /// Percent of the memory's peak bandwidth, by reads and by writes.
    DramRead,
    DramWrite,
    /// Bytes read from memory and written to it.
    DramBytesRead,
    DramBytesWritten,
    /// Bytes that the device reads over PCIe, and writes.
    PcieRead,
    PcieWritten,
}

/// Metrics that give one thing together.
type Group = &'static [(Quantity, &'static CStr)];

/// What is wanted, most important first; for each, the metrics that may give it, best first. A chip that has none of
/// them, or no counter left for them in the one pass that sampling has, does without.
const WANTED: [&[Group]; 5] = [
    &[&[(Quantity::SmActive, c"sm__cycles_active.avg.pct_of_peak_sustained_elapsed")]],
    &[&[(Quantity::SmOccupied, c"sm__warps_active.avg.pct_of_peak_sustained_elapsed")]],
    &[
        // Ada calls its first form deprecated.
        &[(Quantity::Tensor, c"sm__pipe_tensor_cycles_active_v2.avg.pct_of_peak_sustained_elapsed")],
        &[(Quantity::Tensor, c"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed")],
        &[(Quantity::Tensor, c"sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_elapsed")],
    ],
    &[
        &[
            (Quantity::DramRead, c"dram__bytes_read.sum.pct_of_peak_sustained_elapsed"),
            (Quantity::DramWrite, c"dram__bytes_write.sum.pct_of_peak_sustained_elapsed"),
        ],
        // Turing's shares take two passes, its bytes one.
        &[
            (Quantity::DramBytesRead, c"dram__bytes_read.sum"),
            (Quantity::DramBytesWritten, c"dram__bytes_write.sum"),
        ],
    ],
    &[&[(Quantity::PcieRead, c"pcie__read_bytes.sum"), (Quantity::PcieWritten, c"pcie__write_bytes.sum")]],
];

/// The metrics of a chip, all in one pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// What the values mean, in their order.
    pub(super) quantities: Vec<Quantity>,
    /// The metrics.
    pub(super) metrics: Vec<&'static CStr>,
    /// Their configuration.
    pub(super) config: Vec<u8>,
}

/// Chooses as much as fits one pass. `configure` gives a set's configuration and how many passes it takes.
pub(super) fn choose(
    mut configure: impl FnMut(&[&'static CStr]) -> Result<(Vec<u8>, usize), Fault>,
) -> Result<Choice, Fault> {
    let mut choice = Choice::default();
    for alternatives in WANTED {
        for group in alternatives {
            let names = group.iter().map(|(_, name)| *name);
            let metrics: Vec<&'static CStr> = choice.metrics.iter().copied().chain(names).collect();
            match configure(&metrics) {
                Ok((config, 1)) => {
                    choice.quantities.extend(group.iter().map(|(quantity, _)| *quantity));
                    (choice.metrics, choice.config) = (metrics, config);
                    break;
                }
                Ok(_) | Err(Fault::INVALID_METRIC_NAME) => {}
                Err(fault) => return Err(fault),
            }
        }
    }
    // Without any there is nothing to sample.
    if choice.metrics.is_empty() { Err(Fault::INVALID_METRIC_NAME) } else { Ok(choice) }
}

/// Time between samples, at most. A longer one could overflow counters of 32 bits: 64 warps at 2 GHz fill one in 33 ms.
const INTERVAL: u64 = SECOND / 50;
/// Samples in a round, at least, so that a round's ends are sharp.
const IN_A_ROUND: u64 = 16;
/// The system clock's frequency is nobody's promise: from 0.2 to 2.5 GHz. At 1 GHz a cycle is a nanosecond.
const FASTEST: u64 = 5;
const FASTEST_OF: u64 = 2;
/// What one sample takes in the hardware's buffer: 32 bytes of each of the chip's counter units, of which the largest
/// have several hundred. An estimate, with room; were it wrong, the overflow would be told.
const RECORD: u64 = 32 << 10;
/// The buffer holds several rounds, since a round can be late.
const ROUNDS: u64 = 4;

/// How a chip is sampled when somebody looks every `period` nanoseconds.
pub(super) fn setup(chip: &str, choice: &Choice, period: u64) -> Setup {
    // The header: Turing and GA100 have no trigger by time.
    let by_time = !(chip.starts_with("TU") || chip == "GA100");
    let interval = INTERVAL.min(period / IN_A_ROUND).max(1);
    let mut samples = period / interval + 1;
    if !by_time {
        samples = samples * FASTEST / FASTEST_OF;
    }
    let bytes = (samples * ROUNDS * RECORD).clamp(8 << 20, 512 << 20);
    Setup {
        config: choice.config.clone(),
        metrics: choice.metrics.clone(),
        by_time,
        interval,
        buffer: usize::try_from(bytes).unwrap_or(usize::MAX),
        batch: u32::try_from(samples * 2).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chip as CUPTI's own host library describes it: what it lacks, and what takes a second pass.
    fn chip(
        lacks: &'static str,
        twice: &'static str,
    ) -> impl FnMut(&[&'static CStr]) -> Result<(Vec<u8>, usize), Fault> {
        move |metrics| {
            let any = |words: &str| {
                let has = |word| metrics.iter().any(|metric| metric.to_str().unwrap().contains(word));
                words.split_whitespace().any(has)
            };
            if any(lacks) {
                return Err(Fault::INVALID_METRIC_NAME);
            }
            Ok((vec![u8::try_from(metrics.len()).unwrap()], if any(twice) { 2 } else { 1 }))
        }
    }

    #[test]
    fn turing_gives_the_memorys_bytes_where_its_shares_do_not_fit() {
        let choice = choose(chip("_v2", "dram__bytes_read.sum.pct")).unwrap();
        assert_eq!(choice.quantities.len(), 7);
        assert!(choice.quantities.contains(&Quantity::DramBytesRead));
        assert!(!choice.quantities.contains(&Quantity::DramRead));
        assert_eq!(choice.config, [7], "the configuration is that of the whole set");
    }

    #[test]
    fn ada_counts_its_tensor_pipes_by_the_metric_that_replaced_the_first() {
        let names = |lacks| {
            let choice = choose(chip(lacks, "nothing")).unwrap();
            choice.metrics.iter().map(|name| name.to_str().unwrap()).collect::<String>()
        };
        assert!(names("nothing").contains("tensor_cycles_active_v2"));
        assert!(names("_v2").contains("sm__pipe_tensor_cycles_active.avg"));
        assert!(names("pipe_tensor_cycles").contains("sm__inst_executed_pipe_tensor"));
    }

    #[test]
    fn a_chip_without_some_metric_does_without_and_one_with_none_is_refused() {
        let choice = choose(chip("pcie tensor", "dram")).unwrap();
        assert_eq!(choice.quantities, [Quantity::SmActive, Quantity::SmOccupied]);
        assert_eq!(choose(chip("__", "nothing")), Err(Fault::INVALID_METRIC_NAME));
        assert_eq!(choose(|_| Err(Fault(26))), Err(Fault(26)), "a conflict is not a lack");
    }

    #[test]
    fn only_turing_and_ga100_are_triggered_by_their_clock() {
        for (chip, by_time) in
            [("TU104", false), ("GA100", false), ("GA102", true), ("AD102", true), ("GH100", true)]
        {
            assert_eq!(setup(chip, &Choice::default(), SECOND).by_time, by_time, "{chip}");
        }
    }

    #[test]
    fn a_buffer_holds_several_rounds_at_the_fastest_clock() {
        for period in [110_000_000, SECOND, 5 * SECOND] {
            for chip in ["GA100", "GA102"] {
                let setup = setup(chip, &Choice::default(), period);
                // A cycle of the fastest clock takes two fifths of a nanosecond.
                let shortest = if setup.by_time { setup.interval } else { setup.interval * 2 / 5 };
                let samples = period / shortest;
                assert!(setup.buffer as u64 >= 3 * samples * RECORD, "{chip} {period}: {setup:?}");
                assert!(u64::from(setup.batch) >= samples, "{chip} {period}: {setup:?}");
                assert!(setup.interval <= INTERVAL && setup.interval * IN_A_ROUND <= period);
            }
        }
    }
}
