//! Derivatives: what remains of a language after a byte.
//!
//! Mostly they are looked up in an expression's row, which `row` computes once; where only one byte is
//! asked for, they are made by themselves.

use super::arena::{EMPTY, EPSILON, ExprId, Lexicon, Node, TURNING_BYTES, UNBOUNDED};
use super::byte_set::ByteSet;
use super::fuel::{Fuel, Stop};
use super::rows::RowRef;

/// Operands of operands are derived by recursion up to this depth, then by rows.
const MAX_DEPTH: u32 = 24;

/// So many alternatives that are told by their first byte are a step.
const NAMES_A_STEP: u64 = 8;

/// So many states are looked at to tell which alphabets fit.
const MOST_STATES_AHEAD: usize = 48;

impl Lexicon {
    /// What may follow a byte; [`EMPTY`] where the byte can't come next. May be a language that is
    /// empty without looking it: see `completion`.
    pub(crate) fn derivative(
        &mut self,
        expr: ExprId,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<ExprId, Stop> {
        if let Some((bytes, next)) = self.first_class(expr) {
            return Ok(if bytes.contains(byte) { next } else { EMPTY });
        }
        let row = self.row(expr, fuel)?;
        Ok(self.rows.target(row, byte))
    }

    /// Where an expression is one byte of some and then another expression, such as a name: these.
    /// Its row is not worth to be made.
    pub(crate) fn first_class(&self, expr: ExprId) -> Option<(ByteSet, ExprId)> {
        let Node::Concat(head, next) = self.node(expr) else {
            return None;
        };
        match self.node(head) {
            Node::Class(set) => Some((self.set(set), next)),
            _ => None,
        }
    }

    /// Where an expression is one byte and then another expression: these.
    pub(crate) fn first_byte(&self, expr: ExprId) -> Option<(u8, ExprId)> {
        let (bytes, next) = self.first_class(expr)?;
        Some((bytes.sole()?, next))
    }

    /// As [`Lexicon::derivative`], for a byte that is likely the only one to be asked for: where the
    /// row isn't known, it isn't made. The answer is kept.
    pub(crate) fn derivative_once(
        &mut self,
        expr: ExprId,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<ExprId, Stop> {
        if let Some((bytes, next)) = self.first_class(expr) {
            return Ok(if bytes.contains(byte) { next } else { EMPTY });
        }
        if let Some(row) = self.rows.get(expr) {
            return Ok(self.rows.target(row, byte));
        }
        if let Some(&known) = self.rows.single.get(&(expr, byte)) {
            return Ok(known);
        }
        let to = self.derive(expr, byte, 0, fuel)?;
        if self.rows.get(expr).is_none() {
            self.rows.single.insert((expr, byte), to);
        }
        Ok(to)
    }

    /// The derivative by one byte, from those of the operands: by recursion as far as expressions are
    /// not deep, then from the row.
    fn derive(
        &mut self,
        expr: ExprId,
        byte: u8,
        depth: u32,
        fuel: &mut Fuel,
    ) -> Result<ExprId, Stop> {
        if depth == MAX_DEPTH {
            return self.derivative(expr, byte, fuel);
        }
        if let Some(row) = self.rows.get(expr) {
            return Ok(self.rows.target(row, byte));
        }
        fuel.burn(1)?;
        let before = self.work;
        let to = match self.node(expr) {
            Node::Empty | Node::Epsilon | Node::Mark(_) => EMPTY,
            Node::Class(set) if self.set(set).contains(byte) => EPSILON,
            Node::Class(_) => EMPTY,
            Node::Residue(_) => self.derivative(expr, byte, fuel)?,
            Node::FreeText(id) => self.free_text_after(self.free_texts.get(id), byte),
            Node::Not(inner) => {
                let to = self.derive(inner, byte, depth + 1, fuel)?;
                self.not(to)
            }
            Node::Repeat { body, min, max } => match self.derive(body, byte, depth + 1, fuel)? {
                EMPTY => EMPTY,
                to => {
                    let max = if max == UNBOUNDED { max } else { max - 1 };
                    let rest = self.repeat(body, min.saturating_sub(1), max);
                    self.concat(to, rest)
                }
            },
            Node::Concat(head, tail) => {
                let of_head = self.derive(head, byte, depth + 1, fuel)?;
                let to = self.concat(of_head, tail);
                match self.is_nullable(head) {
                    true => {
                        let of_tail = self.derive(tail, byte, depth + 1, fuel)?;
                        self.or(&[to, of_tail])
                    }
                    false => to,
                }
            }
            Node::Or(at) => {
                let operands = self.operands(at);
                fuel.burn(operands.len() as u64 / NAMES_A_STEP)?;
                // Of many names few begin with a byte, and all others have no more looked at.
                let (mut list, mut others) = (Vec::new(), Vec::new());
                for &operand in operands {
                    match self.first_class(operand) {
                        Some((bytes, next)) if bytes.contains(byte) => list.push(next),
                        Some(_) => {}
                        None => others.push(operand),
                    }
                }
                for operand in others {
                    list.push(self.derive(operand, byte, depth + 1, fuel)?);
                }
                self.or(&list)
            }
            Node::And(at) => {
                let mut list = self.operands(at).to_vec();
                for operand in &mut list {
                    *operand = self.derive(*operand, byte, depth + 1, fuel)?;
                }
                self.and(&list)
            }
        };
        fuel.burn(self.work - before)?;
        if self.sized.contains(&expr) {
            // What follows is strings with their length too.
            self.note_sized(to);
        }
        Ok(to)
    }

    /// The derivatives other than [`EMPTY`], each with its bytes, in the order of the first byte.
    pub(crate) fn derivatives(
        &mut self,
        expr: ExprId,
        fuel: &mut Fuel,
    ) -> Result<Vec<(ByteSet, ExprId)>, Stop> {
        let row = self.row(expr, fuel)?;
        let live = self.rows.entries(row).filter(|&(_, to)| to != EMPTY);
        Ok(live.map(|(bytes, to)| (*bytes, to)).collect())
    }

    /// The row of an expression.
    pub(crate) fn row_ref(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<RowRef, Stop> {
        Ok(RowRef(self.row(expr, fuel)?))
    }

    /// The bytes that have a derivative.
    pub(crate) fn first_bytes(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<ByteSet, Stop> {
        if let Some((bytes, _)) = self.first_class(expr) {
            return Ok(bytes);
        }
        let row = self.row(expr, fuel)?;
        let live = self.rows.entries(row).filter(|&(_, to)| to != EMPTY);
        Ok(live.fold(ByteSet::EMPTY, |all, (bytes, _)| all.union(bytes)))
    }

    /// The coarse alphabets that tell apart all that an expression does, and the first states after
    /// it, as bits: a look ahead of at most some dozens of states.
    pub(crate) fn fitting_alphabets(&mut self, expr: ExprId, fuel: &mut Fuel) -> Result<u8, Stop> {
        let mut seen = vec![expr];
        let mut at = 0;
        let mut fits = u8::MAX;
        while let Some(&next) = seen.get(at) {
            let row = self.row(next, fuel)?;
            fits &= self.rows.maps[row.map as usize].fits;
            if fits == 0 {
                break;
            }
            for (bytes, to) in self.rows.entries(row) {
                // What follows a turning byte is read byte by byte anyway.
                let is_met = to != EMPTY && !bytes.iter().all(|b| TURNING_BYTES.contains(&b));
                if is_met && seen.len() < MOST_STATES_AHEAD && !seen.contains(&to) {
                    seen.push(to);
                }
            }
            at += 1;
        }
        Ok(fits)
    }
}

#[cfg(test)]
mod tests {
    use super::super::arena::ANY;
    use super::*;

    fn after(l: &mut Lexicon, mut expr: ExprId, text: &[u8]) -> ExprId {
        for &byte in text {
            expr = l.derivative(expr, byte, &mut Fuel::new(1000)).unwrap();
        }
        expr
    }

    #[test]
    fn what_remains_is_an_expression_already_known() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let word = l.literal(b"abc");
        let rest = l.literal(b"c");
        assert_eq!(after(&mut l, word, b"ab"), rest);
        assert_eq!(after(&mut l, word, b"abc"), EPSILON);
        assert_eq!(after(&mut l, word, b"b"), EMPTY);

        let letter = l.class(ByteSet::range(b'a', b'z'));
        let many = l.repeat(letter, 2, 1_000_000);
        let fewer = l.repeat(letter, 0, 999_997);
        assert_eq!(after(&mut l, many, b"abc"), fewer);
        assert_eq!(after(&mut l, many, b"A"), EMPTY);

        let not = l.not(word);
        assert_eq!(after(&mut l, not, b"x"), ANY);
        let none = after(&mut l, not, b"abc");
        assert!(!l.is_nullable(none));
        assert_eq!(after(&mut l, not, b"abcd"), ANY);
    }

    #[test]
    fn a_choice_of_many_words_costs_about_its_bytes() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let words: Vec<ExprId> = (0..10_000)
            .map(|n| l.literal(format!("{n:05}").as_bytes()))
            .collect();
        let choice = l.or(&words);
        let mut fuel = Fuel::new(100_000);
        let rest = l.derivative(choice, b'0', &mut fuel).unwrap();
        assert!(fuel.left() > 50_000, "{} left", fuel.left());
        let other = l.derivative(choice, b'1', &mut fuel).unwrap();
        assert_ne!(rest, EMPTY);
        assert_eq!(other, EMPTY);
    }

    #[test]
    fn depth_costs_no_stack() {
        let small = std::thread::Builder::new().stack_size(64 << 10);
        let thread = small.spawn(|| {
            let mut l = Lexicon::new(Vec::new(), 8);
            let a = l.literal(b"a");
            let mut deep = a;
            for _ in 0..1000 {
                let negated = l.not(deep);
                let longer = l.concat(negated, a);
                deep = l.repeat(longer, 0, 2);
            }
            let mut fuel = Fuel::new(10_000_000);
            l.derivative(deep, b'a', &mut fuel).unwrap();
        });
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn long_concatenations_are_charged() {
        let mut l = Lexicon::new(Vec::new(), 8);
        let word = l.literal(&b"ab".repeat(500));
        let twice = l.repeat(word, 2, 3);
        let mut fuel = Fuel::new(500);
        assert_eq!(l.derivative(twice, b'a', &mut fuel), Err(Stop::Steps));
    }
}
