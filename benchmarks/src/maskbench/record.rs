//! What is written about a schema: one JSON line.

use std::fmt;
use std::io::{self, Write};

use serde_json::{Value, json};

/// An engine's run over a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// The schema's file.
    pub id: String,
    /// What it took, and how it went; the message where the schema was refused.
    pub outcome: Result<(Timings, Verdict), String>,
}

/// What the calls of a run took, in nanoseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Timings {
    /// Compiling.
    pub compile_ns: u64,
    /// The first mask; `None` where there was none.
    pub first_mask_ns: Option<u64>,
    /// Every mask, instance after instance.
    pub mask_ns: Vec<u64>,
    /// Every accepted token.
    pub commit_ns: Vec<u64>,
}

/// How a run over a schema's instances went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Every instance was judged right.
    Pass,
    /// A valid instance, by its number, was not accepted.
    ValidationError(usize),
    /// An invalid instance, by its number, was accepted.
    InvalidationError(usize),
    /// The engine failed.
    Exception(String),
}

impl Verdict {
    /// Its first word, by which verdicts are counted.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::ValidationError(_) => "validation_error",
            Self::InvalidationError(_) => "invalidation_error",
            Self::Exception(_) => "exn",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pass => f.write_str(self.kind()),
            Self::ValidationError(i) | Self::InvalidationError(i) => {
                write!(f, "{} #{i}", self.kind())
            }
            Self::Exception(message) => write!(f, "{}: {message}", self.kind()),
        }
    }
}

impl Timings {
    /// Compiling and the first mask together.
    pub fn ttfm_ns(&self) -> Option<u64> {
        Some(self.compile_ns + self.first_mask_ns?)
    }

    /// Keeps the smaller time of each call. Both are runs of the same engine over the same
    /// schema, so their calls correspond.
    pub fn keep_smallest(&mut self, other: &Self) {
        self.compile_ns = self.compile_ns.min(other.compile_ns);
        self.first_mask_ns = self.first_mask_ns.min(other.first_mask_ns);
        for (own, other) in [
            (&mut self.mask_ns, &other.mask_ns),
            (&mut self.commit_ns, &other.commit_ns),
        ] {
            for (own, other) in own.iter_mut().zip(other) {
                *own = (*own).min(*other);
            }
        }
    }
}

impl Record {
    /// Whether the schema was compiled.
    pub fn is_compiled(&self) -> bool {
        self.outcome.is_ok()
    }

    /// What the run took, where the schema was compiled.
    pub fn timings(&self) -> Option<&Timings> {
        self.outcome.as_ref().ok().map(|(timings, _)| timings)
    }

    /// Writes the record as a line.
    ///
    /// # Errors
    /// As writing.
    pub fn write_line(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.to_json())
    }

    fn to_json(&self) -> Value {
        let id = &self.id;
        match &self.outcome {
            Err(message) => json!({"id": id, "compile_error": message}),
            Ok((timings, verdict)) => json!({
                "id": id,
                "compile_ns": timings.compile_ns,
                "ttfm_ns": timings.ttfm_ns(),
                "mask_ns": timings.mask_ns,
                "commit_ns": timings.commit_ns,
                "verdict": verdict.to_string(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn timings(compile_ns: u64, mask_ns: &[u64]) -> Timings {
        Timings {
            compile_ns,
            first_mask_ns: mask_ns.first().copied(),
            mask_ns: mask_ns.to_vec(),
            commit_ns: vec![5],
        }
    }

    #[test]
    fn a_line_has_the_fields_that_the_table_reads() {
        let line = |outcome| {
            let id = "a.json".to_owned();
            Record { id, outcome }.to_json().to_string()
        };
        assert_eq!(
            line(Err("no".to_owned())),
            r#"{"id":"a.json","compile_error":"no"}"#
        );
        assert_eq!(
            line(Ok((timings(10, &[3, 4]), Verdict::InvalidationError(2)))),
            r#"{"id":"a.json","compile_ns":10,"ttfm_ns":13,"mask_ns":[3,4],"commit_ns":[5],"verdict":"invalidation_error #2"}"#
        );
        assert_eq!(
            line(Ok((Timings::default(), Verdict::Exception("e".to_owned())))),
            r#"{"id":"a.json","compile_ns":0,"ttfm_ns":null,"mask_ns":[],"commit_ns":[],"verdict":"exn: e"}"#
        );
    }

    #[test]
    fn the_smallest_time_of_each_call_is_kept() {
        let mut kept = timings(10, &[3, 9]);
        kept.keep_smallest(&timings(12, &[2, 11]));
        assert_eq!(kept, timings(10, &[2, 9]));
    }
}
