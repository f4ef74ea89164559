//! `--data-parallel-size`: what it goes together with, and what each core gets of the machine.

use std::num::NonZero;
use std::thread::available_parallelism;

use protocol::{BackendKind, EngineConfig, ParallelConfig};

use super::{DeviceArg, EngineArgs};
use crate::error::ValidationError;

const FLAG: &str = "--data-parallel-size";

impl EngineArgs {
    /// The configuration of core `rank` of several: that of the first, with its share of the processors or a GPU
    /// of its own.
    pub(crate) fn engine_config_of(&self, rank: u32) -> EngineConfig {
        let mut config = self.engine_config();
        config.parallel_config.data_parallel_rank = rank;
        if let BackendKind::Cuda(first) = config.model_config.backend {
            config.model_config.backend = BackendKind::Cuda(first.saturating_add(rank));
        }
        config
    }

    /// How the cores share out the machine.
    pub(super) fn parallel_config(&self) -> ParallelConfig {
        ParallelConfig {
            data_parallel_size: self.data_parallel_size,
            ..ParallelConfig::default()
        }
    }

    /// The compute threads of each core, where their number in all is given.
    pub(super) fn threads_of_each(&self) -> Option<u32> {
        let size = self.data_parallel_size.max(1);
        self.threads.map(|threads| (threads / size).max(1))
    }

    /// Refuses more cores than there are processors, threads or GPUs for.
    pub(super) fn verify_data_parallel_size(&self) -> Result<(), ValidationError> {
        let size = self.data_parallel_size;
        let refuse = |message: String| Err(ValidationError::new(format!("{FLAG}: {message}")));
        if size == 0 {
            return refuse("0 cores serve nobody; it must be at least 1".to_owned());
        }
        if size == 1 {
            return Ok(());
        }
        if self.engine_core_address.is_some() {
            return refuse(format!(
                "{size} cores are to be started, and --engine-core-address names one that runs already; leave one of \
                 the two out"
            ));
        }
        if let DeviceArg::Cuda(first) = self.device {
            return match num_gpus() {
                Some(count) if u64::from(first) + u64::from(size) > u64::from(count) => {
                    let most = count.saturating_sub(first);
                    refuse(format!(
                        "{size} cores with --device cuda:{first} take as many GPUs from number {first} on, and \
                         this machine has {count} in all; it must be at most {most}"
                    ))
                }
                _ => Ok(()),
            };
        }
        let processors = available_parallelism().map_or(1, NonZero::get);
        if size as usize > processors {
            return refuse(format!(
                "{size} cores need a processor each, and this process may use {processors}; it must be at most \
                 {processors}"
            ));
        }
        match self.threads {
            Some(threads) if threads < size => refuse(format!(
                "{size} cores share out {threads} compute threads (--threads), and each needs one; it must be at \
                 most {threads}, or --threads at least {size}"
            )),
            _ => Ok(()),
        }
    }
}

/// GPUs of NVIDIA's that a process may use, as far as that is known without their driver.
fn num_gpus() -> Option<u32> {
    let count = match std::env::var("CUDA_VISIBLE_DEVICES") {
        Ok(devices) => devices.split(',').filter(|name| !name.is_empty()).count(),
        Err(_) => std::fs::read_dir("/proc/driver/nvidia/gpus").ok()?.count(),
    };
    u32::try_from(count).ok()
}
