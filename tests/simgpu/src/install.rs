//! Putting the driver libraries under their real names.

use std::path::Path;

use crate::Error;

/// The libraries: as built, as installed, and whether they must be there.
const LIBRARIES: [(&str, &str, bool); 3] = [
    ("libsimgpu_nvml.so", "libnvidia-ml.so.1", true),
    ("libsimgpu_cuda.so", "libcuda.so.1", true),
    // No part of a driver: there only if it was built.
    ("libsimgpu_cupti.so", "libcupti.so.12", false),
];

/// Copies the built driver libraries from `from` to `to` under their real names.
///
/// They are copied, never linked: names that share an inode are one object to the dynamic loader and to uprobes.
pub fn install_libraries(from: &Path, to: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(to).map_err(|e| Error::file("create directory", to, e))?;
    for (built, name, needed) in LIBRARIES {
        let source = match [from.join(built), from.join("deps").join(built)].into_iter().find(|p| p.is_file())
        {
            Some(source) => source,
            None if needed => {
                return Err(Error::file("find library", from.join(built), std::io::ErrorKind::NotFound));
            }
            None => continue,
        };
        let fresh = to.join(format!("{name}.new"));
        std::fs::copy(&source, &fresh).map_err(|e| Error::file("copy library to", &fresh, e))?;
        let path = to.join(name);
        std::fs::rename(&fresh, &path).map_err(|e| Error::file("rename to", &path, e))?;
    }
    Ok(())
}
