//! llama.cpp's own benchmarks, started as processes, on the same weights.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::str::FromStr;

use anyhow::{Context, bail};
use serde_json::Value;

use crate::engine::DECODE_PROMPT_TOKENS;

/// A file of llama.cpp's, and the format of its weights as an engine's is written.
#[derive(Debug, Clone)]
pub(crate) struct Gguf {
    pub(crate) format: String,
    path: PathBuf,
}

impl FromStr for Gguf {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (format, path) = text
            .split_once('=')
            .ok_or_else(|| "must be FORMAT=PATH".to_owned())?;
        Ok(Self {
            format: format.to_owned(),
            path: path.into(),
        })
    }
}

/// Where llama.cpp's programs and its file are.
pub(crate) struct LlamaCpp<'a> {
    /// The checkpoint in llama.cpp's format.
    pub(crate) gguf: &'a Gguf,
    /// Measures the prefill.
    pub(crate) llama_bench: Option<&'a Path>,
    /// Measures decode.
    pub(crate) llama_batched_bench: Option<&'a Path>,
    /// Compute threads.
    pub(crate) num_threads: u32,
}

impl LlamaCpp<'_> {
    /// Tokens per second of each case, of one run. Both programs run the model once before they
    /// measure; neither samples.
    pub(crate) fn measure(
        &self,
        batches: &[usize],
        num_steps: usize,
        num_prefill_tokens: usize,
    ) -> anyhow::Result<Vec<(String, f64)>> {
        let mut rates = Vec::new();
        if let Some(program) = self.llama_bench {
            let num_tokens = num_prefill_tokens.to_string();
            let arguments = ["-p", &num_tokens, "-n", "0", "-r", "1", "-o", "jsonl"];
            for line in self.run(program, &arguments)? {
                let rate = number(&line, "avg_ts")?;
                rates.push((crate::prefill_case(num_prefill_tokens), rate));
            }
        }
        if let Some(program) = self.llama_batched_bench {
            let most = batches.iter().max().copied().unwrap_or(1);
            let context = (most * (DECODE_PROMPT_TOKENS + num_steps)).to_string();
            let (prompt, steps) = (DECODE_PROMPT_TOKENS.to_string(), num_steps.to_string());
            let batches: Vec<String> = batches.iter().map(usize::to_string).collect();
            let batches = batches.join(",");
            let arguments = [
                "-c",
                &context,
                "-npp",
                &prompt,
                "-ntg",
                &steps,
                "-npl",
                &batches,
                "--output-format",
                "jsonl",
            ];
            for line in self.run(program, &arguments)? {
                let batch = number(&line, "pl")? as usize;
                rates.push((crate::decode_case(batch), number(&line, "speed_tg")?));
            }
        }
        Ok(rates)
    }

    /// The lines of JSON that a program prints. The flags are those with which llama.cpp is
    /// fastest here: flash attention, and the weights in memory of its own.
    fn run(&self, program: &Path, arguments: &[&str]) -> anyhow::Result<Vec<Value>> {
        let output = Command::new(program)
            .arg("-m")
            .arg(&self.gguf.path)
            .args([
                "-t",
                &self.num_threads.to_string(),
                "-fa",
                "on",
                "-lm",
                "none",
            ])
            .args(arguments)
            .output()
            .with_context(|| format!("can't start {}", program.display()))?;
        if !output.status.success() {
            let log = String::from_utf8_lossy(&output.stderr);
            bail!("{} failed ({}):\n{log}", program.display(), output.status);
        }
        json_lines(&String::from_utf8_lossy(&output.stdout))
            .with_context(|| format!("{} printed no result", program.display()))
    }
}

/// The lines that hold a JSON object; other lines are the program's talk.
fn json_lines(output: &str) -> Option<Vec<Value>> {
    let lines: Vec<Value> = output
        .lines()
        .filter(|line| line.starts_with('{'))
        .filter_map(|line| serde_json::from_str(line).ok())
        .collect();
    (!lines.is_empty()).then_some(lines)
}

fn number(line: &Value, field: &str) -> anyhow::Result<f64> {
    line.get(field)
        .and_then(Value::as_f64)
        .with_context(|| format!("llama.cpp's result has no number {field:?}: {line}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_are_found_among_other_lines() {
        let output = "\nmain: n_kv_max = 768\n{\"pl\": 4, \"speed_tg\": 72.5}\n\nbye\n";
        let lines = json_lines(output).unwrap();
        assert_eq!(lines.len(), 1);
        assert_eq!(number(&lines[0], "pl").unwrap(), 4.0);
        assert_eq!(number(&lines[0], "speed_tg").unwrap(), 72.5);
        assert!(number(&lines[0], "speed_pp").is_err());
        assert!(json_lines("no result\n").is_none());
    }
}
