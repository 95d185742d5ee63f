//! Where data comes from, and where checkpoints go.

use std::fs::File;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::time::Duration;

use crate::programs::{ProgramError, compute};
use crate::stop::End;
use crate::{Relay, Source, Wait};

/// Writes a checkpoint and waits until it is on the disk.
pub(crate) fn write_checkpoint(path: &Path, bytes: usize) -> Result<(), ProgramError> {
    let fail = |e| ProgramError::File(path.to_owned(), e);
    let mut file = File::create(path).map_err(fail)?;
    let block = vec![7_u8; 1 << 20];
    let mut left = bytes;
    while left > 0 {
        let part = block.get(..left.min(block.len())).unwrap_or_default();
        file.write_all(part).map_err(fail)?;
        left -= part.len();
    }
    file.sync_data().map_err(fail)
}

/// Waits for data and says through a named pipe that it is there, over and over.
pub(crate) fn relay(plan: &Relay) -> Result<(), ProgramError> {
    let end = End::after(plan.seconds);
    let mut data = Data::open(&plan.source)?;
    let fail = |e| ProgramError::File(plan.to.clone(), e);
    // Until somebody reads from it.
    let mut to = File::options().write(true).open(&plan.to).map_err(fail)?;
    while !end.reached() {
        data.wait(&plan.source, end)?;
        to.write_all(&[0]).map_err(fail)?;
    }
    Ok(())
}

/// Where a waiter's data comes from.
pub(crate) enum Data {
    /// Time.
    Nothing,
    /// A file, past the page cache where the file system allows it.
    File { file: File, path: PathBuf, buffer: Vec<u8>, aligned: usize, offset: u64 },
    /// A thread of this process.
    Thread(mpsc::Receiver<()>),
    /// A named pipe.
    Pipe { file: File, path: PathBuf },
    /// A feeder.
    Feeder { connection: TcpStream, address: SocketAddr, buffer: Vec<u8> },
}

impl Data {
    /// Opens what a plan names.
    pub(crate) fn open(plan: &Source) -> Result<Self, ProgramError> {
        match plan.wait {
            Wait::Sleep | Wait::Cpu => Ok(Self::Nothing),
            Wait::Lock => {
                let (send, receive) = mpsc::sync_channel(0);
                let time = Duration::from_micros(plan.wait_us);
                std::thread::spawn(move || {
                    loop {
                        compute(time);
                        if send.send(()).is_err() {
                            return;
                        }
                    }
                });
                Ok(Self::Thread(receive))
            }
            Wait::Pipe => {
                let path = plan.file.clone().unwrap_or_else(|| "pipe".into());
                let file = File::open(&path).map_err(|e| ProgramError::File(path.clone(), e))?;
                Ok(Self::Pipe { file, path })
            }
            Wait::Network => {
                let address = plan.connect;
                let fail = |e| ProgramError::Network(address, e);
                let connection = TcpStream::connect(address).map_err(fail)?;
                connection.set_read_timeout(Some(Duration::from_secs(5))).map_err(fail)?;
                Ok(Self::Feeder { connection, address, buffer: vec![0; plan.read_kib << 10] })
            }
            Wait::Disk => {
                let path = plan.file.clone().unwrap_or_else(|| "/proc/self/exe".into());
                let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(&path);
                let file =
                    direct.or_else(|_| File::open(&path)).map_err(|e| ProgramError::File(path.clone(), e))?;
                let buffer = vec![0; (plan.read_kib << 10) + 4096];
                let aligned = buffer.as_ptr().align_offset(4096).min(4096);
                Ok(Self::File { file, path, buffer, aligned, offset: 0 })
            }
        }
    }

    /// Waits for the data of one step.
    pub(crate) fn wait(&mut self, plan: &Source, end: End) -> Result<(), ProgramError> {
        match self {
            Self::Nothing if plan.wait == Wait::Cpu => compute(Duration::from_micros(plan.wait_us)),
            Self::Nothing => end.sleep(Duration::from_micros(plan.wait_us)),
            Self::Thread(data) => {
                // The thread lives as long as this end of the channel.
                data.recv_timeout(Duration::from_secs(1)).unwrap_or_default();
            }
            Self::Pipe { file, path } => {
                file.read_exact(&mut [0]).map_err(|e| ProgramError::File(path.clone(), e))?;
            }
            Self::Feeder { connection, address, buffer } => {
                let size = u32::try_from(buffer.len()).unwrap_or(u32::MAX);
                connection
                    .write_all(&size.to_le_bytes())
                    .and_then(|()| connection.read_exact(buffer))
                    .map_err(|e| ProgramError::Network(*address, e))?;
            }
            Self::File { file, path, buffer, aligned, offset } => {
                let range = *aligned..*aligned + (plan.read_kib << 10);
                let target = buffer.get_mut(range).unwrap_or_default();
                let mut at =
                    |offset| file.read_at(target, offset).map_err(|e| ProgramError::File(path.clone(), e));
                let mut read = at(*offset)?;
                if read == 0 && *offset > 0 {
                    // A step has data, at the file's end too.
                    *offset = 0;
                    read = at(0)?;
                }
                *offset += read as u64;
            }
        }
        Ok(())
    }
}
