//! Flags that say who may do what, and where that is written down.

use std::path::PathBuf;

use clap::{ArgAction, Args};

/// Keys, the management port and the audit log.
#[derive(Debug, Clone, PartialEq, Args)]
#[command(next_help_heading = "Access")]
pub struct AccessArgs {
    /// A key that requests must bring as "Authorization: Bearer KEY", but for /health, /ping and
    /// /version; it may do everything, without limits; may be repeated
    #[arg(long, value_name = "KEY", action = ArgAction::Append)]
    pub api_key: Vec<String>,
    /// File with keys by hash, each with its scopes and limits, read again at SIGHUP; `formwork
    /// api-key new` makes its lines
    #[arg(long, value_name = "FILE")]
    pub api_keys: Option<PathBuf>,
    /// Ask for a key under /v1 alone, as vLLM does
    #[arg(long)]
    pub open_routes: bool,
    /// Let requests of different keys share cached prefixes, whose times tell what others asked
    #[arg(long)]
    pub shared_prefix_cache: bool,
    /// Serve /metrics, /load and administration at this port instead; 0 is any that is free
    #[arg(long, value_name = "PORT")]
    pub management_port: Option<u16>,
    /// Address of the management port; beyond this machine its administration needs a key
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1",
        requires = "management_port"
    )]
    pub management_host: String,
    /// File that gets a line of JSON for each request: who asked, what for, how it ended
    #[arg(long, value_name = "FILE")]
    pub audit_log: Option<PathBuf>,
}

impl AccessArgs {
    /// True if requests must bring a key.
    pub fn has_keys(&self) -> bool {
        !self.api_key.is_empty() || self.api_keys.is_some()
    }
}
