//! [`UnixSocket`]: a listening socket that is a file, for the options `unixsocket` and `unixsocketperm`.
//!
//! redis-server removes whatever file has the name, at the start and at the end. This module removes only sockets on
//! which no program listens, and at the end only the file that it made.

use super::disk::DirLock;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fmt;
use std::fs::{self, Permissions};
use std::io::{self, ErrorKind};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Maximum length of a name in bytes. It is the space in the kernel's `sockaddr_un` without the final zero.
const NAME_BYTES_MAX: usize = 107;

/// The error for a Unix socket on which the server cannot listen.
#[derive(Debug)]
pub struct UnixSocketError {
    name: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    TooLong,
    NoSocket,
    InUse,
    Io(io::Error),
}

impl fmt::Display for UnixSocketError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "cannot listen on the Unix socket {}: ", self.name.display())?;
        match &self.why {
            Why::TooLong => write!(
                f,
                "the name has {} bytes, and {NAME_BYTES_MAX} are possible; choose a shorter name with --unixsocket",
                self.name.as_os_str().len()
            ),
            Why::NoSocket => f.write_str(
                "there is a file of this name that is not a socket; remove it, or choose another name with --unixsocket",
            ),
            Why::InUse => f.write_str(
                "another program listens on it; stop that program, or choose another name with --unixsocket",
            ),
            Why::Io(error) if error.kind() == ErrorKind::NotFound => {
                f.write_str("its folder does not exist; make the folder first")
            }
            Why::Io(error) => error.fmt(f),
        }
    }
}

/// No `source`, because the text includes the cause.
impl std::error::Error for UnixSocketError {}

impl From<io::Error> for Why {
    fn from(error: io::Error) -> Why {
        Why::Io(error)
    }
}

/// A listening Unix socket, and its file.
///
/// The file comes first, so the drop removes it while the socket still listens. Until then another server cannot take the
/// name, and the file's number cannot become the number of another file.
pub struct UnixSocket {
    /// The file. Dropping the value removes the file.
    pub file: SocketFile,
    /// The socket. It does not block.
    pub listener: UnixListener,
}

/// The file of a Unix socket. The drop removes the file, unless another program has replaced it.
pub struct SocketFile {
    /// Keeps other servers from the name, also between the check of an old file and the first accepted client.
    _lock: DirLock,
    /// The name as it was configured, for clients and logs.
    pub name: String,
    /// The name from the root, because CONFIG SET can change the working folder.
    path: PathBuf,
    /// Device and inode.
    id: (u64, u64),
}

/// Listens on the file `name`, which gets the permissions `mode`; 0 leaves them to the process's umask. A relative
/// `name` begins in the working folder. A socket that an ended program left behind is replaced.
///
/// # Errors
/// When the name is too long, when another program listens there, when the file is not a socket, and on errors of the
/// system.
pub fn listen(name: &Path, mode: u32, backlog: i32) -> Result<UnixSocket, UnixSocketError> {
    open(name, mode, backlog).map_err(|why| UnixSocketError { name: name.to_path_buf(), why })
}

fn open(name: &Path, mode: u32, backlog: i32) -> Result<UnixSocket, Why> {
    if name.as_os_str().len() > NAME_BYTES_MAX {
        return Err(Why::TooLong);
    }
    let path = std::path::absolute(name)?;
    let lock = lock(&path)?;
    remove_unused(name)?;
    let address = SockAddr::unix(name)?;
    let socket = stream_socket()?;
    socket.set_nonblocking(true)?;
    socket.bind(&address)?;
    let made = fs::symlink_metadata(name)?;
    let file =
        SocketFile { _lock: lock, name: name.display().to_string(), path, id: (made.dev(), made.ino()) };
    // Before this there is no listener, so no client can connect that these permissions keep out.
    if mode != 0 {
        fs::set_permissions(name, Permissions::from_mode(mode))?;
    }
    socket.listen(backlog)?;
    Ok(UnixSocket { file, listener: OwnedFd::from(socket).into() })
}

/// Locks the name for this server.
fn lock(path: &Path) -> Result<DirLock, Why> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Err(Why::NoSocket) };
    DirLock::acquire(folder, &name.to_string_lossy()).map_err(|e| match e.kind() {
        ErrorKind::WouldBlock => Why::InUse,
        _ => e.into(),
    })
}

fn stream_socket() -> io::Result<Socket> {
    Socket::new(Domain::UNIX, Type::STREAM, None)
}

/// Removes the socket at `path` if no program listens on it.
fn remove_unused(path: &Path) -> Result<(), Why> {
    match fs::symlink_metadata(path) {
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e.into()),
        Ok(found) if !found.file_type().is_socket() => return Err(Why::NoSocket),
        Ok(_) => {}
    }
    let probe = stream_socket()?;
    // A listener whose backlog is full would make a blocking socket wait.
    probe.set_nonblocking(true)?;
    match probe.connect(&SockAddr::unix(path)?) {
        Err(e) if e.kind() == ErrorKind::ConnectionRefused => Ok(fs::remove_file(path)?),
        Ok(()) => Err(Why::InUse),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Err(Why::InUse),
        Err(e) => Err(e.into()),
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        let is_own = fs::symlink_metadata(&self.path).is_ok_and(|f| (f.dev(), f.ino()) == self.id);
        if !is_own {
            return;
        }
        match fs::remove_file(&self.path) {
            Ok(()) => tracing::info!("removed the Unix socket {}", self.name),
            Err(e) => tracing::warn!("cannot remove the Unix socket {}: {e}", self.name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn refused(name: &Path) -> String {
        match listen(name, 0, 16) {
            Ok(_) => panic!("it listens on {}", name.display()),
            Err(e) => e.to_string(),
        }
    }

    #[test]
    fn a_socket_has_its_permissions_and_is_removed_at_the_end() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s");
        let name = path.as_path();
        for mode in [0o700, 0o660] {
            let socket = listen(name, mode, 16).expect("a socket");
            let found = fs::symlink_metadata(name).expect("there").permissions().mode() & 0o777;
            assert_eq!(found, mode);
            UnixStream::connect(name).expect("it listens");
            drop(socket);
            assert!(!path.exists());
        }
    }

    #[test]
    fn only_a_socket_without_a_listener_is_replaced() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join("s");
        let name = path.as_path();
        let left_behind = UnixListener::bind(name).expect("a socket");
        let why = refused(name);
        assert!(
            why.contains(&name.display().to_string()) && why.contains("another program listens"),
            "{why}"
        );
        drop(left_behind);
        let first = listen(name, 0, 16).expect("nobody listens");

        // Without its file, the first server still has the name. Its end leaves the socket of another program.
        fs::remove_file(name).expect("there");
        assert!(refused(name).contains("another program listens"));
        let other = UnixListener::bind(name).expect("a socket");
        drop(first);
        UnixStream::connect(name).expect("the other program listens");
        drop(other);
        fs::remove_file(name).expect("there");

        fs::write(name, "precious").expect("a file");
        let why = refused(name);
        assert!(why.contains("not a socket"), "{why}");
        assert_eq!(fs::read_to_string(name).expect("kept"), "precious");
    }

    #[test]
    fn bad_names_are_refused_with_the_reason() {
        let dir = tempfile::tempdir().expect("a folder");
        let absent = dir.path().join("none/s");
        assert!(refused(&absent).contains("folder does not exist"));
        let long = format!("/tmp/{}", "x".repeat(NAME_BYTES_MAX));
        assert!(refused(Path::new(&long)).contains("112 bytes, and 107 are possible"));
    }
}
