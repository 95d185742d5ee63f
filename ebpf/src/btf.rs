//! The kernel's own description of its types (BTF): where members of its structures are.
//!
//! Read in place: only the starts of types are kept beside the bytes, since the tables of a general reader take tens
//! of megabytes for a kernel.

use std::path::Path;

/// Where the kernel shows its types.
pub const VMLINUX: &str = "/sys/kernel/btf/vmlinux";

const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
/// How deep structures without a name may be nested.
const DEPTH: u32 = 8;

/// Why types could not be read.
#[derive(Debug, thiserror::Error)]
pub enum BtfError {
    /// The file could not be read.
    #[error("read {VMLINUX}: {0}; a kernel built with CONFIG_DEBUG_INFO_BTF shows its types there")]
    Read(#[from] std::io::Error),
    /// Its structure does not hold.
    #[error("{VMLINUX} is damaged at byte {0}")]
    Damaged(usize),
}

/// Where a member is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Bits from the start of the structure.
    pub bits: u32,
}

impl Member {
    /// Whole bytes from the start.
    pub const fn byte(self) -> u32 {
        self.bits / 8
    }

    /// The bit within that byte.
    pub const fn bit(self) -> u32 {
        self.bits % 8
    }
}

/// Types of a kernel.
#[derive(Debug)]
pub struct Btf {
    data: Vec<u8>,
    strings: usize,
    /// Where each type begins; the first is number 1.
    types: Vec<u32>,
}

#[derive(Debug, Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    count: u32,
    wide: bool,
    /// Its size, or the type that it refers to.
    other: u32,
    members: usize,
}

impl Btf {
    /// Those of the running kernel.
    pub fn of_kernel() -> Result<Self, BtfError> {
        Self::parse(std::fs::read(Path::new(VMLINUX))?)
    }

    /// Those that `data` describes.
    pub fn parse(data: Vec<u8>) -> Result<Self, BtfError> {
        let damaged = |at| BtfError::Damaged(at);
        let word = |at: usize| u32_at(&data, at).ok_or(damaged(at));
        if data.get(..2) != Some(&MAGIC.to_ne_bytes()[..]) {
            return Err(damaged(0));
        }
        let header = word(4)? as usize;
        let begin = header.saturating_add(word(8)? as usize);
        let end = begin.saturating_add(word(12)? as usize);
        let strings = header.saturating_add(word(16)? as usize);
        if end > data.len() || strings > data.len() {
            return Err(damaged(8));
        }
        let mut types = Vec::new();
        let mut at = begin;
        while at < end {
            let info = word(at + 4)?;
            types.push(u32::try_from(at).map_err(|_too_large| damaged(at))?);
            let (kind, count) = ((info >> 24) & 0x1f, (info & 0xffff) as usize);
            let behind = match kind {
                // Integers, variables, declaration tags.
                1 | 14 | 17 => 4,
                // Arrays.
                3 => 12,
                STRUCT | UNION => count * 12,
                // Enumerations, parameters of functions.
                6 | FUNC_PROTO => count * 8,
                // Sections of data, enumerations of 64 bits.
                15 | 19 => count * 12,
                _ => 0,
            };
            at += 12 + behind;
        }
        Ok(Self { data, strings, types })
    }

    /// Where a member of a structure is: `path` goes through structures by dots. Members of structures without a name
    /// count as the outer one's.
    pub fn member(&self, structure: &str, path: &str) -> Option<Member> {
        let mut holder = self.find(STRUCT, structure)?;
        let mut bits = 0_u32;
        for name in path.split('.') {
            let (offset, kind) = self.member_of(holder, name, DEPTH)?;
            bits = bits.checked_add(offset)?;
            holder = self.resolve(kind)?;
        }
        Some(Member { bits })
    }

    /// The number of parameters of the function that a `typedef` of a pointer names.
    pub fn parameters(&self, typedef: &str) -> Option<u32> {
        let pointer = self.at(self.find(TYPEDEF, typedef)?.other)?;
        let function = self.at(pointer.other)?;
        (function.kind == FUNC_PROTO).then_some(function.count)
    }

    /// The number of a `typedef`, by which the kernel knows the arguments of a tracepoint.
    pub fn typedef(&self, name: &str) -> Option<u32> {
        let place = (0..self.types.len()).find(|place| {
            self.nth(*place).is_some_and(|kind| kind.kind == TYPEDEF && self.is_named(kind.name, name))
        })?;
        u32::try_from(place + 1).ok()
    }

    /// Whether the kernel has a function, and has not put it into others that call it.
    pub fn has_function(&self, name: &str) -> bool {
        self.find(FUNC, name).is_some()
    }

    fn find(&self, kind: u32, name: &str) -> Option<Type> {
        (0..self.types.len())
            .filter_map(|place| self.nth(place))
            .find(|found| found.kind == kind && self.is_named(found.name, name))
    }

    fn nth(&self, place: usize) -> Option<Type> {
        let at = *self.types.get(place)? as usize;
        let info = u32_at(&self.data, at + 4)?;
        Some(Type {
            name: u32_at(&self.data, at)?,
            kind: (info >> 24) & 0x1f,
            count: info & 0xffff,
            wide: info >> 31 == 1,
            other: u32_at(&self.data, at + 8)?,
            members: at + 12,
        })
    }

    fn at(&self, number: u32) -> Option<Type> {
        self.nth((number as usize).checked_sub(1)?)
    }

    /// The type behind names and qualifiers.
    fn resolve(&self, number: u32) -> Option<Type> {
        let mut found = self.at(number)?;
        for _ in 0..64 {
            match found.kind {
                // typedef, volatile, const, restrict, type tag
                8 | 9 | 10 | 11 | 18 => found = self.at(found.other)?,
                _ => return Some(found),
            }
        }
        None
    }

    /// A member's place in bits, and its type.
    fn member_of(&self, holder: Type, name: &str, depth: u32) -> Option<(u32, u32)> {
        if !matches!(holder.kind, STRUCT | UNION) || depth == 0 {
            return None;
        }
        (0..holder.count as usize).find_map(|place| {
            let at = holder.members + place * 12;
            let (own, kind, offset) =
                (u32_at(&self.data, at)?, u32_at(&self.data, at + 4)?, u32_at(&self.data, at + 8)?);
            let offset = if holder.wide { offset & 0x00ff_ffff } else { offset };
            if self.is_named(own, name) {
                return Some((offset, kind));
            }
            let nameless = self.is_named(own, "");
            let (inner, kind) = self.member_of(self.resolve(kind).filter(|_| nameless)?, name, depth - 1)?;
            Some((offset.checked_add(inner)?, kind))
        })
    }

    fn is_named(&self, name: u32, wanted: &str) -> bool {
        let rest = self.strings.checked_add(name as usize).and_then(|at| self.data.get(at..));
        rest.is_some_and(|rest| {
            rest.strip_prefix(wanted.as_bytes()).is_some_and(|rest| rest.first() == Some(&0))
        })
    }
}

fn u32_at(data: &[u8], at: usize) -> Option<u32> {
    let bytes = data.get(at..at.checked_add(4)?)?;
    Some(u32::from_ne_bytes(bytes.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_of_the_running_kernel_are_where_aya_cannot_say() {
        let Ok(btf) = Btf::of_kernel() else {
            eprintln!("skipped: the kernel shows no types");
            return;
        };
        let member = |structure, path| btf.member(structure, path);
        // The user-space interface fixes these on x86-64.
        if cfg!(target_arch = "x86_64") {
            assert_eq!(member("pt_regs", "orig_ax").map(Member::byte), Some(120));
            assert_eq!(member("pt_regs", "di").map(Member::byte), Some(112));
        }
        let (pid, tgid) = (member("task_struct", "pid").unwrap(), member("task_struct", "tgid").unwrap());
        assert_eq!(tgid.byte(), pid.byte() + 4);
        assert!(member("task_struct", "in_iowait").is_some(), "a bit field");
        assert!(member("sock", "__sk_common.skc_family").is_some(), "through a structure");
        assert_eq!(member("task_struct", "no_such_member"), None);
        assert!(btf.parameters("btf_trace_sched_switch").is_some_and(|count| (4..=5).contains(&count)));
        assert!(btf.typedef("btf_trace_sched_switch").is_some());
    }

    #[test]
    fn damaged_types_are_an_error_and_never_a_panic() {
        assert!(Btf::parse(Vec::new()).is_err());
        let Ok(whole) = std::fs::read(VMLINUX) else { return };
        let head = &whole[..4096];
        for length in 0..head.len() {
            drop(Btf::parse(head[..length].to_vec()));
        }
        for at in 0..24 {
            let mut damaged = head.to_vec();
            damaged[at] ^= 0xff;
            if let Ok(btf) = Btf::parse(damaged) {
                assert_eq!(btf.member("task_struct", "pid"), None);
            }
        }
    }
}
