//! placeholder, written in the next commits.
