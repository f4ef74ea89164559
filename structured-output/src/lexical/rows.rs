//! Rows: the derivatives of an expression by all 256 bytes, as a map from bytes to classes, which rows
//! with the same classes share, and one target per class. A look-up is two loads.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashMap, HashTable};

use super::arena::{ExprId, Lexicon};
use super::byte_set::ByteSet;

/// A map from bytes to classes; classes are numbered in the order of their first bytes.
#[derive(Clone)]
pub(super) struct ClassMap {
    class_of: Box<[u8; 256]>,
    pub(super) classes: Vec<ByteSet>,
    /// Bit `i`: no class of coarse alphabet `i` (see `index`) is cut by one of these.
    pub(super) fits: u8,
}

/// A row that is not computed yet.
pub(super) const NO_ROW: Row = Row {
    map: u32::MAX,
    start: 0,
};

/// The derivatives of one expression: `targets[start + class]`.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) map: u32,
    start: u32,
}

/// Of the table that has a place for each expression.
pub(super) const BYTES_PER_EXPR: usize = size_of::<Row>();

/// A row that is known, for walks that look at it again and again. Valid for as long as the
/// lexicon.
#[derive(Clone, Copy)]
pub(crate) struct RowRef(pub(super) Row);

impl Default for RowRef {
    /// Stands for a row that is yet to be looked up.
    fn default() -> Self {
        Self(NO_ROW)
    }
}

/// All rows computed so far.
#[derive(Clone, Default)]
pub(super) struct Rows {
    rows: Vec<Row>,
    targets: Vec<ExprId>,
    pub(super) maps: Vec<ClassMap>,
    map_ids: HashTable<u32>,
    hasher: DefaultHashBuilder,
    /// The classes of each coarse alphabet.
    alphabets: Vec<Vec<ByteSet>>,
    /// Derivatives that were asked for where no row is known.
    pub(super) single: HashMap<(ExprId, u8), ExprId>,
}

impl Rows {
    /// No rows; `alphabets` are partitions of the bytes, at most eight.
    pub(super) fn new(alphabets: Vec<Vec<ByteSet>>) -> Self {
        Self {
            alphabets,
            ..Self::default()
        }
    }

    /// Bytes of what is known, the expressions' places in `rows` apart.
    pub(super) fn memory_bytes(&self) -> usize {
        let per_map = 256 + size_of::<ClassMap>() + 4 * size_of::<ByteSet>();
        self.targets.len() * size_of::<ExprId>()
            + self.maps.len() * per_map
            + self.single.len() * (size_of::<(ExprId, u8, ExprId)>() + 1)
    }

    pub(super) fn get(&self, expr: ExprId) -> Option<Row> {
        let row = *self.rows.get(expr.index())?;
        (row.map != u32::MAX).then_some(row)
    }

    /// Classes of a row with their targets.
    pub(super) fn entries(&self, row: Row) -> impl Iterator<Item = (&ByteSet, ExprId)> {
        let map = &self.maps[row.map as usize];
        let targets = &self.targets[row.start as usize..];
        map.classes.iter().zip(targets.iter().copied())
    }

    /// The map of some classes, which are all bytes, each in the one that `class_of` says.
    pub(super) fn intern_map(
        &mut self,
        class_of: &[u8; 256],
        classes: impl Iterator<Item = ByteSet>,
    ) -> u32 {
        let (maps, hasher) = (&self.maps, &self.hasher);
        let entry = self.map_ids.entry(
            hasher.hash_one(class_of),
            |&id| *maps[id as usize].class_of == *class_of,
            |&id| hasher.hash_one(*maps[id as usize].class_of),
        );
        let id = *entry.or_insert(maps.len() as u32).get();
        if id as usize == self.maps.len() {
            let classes: Vec<ByteSet> = classes.collect();
            debug_assert!((0..=255_u8).zip(class_of).all(|(byte, &class)| {
                let mut of_byte = (0..).zip(&classes).filter(|(_, set)| set.contains(byte));
                of_byte.next().is_some_and(|(of, _)| of == class) && of_byte.next().is_none()
            }));
            let mut fits = 0;
            for (bit, alphabet) in self.alphabets.iter().enumerate() {
                let whole = |class: &ByteSet| {
                    let of_first = class.first().map(|byte| class_of[usize::from(byte)]);
                    of_first.is_none_or(|of_first| {
                        classes[usize::from(of_first)].intersection(class) == *class
                    })
                };
                fits |= u8::from(alphabet.iter().all(whole)) << bit;
            }
            self.maps.push(ClassMap {
                class_of: Box::new(*class_of),
                classes,
                fits,
            });
        }
        id
    }

    /// Keeps the row of an expression, whose `targets` are those of the classes of a map.
    pub(super) fn insert(&mut self, expr: ExprId, map: u32, targets: &[ExprId]) {
        let row = Row {
            map,
            start: self.targets.len() as u32,
        };
        self.targets.extend_from_slice(targets);
        if self.rows.len() <= expr.index() {
            self.rows.resize(expr.index() + 1, NO_ROW);
        }
        self.rows[expr.index()] = row;
    }

    /// The derivative by a byte.
    pub(super) fn target(&self, row: Row, byte: u8) -> ExprId {
        let class = self.maps[row.map as usize].class_of[usize::from(byte)];
        self.targets[row.start as usize + usize::from(class)]
    }
}

impl Lexicon {
    /// The classes of a row with their targets.
    pub(crate) fn row_entries(&self, row: RowRef) -> impl Iterator<Item = (&ByteSet, ExprId)> {
        self.rows.entries(row.0)
    }

    /// The class of a byte in a row.
    pub(crate) fn row_class(&self, row: RowRef, byte: u8) -> u8 {
        self.rows.maps[row.0.map as usize].class_of[usize::from(byte)]
    }

    /// The class of each byte in a row.
    pub(crate) fn row_classes(&self, row: RowRef) -> &[u8; 256] {
        &self.rows.maps[row.0.map as usize].class_of
    }

    /// The derivative by the bytes of a class.
    pub(crate) fn row_target(&self, row: RowRef, class: u8) -> ExprId {
        self.rows.targets[row.0.start as usize + usize::from(class)]
    }

    /// Whether a row tells apart no bytes that a coarse alphabet doesn't.
    pub(crate) fn row_fits(&self, row: RowRef, alphabet: usize) -> bool {
        self.rows.maps[row.0.map as usize].fits >> alphabet & 1 == 1
    }

    /// Whether a coarse alphabet tells apart the bytes of a set from all others.
    pub(crate) fn set_fits(&self, set: &ByteSet, alphabet: usize) -> bool {
        let classes = self.rows.alphabets.get(alphabet);
        classes.is_some_and(|classes| {
            classes.iter().all(|class| {
                let inside = class.intersection(set);
                inside.is_empty() || inside == *class
            })
        })
    }
}
