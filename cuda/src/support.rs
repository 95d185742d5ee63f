//! What a device answers, learnt once: a refused question is not repeated every second.

use warpmeter_core::time::{MonoNs, SECOND};

use crate::nvml::Fault;

/// How long a question that was refused as unsupported is not asked again. A driver can gain support without
/// being reloaded (a vGPU licence, a mode switched on), but seldom does.
const AGAIN: u64 = 600 * SECOND;

/// A question to a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ask {
    Power,
    PowerLimit,
    Energy,
    Temperature,
    MemoryTemperature,
    SmClock,
    MemoryClock,
    Throttle,
    Memory,
    PcieReplays,
    Ecc,
    Remapped,
    Nvlink,
    Utilization,
    Ring,
    ProcessUse,
    ComputeProcesses,
    GraphicsProcesses,
    MpsProcesses,
    BoardGpm,
}

impl Ask {
    const COUNT: usize = Self::BoardGpm as usize + 1;
}

/// An answer, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer<T> {
    /// The device said.
    Said(T),
    /// It does not offer this.
    Unsupported,
    /// It should have, and failed.
    Failed(Fault),
}

impl<T> Answer<T> {
    /// What was said, if anything.
    pub(crate) fn said(self) -> Option<T> {
        match self {
            Self::Said(value) => Some(value),
            Self::Unsupported | Self::Failed(_) => None,
        }
    }
}

/// Which questions a device answers.
#[derive(Debug, Default)]
pub(crate) struct Support {
    refused: [Option<MonoNs>; Ask::COUNT],
    fatal: Option<Fault>,
}

impl Support {
    /// Asks, unless the device has refused this before or is known to be gone.
    pub(crate) fn ask<T>(
        &mut self,
        what: Ask,
        now: MonoNs,
        ask: impl FnOnce() -> Result<T, Fault>,
    ) -> Answer<T> {
        if let Some(fault) = self.fatal {
            return Answer::Failed(fault);
        }
        let refused = &mut self.refused[what as usize];
        if refused.is_some_and(|at| now.since(at) < AGAIN) {
            return Answer::Unsupported;
        }
        match ask() {
            Ok(value) => {
                *refused = None;
                Answer::Said(value)
            }
            Err(fault) if fault.is_unsupported() => {
                *refused = Some(now);
                Answer::Unsupported
            }
            Err(fault) => {
                self.note(fault);
                Answer::Failed(fault)
            }
        }
    }

    /// Remembers a fault after which no further question makes sense.
    pub(crate) fn note(&mut self, fault: Fault) {
        if fault.is_device_down() || fault.is_driver_gone() {
            self.fatal.get_or_insert(fault);
        }
    }

    /// The fault that ended all conversation, if one did.
    pub(crate) const fn fatal(&self) -> Option<Fault> {
        self.fatal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOST: Fault = Fault(15);
    const NOT_SUPPORTED: Fault = Fault(3);

    #[test]
    fn a_refused_question_is_not_repeated_for_ten_minutes() {
        let mut support = Support::default();
        let mut asked = 0;
        for second in 0..1300 {
            let answer: Answer<u32> = support.ask(Ask::Energy, MonoNs(second * SECOND), || {
                asked += 1;
                Err(NOT_SUPPORTED)
            });
            assert_eq!(answer, Answer::Unsupported);
        }
        assert_eq!(asked, 3);
        assert_eq!(support.ask(Ask::Power, MonoNs(0), || Ok(7)), Answer::Said(7), "others are not affected");
    }

    #[test]
    fn a_failure_is_not_a_refusal() {
        let mut support = Support::default();
        for _ in 0..3 {
            assert_eq!(
                support.ask(Ask::Power, MonoNs(0), || Err::<u32, _>(Fault::UNKNOWN)),
                Answer::Failed(Fault::UNKNOWN)
            );
        }
        assert_eq!(support.fatal(), None);
    }

    #[test]
    fn a_lost_device_is_asked_nothing_more() {
        let mut support = Support::default();
        assert_eq!(support.ask(Ask::Power, MonoNs(0), || Err::<u32, _>(LOST)), Answer::Failed(LOST));
        assert_eq!(
            support.ask(Ask::Energy, MonoNs(0), || -> Result<u32, Fault> { panic!("asked") }),
            Answer::Failed(LOST)
        );
        assert_eq!(support.fatal(), Some(LOST));
    }
}
