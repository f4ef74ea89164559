//! The automaton's states that a walk meets, with their transitions gathered.

use hashbrown::HashMap;

use super::walk::Labelled;
use crate::index::Trie;
use crate::lexical::{
    ByteSet, EMPTY, ExprId, Fuel, Labels, Lexicon, NO_MARK, Others, RowRef, Stop,
};

/// What is below a node of a trie: what occurs there, and the length of the longest word.
#[derive(Clone, Copy)]
pub(super) struct Below {
    labels: Labels,
    height: u32,
    num_tokens: usize,
}

impl Below {
    /// What is below a node, where the trie knows that.
    pub(super) fn of(trie: &Trie, node: u32) -> Option<Self> {
        Some(Self {
            labels: trie.labels_below(node)?,
            height: trie.height(node),
            num_tokens: trie.below(node).len(),
        })
    }

    /// The same with the edge to the node.
    pub(super) fn from(trie: &Trie, node: u32) -> Option<Self> {
        Some(Self {
            labels: trie.labels_from(node)?,
            height: trie.height(node).saturating_add(1),
            num_tokens: trie.below(node).len(),
        })
    }
}

/// See [`Lexicon::harmless`].
struct Harmless {
    over: Labels,
    ways: Vec<Way>,
}

/// A way of [`Lexicon::harmless`].
struct Way {
    needed: Labels,
    one_of: Vec<Labels>,
    bytes: u32,
}

impl Harmless {
    /// Whether no word below a node takes a way.
    fn holds(&self, below: Below) -> bool {
        let takes = |way: &Way| {
            below.height >= way.bytes
                && way.needed.is_subset(below.labels)
                && way.one_of.iter().all(|set| set.intersects(below.labels))
        };
        below.labels.is_subset(self.over) && !self.ways.iter().any(takes)
    }
}

/// A state that so many bytes lead to itself may be one of text.
const MANY_BYTES: usize = 64;

/// A state that a walk comes to so often, or with so many tokens below, is worth to be looked at for
/// what leads from it to no dead state.
const OFTEN: u32 = 4;
/// See [`OFTEN`].
const MANY_TOKENS: usize = 64;

/// Fewer characters by which a state goes on are not worth to be compared with each node.
const MANY_CHARS: u32 = 4;

/// See [`State::num_visits`].
const LOOKED_AT: u32 = u32::MAX;

/// A transition that was not asked for yet.
const UNSEEN: u32 = u32::MAX;
/// A transition to where no end can be reached.
pub(crate) const DEAD: u32 = u32::MAX - 1;

/// The states met in a walk, numbered, with their transitions by class of their rows.
#[derive(Default)]
pub(crate) struct Table {
    states: Vec<State>,
    numbers: HashMap<ExprId, u32>,
    targets: Vec<u32>,
    harmless: Vec<Harmless>,
}

/// A state, as far as a walk knows it.
pub(super) struct State {
    expr: ExprId,
    pub(super) end_mark: u16,
    /// Bytes that have a derivative.
    pub(super) num_bytes: u16,
    /// Those that lead to the state itself.
    stays: Labels,
    /// Those that lead to states that go on with them again, where that was looked for.
    lasting: Labels,
    /// Those that lead to live states if they are no more than so many, likewise.
    enduring: (Labels, u32),
    /// How often a walk came to it; [`LOOKED_AT`] once it was looked at for what lasts in it.
    num_visits: u32,
    /// Its place in `harmless`, or [`UNSEEN`].
    harmless: u32,
    row: RowRef,
    /// In place of a row: see [`Lexicon::first_class`].
    first: Option<(ByteSet, ExprId)>,
    /// See [`Table::fits`], where that was asked for.
    fits: Option<bool>,
    /// Where its transitions start in `targets`, or [`UNSEEN`].
    targets: u32,
}

/// Room for more states is not kept for the next walk.
const MOST_STATES_KEPT: usize = 1024;

impl Table {
    /// Forgets all states, and keeps the room of a table of the usual size.
    pub(crate) fn clear(&mut self) {
        if self.states.capacity().max(self.targets.capacity() / 8) > MOST_STATES_KEPT {
            *self = Self::default();
            return;
        }
        self.states.clear();
        self.numbers.clear();
        self.targets.clear();
        self.harmless.clear();
    }

    /// A state by its number.
    #[inline]
    pub(super) fn at(&self, state: u32) -> &State {
        &self.states[state as usize]
    }

    /// The number of a state.
    pub(crate) fn state(&mut self, lexicon: &Lexicon, expr: ExprId) -> u32 {
        *self.numbers.entry(expr).or_insert_with(|| {
            self.states.push(State {
                expr,
                end_mark: lexicon.end_mark(expr),
                num_bytes: 0,
                stays: Labels::default(),
                lasting: Labels::default(),
                enduring: (Labels::default(), 0),
                num_visits: 0,
                harmless: UNSEEN,
                row: RowRef::default(),
                first: None,
                fits: None,
                targets: UNSEEN,
            });
            (self.states.len() - 1) as u32
        })
    }

    /// Makes a state's row known.
    #[inline]
    pub(crate) fn expand(
        &mut self,
        lexicon: &mut Lexicon,
        state: u32,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        match self.states[state as usize].targets {
            UNSEEN => self.expand_new(lexicon, state, fuel),
            _ => Ok(()),
        }
    }

    fn expand_new(
        &mut self,
        lexicon: &mut Lexicon,
        state: u32,
        fuel: &mut Fuel,
    ) -> Result<(), Stop> {
        let state = &mut self.states[state as usize];
        state.targets = self.targets.len() as u32;
        state.first = lexicon.first_class(state.expr);
        if let Some((bytes, _)) = state.first {
            self.targets.extend([DEAD, UNSEEN]);
            state.num_bytes = bytes.len() as u16;
            return Ok(());
        }
        state.row = lexicon.row_ref(state.expr, fuel)?;
        let mut stays = ByteSet::EMPTY;
        for (bytes, to) in lexicon.row_entries(state.row) {
            if to == state.expr {
                stays = stays.union(bytes);
            }
            let dead = to == EMPTY;
            self.targets.push(if dead { DEAD } else { UNSEEN });
            state.num_bytes += if dead { 0 } else { bytes.len() as u16 };
        }
        let others = match stays.len() >= MANY_BYTES {
            true => lexicon.others_that_stay(state.expr, fuel)?,
            false => Others::Some,
        };
        state.stays = Labels::within(&stays, others);
        Ok(())
    }

    /// Whether all words below a node lead from a state to live states, without an end of the lexeme:
    /// as far as the state has been looked at.
    pub(super) fn goes_on(&self, state: u32, below: Below) -> bool {
        let State {
            stays,
            lasting,
            harmless,
            ..
        } = &self.states[state as usize];
        below.labels.is_subset(*stays)
            || below.labels.is_subset(*lasting)
            || self.endures(state, below)
            || self
                .harmless
                .get(*harmless as usize)
                .is_some_and(|harmless| harmless.holds(below))
    }

    /// Whether all words below a node are so short, and of such characters, that a state goes on with them.
    pub(super) fn endures(&self, state: u32, below: Below) -> bool {
        let (labels, num_chars) = self.states[state as usize].enduring;
        // A character has a byte or more.
        below.height <= num_chars && below.labels.is_subset(labels)
    }

    /// Whether it is known that words of many characters lead from a state to live states.
    pub(super) fn is_enduring(&self, state: u32) -> bool {
        self.states[state as usize].enduring.1 > 0
    }

    /// Looks at an expanded state that a walk comes to again and again, or with much below it: which
    /// texts lead to live states. Whether anything was found that wasn't known before.
    pub(super) fn look_for_lasting(
        &mut self,
        lexicon: &mut Lexicon,
        state: u32,
        below: Below,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        let visited = &mut self.states[state as usize];
        if visited.num_visits == LOOKED_AT {
            return Ok(false);
        }
        visited.num_visits += 1;
        if visited.num_visits < OFTEN && below.num_tokens < MANY_TOKENS {
            return Ok(false);
        }
        visited.num_visits = LOOKED_AT;
        if usize::from(visited.num_bytes) < MANY_BYTES {
            return Ok(false);
        }
        let found = lexicon.lasting(visited.expr, fuel)?;
        visited.lasting = Labels::within(&found.bytes, found.others);
        if visited.lasting != Labels::default() {
            return Ok(true);
        }
        let found = lexicon.enduring(visited.expr, fuel)?;
        if found.num_chars >= MANY_CHARS {
            let labels = Labels::within(&found.over.bytes, found.over.others);
            visited.enduring = (labels, found.num_chars);
            return Ok(true);
        }
        let Some(found) = lexicon.harmless(visited.expr, fuel)? else {
            return Ok(false);
        };
        visited.harmless = self.harmless.len() as u32;
        let ways = found.ways.iter();
        let labels = |bytes: &ByteSet| Labels::within(bytes, Others::Some);
        self.harmless.push(Harmless {
            over: Labels::within(&found.over.bytes, found.over.others),
            ways: ways
                .map(|way| Way {
                    needed: labels(&way.needed),
                    one_of: way.one_of.iter().map(labels).collect(),
                    bytes: way.bytes,
                })
                .collect(),
        });
        Ok(true)
    }

    /// The expression of a state.
    pub(crate) fn expr(&self, state: u32) -> ExprId {
        self.states[state as usize].expr
    }

    /// Whether a lexeme may end in a state.
    pub(crate) fn has_end_mark(&self, state: u32) -> bool {
        self.states[state as usize].end_mark != NO_MARK
    }

    /// Whether a state leads to itself by some labels.
    pub(crate) fn stays(&self, state: u32, labels: Labels) -> bool {
        labels.is_subset(self.states[state as usize].stays)
    }

    /// Whether many bytes lead from an expanded state to itself.
    pub(crate) fn stays_by_many(&self, state: u32) -> bool {
        self.states[state as usize].stays.len() >= MANY_BYTES as u32
    }

    /// Whether an expanded state has few bytes to go on with, beside so many children.
    pub(crate) fn has_few(&self, state: u32, num_children: usize) -> bool {
        usize::from(self.states[state as usize].num_bytes) * 4 < num_children
    }

    /// Whether an expanded state tells apart no bytes that the alphabet of the walk doesn't.
    pub(crate) fn fits(&mut self, lexicon: &Lexicon, state: u32, labelled: Labelled<'_>) -> bool {
        let Some((alphabet, _)) = labelled.alphabet else {
            return true;
        };
        let State { row, first, .. } = self.states[state as usize];
        *self.states[state as usize]
            .fits
            .get_or_insert_with(|| match first {
                Some((bytes, _)) => lexicon.set_fits(&bytes, alphabet),
                None => lexicon.row_fits(row, alphabet),
            })
    }

    /// The classes of an expanded state with their targets.
    fn entries(&self, lexicon: &Lexicon, state: u32) -> impl Iterator<Item = (ByteSet, ExprId)> {
        let State { row, first, .. } = self.states[state as usize];
        let rest = first.map(|(bytes, _)| (bytes.complement(), EMPTY));
        let row = first.is_none().then(|| lexicon.row_entries(row));
        let of_row = row.into_iter().flatten().map(|(bytes, to)| (*bytes, to));
        first.into_iter().chain(rest).chain(of_row)
    }

    /// The bytes with a derivative of an expanded state.
    pub(crate) fn bytes(&self, lexicon: &Lexicon, state: u32) -> ByteSet {
        let live = self.entries(lexicon, state).filter(|&(_, to)| to != EMPTY);
        live.fold(ByteSet::EMPTY, |all, (bytes, _)| all.union(&bytes))
    }

    /// The bytes by which two expanded states have different derivatives.
    pub(crate) fn apart(&self, lexicon: &Lexicon, own: u32, other: u32) -> ByteSet {
        let (own, other) = (self.by_class(lexicon, own), self.by_class(lexicon, other));
        let mut apart = ByteSet::EMPTY;
        for byte in 0..=255_u8 {
            let to = |(classes, targets): &([u8; 256], Vec<ExprId>)| {
                targets
                    .get(usize::from(classes[usize::from(byte)]))
                    .copied()
            };
            if to(&own) != to(&other) {
                apart.insert(byte);
            }
        }
        apart
    }

    /// The class of each byte in an expanded state, and the derivative by each class.
    fn by_class(&self, lexicon: &Lexicon, state: u32) -> ([u8; 256], Vec<ExprId>) {
        let State { row, first, .. } = self.states[state as usize];
        match first {
            Some((bytes, to)) => {
                let classes = std::array::from_fn(|byte| u8::from(bytes.contains(byte as u8)));
                (classes, vec![EMPTY, to])
            }
            None => {
                let targets = lexicon.row_entries(row).map(|(_, to)| to);
                (*lexicon.row_classes(row), targets.collect())
            }
        }
    }

    /// Bytes of memory held.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.states.capacity() * size_of::<State>()
            + self.numbers.capacity() * (size_of::<(ExprId, u32)>() + 1)
            + self.targets.capacity() * size_of::<u32>()
            + self.harmless.capacity() * size_of::<Harmless>()
    }

    /// The class of each byte in an expanded state, for [`Table::step_by_class`]; `None` where
    /// [`Table::class`] is as fast.
    pub(crate) fn classes(&self, lexicon: &Lexicon, state: u32) -> Option<[u8; 256]> {
        let State { row, first, .. } = self.states[state as usize];
        first.is_none().then(|| *lexicon.row_classes(row))
    }

    /// The class of a byte in an expanded state.
    #[inline]
    pub(crate) fn class(&self, lexicon: &Lexicon, state: u32, byte: u8) -> u8 {
        let State { row, first, .. } = &self.states[state as usize];
        match first {
            Some((bytes, _)) => u8::from(bytes.contains(byte)),
            None => lexicon.row_class(*row, byte),
        }
    }

    /// The state after a byte of a class from an expanded one.
    #[inline]
    pub(crate) fn step_by_class(
        &mut self,
        lexicon: &mut Lexicon,
        state: u32,
        class: u8,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        let at = self.states[state as usize].targets as usize + usize::from(class);
        match self.targets[at] {
            UNSEEN => self.step_unseen(lexicon, state, class, fuel),
            known => Ok(known),
        }
    }

    #[cold]
    fn step_unseen(
        &mut self,
        lexicon: &mut Lexicon,
        state: u32,
        class: u8,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        let State {
            row,
            first,
            targets,
            ..
        } = &self.states[state as usize];
        let at = *targets as usize + usize::from(class);
        let expr = match first {
            Some((_, next)) => *next,
            None => lexicon.row_target(*row, class),
        };
        self.targets[at] = match lexicon.is_live(expr, fuel)? {
            true => self.state(lexicon, expr),
            false => DEAD,
        };
        Ok(self.targets[at])
    }

    /// The state after a byte from an expanded one.
    #[inline]
    pub(crate) fn step(
        &mut self,
        lexicon: &mut Lexicon,
        state: u32,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<u32, Stop> {
        let class = self.class(lexicon, state, byte);
        self.step_by_class(lexicon, state, class, fuel)
    }
}
