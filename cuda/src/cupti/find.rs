//! Which file is CUPTI's library, and opening it.

use std::path::{Path, PathBuf};
use std::rc::Rc;

use super::sys::Library;
use crate::library::{Search, find};

/// The library's file names: that for linking, and those of the versions that have the calls.
const NAMES: [&str; 3] = ["libcupti.so.13", "libcupti.so.12", "libcupti.so"];

/// Where the library is looked for unless told otherwise: the CUDA toolkit's places.
pub const DEFAULT_LIBRARIES: [&str; 8] = [
    "/usr/local/cuda/extras/CUPTI/lib64",
    "/usr/local/cuda/lib64",
    "/usr/local/cuda/targets/x86_64-linux/lib",
    "/usr/local/cuda/targets/sbsa-linux/lib",
    "/opt/cuda/extras/CUPTI/lib64",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
];

/// Looks for CUPTI's library as [`find_library`](crate::find_library) does for the driver's. No candidates stand for
/// [`DEFAULT_LIBRARIES`].
pub fn find_cupti(candidates: &[PathBuf]) -> Search {
    find(candidates, &DEFAULT_LIBRARIES, &NAMES)
}

/// Opens the first library that has what is needed, with the driver's CUDA library from `driver`; or says why none has.
/// It is not started yet.
pub(super) fn open(candidates: &[PathBuf], driver: &Path) -> Result<Rc<Library>, String> {
    let search = find_cupti(candidates);
    let mut first = None;
    for path in &search.found {
        match Library::open(&driver.join("libcuda.so.1"), path) {
            Ok(library) => return Ok(Rc::new(library)),
            Err(error) => {
                first.get_or_insert(error);
            }
        }
    }
    Err(match first {
        Some(error) => error.to_string(),
        None => "no libcupti was found: install the CUDA toolkit's CUPTI (12.8 or later), or name its directory in \
                 [cupti] libraries"
            .to_owned(),
    })
}
