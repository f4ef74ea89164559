//! Whose request it is, and from which memory it is served.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;

use super::api_keys::ApiKey;
use super::connections::Connection;
use super::memory::{Budget, Share};
use super::parse::BodyParser;
use super::request_record::ClientAddress;
use super::state::AppState;
use crate::client_turns::CLIENT;

/// Bytes of memory that the values of a body may take whose client has no key, where there are keys.
const MAX_STRANGERS_VALUE_BYTES: usize = 8 << 20;

/// Tells the client of a request from others, for their turns in the scheduler: by its key, else by its
/// address, of which an IPv6 network of 64 bits is one. Clients of a Unix domain socket or behind a
/// proxy are one.
pub(super) fn owner(request: &Request) -> u64 {
    if let Some(key) = request.extensions().get::<Arc<ApiKey>>() {
        return key.id();
    }
    match request.extensions().get::<ClientAddress>() {
        Some(ClientAddress(IpAddr::V4(address))) => u64::from(address.to_bits()),
        Some(ClientAddress(IpAddr::V6(address))) => match address.to_ipv4_mapped() {
            Some(address) => u64::from(address.to_bits()),
            None => (address.to_bits() >> 64) as u64,
        },
        None => 0,
    }
}

/// What the requests of one kind of client share.
#[derive(Debug)]
pub(super) struct Means {
    budget: Budget,
    parser: BodyParser,
}

impl Means {
    /// For clients that may use the whole server: with a key, or where there are none. `memory` is in bytes.
    pub(super) fn for_clients(memory: u64) -> Self {
        Self {
            budget: Budget::for_requests(memory),
            parser: BodyParser::new(usize::MAX),
        }
    }

    /// For clients without a key, where there are keys: they use nothing that others need.
    pub(super) fn for_strangers() -> Self {
        Self {
            budget: Budget::for_strangers(),
            parser: BodyParser::new(MAX_STRANGERS_VALUE_BYTES),
        }
    }
}

#[cfg(test)]
impl Means {
    /// For clients that may use so many bytes.
    pub(super) fn with_budget(bytes: u64) -> Self {
        Self {
            budget: Budget::new(super::memory::Pool::Requests, bytes),
            parser: BodyParser::new(usize::MAX),
        }
    }

    /// The memory.
    pub(super) fn budget(&self) -> &Budget {
        &self.budget
    }
}

/// A request's client.
#[derive(Debug, Clone)]
pub(super) struct Client {
    pub(super) connection: Arc<Connection>,
    pub(super) parser: BodyParser,
    budget: Budget,
}

impl Client {
    pub(super) fn new(connection: Arc<Connection>, means: &Means) -> Self {
        Self {
            connection,
            parser: means.parser.clone(),
            budget: means.budget.clone(),
        }
    }

    /// The client of a request.
    pub(super) fn of(request: &Request, app: &AppState) -> Self {
        match request.extensions().get::<Self>() {
            Some(client) => client.clone(),
            None => Self::new(Connection::unregistered(), &app.strangers),
        }
    }

    /// A share of nothing yet.
    pub(super) fn share(&self) -> Share {
        self.budget.share(&self.connection)
    }
}

/// Says whose request it is. Inside of what looks at keys.
pub(super) async fn recognize(
    State(app): State<Arc<AppState>>,
    mut request: Request,
    next: Next,
) -> Response {
    let key = request.extensions().get::<Arc<ApiKey>>().cloned();
    let means = match app.keys.are_required() && key.is_none() {
        true => &app.strangers,
        false => &app.clients,
    };
    let connection = serve_from(&mut request, means);
    if let Some(key) = key {
        connection.set_key(key.id());
    }
    CLIENT.scope(owner(&request), next.run(request)).await
}

/// Lets a request take memory from `means`; returns its connection.
pub(super) fn serve_from(request: &mut Request, means: &Means) -> Arc<Connection> {
    let extensions = request.extensions_mut();
    let connection = match extensions.get::<Arc<Connection>>() {
        Some(connection) => connection.clone(),
        None => Connection::unregistered(),
    };
    extensions.insert(Client::new(connection.clone(), means));
    connection
}
