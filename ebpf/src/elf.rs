//! The functions that a shared library exports, and where a probe on each is cheap.
//!
//! The library comes from a container: any of its bytes may be a lie. What is read is bounded, and whatever does not
//! hold is an error and never a panic.

use std::fmt;
use std::fs::File;
use std::ops::Range;

use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, Sym};
use object::{LittleEndian, ReadCache, ReadRef};

/// The most symbols that are looked at. A driver exports some hundreds.
const SYMBOLS: usize = 65_536;
/// The most bytes of names.
const NAMES: u64 = 4 << 20;
/// The most segments.
const SEGMENTS: usize = 256;
/// No name that is asked for is as long: names end here.
pub const NAME: usize = 64;
/// The most functions that are found. Each is probed, and costs the kernel as much as the whole of a driver's symbols.
const FUNCTIONS: u64 = 1024;
/// How many bytes of a function decide where a probe goes.
const HEAD: u64 = 14;

type Header = elf::FileHeader64<LittleEndian>;

/// Why a file is not taken for a library.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ElfError {
    /// Its structures do not hold.
    #[error("it is no 64-bit little-endian ELF library: {0}")]
    Broken(object::read::Error),
    /// It is for another processor than this one.
    #[error("it is for another processor (ELF machine {0})")]
    Foreign(u16),
    /// It has more of something than any driver has.
    #[error("it has {count} {what}, where {most} are the most that is read")]
    TooMany {
        /// Of what.
        what: &'static str,
        /// How many it says it has.
        count: u64,
        /// How many are read.
        most: u64,
    },
    /// It exports nothing by name.
    #[error("it has no dynamic symbols")]
    NoSymbols,
}

impl From<object::read::Error> for ElfError {
    fn from(error: object::read::Error) -> Self {
        Self::Broken(error)
    }
}

/// Where a probe on a function goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Place {
    /// At the jump of the driver's trampoline, which the kernel emulates.
    Trampoline,
    /// Behind `endbr64`, at an instruction that the kernel emulates.
    Landing,
    /// At the first instruction, which the kernel emulates.
    Emulated,
    /// At the first instruction, which the kernel has to execute out of line: several times as dear.
    Entry,
}

impl Place {
    /// Where to put a probe on a function that begins with `head`.
    pub fn of(head: &[u8]) -> Self {
        if cfg!(not(target_arch = "x86_64")) {
            return Self::Entry;
        }
        match head {
            // cmpl $0x321cba00, disp32(%rip); je
            [0x81, 0x3d, _, _, _, _, 0x00, 0xba, 0x1c, 0x32, 0x74, ..] => Self::Trampoline,
            [0xf3, 0x0f, 0x1e, 0xfa, rest @ ..] if is_emulated(rest) => Self::Landing,
            head if is_emulated(head) => Self::Emulated,
            _ => Self::Entry,
        }
    }

    /// Bytes from the start of the function.
    pub const fn offset(self) -> u64 {
        match self {
            Self::Trampoline => 10,
            Self::Landing => 4,
            Self::Emulated | Self::Entry => 0,
        }
    }

    /// The place in words.
    pub const fn label(self) -> &'static str {
        match self {
            Self::Trampoline => "at the trampoline's jump",
            Self::Landing => "behind endbr64",
            Self::Emulated => "at the entry, emulated",
            Self::Entry => "at the entry, executed out of line",
        }
    }
}

/// Whether the kernel emulates the instruction at the start of `code` (`branch_setup_xol_ops` and its like): no-ops,
/// jumps, calls and pushes of a register.
fn is_emulated(code: &[u8]) -> bool {
    matches!(
        code,
        [0x90 | 0xeb | 0xe9 | 0xe8 | 0x50..=0x57 | 0x70..=0x7f, ..]
            | [0x41, 0x50..=0x57, ..]
            | [0x0f, 0x1f | 0x80..=0x8f, ..]
            | [0x66, 0x90, ..]
            | [0x66, 0x0f, 0x1f, ..]
    )
}

/// An exported function that was asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Function<T> {
    /// What it was asked for as.
    pub wanted: T,
    /// Where it begins in the file.
    pub start: u64,
    /// Where a probe on it goes.
    pub place: Place,
}

impl<T> Function<T> {
    /// Where in the file a probe on it goes.
    pub fn probe(&self) -> u64 {
        self.start.saturating_add(self.place.offset())
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

/// The same of a file, of which no more is read than that takes.
pub fn functions_of<T: Copy + Ord>(
    file: &File,
    wanted: impl Fn(&[u8]) -> Option<T>,
) -> Result<Vec<Function<T>>, ElfError> {
    let cache = ReadCache::new(file);
    functions(Bounded(&cache), wanted)
}

/// A file of which no part is read that is larger than any that is wanted: the reader believes what the file says.
#[derive(Clone, Copy)]
struct Bounded<'d>(&'d ReadCache<&'d File>);

impl<'d> ReadRef<'d> for Bounded<'d> {
    fn len(self) -> Result<u64, ()> {
        self.0.len()
    }

    fn read_bytes_at(self, offset: u64, size: u64) -> Result<&'d [u8], ()> {
        if size > NAMES { Err(()) } else { self.0.read_bytes_at(offset, size) }
    }

    fn read_bytes_at_until(self, range: Range<u64>, delimiter: u8) -> Result<&'d [u8], ()> {
        self.0.read_bytes_at_until(range, delimiter)
    }
}

/// The exported functions for whose names `wanted` gives something, in order of their place in the file; each place
/// once.
pub fn functions<'d, R: ReadRef<'d>, T: Copy + Ord>(
    data: R,
    wanted: impl Fn(&[u8]) -> Option<T>,
) -> Result<Vec<Function<T>>, ElfError> {
    let header = Header::parse(data)?;
    let endian = header.endian()?;
    let machine = header.e_machine(endian);
    let native = if cfg!(target_arch = "aarch64") { elf::EM_AARCH64 } else { elf::EM_X86_64 };
    if machine != native {
        return Err(ElfError::Foreign(machine));
    }
    let segments = header.program_headers(endian, data)?;
    bounded("segments", segments.len() as u64, SEGMENTS as u64)?;
    let sections = header.section_headers(endian, data)?;
    let section = sections
        .iter()
        .find(|section| section.sh_type.get(endian) == elf::SHT_DYNSYM)
        .ok_or(ElfError::NoSymbols)?;
    let each = size_of::<elf::Sym64<LittleEndian>>();
    let count = section.sh_size.get(endian) / each as u64;
    bounded("dynamic symbols", count, SYMBOLS as u64)?;
    let (offset, count) = (section.sh_offset.get(endian), usize::try_from(count).unwrap_or(SYMBOLS));
    let symbols: &[elf::Sym64<LittleEndian>] =
        data.read_slice_at(offset, count).map_err(|()| ElfError::NoSymbols)?;
    let link = usize::try_from(section.sh_link.get(endian)).ok().and_then(|link| sections.get(link));
    let names = link.ok_or(ElfError::NoSymbols)?;
    bounded("bytes of names", names.sh_size.get(endian), NAMES)?;
    let names = data
        .read_bytes_at(names.sh_offset.get(endian), names.sh_size.get(endian))
        .map_err(|()| ElfError::NoSymbols)?;

    let mut found: Vec<Function<T>> = Vec::new();
    for symbol in symbols {
        if symbol.is_undefined(endian) || symbol.st_type() != elf::STT_FUNC {
            continue;
        }
        let name = usize::try_from(symbol.st_name(endian)).ok().and_then(|at| name_at(names, at));
        let Some(wanted) = name.and_then(&wanted) else { continue };
        let Some(start) = in_file(segments, symbol.st_value(endian)) else { continue };
        let Ok(head) = data.read_bytes_at(start, HEAD) else { continue };
        found.push(Function { wanted, start, place: Place::of(head) });
        bounded("functions of a driver", found.len() as u64, FUNCTIONS)?;
    }
    // Names of one function give one probe: the first by what it was asked for as.
    found.sort_unstable_by_key(|function| (function.start, function.wanted));
    found.dedup_by_key(|function| function.start);
    Ok(found)
}

/// The name that begins at a byte, if it ends before [`NAME`]: a lie of a name takes no longer than a name.
fn name_at(names: &[u8], at: usize) -> Option<&[u8]> {
    let rest = names.get(at..)?;
    let rest = rest.get(..NAME).unwrap_or(rest);
    rest.get(..rest.iter().position(|byte| *byte == 0)?)
}

fn bounded(what: &'static str, count: u64, most: u64) -> Result<(), ElfError> {
    if count > most { Err(ElfError::TooMany { what, count, most }) } else { Ok(()) }
}

/// Where in the file the code at `address` is, if it is code.
fn in_file(segments: &[elf::ProgramHeader64<LittleEndian>], address: u64) -> Option<u64> {
    let endian = LittleEndian;
    segments.iter().find_map(|segment| {
        let code = segment.p_type(endian) == elf::PT_LOAD && segment.p_flags(endian) & elf::PF_X != 0;
        let inside = address.checked_sub(segment.p_vaddr(endian))?;
        let enough = inside.checked_add(HEAD)? <= segment.p_filesz(endian);
        (code && enough).then(|| segment.p_offset(endian).checked_add(inside))?
    })
}

#[cfg(test)]
mod tests;
