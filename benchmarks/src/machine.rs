//! What a figure depends on beside the code: the processor, its load, its memory's speed.

use std::fs;
use std::hint::black_box;
use std::num::NonZero;
use std::thread;
use std::time::Instant;

/// Bytes that [`read_bandwidth`] reads: several times any last-level cache.
const PROBE_BYTES: usize = 512 << 20;

/// One line for the head of a report: processor, cores, load.
pub fn description() -> String {
    let cpu_info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = cpu_info
        .lines()
        .find_map(|line| line.strip_prefix("model name")?.split_once(": "))
        .map_or("unknown processor", |(_, model)| model);
    format!(
        "{model}, {} cores; load average {}",
        num_cores(),
        load_average()
    )
}

/// Cores that this process may use.
pub fn num_cores() -> usize {
    thread::available_parallelism().map_or(1, NonZero::get)
}

/// Runnable threads of the last minute, on average, as the system prints it. What foreign
/// processes take is missing in every figure: measure when this is small.
pub fn load_average() -> String {
    let load = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    load.split(' ')
        .next()
        .filter(|load| !load.is_empty())
        .unwrap_or("unknown")
        .to_owned()
}

/// Bytes per second that `num_threads` threads read from memory together, the best of five runs.
/// A decode step at batch 1 reads every weight once, so this bounds it.
pub fn read_bandwidth(num_threads: usize) -> f64 {
    let values = vec![1_u64; PROBE_BYTES / size_of::<u64>()];
    let per_thread = values.len().div_ceil(num_threads.max(1));
    let run = || {
        let started = Instant::now();
        thread::scope(|scope| {
            for part in values.chunks(per_thread) {
                scope.spawn(move || {
                    black_box(part.iter().fold(0_u64, |sum, v| sum.wrapping_add(*v)))
                });
            }
        });
        PROBE_BYTES as f64 / started.elapsed().as_secs_f64()
    };
    (0..5).map(|_| run()).fold(0.0, f64::max)
}
