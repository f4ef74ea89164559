//! The smallest schema that still fails.

use serde_json::Value;

/// Takes parts away for as long as it still fails.
pub(crate) fn schema(mut schema: Value, fails: impl Fn(&Value) -> bool) -> Value {
    while let Some(smaller) = smaller(&schema).into_iter().find(|smaller| fails(smaller)) {
        schema = smaller;
    }
    schema
}

/// All that are smaller by a part.
fn smaller(value: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    match value {
        Value::Object(members) => {
            for (key, member) in members {
                let mut rest = members.clone();
                rest.remove(key);
                all.push(rest.into());
                if member.is_object() {
                    all.push(member.clone());
                }
                for smaller in smaller(member) {
                    let mut members = members.clone();
                    members[key] = smaller;
                    all.push(members.into());
                }
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                if items.len() > 1 {
                    let mut rest = items.clone();
                    rest.remove(index);
                    all.push(rest.into());
                }
                if item.is_object() {
                    all.push(item.clone());
                }
                for smaller in smaller(item) {
                    let mut items = items.clone();
                    items[index] = smaller;
                    all.push(items.into());
                }
            }
        }
        _ => {}
    }
    all
}
