//! Questions whatever API they came by, the prompts that ask them, and what probabilities say.

use std::fmt::Write as _;

use serde_json::Value;

use crate::error::{ValidationError, cut_short};

/// Most options of one question.
pub(super) const MAX_OPTIONS: usize = 255;
/// Most options of a request's questions together: what is made of each stays until the answer is told, and many
/// times its bytes in the request.
const MAX_OPTIONS_TOGETHER: usize = 200 * MAX_OPTIONS;

/// What every prompt begins with.
const TASK: &str = "Answer the question about the following text with one of its possible answers, exactly as it stands \
                    there, and with nothing else.";

/// Questions about one text.
#[derive(Debug, Clone, PartialEq)]
pub struct Questions {
    /// The model asked for.
    pub model: Option<String>,
    /// What the questions are about.
    pub(super) input: String,
    pub(super) questions: Vec<Question>,
}

impl Questions {
    /// Reads questions about a text, each from one of `entries`, of which there may be `max`.
    ///
    /// # Errors
    /// There are too few or too many, they have too many options together, or what `read` says.
    pub(super) fn read<T>(
        model: Option<String>,
        input: String,
        entries: impl ExactSizeIterator<Item = T>,
        max: usize,
        read: impl Fn(T) -> Result<Question, ValidationError>,
    ) -> Result<Self, ValidationError> {
        let count = entries.len();
        if !(1..=max).contains(&count) {
            let message = format!("questions must have 1 to {max} entries, got {count}");
            return Err(ValidationError::field("questions", count, message));
        }
        let mut questions = Vec::with_capacity(count);
        let mut num_options = 0;
        for entry in entries {
            let question = read(entry)?;
            num_options += question.options.len();
            if num_options > MAX_OPTIONS_TOGETHER {
                let message = format!(
                    "questions up to {} have {num_options} options together: at most {MAX_OPTIONS_TOGETHER} are \
                     possible. Ask fewer in one request",
                    question.field
                );
                return Err(ValidationError::field("questions", num_options, message));
            }
            questions.push(question);
        }
        Ok(Self {
            model,
            input,
            questions,
        })
    }

    /// How many there are.
    pub fn num_questions(&self) -> usize {
        self.questions.len()
    }

    /// About how many bytes of prompts they make, without the template.
    pub(super) fn num_bytes(&self) -> usize {
        let bytes = |question: &Question| {
            let options = question.options.iter();
            let options =
                options.map(|o| o.text.len() + o.description.as_ref().map_or(0, String::len));
            self.input.len() + question.instructions.len() + options.sum::<usize>()
        };
        self.questions.iter().map(bytes).sum()
    }
}

/// One question.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Question {
    /// What the caller calls it: a string, or null.
    pub(super) name: Value,
    /// Where it stands in the request.
    pub(super) field: String,
    pub(super) kind: QuestionKind,
    pub(super) instructions: String,
    pub(super) options: Vec<QuestionOption>,
}

/// What the options of a question are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum QuestionKind {
    /// Yes and no.
    Predicate,
    /// Values without an order.
    Choice,
    /// Levels, from the lowest on.
    Score,
}

/// One answer that a question may have.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct QuestionOption {
    /// Where it stands in the request.
    pub(super) field: String,
    /// As the answer tells it.
    pub(super) value: Value,
    /// As the model writes it.
    pub(super) text: String,
    /// When it is the right one.
    pub(super) description: Option<String>,
}

impl QuestionOption {
    /// An option whose field, value and description come from a request.
    pub(super) fn new(field: String, value: Value, description: Option<String>) -> Self {
        Self {
            field,
            text: value.as_str().unwrap_or_default().to_owned(),
            value,
            description: description.filter(|text| !text.is_empty()),
        }
    }

    /// True if its value can't be told from another, or from nothing, where it stands as it is in a list.
    fn needs_quotes(&self) -> bool {
        let text = self.value.as_str();
        text.is_none_or(|text| {
            text.is_empty() || text.trim() != text || text.contains(['\n', '\r'])
        })
    }
}

impl Question {
    /// Checks how many options a list has, before anything is made of them.
    ///
    /// # Errors
    /// Fewer than `min`, or more than there may be.
    pub(super) fn check_number(
        list: &str,
        num_options: usize,
        min: usize,
    ) -> Result<(), ValidationError> {
        if (min..=MAX_OPTIONS).contains(&num_options) {
            return Ok(());
        }
        let message = format!("{list} must have {min} to {MAX_OPTIONS} entries, got {num_options}");
        Err(ValidationError::field(list, num_options, message))
    }

    /// A question, with its options as the model writes them: as JSON where one of them needs it. Their number has been
    /// [checked](Self::check_number).
    ///
    /// # Errors
    /// Two options are the same.
    pub(super) fn new(
        name: Value,
        field: String,
        kind: QuestionKind,
        instructions: String,
        options: Vec<QuestionOption>,
    ) -> Result<Self, ValidationError> {
        let mut options = options;
        if options.iter().any(QuestionOption::needs_quotes) {
            for option in &mut options {
                option.text = option.value.to_string();
            }
        }
        for (i, option) in options.iter().enumerate() {
            if let Some(other) = options[..i].iter().find(|other| other.text == option.text) {
                return Err(Self::same(other, option));
            }
        }
        Ok(Self {
            name,
            field,
            kind,
            instructions,
            options,
        })
    }

    /// Two options that the model writes in the same way.
    pub(super) fn same(one: &QuestionOption, other: &QuestionOption) -> ValidationError {
        let message = format!(
            "{} is {}, as {} is: every option must be another",
            other.field,
            cut_short(&other.value.to_string()),
            one.field
        );
        ValidationError::field(other.field.clone(), &other.value, message)
    }

    /// What a user asks who wants this question answered about `input`. What all questions have in common comes
    /// first, then the answers, which often several have in common: the prefix cache has both.
    pub(super) fn prompt(&self, input: &str) -> String {
        let mut prompt = format!("{TASK}\n\n");
        if !input.is_empty() {
            let _ = write!(prompt, "{input}\n\n");
        }
        prompt.push_str(&self.list());
        let before = match self.kind {
            QuestionKind::Predicate => "Is this true? ",
            QuestionKind::Choice | QuestionKind::Score => "",
        };
        let instructions = self.instructions.trim();
        if !instructions.is_empty() {
            let _ = write!(prompt, "\n\nQuestion: {before}{instructions}");
        }
        prompt
    }

    /// The options as the prompt lists them.
    pub(super) fn list(&self) -> String {
        let mut list = "Possible answers".to_owned();
        if self.kind == QuestionKind::Score {
            list.push_str(", from the lowest level to the highest");
        }
        list.push(':');
        for option in &self.options {
            let _ = match &option.description {
                Some(description) => write!(list, "\n- {}: {description}", option.text),
                None => write!(list, "\n- {}", option.text),
            };
        }
        list
    }
}

/// The index of the most probable option; the first of several.
pub(super) fn best(probabilities: &[f64]) -> usize {
    let mut best = 0;
    for (i, probability) in probabilities.iter().enumerate() {
        if *probability > probabilities[best] {
            best = i;
        }
    }
    best
}

/// How far the most probable choice stands above a guess among all: 0 where all are alike, 1 where it is certain.
pub(super) fn choice_confidence(probabilities: &[f64]) -> f64 {
    let n = probabilities.len() as f64;
    let top = probabilities[best(probabilities)];
    match probabilities.len() {
        1 => 1.0,
        _ => ((n * top - 1.0) / (n - 1.0)).clamp(0.0, 1.0),
    }
}

/// The expected level, counted from 0.
pub(super) fn expected_level(probabilities: &[f64]) -> f64 {
    let levels = probabilities.iter().enumerate();
    levels.map(|(level, p)| level as f64 * p).sum()
}

/// How close to the most probable level the others lie: 1 where that is certain, 0 where they are as far from it on
/// average as levels that are all alike are from their middle.
pub(super) fn score_confidence(probabilities: &[f64]) -> f64 {
    let n = probabilities.len();
    if n == 1 {
        return 1.0;
    }
    let distance = |middle: f64, weight: &dyn Fn(usize) -> f64| -> f64 {
        (0..n)
            .map(|level| (level as f64 - middle).abs() * weight(level))
            .sum()
    };
    let spread = distance(best(probabilities) as f64, &|level| probabilities[level]);
    let of_all_alike = distance((n as f64 - 1.0) / 2.0, &|_| 1.0 / n as f64);
    (1.0 - spread / of_all_alike).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn question(values: &[Value]) -> Result<Question, ValidationError> {
        let options = values.iter().enumerate();
        let options = options.map(|(i, value)| {
            QuestionOption::new(format!("q.choices[{i}].value"), value.clone(), None)
        });
        let kind = QuestionKind::Choice;
        let options = options.collect();
        Question::new(
            Value::Null,
            "q".to_owned(),
            kind,
            "Which?".to_owned(),
            options,
        )
    }

    fn texts(values: &[Value]) -> Vec<String> {
        let options = question(values).unwrap().options;
        options.into_iter().map(|option| option.text).collect()
    }

    #[test]
    fn options_are_quoted_where_one_needs_it() {
        assert_eq!(texts(&[json!("a b"), json!("ü")]), ["a b", "ü"]);
        assert_eq!(texts(&[json!("true"), json!(true)]), ["\"true\"", "true"]);
        for odd in ["", " a", "a\nb"] {
            let quoted = json!(odd).to_string();
            assert_eq!(
                texts(&[json!("a"), json!(odd)]),
                ["\"a\"".to_owned(), quoted]
            );
        }
    }

    #[test]
    fn lists_that_are_wrong_name_their_field() {
        let error = Question::check_number("q.choices", 1, 2).unwrap_err();
        assert_eq!(error.message, "q.choices must have 2 to 255 entries, got 1");
        assert_eq!(error.parameter.as_deref(), Some("q.choices"));
        let error = Question::check_number("q.choices", 256, 2).unwrap_err();
        assert!(error.message.ends_with("got 256"), "{error}");
        let error = question(&[json!("a"), json!("b"), json!("a")]).unwrap_err();
        assert_eq!(error.parameter.as_deref(), Some("q.choices[2].value"));
        assert!(
            error.message.contains("\"a\", as q.choices[0].value is"),
            "{error}"
        );
    }

    #[test]
    fn what_questions_share_comes_first() {
        let question = question(&[json!("x"), json!("y")]).unwrap();
        let prompt = question.prompt("A text.");
        let question_part = "Possible answers:\n- x\n- y\n\nQuestion: Which?";
        assert_eq!(prompt, format!("{TASK}\n\nA text.\n\n{question_part}"));
        assert_eq!(question.prompt(""), format!("{TASK}\n\n{question_part}"));
    }

    #[test]
    fn confidence_is_how_peaked_probabilities_are() {
        assert_eq!(choice_confidence(&[0.25; 4]), 0.0);
        assert_eq!(choice_confidence(&[0.0, 1.0]), 1.0);
        assert!((choice_confidence(&[0.98, 0.02]) - 0.96).abs() < 1e-12);
        assert_eq!(choice_confidence(&[1.0]), 1.0);
        assert_eq!(score_confidence(&[0.0, 1.0, 0.0]), 1.0);
        assert_eq!(score_confidence(&[0.5, 0.0, 0.5]), 0.0);
        assert_eq!(score_confidence(&[1.0]), 1.0);
        let near = score_confidence(&[0.1, 0.8, 0.1]);
        assert!((near - 0.7).abs() < 1e-12, "{near}");
        assert!((expected_level(&[0.1, 0.1, 0.8]) - 1.7).abs() < 1e-12);
        assert_eq!(best(&[0.4, 0.4, 0.2]), 0);
    }
}
