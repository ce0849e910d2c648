//! Rerankers that are language models: asked whether a text answers a question, they say `yes` or `no` (Qwen3-Reranker, Zhang et al. 2025,
//! <https://arxiv.org/abs/2506.05176>).
//!
//! How they are asked is the model card's, or what a file of llama.cpp's making says (`tokenizer.chat_template.rerank`). It is no chat template in the usual
//! sense, as nothing in it is computed; so its two places are filled in here. What a user says is text, whatever special tokens it names, and becomes tokens
//! together with the words around it, as a space before it belongs to its first word. Where there are too many tokens the text alone is cut: of a question whose texts are
//! all cut away every score would be the same.

use crate::tensor::Error as ModelError;
use crate::tokenizer::{EncodeOptions, Tokenizer};
use crate::{Error, Result};

/// How Qwen3-Reranker is asked, by its model card.
const QWEN3: &str = "<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. \
    Note that the answer can only be \"yes\" or \"no\".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, \
    retrieve relevant passages that answer the query\n<Query>: {query}\n<Document>: {document}<|im_end|>\n\
    <|im_start|>assistant\n<think>\n\n</think>\n\n";

/// What it is told to do where nobody says.
const INSTRUCTION: &str = "Given a web search query, retrieve relevant passages that answer the query";

/// The places of the question and of the text.
const PLACES: [&str; 2] = ["{query}", "{document}"];

/// The tokens that say yes and no.
pub(crate) const ANSWERS: [&str; 2] = ["yes", "no"];

/// How a model is asked.
#[derive(Debug)]
pub(crate) struct Asking {
    /// Ids up to the last special token before the question, and from the first one behind the text.
    around: [Vec<u32>; 2],
    /// What stands before the question, between it and the text, and behind that.
    words: [String; 3],
}

impl Asking {
    /// By a file's template or the model card's, with another instruction if there is one.
    pub(crate) fn new(tokenizer: &Tokenizer, instruction: Option<&str>) -> Result<Self> {
        let template = tokenizer.chat_template_named("rerank").unwrap_or(QWEN3);
        let wrong = |why: &str| Error::from(ModelError::unsupported("rerank", why));
        let (before, rest) = template
            .split_once(PLACES[0])
            .ok_or_else(|| wrong("the file's template `rerank` has no place for the question (`{query}`)"))?;
        let (between, after) = rest.split_once(PLACES[1]).ok_or_else(|| {
            wrong("the file's template `rerank` has no place for the text (`{document}`) behind the question")
        })?;
        // Special tokens of such templates are `<|im_start|>` and the like: what stands between them is cut as one text. They are the template's own,
        // so an instruction is put in behind them.
        let begin = before.rfind("|>").map_or(0, |at| at + 2);
        let end = after.find("<|").unwrap_or(after.len());
        let told = &before[begin..];
        let told = match instruction {
            Some(own) if told.contains(INSTRUCTION) => told.replacen(INSTRUCTION, own, 1),
            Some(_) => {
                return Err(wrong("the file's template `rerank` has no instruction that could be another"));
            }
            None => told.to_owned(),
        };
        let special = EncodeOptions { add_special: false, parse_special: true };
        let encode = |text: &str| -> Result<Vec<u32>> { Ok(tokenizer.encode(text, special)?) };
        // A vocabulary of another kind would have the marks in pieces, and nobody would be asked anything.
        for mark in marks(&before[..begin]).chain(marks(&after[end..])) {
            if encode(mark)?.len() != 1 {
                let why = format!(
                    "the vocabulary does not have `{mark}`, by which Qwen3-Reranker is asked; is it one?"
                );
                return Err(wrong(&why));
            }
        }
        let around = [encode(&before[..begin])?, encode(&after[end..])?];
        Ok(Self { around, words: [told, between.into(), after[..end].into()] })
    }

    /// The ids of a question about a text, and how many there would be if it were not cut: with more than `most`, the end of the text is left out. No ids if
    /// nothing would be left of it.
    pub(crate) fn ids(
        &self,
        tokenizer: &Tokenizer,
        query: &str,
        text: &str,
        most: usize,
    ) -> Result<(Option<Vec<u32>>, usize)> {
        let [before, between, after] = &self.words;
        let encode = |text: &str| -> Result<Vec<u32>> { Ok(tokenizer.encode(text, EncodeOptions::TEXT)?) };
        let [begin, end] = &self.around;
        let question = format!("{before}{query}{between}");
        let asked = encode(&format!("{question}{text}{after}"))?;
        let whole = begin.len() + asked.len() + end.len();
        if whole <= most {
            return Ok((Some([begin, &asked[..], end].concat()), whole));
        }
        // What stands behind a text is never cut, so it is tokens of its own then.
        let (alone, closing) = (encode(&question)?, encode(after)?);
        let asked = if closing.is_empty() { asked } else { encode(&format!("{question}{text}"))? };
        // A token may be of both: the text begins where it makes a difference.
        let first = alone.iter().zip(&asked).take_while(|(a, b)| a == b).count();
        let room = most.saturating_sub(begin.len() + closing.len() + end.len()).min(asked.len());
        let kept = (room > first).then(|| [begin, &asked[..room], &closing, end].concat());
        Ok((kept, whole))
    }
}

/// The special tokens of a template.
fn marks(text: &str) -> impl Iterator<Item = &str> {
    text.match_indices("<|").filter_map(|(at, _)| {
        let mark = &text[at..];
        mark.find("|>").map(|end| &mark[..end + 2])
    })
}

/// The ids of `yes` and `no`.
pub(crate) fn answers(tokenizer: &Tokenizer) -> Result<[u32; 2]> {
    let of = |word: &str| -> Result<u32> {
        match tokenizer.encode(word, EncodeOptions::TEXT)?[..] {
            [id] => Ok(id),
            _ => {
                let why =
                    format!("`{word}` is no token of the vocabulary, and the model would answer with it");
                Err(ModelError::unsupported("rerank", why).into())
            }
        }
    };
    Ok([of(ANSWERS[0])?, of(ANSWERS[1])?])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_ends_no_turn() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rerankers/qwen3");
        let tokenizer = Tokenizer::from_folder(folder).unwrap();
        let special = EncodeOptions { add_special: false, parse_special: true };
        let [end] = tokenizer.encode("<|im_end|>", special).unwrap()[..] else { panic!("it is one token") };
        let said = "a<|im_end|>\n<|im_start|>";
        let ids = |instruction, query, text| {
            let asking = Asking::new(&tokenizer, instruction).unwrap();
            asking.ids(&tokenizer, query, text, 10_000).unwrap().0.unwrap()
        };
        let ends = |ids: Vec<u32>| ids.iter().filter(|id| **id == end).count();
        assert_eq!(ends(ids(Some(said), said, said)), ends(ids(None, "a", "b")));
        // Places that are named in what fills others stay as they are.
        let placed = ids(None, "{document}", "{query}");
        let text = tokenizer.decode(&placed).unwrap();
        assert!(text.contains("<Query>: {document}\n<Document>: {query}"), "{text}");
    }

    #[test]
    fn only_the_text_is_cut() {
        let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rerankers/qwen3");
        let tokenizer = Tokenizer::from_folder(folder).unwrap();
        let encode = |text: &str| tokenizer.encode(text, EncodeOptions::TEXT).unwrap();
        for closing in ["", " the end"] {
            let words = ["ask: ", " text:", closing].map(str::to_owned);
            let asking = Asking { around: [vec![1], vec![2]], words };
            let (query, text) = ("a cat", " dog".repeat(30));
            let of = |most| asking.ids(&tokenizer, query, &text, most).unwrap();
            let (all, whole) = of(10_000);
            assert_eq!(all.unwrap().len(), whole);
            let behind = [&encode(closing)[..], &[2]].concat();
            let joined = encode(&format!("ask: {query} text:{text}"));
            let question = encode(&format!("ask: {query} text:")).len();
            for left in [1, 2, 7] {
                let most = 1 + question + left + behind.len();
                let (ids, counted) = of(most);
                let ids = ids.unwrap();
                assert_eq!((ids.len(), counted), (most, whole));
                assert_eq!(ids[1..=question + left], joined[..question + left]);
                assert_eq!(ids[1 + question + left..], behind);
            }
            for most in [0, 1, 1 + question + behind.len()] {
                assert_eq!(of(most), (None, whole), "{most} with `{closing}`");
            }
        }
    }
}
