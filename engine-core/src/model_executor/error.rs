//! What can go wrong between a checkpoint and its logits.

use std::path::PathBuf;

use thiserror::Error;

use super::compute_pool::PoolError;

/// An error of loading or executing a model.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The model's path can't be used.
    #[error("model {path}: {problem}")]
    Folder {
        /// The path as given.
        path: PathBuf,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// A variable of the environment has a value that can't be used.
    #[error("{variable}: {problem}")]
    Environment {
        /// Its name.
        variable: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// A file of the checkpoint can't be read or is not what its name says.
    #[error("{file}: {problem}")]
    File {
        /// File name inside the checkpoint.
        file: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A GGUF file is broken, or asks for something that isn't implemented.
    #[error("{file}: {source}")]
    Gguf {
        /// The file's name.
        file: String,
        /// What is wrong with it.
        source: Box<gguf::GgufError>,
    },
    /// `config.json` lacks a field or has a value that can't be used.
    #[error("config.json: {field}: {problem}")]
    Config {
        /// The field.
        field: String,
        /// The value found (cut short) and what would be right.
        problem: String,
    },
    /// `config.json` names a model that this build doesn't know.
    #[error(
        "config.json: architectures: {found} is not supported; supported are {}",
        supported.join(", ")
    )]
    UnknownArchitecture {
        /// What the checkpoint names.
        found: String,
        /// What would be right.
        supported: Vec<&'static str>,
    },
    /// The checkpoint has no tensor of this name.
    #[error("tensor {name} is missing from the checkpoint ({} expected)", shape(.expected))]
    MissingTensor {
        /// The tensor's name.
        name: String,
        /// The shape that the configuration implies.
        expected: Vec<usize>,
    },
    /// A tensor has another shape than the configuration implies.
    #[error(
        "tensor {name} in {file} has shape {}, the model's configuration implies {}",
        shape(.found),
        shape(.expected)
    )]
    TensorShape {
        /// The tensor's name.
        name: String,
        /// The file that holds it.
        file: String,
        /// The shape that the configuration implies.
        expected: Vec<usize>,
        /// The shape in the file.
        found: Vec<usize>,
    },
    /// A tensor has a number format that can't be loaded.
    #[error("tensor {name} in {file} is {found}; supported are {supported}")]
    TensorDtype {
        /// The tensor's name.
        name: String,
        /// The file that holds it.
        file: String,
        /// The format in the file.
        found: String,
        /// The formats that can be loaded from such a file.
        supported: &'static str,
    },
    /// A tensor of a quantized layer isn't what `quantization_config` says.
    #[error("tensor {tensor} {problem} (config.json: quantization_config.{field})")]
    Quantized {
        /// The tensor's name.
        tensor: String,
        /// The field that asks for it.
        field: &'static str,
        /// What is wrong with it and what would be right.
        problem: String,
    },
    /// A step's batch contradicts itself or exceeds what was allocated.
    #[error("forward pass: {field}: {problem}")]
    Input {
        /// The field of `ForwardInput`, or the argument.
        field: &'static str,
        /// The value found and what would be right.
        problem: String,
    },
    /// Limits that the backend can't serve.
    #[error("{field}: {problem}")]
    Limits {
        /// The field of `ModelLimits`.
        field: &'static str,
        /// The value found and what would be right.
        problem: String,
    },
    /// The weights are larger than the memory.
    #[error(
        "the model's weights take at least {least_mib} MiB ({format}), and {available_mib} MiB of memory are free: make \
         room, or take a smaller model or fewer bits (quantization q8_0, then q4_0)"
    )]
    WeightsTooLarge {
        /// Fewest MiB that the weights take.
        least_mib: u64,
        /// The number format that they would be kept in.
        format: &'static str,
        /// MiB of memory that are free.
        available_mib: u64,
    },
    /// Memory could not be had.
    #[error("out of memory: {what} needs {bytes} bytes")]
    OutOfMemory {
        /// What was to be allocated.
        what: &'static str,
        /// How much.
        bytes: usize,
    },
    /// A compute thread failed.
    #[error(transparent)]
    Pool(#[from] PoolError),
    /// A GPU can't be used, or an operation on it failed.
    #[error(transparent)]
    Device(cuda_device::DeviceError),
    /// A tensor operation of candle failed.
    #[error("candle: {0}")]
    Candle(#[from] candle_core::Error),
}

/// `[2, 3]` as a tensor's shape is written.
fn shape(dims: &[usize]) -> String {
    let dims: Vec<String> = dims.iter().map(usize::to_string).collect();
    format!("[{}]", dims.join(", "))
}

/// A value from outside, cut to a length that fits into a message.
pub(crate) fn cut(value: &str) -> String {
    const LONGEST: usize = 80;
    match value.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &value[..end]),
        None => value.to_owned(),
    }
}
