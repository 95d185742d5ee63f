//! Putting the driver libraries under their real names.

use std::path::Path;

use crate::Error;

/// The libraries: as built, and as installed.
const LIBRARIES: [(&str, &str); 2] =
    [("libsimgpu_nvml.so", "libnvidia-ml.so.1"), ("libsimgpu_cuda.so", "libcuda.so.1")];

/// Copies the built driver libraries from `from` to `to` under their real names.
///
/// They are copied, never linked: names that share an inode are one object to the dynamic loader and to uprobes.
pub fn install_libraries(from: &Path, to: &Path) -> Result<(), Error> {
    std::fs::create_dir_all(to).map_err(|e| Error::file("create directory", to, e))?;
    for (built, name) in LIBRARIES {
        let source = [from.join(built), from.join("deps").join(built)]
            .into_iter()
            .find(|p| p.is_file())
            .ok_or_else(|| Error::file("find library", from.join(built), std::io::ErrorKind::NotFound))?;
        let fresh = to.join(format!("{name}.new"));
        std::fs::copy(&source, &fresh).map_err(|e| Error::file("copy library to", &fresh, e))?;
        let path = to.join(name);
        std::fs::rename(&fresh, &path).map_err(|e| Error::file("rename to", &path, e))?;
    }
    Ok(())
}
