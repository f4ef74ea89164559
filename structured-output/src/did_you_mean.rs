//! The known name that a mistyped one resembles.

/// Longest name that is compared, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The known name closest to `name`: equal but for case and underscores, or at most two letters away (one
/// letter in a name of up to four). Costs the product of the lengths per known name.
pub fn did_you_mean<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    if name.len() > MAX_NAME_BYTES {
        return None;
    }
    let name = plain(name);
    let most = if name.len() <= 4 { 1 } else { 2 };
    // The others are further away than their lengths differ.
    let is_near = |known: &&str| num_letters(known).abs_diff(name.len()) <= most;
    let distances = known
        .into_iter()
        .filter(is_near)
        .map(|known| (distance(&name, &plain(known)), known));
    let (distance, closest) = distances.min_by_key(|(distance, _)| *distance)?;
    (distance <= most).then_some(closest)
}

fn letters(name: &str) -> impl Iterator<Item = u8> {
    name.bytes().filter(|byte| !matches!(byte, b'_' | b'-'))
}

fn num_letters(name: &str) -> usize {
    letters(name).count()
}

fn plain(name: &str) -> Vec<u8> {
    letters(name)
        .map(|byte| byte.to_ascii_lowercase())
        .collect()
}

/// The Levenshtein distance of two names.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let replaced = diagonal + usize::from(x != y);
            diagonal = row[j + 1];
            row[j + 1] = replaced.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closest_name_is_found() {
        let known = ["parameters", "name", "required", "maxLength"];
        for (name, meant) in [
            ("paramters", Some("parameters")),
            ("requierd", Some("required")),
            ("max_length", Some("maxLength")),
            ("nme", Some("name")),
            ("nullable", None),
            ("a", None),
        ] {
            assert_eq!(did_you_mean(name, known), meant, "{name}");
        }
        assert_eq!(did_you_mean(&"a".repeat(1 << 20), known), None);
    }
}
