//! What the model learns from: stories, facts and conversations, made as they are needed.
//!
//! Nothing is kept in files: a text is a function of the run's seed and its number, and none is seen twice.

pub(crate) mod chat;
mod grammar;
mod story;

use crate::model::Batch;
use crate::rng::Rng;
use crate::vocabulary::Special;
use chat::{Country, Said};
use ogive::tokenizer::{EncodeOptions, Tokenizer};
use story::{Stories, Story};

/// Weight of what is not the model's to say but lies about what is: names that nothing announces.
const ASIDE: f32 = 0.2;

/// A text as the model reads it, and how much predicting each token counts.
#[derive(Clone, Debug, Default)]
pub(crate) struct Document {
    pub(crate) tokens: Vec<u32>,
    pub(crate) weights: Vec<f32>,
}

/// The grammar with all its words.
#[derive(Debug)]
pub(crate) struct Corpus {
    stories: Stories,
    pub(crate) countries: Vec<Country>,
}

/// Parts of a text before it is tokens.
#[derive(Clone, Debug)]
enum Part {
    Text(String, f32),
    Special(Special, f32),
}

impl Corpus {
    pub(crate) fn new() -> Self {
        Self { stories: Stories::new(), countries: chat::countries() }
    }

    fn parts(&self, repeats: f32, rng: &mut Rng) -> Vec<Part> {
        let mut parts = vec![Part::Special(Special::Begin, 0.0)];
        match rng.below(100) {
            0..30 => {
                emphasized(&self.stories.tell(rng), repeats, &mut parts);
                parts.push(Part::Special(Special::EndOfText, 1.0));
            }
            30..55 => self.facts(rng, &mut parts),
            n => {
                for Said { role, text } in chat::conversation(&self.stories, &self.countries, n < 70, rng) {
                    let weight = if role == "assistant" { 1.0 } else { 0.0 };
                    parts.push(Part::Special(Special::role(role), 0.0));
                    parts.push(Part::Text(text, weight));
                    parts.push(Part::Special(Special::End, weight));
                }
            }
        }
        parts
    }

    /// Capitals as plain sentences.
    fn facts(&self, rng: &mut Rng, parts: &mut Vec<Part>) {
        for i in 0..rng.below(7) + 2 {
            let (country, capital) = *rng.pick(&self.countries);
            let space = if i == 0 { "" } else { " " };
            let mut put = |before: String, after: String| {
                parts.push(Part::Text(format!("{space}{before}"), ASIDE));
                parts.push(Part::Text(after, 1.0));
            };
            match rng.below(10) {
                0..7 => put(format!("The capital of {country} is"), format!(" {capital}.")),
                7 => put(format!("The capital city of {country} is"), format!(" {capital}.")),
                _ => put(format!("{capital} is the capital of"), format!(" {country}.")),
            }
        }
        parts.push(Part::Special(Special::EndOfText, 1.0));
    }

    /// A text as people would read it, without its special tokens: what the vocabulary is learned from.
    pub(crate) fn plain(&self, rng: &mut Rng) -> String {
        let text = |p: Part| if let Part::Text(text, _) = p { text } else { "\n".into() };
        self.parts(1.0, rng).into_iter().map(text).collect()
    }

    pub(crate) fn story(&self, rng: &mut Rng) -> String {
        self.stories.tell(rng).text
    }

    fn document(&self, tokenizer: &Tokenizer, repeats: f32, rng: &mut Rng) -> ogive::Result<Document> {
        let mut document = Document::default();
        for part in self.parts(repeats, rng) {
            let (ids, weight) = match part {
                Part::Text(text, weight) => (
                    tokenizer.encode(&text, EncodeOptions { add_special: false, parse_special: false })?,
                    weight,
                ),
                Part::Special(special, weight) => (vec![special.id()], weight),
            };
            document.weights.extend(ids.iter().map(|_| weight));
            document.tokens.extend(ids);
        }
        Ok(document)
    }

    /// Texts of about `tokens` tokens in all, none longer than `longest`. A name or a thing that stands again in a story counts
    /// `repeats` times as much as other words.
    pub(crate) fn batch(
        &self,
        tokenizer: &Tokenizer,
        (tokens, longest): (usize, usize),
        repeats: f32,
        rng: &mut Rng,
    ) -> ogive::Result<Batch> {
        let mut batch = Batch::default();
        while batch.tokens.len() < tokens {
            let d = self.document(tokenizer, repeats, rng)?;
            let len = (d.tokens.len() - 1).min(longest);
            let start = batch.tokens.len();
            batch.tokens.extend(&d.tokens[..len]);
            batch.targets.extend(&d.tokens[1..=len]);
            batch.weights.extend(&d.weights[1..=len]);
            batch.spans.push(start..start + len);
        }
        Ok(batch)
    }
}

/// A story in parts: the words that it holds again weigh `weight`, all others 1.
fn emphasized(story: &Story, weight: f32, parts: &mut Vec<Part>) {
    let text = &*story.text;
    // Cut only before a space and after a word, where the vocabulary cuts too.
    let mut cuts: Vec<(usize, usize)> = Vec::new();
    for word in &story.repeated {
        let spaced = format!(" {word}");
        let whole = |i: &usize| !text[i + spaced.len()..].starts_with(|c: char| c.is_alphabetic());
        let found = text.match_indices(&spaced).map(|(i, _)| i).filter(whole);
        cuts.extend(found.skip(1).map(|i| (i, i + spaced.len())));
    }
    cuts.sort_unstable();
    let mut done = 0;
    for (start, end) in cuts {
        if start < done {
            continue;
        }
        if start > done {
            parts.push(Part::Text(text[done..start].to_owned(), 1.0));
        }
        parts.push(Part::Text(text[start..end].to_owned(), weight));
        done = end;
    }
    if done < text.len() {
        parts.push(Part::Text(text[done..].to_owned(), 1.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emphasis_cuts_where_the_vocabulary_does() {
        let corpus = Corpus::new();
        let tokenizer = Tokenizer::from_gguf(&crate::vocabulary::metadata(&corpus, 1, 800)).unwrap();
        let encode = |text: &str| {
            tokenizer.encode(text, EncodeOptions { add_special: false, parse_special: false }).unwrap()
        };
        let mut heavy = 0;
        for i in 0..200 {
            let story = corpus.stories.tell(&mut Rng::of(3, 0, i));
            let mut parts = Vec::new();
            emphasized(&story, 4.0, &mut parts);
            let mut ids = Vec::new();
            for part in parts {
                let Part::Text(text, weight) = part else { panic!("{part:?}") };
                heavy += usize::from(weight == 4.0 && text == format!(" {}", story.name));
                ids.extend(encode(&text));
            }
            assert_eq!(ids, encode(&story.text), "{}", story.text);
        }
        assert!(heavy > 600, "{heavy} names");
    }
}
