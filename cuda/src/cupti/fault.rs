//! Why a call of CUPTI was refused, and what that means.

use std::fmt;

/// A call's status other than success: a `CUptiResult`. Kept as a number, since a newer library may give others.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fault(pub(super) u32);

impl Fault {
    pub(super) const INVALID_PARAMETER: Self = Self(1);
    pub(super) const OUT_OF_MEMORY: Self = Self(8);
    pub(super) const INVALID_METRIC_NAME: Self = Self(17);

    /// Nothing for success, otherwise the fault.
    pub(super) const fn check(code: u32) -> Result<(), Self> {
        if code == 0 { Ok(()) } else { Err(Self(code)) }
    }

    /// Whether it will be the same for as long as the machine is set up as it is.
    pub(super) const fn lasts(self) -> bool {
        matches!(self.0, 14 | 27 | 33 | 35 | 38 | 40..=46)
    }

    /// What is the matter, and what helps.
    const fn words(self) -> (&'static str, &'static str) {
        match self.0 {
            // HARDWARE_BUSY, INVALID_OPERATION: the latter is also given where sampling is enabled already.
            7 | 26 => (
                "another program has the performance monitor, which has one owner",
                "stop it (DCGM's profiling fields: `dcgmi profile --pause`; Nsight; another warpmeter), or switch \
                 [cupti] off; it is tried again by itself",
            ),
            // INSUFFICIENT_PRIVILEGES, VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES
            35 | 40 => (
                "the driver lets only administrators sample the performance monitor",
                "give the process CAP_SYS_ADMIN, or load the module with NVreg_RestrictProfilingToAdminUsers=0",
            ),
            33 => ("not on a virtual GPU", "enable profiling for it in the hypervisor"),
            41 => ("not under confidential computing", ""),
            42 => ("not on a mining card", ""),
            43 => ("not in MIG mode: the instances of a GPU share its performance monitor", ""),
            44 => ("not with SLI", ""),
            45 => ("not under WSL", ""),
            46 => ("the library does not know this chip", "name a newer CUPTI in [cupti] libraries"),
            14 | 27 => (
                "the library and the driver do not support it together",
                "use the CUPTI of the driver's CUDA version",
            ),
            8 => ("out of memory", ""),
            15 => ("the driver is not initialised", ""),
            17 => ("no such metric", ""),
            _ => ("an error of CUPTI", ""),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (what, remedy) = self.words();
        write!(f, "{what} (CUPTI status {})", self.0)?;
        if remedy.is_empty() { Ok(()) } else { write!(f, ": {remedy}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_be_mended_comes_with_what_mends_it() {
        let text = |code| Fault(code).to_string();
        assert!(
            text(35).contains("CAP_SYS_ADMIN") && text(35).contains("NVreg_RestrictProfilingToAdminUsers=0")
        );
        assert!(text(26).contains("dcgmi profile --pause"));
        assert_eq!(text(12345), "an error of CUPTI (CUPTI status 12345)");
    }

    #[test]
    fn a_conflict_passes_and_a_missing_privilege_stays() {
        for passing in [7, 8, 9, 26, 999] {
            assert!(!Fault(passing).lasts(), "{passing}");
        }
        for lasting in [27, 33, 35, 43, 46] {
            assert!(Fault(lasting).lasts(), "{lasting}");
        }
    }
}
