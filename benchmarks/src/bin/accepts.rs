//! Says for each line of standard input whether its grammar accepts its text.
//!
//! A line is `{"kind": "json_schema|json_object|regex|choice|ebnf|lark|grammar|structural_tag", "source":
//! "...", "options": {...}, "input": "..."}`; `source` is the grammar's text (of a choice a JSON
//! array of strings), `options` has compile options by name. The answer is one line: `{"result":
//! "accept" | "prefix" | "reject" | "refused", "at": byte offset of the first refused byte,
//! "error": "..."}`; a refusal has `at` where a limit was met in the text. `accept` means a complete sentence, `prefix` that more is needed.

use std::io::{self, BufRead, BufWriter, Write};

use benchmarks::accepts::Accepts;

fn main() -> anyhow::Result<()> {
    // An engine's panic is reported in its answer.
    std::panic::set_hook(Box::new(|_| ()));
    let mut accepts = Accepts::new()?;
    let mut out = BufWriter::new(io::stdout().lock());
    for line in io::stdin().lock().lines() {
        let line = line?;
        if !line.trim().is_empty() {
            writeln!(out, "{}", accepts.answer(&line).to_json())?;
        }
    }
    Ok(out.flush()?)
}
