use proptest::prelude::*;

use super::*;

fn of(capability: (u32, u32), block: u32, registers: u32, shared: u32) -> Result<Occupancy, Impossible> {
    let registers = (registers > 0).then_some(registers);
    occupancy(Limits::of(capability).unwrap(), Launch { block, registers, shared })
}

/// Blocks and warps of an SM, and what limits them, worked out by hand with the published rules.
#[test]
fn known_launches_have_their_known_occupancy() {
    use Limiter::{Blocks, Registers, Shared, Warps};
    type Case = ((u32, u32), [u32; 3], (u32, u32), &'static [Limiter]);
    let cases: [Case; 29] = [
        ((7, 0), [256, 32, 0], (8, 64), &[Warps, Registers]),
        ((7, 0), [256, 64, 0], (4, 32), &[Registers]),
        ((7, 0), [128, 32, 48 * 1024], (2, 8), &[Shared]),
        ((7, 0), [32, 16, 0], (32, 32), &[Blocks]),
        ((7, 5), [256, 32, 0], (4, 32), &[Warps]),
        ((7, 5), [1024, 64, 0], (1, 32), &[Warps, Registers]),
        ((7, 5), [32, 32, 0], (16, 16), &[Blocks]),
        ((7, 5), [128, 40, 32 * 1024], (2, 8), &[Shared]),
        ((8, 0), [256, 64, 0], (4, 32), &[Registers]),
        ((8, 0), [128, 32, 40 * 1024], (4, 16), &[Shared]),
        // 164 KiB is 4 times 41, of which each block's system takes one.
        ((8, 0), [128, 32, 40 * 1024 + 1], (3, 12), &[Shared]),
        ((8, 0), [1024, 32, 0], (2, 64), &[Warps, Registers]),
        ((8, 6), [256, 32, 0], (6, 48), &[Warps]),
        ((8, 6), [1024, 32, 0], (1, 32), &[Warps]),
        ((8, 6), [64, 32, 0], (16, 32), &[Blocks]),
        ((8, 7), [256, 32, 40 * 1024], (4, 32), &[Shared]),
        // As published for an RTX 4070 Ti SUPER: 80 → 64 registers are 3 → 4 blocks, and 24 KiB the most for 4.
        ((8, 9), [256, 80, 0], (3, 24), &[Registers]),
        ((8, 9), [256, 64, 0], (4, 32), &[Registers]),
        ((8, 9), [256, 64, 24 * 1024], (4, 32), &[Registers, Shared]),
        ((8, 9), [256, 64, 24 * 1024 + 1], (3, 24), &[Shared]),
        ((9, 0), [256, 64, 48 * 1024], (4, 32), &[Registers, Shared]),
        ((9, 0), [384, 168, 227 * 1024], (1, 12), &[Registers, Shared]),
        ((9, 0), [32, 8, 12 * 1024], (17, 17), &[Shared]),
        ((9, 0), [128, 255, 0], (2, 8), &[Registers]),
        ((10, 0), [256, 128, 0], (2, 16), &[Registers]),
        ((10, 0), [192, 0, 0], (10, 60), &[Warps]),
        ((11, 0), [256, 32, 100 * 1024], (2, 16), &[Shared]),
        ((12, 0), [256, 40, 0], (6, 48), &[Warps, Registers]),
        ((12, 0), [64, 32, 0], (24, 48), &[Warps, Blocks]),
    ];
    for (capability, [block, registers, shared], (blocks, warps), limiters) in cases {
        let what = format!("{capability:?} {block} {registers} {shared}");
        let found = of(capability, block, registers, shared).unwrap();
        assert_eq!((found.blocks, found.warps), (blocks, warps), "{what}");
        assert_eq!(found.limiters().collect::<Vec<_>>(), limiters, "{what}");
    }
}

#[test]
fn what_no_sm_can_run_is_said() {
    assert_eq!(of((9, 0), 0, 32, 0), Err(Impossible::Block(1024)));
    assert_eq!(of((9, 0), 1025, 32, 0), Err(Impossible::Block(1024)));
    assert_eq!(of((9, 0), 32, 256, 0), Err(Impossible::Registers(255)));
    assert_eq!(of((9, 0), 1024, 65, 0), Err(Impossible::BlockRegisters(65_536)));
    assert_eq!(of((9, 0), 32, 32, 227 * 1024 + 1), Err(Impossible::Shared(227 * 1024)));
    assert_eq!(of((7, 5), 32, 32, 64 * 1024).map(|found| found.blocks), Ok(1), "nothing is reserved here");
    assert!(Limits::of((6, 1)).is_none() && Limits::of((13, 0)).is_none());
}

#[test]
fn one_more_block_takes_what_limits_it_and_no_more() {
    let more = |block, registers, shared| {
        let launch = Launch { block, registers, shared };
        one_more(Limits::of((9, 0)).unwrap(), launch).map(|more| (more.registers, more.shared))
    };
    assert_eq!(more(256, Some(64), 0), Some((Some(48), 0)));
    assert_eq!(
        more(256, Some(32), 48 * 1024),
        Some((Some(32), 45_568)),
        "228 KiB over five, in units of 128 bytes"
    );
    assert_eq!(more(256, None, 48 * 1024), Some((None, 45_568)));
    assert_eq!(more(256, Some(64), 48 * 1024), Some((Some(48), 45_568)), "both");
    assert_eq!(more(256, Some(32), 0), None, "all warps are there");
    assert_eq!(more(32, Some(32), 0), None, "the blocks are too small");
    assert_eq!(more(0, Some(32), 0), None);
}

fn capability() -> impl Strategy<Value = (u32, u32)> {
    prop::sample::select(Limits::known().collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn asking_for_more_never_gives_more_warps(
        capability in capability(), block in 1..=1024_u32, registers in 1..=255_u32, shared in 0..=227 * 1024_u32,
        more_registers in 0..=255_u32, more_shared in 0..=227 * 1024_u32,
    ) {
        let warps = |registers, shared| of(capability, block, registers, shared).map_or(0, |found| found.warps);
        let with = warps(registers, shared);
        prop_assert!(warps(registers + more_registers, shared) <= with);
        prop_assert!(warps(registers, shared + more_shared) <= with);
        let unknown = of(capability, block, 0, shared).map_or(0, |found| found.warps);
        prop_assert!(unknown >= with, "what is not known never takes part");
    }

    #[test]
    fn an_sm_never_holds_more_than_it_has(
        capability in capability(), block in 1..=1024_u32, registers in 1..=255_u32, shared in 0..=227 * 1024_u32,
    ) {
        let limits = Limits::of(capability).unwrap();
        let Ok(found) = of(capability, block, registers, shared) else { return Ok(()) };
        prop_assert!(found.blocks >= 1, "what can run at all runs");
        prop_assert!(found.warps <= limits.warps && found.blocks <= limits.blocks);
        prop_assert!(found.warps * 32 * registers <= REGISTERS);
        prop_assert!(found.blocks * shared <= limits.shared_kib * KIB);
        prop_assert!(found.limiters().next().is_some());
        let launch = Launch { block, registers: Some(registers), shared };
        if let Some(more) = one_more(limits, launch) {
            prop_assert!(occupancy(limits, more).unwrap().blocks > found.blocks);
            prop_assert!(more.registers <= launch.registers && more.shared <= shared && more != launch);
        }
    }
}
