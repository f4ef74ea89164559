//! What one rendering may take: work, memory and time.
//!
//! minijinja counts instructions, and nothing of what one of them does: a filter over 64 MiB costs as
//! much as one over a byte. So whatever works on values or makes them is asked for here first
//! ([`charge`], [`reserve`]), and its result is counted here after ([`made`]). Work is counted in bytes
//! looked at; it is the same for the same template and conversation on every machine. The clock is
//! looked at as a last resort.
//!
//! What is dropped stops counting. The budget keeps a reference to each text, and lets go of those that
//! only it refers to whenever the limit is reached; lists of many items count themselves ([`Items`]).

use std::cell::RefCell;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use minijinja::value::{Enumerator, Object, ObjectRepr, ValueKind};
use minijinja::{Error, Value};
use structured_output::CancelFlag;

use super::error::Stopped;
use super::measure::items;
use super::namespace::Namespace;

/// Most bytes of one text, and of one list's items.
pub(super) const MAX_VALUE_BYTES: u64 = 64 << 20;
/// Bytes of values that a rendering may hold, and bytes of text that it may write, beside what follows from the
/// request's size. Of the 64 MiB and 16 bytes per byte of JSON that a request may take, these are half, and ten of the 16;
/// the rest is for the variables, which are many times as large as their JSON in the worst case.
const BASE_BYTES: u64 = 16 << 20;
/// Bytes of values at a time, per byte of the request's JSON: a template prints what it was given, perhaps
/// in JSON and indented, from some pieces that it keeps.
const LIVE_PER_INPUT_BYTE: u64 = 4;
/// Bytes written, into blocks and macros too, per byte of the request's JSON.
const WRITTEN_PER_INPUT_BYTE: u64 = 6;
/// Most bytes written, however large the request.
const MAX_WRITTEN_BYTES: u64 = 128 << 20;
/// Bytes that a rendering may look at beside what follows from the request's size: some 0.1 s.
const BASE_WORK: u64 = 64 << 20;
/// Bytes that it may look at per byte of its variables in memory: some ten filters over all of them, one by one.
const WORK_PER_INPUT_BYTE: u64 = 128;
/// Work of the smallest operation.
pub(super) const STEP: u64 = 16;
/// Bytes copied for the work of one byte looked at.
pub(super) const COPIED_PER_WORK: u64 = 16;
/// Lists and maps that a rendering may make. One may lie in the other, and they are dropped
/// recursively with up to 410 bytes of stack each, so this times that fits the thread's stack.
pub(super) const MAX_CONTAINERS: u32 = 100_000;
/// Memory of an item of a list or a map, and the work of looking at it.
pub(super) const ITEM_BYTES: u64 = 48;
/// Lists of so many items stop counting when they are dropped. Smaller ones, and maps, count to the end.
const MANY_ITEMS: u64 = 16;
/// Smallest text that is counted by itself. Smaller ones are counted by the list or map that has them.
const TRACKED_BYTES: usize = 128;
/// The most time that a rendering takes. Deterministic limits come before it.
const MAX_TIME: Duration = Duration::from_secs(2);

/// Work between two looks at the clock: some 10 microseconds.
const WORK_PER_CLOCK: u64 = 4096;

thread_local! {
    /// The rendering that runs on this thread. Each has a thread of its own; minijinja's hooks for
    /// formatting and its objects have no place to carry one.
    static BUDGET: RefCell<Option<Budget>> = const { RefCell::new(None) };
}

/// What one rendering has taken, and may.
struct Budget {
    work: u64,
    max_work: u64,
    /// Bytes of all values, those of `texts` among them.
    live: u64,
    max_live: u64,
    /// Bytes of output, and of what blocks and macros wrote.
    written: u64,
    max_written: u64,
    containers: u32,
    /// The large texts that were made.
    texts: Vec<Arc<str>>,
    /// A namespace may hold itself: they are emptied at the end.
    namespaces: Vec<Weak<Namespace>>,
    cancel: Option<CancelFlag>,
    deadline: Instant,
    /// Work until the clock is looked at.
    until_clock: u64,
}

/// Runs a rendering with a budget of its own. `input_bytes` is the size of its variables as JSON, `input_work` the work
/// of looking at them once.
pub(super) fn with_budget<T>(
    input_bytes: u64,
    input_work: u64,
    cancel: Option<CancelFlag>,
    render: impl FnOnce() -> T,
) -> T {
    let scaled = |factor: u64| BASE_BYTES.saturating_add(input_bytes.saturating_mul(factor));
    let budget = Budget {
        work: 0,
        max_work: BASE_WORK.saturating_add(input_work.saturating_mul(WORK_PER_INPUT_BYTE)),
        live: 0,
        max_live: scaled(LIVE_PER_INPUT_BYTE),
        written: 0,
        max_written: scaled(WRITTEN_PER_INPUT_BYTE).min(MAX_WRITTEN_BYTES),
        containers: 0,
        texts: Vec::new(),
        namespaces: Vec::new(),
        cancel,
        deadline: Instant::now() + MAX_TIME,
        until_clock: WORK_PER_CLOCK,
    };
    BUDGET.set(Some(budget));
    let result = render();
    if let Some(budget) = BUDGET.take() {
        for namespace in budget.namespaces.iter().filter_map(Weak::upgrade) {
            namespace.clear();
        }
    }
    result
}

/// Runs `action` on the rendering's budget; nothing is refused outside of a rendering.
fn on_budget(action: impl FnOnce(&mut Budget) -> Result<(), Stopped>) -> Result<(), Error> {
    let stopped = BUDGET.with_borrow_mut(|budget| match budget {
        Some(budget) => action(budget),
        None => Ok(()),
    });
    stopped.map_err(Stopped::into_error)
}

/// Bytes that may be looked at yet; `None` outside of a rendering.
pub(super) fn work_left() -> Option<u64> {
    BUDGET.with_borrow(|budget| {
        let budget = budget.as_ref()?;
        Some(budget.max_work.saturating_sub(budget.work))
    })
}

/// Takes the work of a step, and of looking at so many bytes.
///
/// # Errors
/// There was too much, or the rendering was cancelled.
pub(super) fn charge(bytes: u64) -> Result<(), Error> {
    on_budget(|budget| budget.charge(bytes))
}

/// Checks that a value of so many bytes may be made.
///
/// # Errors
/// It is too large, or too much is held.
pub(super) fn reserve(bytes: u64) -> Result<(), Error> {
    on_budget(|budget| budget.reserve(bytes))
}

/// Takes the memory of a member's name, or of another small thing.
///
/// # Errors
/// Too much is held.
pub(super) fn hold(bytes: usize) -> Result<(), Error> {
    on_budget(|budget| budget.hold(bytes as u64 + ITEM_BYTES))
}

/// Takes bytes of output.
///
/// # Errors
/// There were too many.
pub(super) fn wrote(bytes: usize) -> Result<(), Error> {
    on_budget(|budget| {
        budget.written = budget.written.saturating_add(bytes as u64);
        budget.charge(bytes as u64 / COPIED_PER_WORK)?;
        match budget.written > budget.max_written {
            true => Err(Stopped::Limit("the size of its output")),
            false => Ok(()),
        }
    })
}

/// Takes a namespace, to empty it at the end.
///
/// # Errors
/// There are too many.
pub(super) fn made_namespace(namespace: &Arc<Namespace>) -> Result<(), Error> {
    on_budget(|budget| {
        budget.container(ITEM_BYTES)?;
        budget.namespaces.push(Arc::downgrade(namespace));
        Ok(())
    })
}

/// Takes a value that an operation made, and gives it as it is to be used: an iterable that computes
/// its items each time becomes one that has them.
///
/// # Errors
/// It is too large, or too much is held.
pub(super) fn made(value: Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => made_text(value),
        ValueKind::Iterable => Items::collect(&value, ObjectRepr::Iterable),
        ValueKind::Seq if !value.is_tuple() && items(&value) >= MANY_ITEMS => {
            Items::collect(&value, ObjectRepr::Seq)
        }
        ValueKind::Seq | ValueKind::Map => {
            let bytes = items(&value).saturating_mul(ITEM_BYTES);
            on_budget(|budget| budget.container(bytes))?;
            Ok(value)
        }
        _ => Ok(value),
    }
}

/// A list that stops counting when it is dropped.
#[derive(Debug)]
struct Items {
    items: Vec<Value>,
    /// The kind of the value that it was made of: templates may ask for it.
    repr: ObjectRepr,
}

impl Items {
    fn collect(value: &Value, repr: ObjectRepr) -> Result<Value, Error> {
        let mut items = Vec::new();
        for item in value.try_iter()?.checked() {
            charge(0)?;
            reserve(items.len() as u64 * ITEM_BYTES)?;
            items.push(item?);
        }
        let bytes = items.len() as u64 * ITEM_BYTES;
        on_budget(|budget| budget.container(bytes))?;
        Ok(Value::from_object(Self { items, repr }))
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        let bytes = self.items.len() as u64 * ITEM_BYTES;
        // The thread's budget may be gone, and with it what counted.
        let _ = BUDGET.try_with(|budget| {
            if let Ok(mut budget) = budget.try_borrow_mut()
                && let Some(budget) = budget.as_mut()
            {
                budget.live = budget.live.saturating_sub(bytes);
            }
        });
    }
}

impl Object for Items {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        self.repr
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        self.items.get(key.as_usize()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(self.items.len())
    }
}

/// Takes a value that an operation made if it is a text: others were counted where they were made.
///
/// # Errors
/// As [`made`].
pub(super) fn made_text(value: Value) -> Result<Value, Error> {
    let Some(text) = value.as_str() else {
        return Ok(value);
    };
    let len = text.len() as u64;
    if text.len() < TRACKED_BYTES {
        return Ok(value);
    }
    // Text that is marked as safe would lose the mark in another allocation.
    if value.is_safe() {
        on_budget(|budget| budget.hold(len))?;
        return Ok(value);
    }
    let is_known = BUDGET.with_borrow(|budget| {
        let last = budget.as_ref().and_then(|budget| budget.texts.last());
        last.is_some_and(|last| std::ptr::eq(last.as_ptr(), text.as_ptr()))
    });
    if is_known {
        return Ok(value);
    }
    on_budget(|budget| {
        budget.charge(len / COPIED_PER_WORK)?;
        budget.hold(len)
    })?;
    let text: Arc<str> = text.into();
    on_budget(|budget| {
        budget.texts.push(text.clone());
        Ok(())
    })?;
    Ok(Value::from(text))
}

impl Budget {
    fn charge(&mut self, bytes: u64) -> Result<(), Stopped> {
        self.work = self.work.saturating_add(bytes).saturating_add(STEP);
        self.until_clock = self.until_clock.saturating_sub(bytes.saturating_add(STEP));
        if self.work > self.max_work {
            return Err(Stopped::Limit("the budget of work"));
        }
        if self.cancel.as_ref().is_some_and(CancelFlag::is_cancelled) {
            return Err(Stopped::Cancelled);
        }
        if self.until_clock > 0 {
            return Ok(());
        }
        self.until_clock = WORK_PER_CLOCK;
        match Instant::now() > self.deadline {
            true => Err(Stopped::Limit("the time of a rendering")),
            false => Ok(()),
        }
    }

    fn reserve(&mut self, bytes: u64) -> Result<(), Stopped> {
        if bytes > MAX_VALUE_BYTES {
            return Err(Stopped::Limit("the size of a value"));
        }
        if self.live.saturating_add(bytes) > self.max_live {
            self.drop_unused();
        }
        match self.live.saturating_add(bytes) > self.max_live {
            true => Err(Stopped::Limit("the memory of a rendering")),
            false => Ok(()),
        }
    }

    fn hold(&mut self, bytes: u64) -> Result<(), Stopped> {
        self.reserve(bytes)?;
        self.live += bytes;
        Ok(())
    }

    fn container(&mut self, bytes: u64) -> Result<(), Stopped> {
        self.containers += 1;
        if self.containers > MAX_CONTAINERS {
            return Err(Stopped::Limit("the number of lists and maps"));
        }
        self.hold(bytes.saturating_add(ITEM_BYTES))
    }

    /// Lets go of the texts that nothing else refers to.
    fn drop_unused(&mut self) {
        self.work = self.work.saturating_add(self.texts.len() as u64);
        let live = &mut self.live;
        self.texts.retain(|text| {
            let is_used = Arc::strong_count(text) > 1;
            if !is_used {
                *live = live.saturating_sub(text.len() as u64);
            }
            is_used
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rendering_stops_at_the_next_operation_after_it_was_cancelled() {
        let cancel = CancelFlag::new();
        with_budget(0, 0, Some(cancel.clone()), || {
            charge(1).unwrap();
            cancel.cancel();
            for refused in [charge(1), wrote(1)] {
                let error = crate::ChatTemplateError::render(&refused.unwrap_err());
                assert_eq!(error, crate::ChatTemplateError::Cancelled);
            }
        });
        charge(1).unwrap();
    }

    #[test]
    fn namespaces_are_freed_though_they_hold_themselves() {
        let namespace = with_budget(0, 0, None, || {
            let value = super::super::namespace::namespace(None).unwrap();
            let namespace = value.downcast_object::<Namespace>().unwrap();
            namespace.set("me", value).unwrap();
            Arc::downgrade(&namespace)
        });
        assert!(namespace.upgrade().is_none());
    }

    #[test]
    fn texts_count_as_long_as_something_refers_to_them() {
        let text = |bytes: usize| made_text(Value::from("x".repeat(bytes)));
        with_budget(0, 0, None, || {
            let kept = text(9 << 20).unwrap();
            for _ in 0..100 {
                drop(text(6 << 20).unwrap());
            }
            assert!(text(8 << 20).is_err());
            drop(kept);
            text(8 << 20).unwrap();
        });
    }
}
