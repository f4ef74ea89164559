//! The run of an engine over a schema's instances, timed.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use super::{Case, EngineError, Instance, MaskEngine, MaskMatcher, Record, Timings, Verdict};

/// Compiles a schema and runs its instances, each until a token is refused. A panic of the engine
/// is a verdict; what the engine keeps between schemas is then dropped.
pub fn measure(engine: &mut dyn MaskEngine, case: &Case) -> Record {
    let mut timings = Timings::default();
    let run = AssertUnwindSafe(|| run(engine, case, &mut timings));
    let outcome = match catch_unwind(run) {
        Ok(Ok(verdict)) => Ok((timings, verdict)),
        Ok(Err(EngineError(message))) => Err(message),
        Err(panic) => {
            engine.drop_caches();
            let message = first_line(&panic_message(&*panic));
            Ok((timings, Verdict::Exception(format!("panic: {message}"))))
        }
    };
    Record {
        id: case.id.clone(),
        outcome,
    }
}

fn run(
    engine: &mut dyn MaskEngine,
    case: &Case,
    timings: &mut Timings,
) -> Result<Verdict, EngineError> {
    let started = Instant::now();
    let compiled = engine.compile(case);
    timings.compile_ns = nanoseconds_since(started);
    let mut matcher = compiled?;
    let mut verdict = Verdict::Pass;
    for (i, instance) in case.instances.iter().enumerate() {
        match run_instance(&mut *matcher, instance, timings) {
            Ok(accepted) if accepted == instance.is_valid => {}
            // An accepted invalid instance outweighs whatever else is wrong.
            Ok(true) => verdict = Verdict::InvalidationError(i),
            Ok(false) if verdict == Verdict::Pass => verdict = Verdict::ValidationError(i),
            Ok(false) => {}
            Err(EngineError(message)) => {
                return Ok(Verdict::Exception(first_line(&message)));
            }
        }
    }
    Ok(verdict)
}

/// Whether every token of an instance was allowed and taken.
fn run_instance(
    matcher: &mut dyn MaskMatcher,
    instance: &Instance,
    timings: &mut Timings,
) -> Result<bool, EngineError> {
    matcher.start()?;
    for &token_id in &instance.token_ids {
        let started = Instant::now();
        let computed = matcher.compute_mask();
        let elapsed = nanoseconds_since(started);
        computed?;
        timings.first_mask_ns.get_or_insert(elapsed);
        timings.mask_ns.push(elapsed);
        if !matcher.is_allowed(token_id) {
            return Ok(false);
        }
        let started = Instant::now();
        let accepted = matcher.accept_token(token_id);
        let elapsed = nanoseconds_since(started);
        if !accepted? {
            return Ok(false);
        }
        timings.commit_ns.push(elapsed);
    }
    Ok(true)
}

fn nanoseconds_since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// What a panic said.
pub fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("no message")
        .to_owned()
}

fn first_line(message: &str) -> String {
    message.lines().next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// Allows the tokens below its limit; fails as told at some tokens.
    struct Fake;

    const FAILS: u32 = 100;
    const PANICS: u32 = 101;

    struct FakeMatcher {
        last: u32,
    }

    impl MaskEngine for Fake {
        fn name(&self) -> &str {
            "fake"
        }
        fn compile(&mut self, case: &Case) -> Result<Box<dyn MaskMatcher>, EngineError> {
            match case.schema_text.as_str() {
                "refused" => Err(EngineError("no".to_owned())),
                _ => Ok(Box::new(FakeMatcher { last: 0 })),
            }
        }
        fn drop_caches(&mut self) {}
    }

    impl MaskMatcher for FakeMatcher {
        fn start(&mut self) -> Result<(), EngineError> {
            self.last = 0;
            Ok(())
        }
        fn compute_mask(&mut self) -> Result<(), EngineError> {
            match self.last {
                FAILS => Err(EngineError("too hard\nindeed".to_owned())),
                _ => Ok(()),
            }
        }
        fn is_allowed(&self, token_id: u32) -> bool {
            token_id != 0
        }
        fn accept_token(&mut self, token_id: u32) -> Result<bool, EngineError> {
            assert!(token_id != PANICS, "a fault");
            self.last = token_id;
            Ok(true)
        }
    }

    fn record(schema_text: &str, instances: &[(bool, &[u32])]) -> Record {
        let instances = instances
            .iter()
            .map(|&(is_valid, token_ids)| Instance {
                is_valid,
                token_ids: token_ids.to_vec(),
            })
            .collect();
        let case = Case {
            id: "a.json".to_owned(),
            schema: Value::Null,
            schema_text: schema_text.to_owned(),
            instances,
        };
        measure(&mut Fake, &case)
    }

    fn verdict(instances: &[(bool, &[u32])]) -> (usize, usize, String) {
        let (timings, verdict) = record("", instances).outcome.unwrap();
        let (masks, commits) = (timings.mask_ns.len(), timings.commit_ns.len());
        (masks, commits, verdict.to_string())
    }

    #[test]
    fn each_way_to_be_wrong_has_its_verdict() {
        assert_eq!(record("refused", &[]).outcome, Err("no".to_owned()));
        assert_eq!(
            verdict(&[(true, &[1, 2]), (false, &[1, 0, 2])]),
            (4, 3, "pass".to_owned())
        );
        assert_eq!(
            verdict(&[(true, &[1]), (true, &[1, 0, 2])]),
            (3, 2, "validation_error #1".to_owned())
        );
        assert_eq!(
            verdict(&[(false, &[1]), (true, &[0])]),
            (2, 1, "invalidation_error #0".to_owned())
        );
        assert_eq!(
            verdict(&[(true, &[0]), (false, &[1])]),
            (2, 1, "invalidation_error #1".to_owned())
        );
        assert_eq!(
            verdict(&[(true, &[1, FAILS, 1]), (true, &[1])]),
            (2, 2, "exn: too hard".to_owned())
        );
        assert_eq!(
            verdict(&[(true, &[1, PANICS])]),
            (2, 1, "exn: panic: a fault".to_owned())
        );
    }
}
