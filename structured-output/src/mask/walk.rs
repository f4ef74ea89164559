//! Walks of an automaton through a trie of tokens.

use std::ops::{Range, RangeInclusive};

use hashbrown::{HashMap, HashSet};

use crate::index::{CHARACTERS, CONTINUATION, Labels, ROOT, TokenizerIndex, Trie};
use crate::lexical::{ByteSet, EMPTY, EPSILON, ExprId, Fuel, Lexicon, NO_MARK, OutOfFuel, RowRef};

/// A trie with what its labels stand for.
#[derive(Clone, Copy)]
pub(crate) struct Labelled<'a> {
    pub(crate) trie: &'a Trie,
    /// The number of the coarse alphabet and a byte of each class; `None` where labels are bytes.
    pub(crate) alphabet: Option<(usize, &'a [u8])>,
}

impl<'a> Labelled<'a> {
    /// A trie of single bytes.
    pub(crate) fn of_bytes(trie: &'a Trie) -> Self {
        Self {
            trie,
            alphabet: None,
        }
    }

    /// The tries of the coarse alphabets, from the coarsest on. What they leave out is in the trie
    /// of escapes.
    pub(crate) fn of_coarse(index: &'a TokenizerIndex) -> impl Iterator<Item = Self> {
        let numbered = index.coarse().iter().enumerate();
        numbered.map(|(alphabet, coarse)| Self {
            trie: coarse.trie(),
            alphabet: Some((alphabet, coarse.representatives())),
        })
    }

    /// Whether its alphabet is one of those that [`Lexicon::fitting_alphabets`] found; bytes always
    /// are.
    pub(crate) fn is_among(&self, fitting: u8) -> bool {
        self.alphabet
            .is_none_or(|(alphabet, _)| fitting >> alphabet & 1 == 1)
    }

    /// A byte that a label stands for.
    pub(crate) fn byte(&self, label: u8) -> u8 {
        self.alphabet
            .map_or(label, |(_, bytes)| bytes[usize::from(label)])
    }
}

/// Tokens that end a lexeme before their own end: all at and below `node`, whose bytes from
/// `depth` on follow a lexeme that ended with `mark`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Exit {
    pub(crate) node: u32,
    pub(crate) parent: u32,
    pub(crate) depth: u32,
    pub(crate) mark: u16,
}

/// What a walk meets.
pub(crate) trait Visitor {
    /// Tokens, as a range of [`Trie::tokens`], that end within the lexeme. Ranges ascend.
    fn reached(&mut self, tokens: Range<u32>);
    /// Tokens that end the lexeme.
    fn exit(&mut self, exit: Exit);
}

/// Runs the automaton from `start` over every word of the trie, as far as it survives. False where
/// a state tells apart bytes that the alphabet doesn't: then what was visited so far means nothing.
///
/// Where the automaton can't go on but a lexeme ends, that is an exit, unless it is before the
/// first byte. Costs a step per node looked at, a few loads. What is below a node is not looked at
/// where no byte of it leads away from the state, or from states that go on with all of it (see
/// [`Lexicon::lasting`]); and where a state has fewer bytes to go on with than a node has children,
/// those are looked up.
pub(crate) fn walk(
    lexicon: &mut Lexicon,
    labelled: Labelled<'_>,
    start: ExprId,
    fuel: &mut Fuel,
    visitor: &mut impl Visitor,
) -> Result<bool, OutOfFuel> {
    let Labelled { trie, alphabet } = labelled;
    let mut table = Table::default();
    let start = table.state(lexicon, start);
    // Nodes whose own tokens are accepted, with the state there and their depth.
    let mut pending = vec![(ROOT, start, 0_u32)];
    while let Some((node, state, depth)) = pending.pop() {
        let below = trie.labels_below(node);
        if below.is_some_and(|below| table.goes_on(state, below)) {
            visitor.reached(trie.below(node));
            continue;
        }
        let own = trie.own(node);
        if !own.is_empty() {
            visitor.reached(own);
        }
        let children = trie.children(node);
        if children.is_empty() {
            continue;
        }
        table.expand(lexicon, state, fuel)?;
        if below.is_some() {
            table.look_for_lasting(lexicon, state, fuel)?;
        }
        let State {
            end_mark,
            num_bytes,
            ..
        } = table.states[state as usize];
        if !table.fits(lexicon, state, labelled) {
            return Ok(false);
        }
        let exits = end_mark != NO_MARK && depth > 0;
        if !exits && alphabet.is_none() && (num_bytes as usize) * 4 < children.len() {
            fuel.burn(1 + u64::from(num_bytes))?;
            let first = pending.len();
            for byte in table.bytes(lexicon, state).iter() {
                if let Some(child) = trie.child(node, byte) {
                    let next = table.step(lexicon, state, byte, fuel)?;
                    if next != DEAD {
                        pending.push((child, next, depth + 1));
                    }
                }
            }
            pending[first..].reverse();
            continue;
        }
        fuel.burn(children.len() as u64)?;
        for child in children.rev() {
            let byte = labelled.byte(trie.label(child));
            match table.step(lexicon, state, byte, fuel)? {
                DEAD if exits => visitor.exit(Exit {
                    node: child,
                    parent: node,
                    depth,
                    mark: end_mark,
                }),
                DEAD => {}
                next => pending.push((child, next, depth + 1)),
            }
        }
    }
    Ok(true)
}

/// How two states differ on the tokens of a trie of bytes.
#[derive(Default)]
pub(crate) struct Difference {
    /// Tokens that only the first lets end within the lexeme.
    pub(crate) more: Vec<Range<u32>>,
    /// Tokens that the second accepts, or may accept by what follows its lexeme, and the first
    /// doesn't in the same way.
    pub(crate) less: Vec<Range<u32>>,
    /// Tokens with which the first ends the lexeme, and the second not in the same way.
    pub(crate) exits: Vec<Exit>,
}

/// Runs the automaton from `start` beside that from `reference`, as far as they differ: where both
/// are in the same state, what follows is the same too. The mask of `start` is then that of
/// `reference`, less some, and more.
pub(crate) fn walk_beside(
    lexicon: &mut Lexicon,
    trie: &Trie,
    start: ExprId,
    reference: ExprId,
    fuel: &mut Fuel,
) -> Result<Difference, OutOfFuel> {
    let mut table = Table::default();
    let mut difference = Difference::default();
    let start = table.state(lexicon, start);
    let reference = table.state(lexicon, reference);
    let mut pending = vec![(ROOT, start, reference, 0_u32)];
    while let Some((node, own, other, depth)) = pending.pop() {
        let children = trie.children(node);
        fuel.burn(1)?;
        if children.is_empty() {
            continue;
        }
        let below = trie.labels_below(node);
        let is_alike =
            |state: u32| state != DEAD && below.is_some_and(|below| table.goes_on(state, below));
        // Both allow whatever comes, without an end.
        if is_alike(own) && is_alike(other) {
            continue;
        }
        for state in [own, other] {
            if state != DEAD {
                table.expand(lexicon, state, fuel)?;
                table.look_for_lasting(lexicon, state, fuel)?;
            }
        }
        let mark_of = |state: u32| match state {
            DEAD => NO_MARK,
            _ if depth == 0 => NO_MARK,
            state => table.states[state as usize].end_mark,
        };
        let (mark, other_mark) = (mark_of(own), mark_of(other));
        // Where both end alike, only bytes after which they differ matter.
        let apart = match own == DEAD || other == DEAD || mark != other_mark {
            true => ByteSet::FULL,
            false => table.apart(lexicon, own, other),
        };
        if apart.is_empty() {
            continue;
        }
        let few = apart.len() * 4 < children.len();
        let listed = few.then(|| apart.iter().filter_map(|byte| trie.child(node, byte)));
        let all = (!few).then_some(children);
        for child in listed
            .into_iter()
            .flatten()
            .chain(all.into_iter().flatten())
        {
            fuel.burn(1)?;
            let byte = trie.label(child);
            if !apart.contains(byte) {
                continue;
            }
            let mut step = |state: u32| match state {
                DEAD => Ok(DEAD),
                state => table.step(lexicon, state, byte, fuel),
            };
            let (next, beside) = (step(own)?, step(other)?);
            if next == beside && next != DEAD {
                continue;
            }
            if next == DEAD && beside == DEAD && mark == other_mark {
                continue;
            }
            if beside == DEAD {
                if other_mark != NO_MARK {
                    difference.less.push(trie.below(child));
                }
            } else if next == DEAD {
                difference.less.push(trie.below(child));
            }
            if next == DEAD {
                if mark != NO_MARK {
                    difference.exits.push(Exit {
                        node: child,
                        parent: node,
                        depth,
                        mark,
                    });
                }
                continue;
            }
            let tokens = trie.own(child);
            if beside == DEAD && !tokens.is_empty() {
                difference.more.push(tokens);
            }
            pending.push((child, next, beside, depth + 1));
        }
    }
    Ok(difference)
}

/// Places of walks by [`ended_texts`], a node with what is left of the language and of the texts,
/// below which no text is over.
pub(crate) type Fruitless = HashSet<(u32, ExprId, ExprId)>;

/// Of an infinite language less finitely many texts, the tokens that the language allows only with
/// one of these texts: those at and below the nodes where one is over, and what the language still
/// allows is nothing more. `None` where the language would go on there, then that can't be told; and
/// where the texts are very many.
///
/// Costs a step per node of the trie along the texts, but for those below a place that is known to
/// be `fruitless`: so one text more costs about its length, and that of others that end in tokens.
pub(crate) fn ended_texts(
    lexicon: &mut Lexicon,
    trie: &Trie,
    whole: ExprId,
    texts: ExprId,
    fruitless: &mut Fruitless,
    fuel: &mut Fuel,
) -> Result<Option<Vec<Range<u32>>>, OutOfFuel> {
    const MAX_NODES: u32 = 8192;
    let mut ended = Vec::new();
    let mut num_nodes = 0;
    // Where a place is left again: how many had ended when it was entered.
    let mut pending = vec![((ROOT, whole, texts), None)];
    while let Some((place, entered)) = pending.pop() {
        if let Some(before) = entered {
            if ended.len() == before {
                fruitless.insert(place);
            }
            continue;
        }
        pending.push((place, Some(ended.len())));
        let (node, whole, texts) = place;
        for byte in lexicon.first_bytes(texts, fuel)?.iter() {
            fuel.burn(1)?;
            num_nodes += 1;
            if num_nodes > MAX_NODES {
                return Ok(None);
            }
            let Some(child) = trie.child(node, byte) else {
                continue;
            };
            let whole = lexicon.derivative(whole, byte, fuel)?;
            let texts = lexicon.derivative(texts, byte, fuel)?;
            if whole == EMPTY || fruitless.contains(&(child, whole, texts)) {
                continue;
            }
            if lexicon.is_infinite(whole) && !lexicon.is_nullable(whole) {
                pending.push(((child, whole, texts), None));
            } else if whole != EPSILON {
                return Ok(None);
            } else if lexicon.is_nullable(texts) {
                ended.push(trie.below(child));
            }
        }
    }
    Ok(Some(ended))
}

/// The state that a state most likely comes to and stays in: from state to state by the class with
/// the most bytes. `None` where that is not a state that leads to itself, or where it is the state.
pub(crate) fn resting_state(
    lexicon: &mut Lexicon,
    start: ExprId,
    fuel: &mut Fuel,
) -> Result<Option<ExprId>, OutOfFuel> {
    const MAX_STEPS: usize = 4;
    let mut expr = start;
    for _ in 0..MAX_STEPS {
        let derivatives = lexicon.derivatives(expr, fuel)?;
        let most = derivatives.iter().max_by_key(|(bytes, _)| bytes.len());
        let Some(&(_, next)) = most else {
            return Ok(None);
        };
        if next == expr {
            return Ok((expr != start).then_some(expr));
        }
        expr = next;
    }
    Ok(None)
}

/// A state that so many bytes lead to itself may be one of text.
const MANY_BYTES: usize = 64;

/// Whether all characters beyond ASCII lead from a state to itself.
fn characters_stay(
    lexicon: &mut Lexicon,
    expr: ExprId,
    fuel: &mut Fuel,
) -> Result<bool, OutOfFuel> {
    let mut after_all = |from: ExprId, bytes: RangeInclusive<u8>| {
        let next = lexicon.derivative(from, *bytes.start(), fuel)?;
        for byte in bytes {
            if next == EMPTY || lexicon.derivative(from, byte, fuel)? != next {
                return Ok(None);
            }
        }
        Ok(Some(next))
    };
    for (firsts, seconds, more) in CHARACTERS {
        let mut next = after_all(expr, firsts)?;
        let rest = std::iter::repeat_n(CONTINUATION, more as usize);
        for bytes in std::iter::once(seconds).chain(rest) {
            let Some(at) = next else {
                return Ok(false);
            };
            next = after_all(at, bytes)?;
        }
        if next != Some(expr) {
            return Ok(false);
        }
    }
    Ok(true)
}

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
}

#[derive(Clone, Copy)]
struct State {
    expr: ExprId,
    end_mark: u16,
    /// Bytes that have a derivative.
    num_bytes: u16,
    /// Those that lead to the state itself.
    stays: Labels,
    /// Those that lead to states that go on with them again, where that was looked for.
    lasting: Labels,
    /// How often a walk came to it.
    num_visits: u32,
    row: RowRef,
    /// In place of a row: see [`Lexicon::first_class`].
    first: Option<(ByteSet, ExprId)>,
    /// See [`Table::fits`], where that was asked for.
    fits: Option<bool>,
    /// Where its transitions start in `targets`, or [`UNSEEN`].
    targets: u32,
}

impl Table {
    /// The number of a state.
    pub(crate) fn state(&mut self, lexicon: &Lexicon, expr: ExprId) -> u32 {
        *self.numbers.entry(expr).or_insert_with(|| {
            self.states.push(State {
                expr,
                end_mark: lexicon.end_mark(expr),
                num_bytes: 0,
                stays: Labels::default(),
                lasting: Labels::default(),
                num_visits: 0,
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
    ) -> Result<(), OutOfFuel> {
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
    ) -> Result<(), OutOfFuel> {
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
        let characters = stays.len() >= MANY_BYTES && characters_stay(lexicon, state.expr, fuel)?;
        state.stays = Labels::within(&stays, characters);
        Ok(())
    }

    /// Whether all that consists of some labels leads from a state to live states, without an end of
    /// the lexeme: as far as it has been looked at.
    fn goes_on(&self, state: u32, labels: Labels) -> bool {
        let State { stays, lasting, .. } = self.states[state as usize];
        labels.is_subset(stays) || labels.is_subset(lasting)
    }

    /// Looks for characters that last in a state that a walk comes to again and again.
    fn look_for_lasting(
        &mut self,
        lexicon: &mut Lexicon,
        state: u32,
        fuel: &mut Fuel,
    ) -> Result<(), OutOfFuel> {
        const OFTEN: u32 = 4;
        let visited = &mut self.states[state as usize];
        visited.num_visits = visited.num_visits.saturating_add(1);
        if visited.num_visits == OFTEN && usize::from(visited.num_bytes) >= MANY_BYTES {
            let found = lexicon.lasting(visited.expr, fuel)?;
            visited.lasting = Labels::within(&found.bytes, found.others);
        }
        Ok(())
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
        let mut apart = ByteSet::EMPTY;
        for (bytes, to) in self.entries(lexicon, own) {
            // What the other has in common with it is mostly all of it.
            let mut left = bytes;
            for (beside, other_to) in self.entries(lexicon, other) {
                if left.is_empty() {
                    break;
                }
                if to != other_to {
                    apart = apart.union(&left.intersection(&beside));
                }
                left = left.intersection(&beside.complement());
            }
        }
        apart
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
    ) -> Result<u32, OutOfFuel> {
        let State {
            row,
            first,
            targets,
            ..
        } = self.states[state as usize];
        let at = targets as usize + usize::from(class);
        match self.targets[at] {
            UNSEEN => {
                let expr = match first {
                    Some((_, next)) => next,
                    None => lexicon.row_target(row, class),
                };
                self.targets[at] = match lexicon.is_live(expr, fuel)? {
                    true => self.state(lexicon, expr),
                    false => DEAD,
                };
                Ok(self.targets[at])
            }
            known => Ok(known),
        }
    }

    /// The state after a byte from an expanded one.
    pub(crate) fn step(
        &mut self,
        lexicon: &mut Lexicon,
        state: u32,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<u32, OutOfFuel> {
        let class = self.class(lexicon, state, byte);
        self.step_by_class(lexicon, state, class, fuel)
    }
}
