//! Bounds that no option raises, on what no schema of use comes near.

/// What a search may not have more of. More steps don't help beyond it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// Values within values where each needs the next, by recursion.
    Nesting,
    /// Formulas in formulas, by recursion.
    Conditions,
    /// Disjoint classes of a value's texts: each has two marks.
    Goals,
    /// Names that an object's formulas speak of.
    Names,
    /// Languages of keys: each is a bit.
    KeyPatterns,
    /// Disjoint classes of these.
    KeyClasses,
    /// Keys that are listed for an object: each takes memory of the states, which is used up before.
    FreshKeys,
    /// Places that are met in the search for an array's end: each takes memory of the states.
    WaysThroughArrays,
    /// Distinct items that an array may need at its end, by recursion.
    DistinctItems,
    /// Distinct items that are counted: those that the array has take memory of the states, which is used up before.
    DistinctPlaces,
    /// Bytes of the shortest texts of items still needed that can only be arrays or objects, which take more of
    /// that memory: 30 objects of five strings were served, and 45 of three, and 100 of an integer.
    DistinctBytes,
}

impl Bound {
    /// What is counted, and how much of it there may be.
    const fn told(self) -> (&'static str, u32) {
        match self {
            Self::Nesting => ("levels of values within each other", 100),
            Self::Conditions => ("conditions within each other on one value", 200),
            Self::Goals => ("values told apart by what follows them", 2_000),
            Self::Names => ("names of members that one object speaks of", 50_000),
            Self::KeyPatterns => ("patterns of keys that one object speaks of", 64),
            Self::KeyClasses => ("ways in which patterns tell an object's keys apart", 128),
            Self::FreshKeys => ("keys still needed beside those with a name", 10_000),
            Self::WaysThroughArrays => ("ways on towards the end of an array", 20_000),
            Self::DistinctItems => ("items to search for that must differ", 200),
            Self::DistinctPlaces => ("items still needed that must differ", 2_000),
            Self::DistinctBytes => (
                "bytes of arrays or objects still needed that must differ",
                1_000,
            ),
        }
    }

    /// What is counted.
    pub(crate) const fn what(self) -> &'static str {
        self.told().0
    }

    /// How much of it there may be.
    pub(crate) const fn max(self) -> usize {
        self.told().1 as usize
    }
}
