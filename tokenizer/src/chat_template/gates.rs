//! The filters that [`super::program`] puts around instructions.
//!
//! A gate that only looks gives its operands back in a list, the last one first, as minijinja's
//! instruction for unpacking wants them.

use minijinja::value::{Rest, ValueKind, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, Value};

use super::budget::{COPIED_PER_WORK, ITEM_BYTES, charge, made, made_text, reserve};
use super::measure::{Metered, charge_all, items, text_bytes};
use super::namespace::Namespace;

/// What a gate stands around.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gate {
    /// `a ~ b`, in its place.
    Concat,
    /// `{key: value, ...}`, in its place.
    Map,
    /// `{% set ns.name = value %}`, in its place.
    SetAttr,
    /// After whatever makes a list, a map or a text.
    Made,
    /// After whatever makes a text, or gives a value that was there before.
    Text,
    /// Before `a + b`.
    Add,
    /// Before `a * b`.
    Mul,
    /// Before `a[b]`.
    Item,
    /// Before `a[b:c:d]`.
    Slice,
    /// Before whatever looks at all of its operands, such as `==` and `in`.
    Content,
    /// Before a loop.
    Loop,
    /// Before `loop.changed(...)` and `loop.cycle(...)`.
    LoopMethod,
}

impl Gate {
    /// Names that are no identifiers.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Concat => "#concat",
            Self::Map => "#map",
            Self::SetAttr => "#set_attr",
            Self::Made => "#made",
            Self::Text => "#text",
            Self::Add => "#add",
            Self::Mul => "#mul",
            Self::Item => "#item",
            Self::Slice => "#slice",
            Self::Content => "#content",
            Self::Loop => "#loop",
            Self::LoopMethod => "#loop_method",
        }
    }
}

/// Takes the work and memory of what operands come to.
type Look = fn(&[Value]) -> Result<(), Error>;

/// Adds all gates.
pub(super) fn add_to(environment: &mut Environment<'_>) {
    environment.add_filter(Gate::Concat.name(), |left: Value, right: Value| {
        concat(&left, &right)
    });
    environment.add_filter(Gate::Map.name(), build_map);
    environment.add_filter(Gate::SetAttr.name(), set_attr);
    environment.add_filter(Gate::Made.name(), made);
    environment.add_filter(Gate::Text.name(), made_text);
    environment.add_filter(Gate::Loop.name(), |operand: ValueOrKwargs| {
        let operand = operand.into_value();
        charge(items(&operand))?;
        Ok::<_, Error>(operand)
    });
    let looks: [(Gate, Look); 6] = [
        (Gate::Add, before_add),
        (Gate::Mul, before_mul),
        (Gate::Item, before_item),
        (Gate::Slice, before_slice),
        (Gate::Content, |operands| {
            operands
                .iter()
                .try_for_each(|operand| charge_all(operand).map(drop))
        }),
        (Gate::LoopMethod, before_loop_method),
    ];
    for (gate, look) in looks {
        environment.add_filter(gate.name(), move |operands: Rest<ValueOrKwargs>| {
            let mut operands = operands.into_values();
            look(&operands)?;
            if gate == Gate::Slice {
                forwards_if_empty(&mut operands);
            }
            operands.reverse();
            Ok::<_, Error>(Value::from(operands))
        });
    }
}

/// Of nothing, nothing is taken in either direction: minijinja panics where it goes backwards.
fn forwards_if_empty(operands: &mut [Value]) {
    if let [value, _, _, step] = operands
        && value.len() == Some(0)
        && i64::try_from(step.clone()).is_ok_and(|step| step < 0)
    {
        *step = Value::from(1);
    }
}

fn before_slice(operands: &[Value]) -> Result<(), Error> {
    let [value, start, stop, step] = operands else {
        return Ok(());
    };
    let num_items = items(value);
    charge(num_items)?;
    let place = |bound: &Value| u64::try_from(bound.clone()).ok();
    let is_forwards = step.is_none() || step.is_undefined() || place(step).is_some();
    let most = match place(stop) {
        Some(stop) if is_forwards => num_items.min(stop.saturating_sub(place(start).unwrap_or(0))),
        _ => num_items,
    };
    reserve(match value.as_str() {
        Some(_) => most,
        None => most.saturating_mul(ITEM_BYTES),
    })
}

/// `left ~ right`.
///
/// # Errors
/// The text would be too large.
pub(super) fn concat(left: &Value, right: &Value) -> Result<Value, Error> {
    let mut bytes = 0;
    for operand in [left, right] {
        bytes += match operand.as_str() {
            Some(text) => {
                charge(text.len() as u64 / COPIED_PER_WORK)?;
                text.len() as u64
            }
            None => text_bytes(operand, charge_all(operand)?),
        };
    }
    reserve(bytes)?;
    let mut text = String::with_capacity(match (left.as_str(), right.as_str()) {
        (Some(left), Some(right)) => left.len() + right.len(),
        _ => 0,
    });
    for operand in [left, right] {
        match operand.as_str() {
            Some(part) => text.push_str(part),
            None => Metered::write(&mut text, operand)?,
        }
    }
    made_text(Value::from(text))
}

fn build_map(members: Rest<Value>) -> Result<Value, Error> {
    let mut pairs = Vec::with_capacity(members.len() / 2);
    let mut members = members.0.into_iter();
    while let (Some(key), Some(value)) = (members.next(), members.next()) {
        // It is hashed, with all in it.
        charge_all(&key)?;
        pairs.push((key, value));
    }
    made(Value::from_pairs(pairs))
}

fn set_attr(value: Value, target: Value, name: &str) -> Result<Value, Error> {
    match target.downcast_object_ref::<Namespace>() {
        Some(namespace) => {
            namespace.set(name, value)?;
            Ok(Value::UNDEFINED)
        }
        None => Err(Error::new(
            ErrorKind::InvalidOperation,
            format!("can only assign to namespaces, not {}", target.kind()),
        )),
    }
}

fn is_list(value: &Value) -> bool {
    matches!(value.kind(), ValueKind::Seq | ValueKind::Iterable)
}

fn before_add(operands: &[Value]) -> Result<(), Error> {
    let [left, right] = operands else {
        return Ok(());
    };
    let bytes = match (left.as_str(), right.as_str()) {
        (Some(left), Some(right)) => left.len() as u64 + right.len() as u64,
        _ if is_list(left) && is_list(right) => items(left)
            .saturating_add(items(right))
            .saturating_mul(ITEM_BYTES),
        _ => 0,
    };
    reserve(bytes)?;
    charge(bytes / COPIED_PER_WORK)
}

fn before_mul(operands: &[Value]) -> Result<(), Error> {
    let times = |value: &Value, count: &Value| {
        let each = match value.as_str() {
            Some(text) => text.len() as u64,
            None if is_list(value) => items(value).saturating_mul(ITEM_BYTES),
            None => 0,
        };
        each.saturating_mul(count.as_usize().unwrap_or(0) as u64)
    };
    let [left, right] = operands else {
        return Ok(());
    };
    let bytes = times(left, right).max(times(right, left));
    reserve(bytes)?;
    charge(bytes / COPIED_PER_WORK)
}

fn before_item(operands: &[Value]) -> Result<(), Error> {
    let [value, key] = operands else {
        return Ok(());
    };
    // A text's characters, and an iterable's items, are counted from the first one.
    if value.as_str().is_some() || value.kind() == ValueKind::Iterable {
        charge(items(value))?;
    }
    charge_all(key).map(drop)
}

fn before_loop_method(operands: &[Value]) -> Result<(), Error> {
    let arguments = operands.get(1..).unwrap_or_default();
    if arguments.is_empty()
        || arguments
            .iter()
            .any(|argument| argument.as_object().is_some())
    {
        // A loop that keeps itself would never be freed.
        return Err(Error::new(
            ErrorKind::InvalidOperation,
            "loop.cycle and loop.changed take texts, numbers and booleans, at least one",
        ));
    }
    arguments
        .iter()
        .try_for_each(|argument| charge_all(argument).map(drop))
}
