//! Attacks on a server: by clients without a key, by tenants with one, by a model's folder, by local
//! users. `docs/security.md` names the test of each defect that a review found.

mod connections;
mod corpus;
mod costly;
mod folders;
mod logs;
mod memory;
mod memory_rule;
mod places;
mod random;
mod requests;
mod templates;
mod values;
