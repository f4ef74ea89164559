//! Whether a core shows signs of life.

use std::sync::Weak;
use std::time::{Duration, Instant};

use super::processor::{ProcessorWaits, idle_silence};
use super::{CoreHealth, SupervisedCore};

/// How often the core is asked for signs of life.
const PROBE_INTERVAL: Duration = Duration::from_millis(500);

/// A core with work that shows no sign of life for so long gets no new requests that another one takes.
const SILENT: Duration = Duration::from_secs(1);

/// Asks for signs of life, and kills a core that has shown none for too long, unless that is since it gets no
/// processor: another one would get none either.
pub(super) async fn watch(core: Weak<SupervisedCore>) {
    // When the beats last changed, and of which core.
    let mut last: (Option<u32>, u64, Instant) = (None, 0, Instant::now());
    let mut waits_before = ProcessorWaits::default();
    loop {
        tokio::time::sleep(PROBE_INTERVAL).await;
        let Some(core) = core.upgrade() else { return };
        // Where a half was slow others may go now.
        core.state().send_next();
        let Some(client) = core.client() else {
            last.2 = Instant::now();
            continue;
        };
        let answer = client.call_utility("heartbeat", &[]);
        let answer = tokio::time::timeout(PROBE_INTERVAL, answer).await;
        // Without an answer not even the thread works that has nothing else to do.
        let (beats, runnable, paused) = match &answer {
            Ok(Ok(state)) => {
                let flag = |name: &str| state.get(name).and_then(serde_json::Value::as_bool);
                (
                    state.get("beats").and_then(serde_json::Value::as_u64),
                    flag("runnable") != Some(false),
                    flag("paused") == Some(true),
                )
            }
            // The end is noticed elsewhere.
            Ok(Err(_)) => continue,
            Err(_) => (None, true, false),
        };
        let id = client.process_id();
        let waits = id.map(ProcessorWaits::of).unwrap_or_default();
        let changed = beats.is_some_and(|beats| beats != last.1);
        if id != last.0 || changed || !runnable {
            last = (id, beats.unwrap_or(last.1), Instant::now());
            waits_before.clone_from(&waits);
        }
        let silence = last.2.elapsed();
        let waited = waits.since(&waits_before);
        let stall = core.options.health_stall;
        let mut state = core.state();
        let before = state.health;
        state.is_silent = silence > SILENT;
        state.health = match before {
            // Another core may have come or gone meanwhile: that is for `replace` to say.
            CoreHealth::Restarting | CoreHealth::Dead => before,
            _ if silence > stall => CoreHealth::Stalled,
            _ if paused => CoreHealth::Paused,
            _ => CoreHealth::Healthy,
        };
        if state.health != before {
            match state.health {
                CoreHealth::Stalled => {
                    tracing::error!(
                        silent_seconds = silence.as_secs(),
                        waited_for_processor_seconds = waited.as_secs(),
                        "the engine core has work and shows no sign of life"
                    );
                }
                CoreHealth::Paused => tracing::warn!("the engine core is paused"),
                _ => tracing::info!("the engine core works again"),
            }
        }
        let patience = match core.options.has_siblings {
            true => stall,
            false => stall * 2,
        };
        if state.health == CoreHealth::Stalled
            && idle_silence(silence, waited) > patience
            && client.process_id().is_some()
        {
            let seconds = silence.as_secs();
            state.killed_because = Some(format!(
                "it showed no sign of life for {seconds} s and was killed"
            ));
            drop(state);
            client.kill();
        }
    }
}
