//! Breaks one thing at a time under a running `formwork serve` and says whether the server keeps its promises.
//!
//! Each fault starts a server with the built-in model, asks questions once, breaks something while clients ask the
//! same questions again and again, and compares the answers. `docs/operations.md` has what must hold under each
//! fault and what was seen. The program exits with 1 where something did not hold, and needs Linux.

#[cfg(target_os = "linux")]
mod clients;
#[cfg(target_os = "linux")]
mod clock;
#[cfg(target_os = "linux")]
mod constraints;
#[cfg(target_os = "linux")]
mod core;
#[cfg(target_os = "linux")]
mod disk;
#[cfg(target_os = "linux")]
mod fault;
#[cfg(target_os = "linux")]
mod files;
// Constraints of the tests that no engine can enforce.
#[cfg(target_os = "linux")]
#[path = "../../../../tests/processes/hostile_constraints.rs"]
mod hostile_constraints;
#[cfg(target_os = "linux")]
mod http;
#[cfg(target_os = "linux")]
mod load;
#[cfg(target_os = "linux")]
mod memory;
#[cfg(target_os = "linux")]
mod program;
#[cfg(target_os = "linux")]
mod schemas;
#[cfg(target_os = "linux")]
mod server;
// Constraints that take long to compile, or at each token.
#[cfg(target_os = "linux")]
#[allow(dead_code)]
#[path = "../structured_output/hostile.rs"]
mod slow_constraints;

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<std::process::ExitCode> {
    program::run()
}

#[cfg(not(target_os = "linux"))]
fn main() -> anyhow::Result<()> {
    anyhow::bail!("faults needs Linux: it sets limits of running processes")
}
