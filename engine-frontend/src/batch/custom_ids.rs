//! Names that stand more than once.

use std::collections::HashSet;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

use super::progress::count;
use crate::error::cut_short;

/// The `custom_id`s of a batch, by their hashes: 8 bytes for each line, whatever its name.
#[derive(Debug, Clone, Default)]
pub struct CustomIds {
    hasher: RandomState,
    seen: HashSet<u64>,
    num_duplicates: u64,
    first_duplicate: Option<String>,
}

impl CustomIds {
    /// One more line has this name.
    pub fn add(&mut self, custom_id: &str) {
        if !self.seen.insert(self.hasher.hash_one(custom_id)) {
            self.num_duplicates += 1;
            self.first_duplicate
                .get_or_insert_with(|| cut_short(custom_id));
        }
    }

    /// Says that lines share a name; `None` where every line has its own.
    pub fn duplicates(&self) -> Option<String> {
        let first = self.first_duplicate.as_ref()?;
        Some(format!(
            "{} with a custom_id that an earlier line has, such as {first:?}: only `id` tells their \
             results apart",
            count(self.num_duplicates, "line")
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_twice_is_told() {
        let mut custom_ids = CustomIds::default();
        custom_ids.add("a");
        custom_ids.add("b");
        assert_eq!(custom_ids.duplicates(), None);
        custom_ids.add("b");
        let told = custom_ids.duplicates().unwrap();
        assert!(
            told.starts_with("1 line with a custom_id that an earlier line has, such as \"b\":"),
            "{told}"
        );
        custom_ids.add("a");
        assert!(custom_ids.duplicates().unwrap().starts_with("2 lines"));
    }
}
