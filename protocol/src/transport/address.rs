//! Where a socket lies.

use std::fs::{self, DirBuilder};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use interprocess::local_socket::{GenericFilePath, ListenerOptions, Name, ToFsName, prelude::*};

use super::TransportError;

/// Mode of a socket file: only its owner may connect.
const SOCKET_MODE: u32 = 0o600;

/// Longest path of a socket: `sun_path` less the NUL at its end.
const MAX_PATH_BYTES: usize = if cfg!(target_os = "linux") { 107 } else { 103 };

/// How often a new name is drawn when a directory of that name exists.
const MAX_ATTEMPTS: usize = 16;

/// An unused address that no other user can reach: `engine-core.sock` in a new directory of mode
/// 0700 among the system's temporary files. Dropping it removes the directory and the socket.
///
/// The directory's name holds the process id (to recognise it) and a random number (so that two
/// processes with the same id, in two containers that share the folder, don't meet).
#[derive(Debug)]
pub struct PrivateAddress {
    directory: PathBuf,
    path: PathBuf,
}

impl PrivateAddress {
    /// Makes the directory.
    ///
    /// # Errors
    /// [`TransportError::Listen`] where the system's temporary folder can't be written.
    pub fn new() -> Result<Self, TransportError> {
        Self::new_in(&std::env::temp_dir())
    }

    fn new_in(parent: &Path) -> Result<Self, TransportError> {
        let mut attempt = 0;
        loop {
            attempt += 1;
            // Every `RandomState` has keys of its own, from the system's random numbers.
            let random = RandomState::new().hash_one(attempt);
            let directory = parent.join(format!("formwork-{}-{random:016x}", std::process::id()));
            match DirBuilder::new().mode(0o700).create(&directory) {
                Ok(()) => {
                    let path = directory.join("engine-core.sock");
                    // Its drop removes the directory where the path is too long.
                    let address = Self { directory, path };
                    if let Err(error) = verify_length(&address.path) {
                        return Err(TransportError::Listen {
                            address: address.path.clone(),
                            error: io::Error::new(
                                error.kind(),
                                format!("{error}: set TMPDIR to a shorter folder"),
                            ),
                        });
                    }
                    return Ok(address);
                }
                Err(error)
                    if error.kind() == io::ErrorKind::AlreadyExists && attempt < MAX_ATTEMPTS => {}
                Err(error) => {
                    return Err(TransportError::Listen {
                        address: directory,
                        error,
                    });
                }
            }
        }
    }

    /// The address to listen on and to connect to.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for PrivateAddress {
    fn drop(&mut self) {
        // The listener may have removed its socket already; a failure leaves an empty directory.
        let _ = fs::remove_file(&self.path);
        let _ = fs::remove_dir(&self.directory);
    }
}

/// Refuses a path that has no room in the system's `sockaddr_un`, whose own error doesn't say so.
fn verify_length(address: &Path) -> io::Result<()> {
    let length = address.as_os_str().len();
    if length > MAX_PATH_BYTES {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("the path is {length} bytes, a socket's may have at most {MAX_PATH_BYTES}"),
        ));
    }
    Ok(())
}

/// The socket library's form of a path.
pub(super) fn socket_name(address: &Path) -> io::Result<Name<'_>> {
    verify_length(address)?;
    address.to_fs_name::<GenericFilePath>()
}

/// Listens on `address` with whatever kind of listener `create` makes.
///
/// A socket file without a listener (its process was killed) is replaced, a live one is not.
pub(super) fn bind<L>(
    address: &Path,
    create: impl Fn(ListenerOptions<'_>) -> io::Result<L>,
) -> Result<L, TransportError> {
    let try_bind = || {
        let options = ListenerOptions::new().name(socket_name(address)?);
        create(with_mode(options))
    };
    let result = match try_bind() {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            remove_stale(address)?;
            try_bind()
        }
        other => other,
    };
    result.map_err(|error| match error.kind() {
        // Another process was faster.
        io::ErrorKind::AddrInUse => TransportError::AddressInUse {
            address: address.to_owned(),
        },
        _ => TransportError::Listen {
            address: address.to_owned(),
            error,
        },
    })
}

/// Listens on `address` for whoever speaks something else than frames, such as HTTP: by the rules of
/// every socket here, which replace a socket without a listener and nothing else, and with mode 0600
/// from the first moment on. The caller removes the file in the end.
///
/// # Errors
/// [`TransportError::AddressInUse`], [`TransportError::NotASocket`] and [`TransportError::Listen`],
/// all of which name the path.
pub fn bind_unix_listener(address: &Path) -> Result<UnixListener, TransportError> {
    use interprocess::os::unix::uds_local_socket::Listener;
    bind(address, |options| options.create_sync_as::<Listener>()).map(UnixListener::from)
}

/// The mode is set before the socket gets its name where the system can do that. Elsewhere the
/// socket has the mode that the process's umask gives.
fn with_mode(options: ListenerOptions<'_>) -> ListenerOptions<'_> {
    #[cfg(target_os = "linux")]
    {
        use interprocess::os::unix::local_socket::ListenerOptionsExt;
        options.mode(SOCKET_MODE)
    }
    #[cfg(not(target_os = "linux"))]
    options
}

/// Removes a socket file that nobody listens on.
fn remove_stale(address: &Path) -> Result<(), TransportError> {
    let listen_error = |error| TransportError::Listen {
        address: address.to_owned(),
        error,
    };
    let is_socket = match fs::symlink_metadata(address) {
        Ok(metadata) => metadata.file_type().is_socket(),
        // Its listener ended meanwhile.
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(listen_error(error)),
    };
    if !is_socket {
        return Err(TransportError::NotASocket {
            address: address.to_owned(),
        });
    }
    let name = socket_name(address).map_err(listen_error)?;
    match interprocess::local_socket::Stream::connect(name) {
        Ok(_) => Err(TransportError::AddressInUse {
            address: address.to_owned(),
        }),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
            fs::remove_file(address).map_err(listen_error)
        }
        Err(error) => Err(listen_error(error)),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::Listener;
    use super::*;

    #[test]
    fn a_private_address_is_new_private_and_leaves_nothing() {
        let (a, b) = (
            PrivateAddress::new().unwrap(),
            PrivateAddress::new().unwrap(),
        );
        assert_ne!(a.path(), b.path());
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(&a.directory), 0o700);
        let listener = Listener::bind(a.path()).unwrap();
        if cfg!(target_os = "linux") {
            assert_eq!(mode(a.path()), SOCKET_MODE);
        }
        let directory = a.directory.clone();
        drop(listener);
        drop(a);
        assert!(!directory.exists());
    }

    #[test]
    fn an_unwritable_temporary_folder_is_named() {
        let error = PrivateAddress::new_in(Path::new("/nonexistent")).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("can't listen on /nonexistent/formwork-"),
            "{error}"
        );
    }

    #[test]
    fn a_live_listener_keeps_its_address() {
        let address = PrivateAddress::new().unwrap();
        let _listener = Listener::bind(address.path()).unwrap();
        let error = Listener::bind(address.path()).unwrap_err();
        assert!(
            matches!(&error, TransportError::AddressInUse { address: path } if path == address.path())
        );
        assert!(
            error
                .to_string()
                .contains(&address.path().display().to_string()),
            "{error}"
        );
    }

    #[test]
    fn a_socket_file_without_a_listener_is_replaced() {
        let address = PrivateAddress::new().unwrap();
        // The standard library's listener leaves its file behind, as a killed process does.
        drop(std::os::unix::net::UnixListener::bind(address.path()).unwrap());
        assert!(address.path().exists());
        Listener::bind(address.path()).unwrap();
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let address = PrivateAddress::new().unwrap();
        fs::write(address.path(), "precious").unwrap();
        let error = Listener::bind(address.path()).unwrap_err();
        assert!(
            matches!(error, TransportError::NotASocket { .. }),
            "{error}"
        );
        assert_eq!(fs::read_to_string(address.path()).unwrap(), "precious");
    }

    #[test]
    fn a_listener_for_bytes_follows_the_same_rules() {
        let address = PrivateAddress::new().unwrap();
        let path = address.path();
        for make in [
            (|path| fs::write(path, "precious")) as fn(&Path) -> io::Result<()>,
            |path| std::os::unix::fs::symlink("/nonexistent", path),
            |path| fs::create_dir(path),
        ] {
            make(path).unwrap();
            let before = fs::symlink_metadata(path).unwrap();
            let error = bind_unix_listener(path).unwrap_err();
            assert!(
                matches!(&error, TransportError::NotASocket { address } if address == path),
                "{error}"
            );
            let after = fs::symlink_metadata(path).unwrap();
            assert_eq!(before.file_type(), after.file_type());
            let removed = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
            removed.unwrap();
        }
        let listener = bind_unix_listener(path).unwrap();
        if cfg!(target_os = "linux") {
            let mode = fs::metadata(path).unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, SOCKET_MODE);
        }
        let error = bind_unix_listener(path).unwrap_err();
        assert!(
            matches!(error, TransportError::AddressInUse { .. }),
            "{error}"
        );
        drop(listener);
        assert!(path.exists(), "its file is the caller's");
        bind_unix_listener(path).unwrap();
    }

    #[test]
    fn a_path_too_long_for_a_socket_is_an_error() {
        let address = PathBuf::from(format!("/tmp/{}", "x".repeat(200)));
        let error = Listener::bind(&address).unwrap_err();
        assert!(matches!(error, TransportError::Listen { .. }), "{error}");
        let says = format!("the path is 205 bytes, a socket's may have at most {MAX_PATH_BYTES}");
        assert!(error.to_string().ends_with(&says), "{error}");
    }

    #[test]
    fn the_longest_path_is_no_error() {
        let folder = PrivateAddress::new().unwrap();
        let room = MAX_PATH_BYTES - folder.directory.as_os_str().len() - 1;
        let path = |bytes| folder.directory.join("x".repeat(bytes));
        drop(Listener::bind(&path(room)).unwrap());
        assert!(Listener::bind(&path(room + 1)).is_err());
    }

    #[test]
    fn a_temporary_folder_too_long_for_a_socket_is_named() {
        let parent = PrivateAddress::new().unwrap();
        let long = parent.directory.join("x".repeat(MAX_PATH_BYTES));
        fs::create_dir(&long).unwrap();
        let error = PrivateAddress::new_in(&long).unwrap_err();
        assert!(
            error
                .to_string()
                .ends_with("set TMPDIR to a shorter folder"),
            "{error}"
        );
        assert_eq!(fs::read_dir(&long).unwrap().count(), 0);
        fs::remove_dir(&long).unwrap();
    }
}
