//! Terminals beside lazy ones: their texts, and what may follow them.

use hashbrown::{HashMap, HashSet};

use super::super::languages::any_text;
use super::super::lower::{LowerError, Terminal};
use super::LazyError;
use crate::lexical::search::DEAD;
use crate::lexical::{ANY, ByteSet, EMPTY, ExprId, Fuel, Lexicon, Stop, UNBOUNDED};

/// How many pairs of states are looked at to tell what may follow a terminal.
const MAX_PAIRS: usize = 10_000;

/// What begins a JSON value.
const JSON: &[u8] = b"{[\"-0123456789tfn";

/// Bytes that don't follow, since a lazy terminal goes on there. Empty where there is no such.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub(super) struct Rest {
    /// Whatever was read before.
    always: ByteSet,
    /// Depending on what was read before.
    sometimes: ByteSet,
    /// Rule and offset of the terminal before.
    place: Option<(usize, usize)>,
    /// Whether that terminal is there for what follows: it is not ignored.
    is_final: bool,
}

impl Rest {
    pub(super) fn is_empty(&self) -> bool {
        self.sometimes.is_empty()
    }

    /// Refuses text after which something has to come and nothing can.
    pub(super) fn check_end(&self) -> Result<(), LazyError> {
        match self.place {
            Some(place) if self.is_final => Err(refused(
                place,
                "what has to follow this text can't, since a `lazy` terminal beside it goes on \
                 there: write its end as its suffix, as `name[suffix=\"…\"]: TEXT`",
            )),
            _ => Ok(()),
        }
    }

    /// Texts of a language that may follow, less the empty one.
    pub(super) fn restrict(
        &self,
        lexicon: &mut Lexicon,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<ExprId, LazyError> {
        if self.is_empty() && !lexicon.is_nullable(expr) {
            return Ok(expr);
        }
        let open = self.always.complement();
        let mut ways = Vec::new();
        for (bytes, rest) in lexicon.derivatives(expr, fuel)? {
            let bytes = bytes.intersection(&open);
            if bytes.is_empty() {
                continue;
            }
            self.check(&bytes, self.place.unwrap_or_default())?;
            let first = lexicon.class(bytes);
            ways.push(lexicon.concat(first, rest));
        }
        Ok(lexicon.or(&ways))
    }

    /// Whether JSON may not follow.
    pub(super) fn forbids_json(&self, place: (usize, usize)) -> Result<bool, LazyError> {
        let mut json = ByteSet::EMPTY;
        JSON.iter().for_each(|&byte| json.insert(byte));
        let left = json.intersection(&self.always.complement());
        if left.is_empty() {
            return Ok(true);
        }
        match left == json {
            true => self.check(&json, place).map(|()| false),
            false => Err(refused(
                place,
                "JSON can't follow text beside a `lazy` terminal that may \
                go on with some of it: write text before it that tells them apart",
            )),
        }
    }

    /// Refuses what may follow or not, depending on what was read before.
    fn check(&self, bytes: &ByteSet, place: (usize, usize)) -> Result<(), LazyError> {
        match bytes.intersection(&self.sometimes).is_empty() {
            true => Ok(()),
            false => Err(refused(
                place,
                "what follows this terminal may also go on with a `lazy` terminal beside it, \
                 depending on its text: write both as `lazy`, each with what ends it",
            )),
        }
    }
}

fn refused((rule, offset): (usize, usize), message: &str) -> LazyError {
    LazyError::Refused(LowerError {
        rule,
        offset,
        message: message.to_owned(),
    })
}

/// The lazy terminals at a place.
pub(super) struct Ends {
    /// Their texts, but for the empty one; [`EMPTY`] where there are none.
    all: ExprId,
    /// Whether one of them goes on whatever was read: it is any text, and then something.
    is_open: bool,
}

/// What terminals mean beside lazy ones.
pub(super) struct Meaning {
    any_text: ExprId,
    byte: ExprId,
    /// Whether languages are any text or more.
    is_any: HashMap<ExprId, bool>,
    rests: HashMap<(ExprId, ExprId), (ByteSet, ByteSet)>,
}

impl Meaning {
    pub(super) fn new(lexicon: &mut Lexicon) -> Self {
        Self {
            any_text: any_text(lexicon),
            byte: lexicon.class(ByteSet::FULL),
            is_any: HashMap::new(),
            rests: HashMap::new(),
        }
    }

    /// Some lazy terminals.
    pub(super) fn ends(
        &mut self,
        lexicon: &mut Lexicon,
        lazy: Vec<ExprId>,
        fuel: &mut Fuel,
    ) -> Result<Ends, Stop> {
        let (mut triggers, mut others) = (Vec::new(), Vec::new());
        for expr in lazy {
            fuel.burn(1)?;
            let (first, rest) = lexicon.split_first(expr);
            if !lexicon.is_nullable(rest) && self.is_any_text(lexicon, first, fuel)? {
                triggers.push(rest);
            } else {
                others.push(expr);
            }
        }
        let is_open = !triggers.is_empty();
        // Any bytes and a trigger: in text the same as any text and the trigger.
        let trigger = lexicon.or(&triggers);
        others.push(lexicon.concat(ANY, trigger));
        let mut all = lexicon.or(&others);
        if lexicon.is_nullable(all) {
            let some = lexicon.repeat(self.byte, 1, UNBOUNDED);
            all = lexicon.and(&[all, some]);
        }
        Ok(Ends { all, is_open })
    }

    fn is_any_text(
        &mut self,
        lexicon: &mut Lexicon,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<bool, Stop> {
        if expr == self.any_text {
            return Ok(true);
        }
        if let Some(&known) = self.is_any.get(&expr) {
            return Ok(known);
        }
        let is_any = lexicon.is_infinite(expr) && {
            let others = lexicon.not(expr);
            let missing = lexicon.and(&[self.any_text, others]);
            lexicon.distance(missing, fuel)? == DEAD
        };
        self.is_any.insert(expr, is_any);
        Ok(is_any)
    }

    /// The texts of a terminal that begin with no match of a lazy one, or that are such but don't
    /// go on after it.
    pub(super) fn restricted(
        &self,
        lexicon: &mut Lexicon,
        expr: ExprId,
        is_lazy: bool,
        ends: &Ends,
    ) -> ExprId {
        if ends.all == EMPTY {
            return expr;
        }
        let more = match is_lazy {
            true => lexicon.repeat(self.byte, 1, UNBOUNDED),
            false => ANY,
        };
        let after = lexicon.concat(ends.all, more);
        let before = lexicon.not(after);
        lexicon.and(&[expr, before])
    }

    /// What may not follow a terminal that isn't lazy.
    pub(super) fn rest(
        &mut self,
        lexicon: &mut Lexicon,
        expr: ExprId,
        ends: &Ends,
        terminal: &Terminal,
        fuel: &mut Fuel,
    ) -> Result<Rest, Stop> {
        let (always, sometimes) = match (ends.all, ends.is_open) {
            (EMPTY, _) => return Ok(Rest::default()),
            (_, true) => (ByteSet::FULL, ByteSet::FULL),
            (all, false) => match self.rests.get(&(expr, all)) {
                Some(&known) => known,
                None => {
                    let found = going_on(lexicon, expr, all, fuel)?;
                    self.rests.insert((expr, all), found);
                    found
                }
            },
        };
        if sometimes.is_empty() {
            return Ok(Rest::default());
        }
        Ok(Rest {
            always,
            sometimes,
            place: Some((terminal.rule, terminal.offset)),
            is_final: !terminal.is_ignored,
        })
    }

    /// Refuses text whose tokens are counted where a lazy terminal may begin too, or go on: what is left of it could not
    /// end anywhere.
    pub(super) fn check_budget(
        &self,
        ends: &Ends,
        rest: &Rest,
        place: (usize, usize),
    ) -> Result<(), LazyError> {
        match ends.all == EMPTY && rest.is_empty() {
            true => Ok(()),
            false => Err(refused(
                place,
                "text with `max_tokens` stands where a `lazy` terminal may begin or go on: write text between that \
                 tells them apart",
            )),
        }
    }

    /// Refuses JSON where a lazy terminal may begin as it does.
    pub(super) fn check_json(
        &self,
        lexicon: &mut Lexicon,
        ends: &Ends,
        place: (usize, usize),
        fuel: &mut Fuel,
    ) -> Result<(), LazyError> {
        let first = lexicon.first_bytes(ends.all, fuel)?;
        match JSON.iter().any(|&byte| first.contains(byte)) {
            false => Ok(()),
            true => Err(refused(
                place,
                "JSON stands where a `lazy` terminal may begin too: write text before it that \
                 tells them apart",
            )),
        }
    }
}

/// The bytes by which texts of `lazy` go on after a text of `expr` that is the beginning of one: after
/// all of them, and after some.
fn going_on(
    lexicon: &mut Lexicon,
    expr: ExprId,
    lazy: ExprId,
    fuel: &mut Fuel,
) -> Result<(ByteSet, ByteSet), Stop> {
    let (mut always, mut sometimes) = (ByteSet::FULL, ByteSet::EMPTY);
    // Not the start: what it leads back to has read something.
    let mut seen: HashSet<(ExprId, ExprId)> = HashSet::new();
    let mut pending = vec![(expr, lazy, true)];
    while let Some((expr, lazy, is_start)) = pending.pop() {
        if seen.len() > MAX_PAIRS {
            return Ok((ByteSet::EMPTY, ByteSet::FULL));
        }
        let mut next = Vec::new();
        let mut bytes = ByteSet::EMPTY;
        for (class, rest) in lexicon.derivatives(lazy, fuel)? {
            fuel.burn(1)?;
            if lexicon.is_live(rest, fuel)? {
                bytes = bytes.union(&class);
                next.push((class, rest));
            }
        }
        if lexicon.is_nullable(expr) && !is_start {
            always = always.intersection(&bytes);
            sometimes = sometimes.union(&bytes);
        }
        for (class, rest) in lexicon.derivatives(expr, fuel)? {
            if !lexicon.is_live(rest, fuel)? {
                continue;
            }
            let mut left = class;
            for &(bytes, lazy) in &next {
                fuel.burn(1)?;
                left = left.intersection(&bytes.complement());
                // A match ends the text.
                let meets = !class.intersection(&bytes).is_empty();
                if meets && !lexicon.is_nullable(lazy) && seen.insert((rest, lazy)) {
                    pending.push((rest, lazy, false));
                }
            }
            if !left.is_empty() {
                always = ByteSet::EMPTY;
            }
        }
    }
    Ok((always, sometimes))
}
