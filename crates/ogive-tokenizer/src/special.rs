//! Tokens with a role: what begins a text, what ends it, and what ends a turn.
//!
//! End of generation is a set and not one id: chat models stop with an end-of-turn token that their files often fail to
//! declare, so besides the declared ids, tokens with a well-known text count, as in llama.cpp. Unlike there, a token that the
//! file calls ordinary text ends generation only if its text is unmistakable: `</s>` is a piece of HTML in Qwen's vocabulary.

use crate::vocab::TokenKind;

/// The ids of tokens with a role. The names are GGUF's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct SpecialTokens {
    /// Begins a text.
    pub bos: Option<u32>,
    /// Ends a text.
    pub eos: Option<u32>,
    /// Ends a turn of a conversation.
    pub eot: Option<u32>,
    /// Ends a message after which the model expects a tool's answer.
    pub eom: Option<u32>,
    /// Stands for what the vocabulary cannot spell.
    pub unknown: Option<u32>,
    /// Separates two texts.
    pub separator: Option<u32>,
    /// Fills up batches; ignored by models.
    pub padding: Option<u32>,
    /// Stands for what is to be guessed.
    pub mask: Option<u32>,
}

/// Texts of tokens after which a model has nothing more to say, by role. Source: llama.cpp's `llama-vocab.cpp`.
const END_OF_TURN: &[&str] = &[
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|end_of_text|>",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "<｜end▁of▁sentence｜>",
    "<end_of_utterance>",
];
const END_OF_MESSAGE: &[&str] = &["<|eom_id|>"];
const OTHER_ENDS: &[&str] = &[
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "</s>",
    "[EOS]",
    "<eos>",
    "<turn|>",
    "<|tool_response>",
    "[e~[",
    // Fill-in-the-middle models end an infill with these.
    "<|fim_pad|>",
    "<fim-pad>",
    "<fim_pad>",
    "<|fim_repo|>",
    "<fim-repo>",
    "<|repo_name|>",
    "<REPO>",
    "<reponame>",
    "<|file_sep|>",
];

/// The entry of the lists that equals `text`.
pub(crate) fn well_known(text: &str) -> Option<&'static str> {
    // A cheap refusal: nearly no token begins like one of these.
    let all = || END_OF_TURN.iter().chain(END_OF_MESSAGE).chain(OTHER_ENDS);
    text.starts_with(['<', '[', '_']).then(|| all().find(|k| **k == text).copied()).flatten()
}

/// Gathers tokens of well-known text while a vocabulary is read.
#[derive(Debug, Default)]
pub(crate) struct WellKnown {
    found: Vec<(&'static str, u32)>,
}

impl WellKnown {
    /// Notes a token if its text is well known and it is no ordinary text; says whether it was noted.
    pub(crate) fn note(&mut self, text: &str, id: u32, kind: TokenKind) -> bool {
        let unmistakable = || ["<|", "<｜", "<end_of_"].iter().any(|start| text.starts_with(start));
        let known = well_known(text).filter(|_| kind != TokenKind::Normal || unmistakable());
        self.found.extend(known.map(|k| (k, id)));
        known.is_some()
    }

    fn first(&self, texts: &[&str]) -> Option<u32> {
        texts.iter().find_map(|t| self.id(t))
    }

    fn id(&self, text: &str) -> Option<u32> {
        self.found.iter().find(|(t, _)| *t == text).map(|(_, id)| *id)
    }

    /// Fills in the roles that the file left open and gives the end-of-generation set, sorted.
    pub(crate) fn complete(&self, special: &mut SpecialTokens, declared: &[u32]) -> Vec<u32> {
        special.eot = special.eot.or_else(|| self.first(END_OF_TURN));
        special.eom = special.eom.or_else(|| self.first(END_OF_MESSAGE));
        let mut ends: Vec<u32> = self.found.iter().map(|(_, id)| *id).collect();
        // gpt-oss and Solar end messages, not generations, with <|end|>.
        let both = |a, b| self.id(a).is_some() && self.id(b).is_some();
        if both("<|return|>", "<|call|>") || both("<|calls|>", "<|flush|>") {
            let end = self.id("<|end|>");
            ends.retain(|id| Some(*id) != end);
            if special.eot == end {
                special.eot = None;
            }
        }
        ends.extend([special.eos, special.eot, special.eom].into_iter().flatten());
        ends.extend(declared);
        ends.sort_unstable();
        ends.dedup();
        ends
    }
}

/// The kind a token gets whose text is well known, whatever the file says: it must not be mistaken for text.
pub(crate) fn forced_kind(kind: TokenKind) -> TokenKind {
    match kind {
        TokenKind::Normal | TokenKind::UserDefined => TokenKind::Control,
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completes_roles_and_ends() {
        let mut known = WellKnown::default();
        assert!(
            known.note("<|endoftext|>", 5, TokenKind::Control)
                && known.note("<|im_end|>", 6, TokenKind::Normal)
        );
        assert!(!known.note("hello", 7, TokenKind::Normal) && !known.note("<|x|>", 8, TokenKind::Control));
        assert!(!known.note("</s>", 9, TokenKind::Normal));
        let mut special = SpecialTokens { eos: Some(5), ..SpecialTokens::default() };
        assert_eq!(known.complete(&mut special, &[9]), [5, 6, 9]);
        assert_eq!(special.eot, Some(6));
    }

    #[test]
    fn harmony_messages_end_without_ending_the_generation() {
        let mut known = WellKnown::default();
        for (id, text) in ["<|return|>", "<|call|>", "<|end|>"].into_iter().enumerate() {
            known.note(text, id as u32, TokenKind::Control);
        }
        let mut special = SpecialTokens::default();
        assert_eq!(known.complete(&mut special, &[]), [0, 1]);
        assert_eq!(special.eot, None);
    }
}
