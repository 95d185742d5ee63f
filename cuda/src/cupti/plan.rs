//! Which metrics are sampled, how often, and into how much memory.

use std::ffi::CStr;
use std::fmt;

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

/// A thing that is wanted.
#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    /// What it is called.
    name: &'static str,
    /// The metrics that may give it, best first. None that counts something else stands in for them.
    groups: &'static [Group],
}

/// What is wanted, most important first. A chip that has none of the metrics, or no counter left for them in the one
/// pass that sampling has, does without.
static WANTED: [Wanted; 5] = [
    Wanted {
        name: "SM activity",
        groups: &[&[(Quantity::SmActive, c"sm__cycles_active.avg.pct_of_peak_sustained_elapsed")]],
    },
    Wanted {
        name: "SM occupancy",
        groups: &[&[(Quantity::SmOccupied, c"sm__warps_active.avg.pct_of_peak_sustained_elapsed")]],
    },
    Wanted {
        name: "tensor activity",
        groups: &[
            // Where there are both, the first form is deprecated.
            &[(Quantity::Tensor, c"sm__pipe_tensor_cycles_active_v2.avg.pct_of_peak_sustained_elapsed")],
            &[(Quantity::Tensor, c"sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_elapsed")],
        ],
    },
    Wanted {
        name: "DRAM bandwidth",
        groups: &[
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
    },
    Wanted {
        name: "PCIe bytes",
        groups: &[&[
            (Quantity::PcieRead, c"pcie__read_bytes.sum"),
            (Quantity::PcieWritten, c"pcie__write_bytes.sum"),
        ]],
    },
];

/// A thing that a chip does not give.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Missing {
    wanted: &'static Wanted,
    /// Whether the chip has the metrics of some group; then they do not fit the pass.
    exists: bool,
}

impl fmt::Display for Missing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = |group: &Group| {
            let names = group.iter().map(|(_, name)| name.to_string_lossy());
            names.collect::<Vec<_>>().join(" and ")
        };
        let groups = self.wanted.groups.iter().map(group).collect::<Vec<_>>().join(", or ");
        let why = if self.exists { "does not fit the one pass" } else { "no such metric" };
        write!(f, "{} ({groups}: {why})", self.wanted.name)
    }
}

/// The metrics of a chip, all in one pass.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Choice {
    /// What the values mean, in their order.
    pub(super) quantities: Vec<Quantity>,
    /// The metrics; none if the chip gives nothing that is wanted.
    pub(super) metrics: Vec<&'static CStr>,
    /// Their configuration.
    pub(super) config: Vec<u8>,
    /// What is not among them.
    pub(super) missing: Vec<Missing>,
}

impl Choice {
    /// What is missing, in words; nothing if nothing is.
    pub(super) fn lacks(&self) -> Option<String> {
        let words = self.missing.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
        (!words.is_empty()).then_some(words)
    }
}

/// Chooses as much as fits one pass. `configure` gives a set's configuration and how many passes it takes.
pub(super) fn choose(
    mut configure: impl FnMut(&[&'static CStr]) -> Result<(Vec<u8>, usize), Fault>,
) -> Result<Choice, Fault> {
    let mut choice = Choice::default();
    'wanted: for wanted in &WANTED {
        let mut exists = false;
        for group in wanted.groups {
            let names = group.iter().map(|(_, name)| *name);
            let metrics: Vec<&'static CStr> = choice.metrics.iter().copied().chain(names).collect();
            match configure(&metrics) {
                Ok((config, 1)) => {
                    choice.quantities.extend(group.iter().map(|(quantity, _)| *quantity));
                    (choice.metrics, choice.config) = (metrics, config);
                    continue 'wanted;
                }
                Ok(_) => exists = true,
                Err(Fault::INVALID_METRIC_NAME) => {}
                Err(fault) => return Err(fault),
            }
        }
        choice.missing.push(Missing { wanted, exists });
    }
    Ok(choice)
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
        assert!(!names("pipe_tensor_cycles").contains("tensor"), "a rate of instructions is no activity");
    }

    #[test]
    fn a_chip_without_some_metric_does_without_and_says_which_and_why() {
        let choice = choose(chip("pcie tensor", "dram")).unwrap();
        assert_eq!(choice.quantities, [Quantity::SmActive, Quantity::SmOccupied]);
        let lacks = choice.lacks().unwrap();
        for words in [
            "tensor activity (sm__pipe_tensor_cycles_active_v2.avg",
            "DRAM bandwidth (dram__bytes_read.sum.pct_of_peak_sustained_elapsed and dram__bytes_write",
            ", or dram__bytes_read.sum and dram__bytes_write.sum: does not fit the one pass)",
            "PCIe bytes (pcie__read_bytes.sum and pcie__write_bytes.sum: no such metric)",
        ] {
            assert!(lacks.contains(words), "{words:?} is not in {lacks:?}");
        }
        assert!(!lacks.contains("SM "), "{lacks}");
        assert_eq!(choose(chip("nowhere", "nothing")).unwrap().lacks(), None);
    }

    #[test]
    fn a_chip_with_none_gives_none_and_a_conflict_is_not_a_lack() {
        let none = choose(chip("__", "nothing")).unwrap();
        assert_eq!((none.metrics.len(), none.missing.len()), (0, WANTED.len()));
        assert_eq!(choose(|_| Err(Fault(26))), Err(Fault(26)));
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
