//! `namespace()`: the one value of a template that changes.
//!
//! minijinja's own can hold itself, and would then never be freed, and is printed and compared without
//! an end. This one is emptied when the rendering ends ([`super::budget::with_budget`]).

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use minijinja::value::{Enumerator, Object, ValueKind, ValueOrKwargs};
use minijinja::{Error, ErrorKind, Value};

use super::budget;

thread_local! {
    /// Set while a namespace is printed.
    static IS_PRINTED: Cell<bool> = const { Cell::new(false) };
}

/// A map whose members `{% set ns.name = value %}` changes.
#[derive(Default)]
pub(super) struct Namespace {
    members: Mutex<BTreeMap<Arc<str>, Value>>,
}

/// The function `namespace(defaults)`.
///
/// # Errors
/// `defaults` is no map and no keyword arguments, or there are too many namespaces.
pub(super) fn namespace(defaults: Option<ValueOrKwargs>) -> Result<Value, Error> {
    let namespace = Arc::new(Namespace::default());
    budget::made_namespace(&namespace)?;
    if let Some(defaults) = defaults {
        let defaults = defaults.into_value();
        let pairs = match defaults.kind() {
            ValueKind::Map => defaults.as_object().and_then(|map| map.try_iter_pairs()),
            _ => None,
        };
        let pairs = pairs.ok_or_else(|| {
            Error::new(
                ErrorKind::InvalidOperation,
                format!(
                    "expected object or keyword arguments, got {}",
                    defaults.kind()
                ),
            )
        })?;
        for (name, value) in pairs {
            if let Some(name) = name.as_str() {
                namespace.set(name, value)?;
            }
        }
    }
    Ok(Value::from_dyn_object(namespace))
}

impl Namespace {
    /// Sets a member.
    ///
    /// # Errors
    /// Too much is held.
    pub(super) fn set(&self, name: &str, value: Value) -> Result<(), Error> {
        let mut members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(member) = members.get_mut(name) {
            let before = std::mem::replace(member, value);
            drop(members);
            drop(before);
            return Ok(());
        }
        budget::hold(name.len())?;
        members.insert(name.into(), value);
        Ok(())
    }

    /// Drops all members.
    pub(super) fn clear(&self) {
        let members =
            std::mem::take(&mut *self.members.lock().unwrap_or_else(PoisonError::into_inner));
        drop(members);
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if IS_PRINTED.replace(true) {
            return f.write_str("{...}");
        }
        let members = self
            .members
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let members = members
            .iter()
            .map(|(name, value)| (Value::from(name), value));
        let printed = f.debug_map().entries(members).finish();
        IS_PRINTED.set(false);
        printed
    }
}

impl Object for Namespace {
    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        members.get(key.as_str()?).cloned()
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        Enumerator::Values(members.keys().cloned().map(Value::from).collect())
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        let members = self.members.lock().unwrap_or_else(PoisonError::into_inner);
        Some(members.len())
    }

    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}
