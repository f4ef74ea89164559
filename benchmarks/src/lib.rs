//! What the benchmarks share: order statistics, facts about the machine, and the parts of the
//! programs that run the grammar engine.
//!
//! Each benchmark is a program of its own in `src/bin/`; `docs/benchmarks.md` says how to run them,
//! what they measure, and what they measured. This package holds no test that looks at a clock, and
//! nothing here is part of Formwork: it is not built by default, and nothing depends on it.
//!
//! ```
//! use benchmarks::statistics::Summary;
//! use std::time::Duration;
//!
//! let summary = Summary::of((1..=100).map(Duration::from_millis).collect());
//! assert_eq!(summary.p50, Duration::from_millis(50));
//! assert_eq!(summary.p99, Duration::from_millis(99));
//! ```

pub mod accepts;
pub mod machine;
pub mod maskbench;
pub mod memory;
pub mod peak;
#[path = "../../structured-output/tests/reference/random_lark.rs"]
pub mod random_lark;
pub mod statistics;
pub mod vocabulary;
