//! What shows of a process's part in MPS.

use warpmeter_core::fact::Mps;
use warpmeter_core::ratio::Ppb;

/// The name of an MPS server, as far as the kernel keeps it: 15 bytes of `nvidia-cuda-mps-server`. Its control daemon has
/// the same, and no context.
const SERVER: &[u8] = b"nvidia-cuda-mps";
/// What limits a client's part of the device's threads, in percent.
const THREADS: &[u8] = b"CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=";

/// Whether a process of this name is an MPS server, as far as names can be believed.
pub(super) fn is_server(name: &[u8]) -> bool {
    name == SERVER
}

/// The limit that the text of an `environ` file states. Nothing else of it is kept. A percentage may have decimals, and
/// one that cannot be is none.
pub(super) fn client(environment: &[u8]) -> Option<Mps> {
    let value = environment.split(|&byte| byte == 0).find_map(|entry| entry.strip_prefix(THREADS))?;
    let text = std::str::from_utf8(value).ok()?.trim();
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || whole.is_empty() {
        return None;
    }
    let hundredths: String = part.chars().chain("00".chars()).take(2).collect();
    let hundredths = whole.parse::<u32>().ok()?.checked_mul(100)?.checked_add(hundredths.parse().ok()?)?;
    let parts = hundredths.checked_mul(100_000)?;
    Ppb::new(parts).filter(|threads| *threads > Ppb::ZERO).map(Mps::Client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_percentage_that_can_be_is_a_limit() {
        let stated = |value: &str| {
            let environment =
                format!("HOME=/root\0CUDA_MPS_ACTIVE_THREAD_PERCENTAGE={value}\0TOKEN=secret\0");
            match client(environment.as_bytes()) {
                Some(Mps::Client(threads)) => Some(threads.parts()),
                _ => None,
            }
        };
        assert_eq!(stated("25"), Some(250_000_000));
        assert_eq!(stated("12.5"), Some(125_000_000));
        assert_eq!(stated("100"), Some(1_000_000_000));
        for nonsense in ["", "0", "101", "-5", "5O", "4294967295", "99999999999999999999", ".5", "1e2"] {
            assert_eq!(stated(nonsense), None, "{nonsense}");
        }
        assert_eq!(client(b"PATH=/bin\0NOT_CUDA_MPS_ACTIVE_THREAD_PERCENTAGE=5\0"), None);
        assert_eq!(client(b""), None);
    }
}
