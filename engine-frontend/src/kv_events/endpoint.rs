//! Where a ZeroMQ socket is.

use std::fmt;
use std::path::{Path, PathBuf};

/// An address as ZeroMQ writes it, as far as events are published there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Endpoint {
    /// Listens on every IPv4 address (`tcp://*:5557`), or on an IPv6 address that has a `::` (`tcp://[::1]:5557`).
    Bind {
        /// The address, `0.0.0.0` for `*`.
        host: String,
        /// The port of the first core.
        port: u16,
    },
    /// Connects to a subscriber that listens (`tcp://collector:5557`).
    Connect {
        /// The host's name or address.
        host: String,
        /// The port of the first core.
        port: u16,
    },
    /// Listens on a Unix socket (`ipc:///run/events`).
    Ipc(PathBuf),
}

impl Endpoint {
    /// Reads an address. As in vLLM a publisher listens where there is a `*` or a `::` and with `ipc`, and connects
    /// elsewhere.
    ///
    /// # Errors
    /// What would be right.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        const FORMS: &str = "must be tcp://*:PORT to listen, tcp://HOST:PORT to connect to a subscriber, or ipc://PATH";
        if let Some(path) = text.strip_prefix("ipc://") {
            // libzmq would have a name in the abstract namespace, which has no owner.
            return match path.is_empty() || path.starts_with('@') {
                true => Err(format!("{FORMS}, got {text:?}")),
                false => Ok(Self::Ipc(path.into())),
            };
        }
        let host_and_port = text
            .strip_prefix("tcp://")
            .and_then(|rest| rest.rsplit_once(':'));
        let Some((host, port)) = host_and_port.filter(|(host, _)| !host.is_empty()) else {
            return Err(format!("{FORMS}, got {text:?}"));
        };
        let port = match port.parse() {
            Ok(port) if port > 0 => port,
            _ => return Err(format!("the port must be from 1 to 65535, got {port:?}")),
        };
        let bare = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        let name = bare.unwrap_or(host).to_owned();
        match host {
            "*" => Ok(Self::Bind {
                host: "0.0.0.0".to_owned(),
                port,
            }),
            "0.0.0.0" => Err(format!(
                "a publisher listens at tcp://*:{port}; {text:?} would connect to nobody, as in vLLM"
            )),
            _ if host.contains('*') => Err(format!("{FORMS}, got {text:?}")),
            _ if host.contains("::") => Ok(Self::Bind { host: name, port }),
            _ => Ok(Self::Connect { host: name, port }),
        }
    }

    /// The same for an address that is listened at in any case, as that of replays is.
    ///
    /// # Errors
    /// What would be right.
    pub(super) fn parse_bound(text: &str) -> Result<Self, String> {
        match text.strip_prefix("tcp://0.0.0.0:") {
            Some(port) => Self::parse(&format!("tcp://*:{port}")),
            None => Ok(match Self::parse(text)? {
                Self::Connect { host, port } => Self::Bind { host, port },
                bound => bound,
            }),
        }
    }

    /// The address of core `rank` of several: the next port for the next core, as in vLLM.
    pub(super) fn of_rank(&self, rank: u32) -> Self {
        let later = |port: u16| port.saturating_add(u16::try_from(rank).unwrap_or(u16::MAX));
        match self.clone() {
            Self::Bind { host, port } => Self::Bind {
                host,
                port: later(port),
            },
            Self::Connect { host, port } => Self::Connect {
                host,
                port: later(port),
            },
            Self::Ipc(path) => Self::Ipc(path),
        }
    }

    /// The port of the first core.
    pub(super) fn port(&self) -> Option<u16> {
        match self {
            Self::Bind { port, .. } | Self::Connect { port, .. } => Some(*port),
            Self::Ipc(_) => None,
        }
    }

    /// The port that is connected to for the first core.
    pub(crate) fn connects_to(&self) -> Option<u16> {
        match self {
            Self::Connect { port, .. } => Some(*port),
            Self::Bind { .. } | Self::Ipc(_) => None,
        }
    }

    /// The path of a Unix socket.
    pub(crate) fn path(&self) -> Option<&Path> {
        match self {
            Self::Ipc(path) => Some(path),
            Self::Bind { .. } | Self::Connect { .. } => None,
        }
    }
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bind { host, port } if host == "0.0.0.0" => write!(f, "tcp://*:{port}"),
            Self::Bind { host, port } | Self::Connect { host, port } if host.contains(':') => {
                write!(f, "tcp://[{host}]:{port}")
            }
            Self::Bind { host, port } | Self::Connect { host, port } => {
                write!(f, "tcp://{host}:{port}")
            }
            Self::Ipc(path) => write!(f, "ipc://{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_listens_and_what_connects_is_that_of_vllm() {
        let bind = |host: &str| {
            Ok(Endpoint::Bind {
                host: host.to_owned(),
                port: 5557,
            })
        };
        let connect = |host: &str| {
            Ok(Endpoint::Connect {
                host: host.to_owned(),
                port: 5557,
            })
        };
        for (text, expected) in [
            ("tcp://*:5557", bind("0.0.0.0")),
            ("tcp://[::1]:5557", bind("::1")),
            ("tcp://127.0.0.1:5557", connect("127.0.0.1")),
            ("tcp://collector.ns:5557", connect("collector.ns")),
            ("ipc:///run/e", Ok(Endpoint::Ipc("/run/e".into()))),
        ] {
            assert_eq!(Endpoint::parse(text), expected);
            // As it was written.
            let written = expected.map(|endpoint| endpoint.to_string());
            assert_eq!(written.as_deref(), Ok(text));
        }
        assert_eq!(
            Endpoint::parse_bound("tcp://127.0.0.1:5557"),
            bind("127.0.0.1")
        );
        assert_eq!(Endpoint::parse_bound("tcp://0.0.0.0:5557"), bind("0.0.0.0"));
        for (text, says) in [
            ("inproc://x", "must be tcp://*:PORT"),
            ("tcp://*", "must be tcp://*:PORT"),
            ("tcp://:1", "must be tcp://*:PORT"),
            ("ipc://", "must be tcp://*:PORT"),
            ("ipc://@x", "must be tcp://*:PORT"),
            ("tcp://*:0", "the port must be from 1 to 65535, got \"0\""),
            ("tcp://*:*", "the port must be from 1 to 65535, got \"*\""),
            ("tcp://0.0.0.0:1", "listens at tcp://*:1"),
        ] {
            let problem = Endpoint::parse(text).unwrap_err();
            assert!(problem.contains(says), "{text}: {problem}");
        }
    }

    #[test]
    fn each_core_has_the_next_port() {
        let endpoint = Endpoint::parse("tcp://*:5557").unwrap();
        assert_eq!(endpoint.of_rank(0), endpoint);
        assert_eq!(endpoint.of_rank(3).to_string(), "tcp://*:5560");
    }
}
