//! Answers that begin with whom they are to, of which the prompt has the mark: functionary's `>>>` stands in the prompt, and the model goes on
//! with `all`, a line and text, or with a function's name, a line and arguments.
//!
//! The mark is put before the answer, and what says that text follows is taken out of it. So the rest is as with any other mark, and nothing
//! else knows of this.

use super::overlap;

/// What the prompt ends with, and what stands before text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Lead {
    pub(super) mark: String,
    /// With the mark.
    pub(super) text: String,
}

impl Lead {
    /// The answer as it would be if the prompt had nothing of it.
    pub(super) fn whole(&self, answer: &str) -> String {
        format!("{}{answer}", self.mark).replace(&self.text, "")
    }

    /// The same of more of it: `held` is what may be the beginning of what is taken out, `taken` where that was.
    pub(super) fn next(&self, held: &mut String, more: &str, taken: &mut Vec<usize>) -> String {
        held.push_str(more);
        let mut passed = String::new();
        while let Some((before, rest)) = held.split_once(&self.text) {
            passed.push_str(before);
            taken.push(passed.len());
            *held = rest.to_owned();
        }
        let rest = held.split_off(held.len() - overlap(held, &self.text));
        passed.push_str(&std::mem::replace(held, rest));
        passed
    }
}
