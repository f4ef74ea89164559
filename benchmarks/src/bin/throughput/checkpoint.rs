//! The checkpoint that is measured: random weights in the shape of Qwen2.5-0.5B.

use std::fs;
use std::path::Path;

use safetensors::Dtype;

#[allow(clippy::expect_used, reason = "shared with the engine's tests")]
#[path = "../../../../engine-core/tests/random_checkpoint/mod.rs"]
pub(crate) mod random_checkpoint;

use random_checkpoint::RandomCheckpoint;

/// Makes the checkpoint in `folder`, unless a whole one is there. The same weights every time.
pub(crate) fn make(folder: &Path) -> anyhow::Result<()> {
    if folder.join("config.json").exists() {
        return Ok(());
    }
    eprintln!("making the checkpoint in {}", folder.display());
    // It gets its name when it is whole.
    let unfinished = folder.with_extension("unfinished");
    fs::create_dir_all(&unfinished)?;
    RandomCheckpoint::qwen2_5_0_5b(Dtype::BF16).write(&unfinished)?;
    fs::rename(&unfinished, folder)?;
    Ok(())
}
