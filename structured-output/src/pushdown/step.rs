//! The state after a byte.

use super::{Machine, State};
use crate::lexical::{ByteSet, EMPTY, ExprId, Fuel, Lexicon, NO_MARK, Stop};

impl Machine {
    /// The state after a byte, `None` where the byte can't come next.
    pub(crate) fn step(
        &mut self,
        state: State,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<State>, Stop> {
        self.step_by(Lexicon::derivative, state, byte, fuel)
    }

    /// As [`Machine::step`], where no other byte is likely to be asked for.
    pub(crate) fn step_once(
        &mut self,
        state: State,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<State>, Stop> {
        self.step_by(Lexicon::derivative_once, state, byte, fuel)
    }

    /// What is left of a lexeme after a byte that neither ends it nor is its last, whatever the stack;
    /// else `None`. For places whose frame keeps no text.
    pub(crate) fn step_within(
        &mut self,
        lexeme: ExprId,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<ExprId>, Stop> {
        let next = self.lexicon.derivative_once(lexeme, byte, fuel)?;
        let goes_on =
            next != EMPTY && !self.lexicon.is_mark(next) && self.lexicon.is_live(next, fuel)?;
        Ok(goes_on.then_some(next))
    }

    fn step_by(
        &mut self,
        derivative: impl Fn(&mut Lexicon, ExprId, u8, &mut Fuel) -> Result<ExprId, Stop>,
        mut state: State,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<State>, Stop> {
        loop {
            let next = derivative(&mut self.lexicon, state.lexeme, byte, fuel)?;
            if next != EMPTY && self.lexicon.is_live(next, fuel)? {
                let (key, item) = self.keep(state, byte);
                let next = State {
                    lexeme: next,
                    key,
                    item,
                    ..state
                };
                return Ok(Some(self.settle(next, fuel)?));
            }
            match self.lexicon.end_mark(state.lexeme) {
                NO_MARK => return Ok(None),
                mark => state = self.end_lexeme(state, mark, fuel)?,
            }
        }
    }

    /// The state after the running lexeme, which ends here with a mark, and after those that follow and
    /// can't go on.
    pub(crate) fn end_lexemes(
        &mut self,
        state: State,
        mark: u16,
        fuel: &mut Fuel,
    ) -> Result<State, Stop> {
        let next = self.end_lexeme(state, mark, fuel)?;
        self.settle(next, fuel)
    }

    /// Ends lexemes that can't go on, so that a place has one state.
    fn settle(&mut self, mut state: State, fuel: &mut Fuel) -> Result<State, Stop> {
        while self.lexicon.is_mark(state.lexeme) {
            state = match &self.lexicon.joint_marks(state.lexeme)[..] {
                [] => {
                    let mark = self.lexicon.end_mark(state.lexeme);
                    self.end_lexeme(state, mark, fuel)?
                }
                marks => self.end_in_ways(state, marks, fuel)?,
            };
        }
        Ok(state)
    }

    /// The state after a byte that doesn't end the lexeme, without the byte in the texts that are
    /// kept. `None` where the lexeme ends, or none is kept: then that is for [`Machine::step`].
    pub(crate) fn step_in_lexeme(
        &mut self,
        state: State,
        byte: u8,
        fuel: &mut Fuel,
    ) -> Result<Option<State>, Stop> {
        if !self.keeps_text(state) {
            return Ok(None);
        }
        let lexeme = self.lexicon.derivative(state.lexeme, byte, fuel)?;
        let goes_on = lexeme != EMPTY
            && !self.lexicon.is_mark(lexeme)
            && self.lexicon.is_live(lexeme, fuel)?;
        Ok(goes_on.then_some(State { lexeme, ..state }))
    }

    /// Whether several bytes go on with a state's lexeme.
    pub(crate) fn goes_on_in_ways(&mut self, state: State, fuel: &mut Fuel) -> Result<bool, Stop> {
        let mut num_bytes = 0;
        for (bytes, next) in self.lexicon.derivatives(state.lexeme, fuel)? {
            if self.lexicon.is_live(next, fuel)? {
                num_bytes += bytes.len();
            }
        }
        Ok(num_bytes > 1)
    }

    /// The bytes that can come next, as disjoint sets with the states after them.
    pub(crate) fn next_bytes(
        &mut self,
        mut state: State,
        fuel: &mut Fuel,
    ) -> Result<Vec<(ByteSet, State)>, Stop> {
        let mut covered = ByteSet::EMPTY;
        let mut found = Vec::new();
        loop {
            for (bytes, next) in self.lexicon.derivatives(state.lexeme, fuel)? {
                let bytes = bytes.intersection(&covered.complement());
                if bytes.is_empty() || !self.lexicon.is_live(next, fuel)? {
                    continue;
                }
                covered = covered.union(&bytes);
                if self.keeps_text(state) {
                    // Each byte makes another text.
                    for byte in bytes.iter() {
                        let (key, item) = self.keep(state, byte);
                        let next = State {
                            lexeme: next,
                            key,
                            item,
                            ..state
                        };
                        found.push((ByteSet::single(byte), self.settle(next, fuel)?));
                    }
                } else {
                    let next = State {
                        lexeme: next,
                        ..state
                    };
                    found.push((bytes, self.settle(next, fuel)?));
                }
            }
            match self.lexicon.end_mark(state.lexeme) {
                NO_MARK => return Ok(found),
                mark => state = self.end_lexeme(state, mark, fuel)?,
            }
        }
    }
}
