//! Vectors of texts, to compare them by.
//!
//! How a checkpoint wants its states pooled is asked of it: GGUF files say it in their header, the folders of
//! sentence-transformers in `modules.json` and what it names. A wrong guess gives vectors that look right and rank badly; so
//! where a checkpoint wants what is not known here (a maximum, a layer behind it of an unknown kind), that is an error until a pooling is chosen. The
//! rest of what the checkpoint says (prompts, how long a text may be) holds with a chosen pooling too.

use crate::engine::{self, Pooling};
use crate::tensor::{Config, Error as ModelError};
use crate::weights::SentenceSettings;
use crate::{Error, Model, Prompt, Result};
use ndarray::Array2;
use std::collections::BTreeMap;
use std::io::Read;
use std::path::Path;

/// How to make vectors of texts.
///
/// ```no_run
/// # fn main() -> ogive::Result<()> {
/// let model = ogive::open("model.gguf")?;
/// let vectors = model.embed_all(["a cat", "a dog", "a tax form"], &ogive::Embed::new())?;
/// println!("{}", vectors.row(0).dot(&vectors.row(1))); // the cosine: both are of length 1
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Embed {
    /// Which hidden states count; `None` for what the checkpoint says, or else the mean.
    pub pooling: Option<Pooling>,
    /// Whether vectors are scaled to length 1.
    pub normalize: bool,
    /// Whether a text that is too long is cut, as sentence-transformers does: its beginning counts, closed by what closes
    /// every text (`[SEP]`). Otherwise it is an error.
    pub truncate: bool,
    /// Tokens of a text at most, those that begin and end every text among them; `None` for what the checkpoint takes. Never more than the context.
    pub max_tokens: Option<usize>,
    /// So many numbers, the first of the model's; `None` for all. Only models that were trained for it (Matryoshka) keep their
    /// meaning.
    pub dimensions: Option<usize>,
    /// The name of the prompt that stands before each text, of those the checkpoint has
    /// ([`Model::prompts`]): `query` for what is looked for, say, and `document` for what is looked through. `None` for what the
    /// checkpoint takes by default, mostly nothing.
    pub prompt: Option<String>,
}

impl Default for Embed {
    fn default() -> Self {
        Self::new()
    }
}

impl Embed {
    /// Pooled as the checkpoint says, scaled to length 1.
    pub fn new() -> Self {
        Self {
            pooling: None,
            normalize: true,
            truncate: false,
            max_tokens: None,
            dimensions: None,
            prompt: None,
        }
    }

    /// Pooled so, whatever the checkpoint says.
    #[must_use]
    pub fn pooling(self, pooling: Pooling) -> Self {
        Self { pooling: Some(pooling), ..self }
    }

    /// Scaled to length 1 or left as they are.
    #[must_use]
    pub fn normalize(self, normalize: bool) -> Self {
        Self { normalize, ..self }
    }

    /// Texts that are too long are cut or are an error.
    #[must_use]
    pub fn truncate(self, truncate: bool) -> Self {
        Self { truncate, ..self }
    }

    /// Texts may have so many tokens, whatever the checkpoint says.
    #[must_use]
    pub fn max_tokens(self, tokens: usize) -> Self {
        Self { max_tokens: Some(tokens), ..self }
    }

    /// With the prompt of this name before each text.
    #[must_use]
    pub fn prompt(self, name: impl Into<String>) -> Self {
        Self { prompt: Some(name.into()), ..self }
    }

    /// Only the first so many numbers of each vector.
    #[must_use]
    pub fn dimensions(self, dimensions: usize) -> Self {
        Self { dimensions: Some(dimensions), ..self }
    }
}

// What GGUF's poolings 0 and 4 say to whoever wants vectors.
const UNPOOLED: &str =
    "the file says that states are not pooled; choose a pooling, or take the vectors of tokens";
const RANKS: &str =
    "the model ranks texts for a question and has no vectors of them; choose a pooling to have its states";

static NO_PROMPTS: BTreeMap<String, String> = BTreeMap::new();

/// What a checkpoint says of its vectors.
#[derive(Clone, Debug)]
pub(crate) struct Says {
    /// How states are pooled, or why that is not possible.
    pooling: Result<Option<Pooling>, String>,
    /// The rest of what sentence-transformers left, or why it cannot be read.
    settings: Result<SentenceSettings, String>,
    /// Whether the model has one type of tokens, whatever its tokenizer makes of two texts.
    pub(crate) one_type: bool,
    /// Whether its README says that it is a model that is asked for yes or no (`asking.rs`).
    pub(crate) asked: bool,
}

/// Bytes of a README that are looked at.
const README: u64 = 1 << 20;

/// Whether a folder is Qwen3-Reranker's: its settings are those of any Qwen3, and llama.cpp's converter goes by the same line. Who converts it may put
/// their own name before it (`# somebody/Qwen3-Reranker-0.6B-seq-cls`).
fn is_asked(folder: &Path) -> bool {
    let Ok(file) = std::fs::File::open(folder.join("README.md")) else { return false };
    let mut text = Vec::new();
    let read = file.take(README).read_to_end(&mut text);
    read.is_ok() && String::from_utf8_lossy(&text).lines().any(is_its_name)
}

fn is_its_name(line: &str) -> bool {
    let name = line.strip_prefix("# ").and_then(|name| name.split_whitespace().next());
    name.and_then(|name| name.rsplit('/').next()).is_some_and(|name| name.starts_with("Qwen3-Reranker"))
}

impl Says {
    pub(crate) fn read(config: &Config, folder: Option<&Path>) -> Self {
        let settings = folder.map_or_else(|| Ok(SentenceSettings::default()), SentenceSettings::read);
        let settings = settings.map_err(|e| e.to_string());
        let number = match (config.opt_usize("pooling_type"), &settings) {
            (Ok(Some(number)), _) => Ok(Some(number)),
            (Err(e), _) => Err(format!("{e}; choose a pooling")),
            (_, Ok(settings)) => match settings.pooling_type() {
                Ok(number) => Ok(number.map(|n| n as usize)),
                Err(e) => Err(format!("{e}; choose a pooling to do without")),
            },
            (_, Err(why)) => Err(why.clone()),
        };
        let pooling = number.and_then(|number| match number {
            None => Ok(None),
            Some(0) => Err(UNPOOLED.into()),
            Some(1) => Ok(Some(Pooling::Mean)),
            Some(2) => Ok(Some(Pooling::Cls)),
            Some(3) => Ok(Some(Pooling::Last)),
            Some(4) => Err(RANKS.into()),
            Some(other) => Err(format!("the file names the pooling {other}, which is not known; choose one")),
        });
        // A setting of another kind is told by who loads the model.
        let one_type = config.opt_usize("type_vocab_size").is_ok_and(|types| types == Some(1));
        Self { pooling, settings, one_type, asked: folder.is_some_and(is_asked) }
    }
}

impl Says {
    /// Tokens of a text at most, where the checkpoint says. Errors name what is being done.
    pub(crate) fn max_tokens(&self, doing: &str) -> Result<Option<usize>> {
        let unread = |why: &String| ModelError::invalid(doing, why.as_str());
        Ok(self.settings.as_ref().map_err(unread)?.max_tokens)
    }
}

impl Model {
    /// The vector of a text, of length 1. `[dim]`
    ///
    /// # Errors
    /// As [`embed_all`](Self::embed_all).
    pub fn embed(&self, text: impl Into<Prompt>) -> Result<Vec<f32>> {
        Ok(self.embed_all([text], &Embed::new())?.into_raw_vec_and_offset().0)
    }

    /// The vectors of many texts, which share steps; on the CPU each is the same to the bit as if it came alone, and on a GPU last bits may differ. A text of more tokens
    /// than the checkpoint takes of one (sentence-transformers' `max_seq_length`, unless [others](Embed::max_tokens) are allowed), or than
    /// [`context`](Self::context), is an error unless it may be [cut](Embed::truncate). `[texts, dimensions]`
    ///
    /// # Errors
    /// If what the checkpoint says of its vectors cannot be read, or names a pooling that is not known and `how` none; if it has no prompt
    /// of this name; if a text has no token, or too many and may not be cut; if there is no tokenizer for it; if vectors have fewer numbers
    /// than are asked for; or if computing fails.
    pub fn embed_all<P: Into<Prompt>>(
        &self,
        texts: impl IntoIterator<Item = P>,
        how: &Embed,
    ) -> Result<Array2<f32>> {
        let pooling = match how.pooling {
            Some(given) => given,
            None => {
                let says = match self.embeds().pooling.clone() {
                    Ok(None) if self.judges() => Err(RANKS.to_owned()),
                    says => says,
                };
                says.map_err(|why| ModelError::unsupported("embed", why))?.unwrap_or_default()
            }
        };
        let ((ids, left_out), settings) = (self.cut(texts, how)?, self.settings(pooling, how));
        Ok(engine::embed_after(&**self.backend(), &**self.layers(), &ids, &left_out, &settings)?)
    }

    /// The vectors of every token of each text, not pooled, those of special tokens among them: for comparing texts token by
    /// token, or for a pooling of one's own. For each text `[tokens, dimensions]`
    ///
    /// # Errors
    /// As [`embed_all`](Self::embed_all), but for the pooling.
    pub fn embed_tokens<P: Into<Prompt>>(
        &self,
        texts: impl IntoIterator<Item = P>,
        how: &Embed,
    ) -> Result<Vec<Array2<f32>>> {
        let ((ids, _), settings) = (self.cut(texts, how)?, self.settings(Pooling::default(), how));
        Ok(engine::embed_tokens(&**self.backend(), &**self.layers(), &ids, &settings)?)
    }

    fn settings(&self, pooling: Pooling, how: &Embed) -> engine::Embed {
        let limits = self.limits();
        let mut settings = engine::Embed::new(pooling);
        (settings.normalize, settings.dimensions) = (how.normalize, how.dimensions);
        (settings.chunk, settings.element) = (limits.step_tokens, limits.element);
        settings
    }

    /// The prompts that the checkpoint has for texts of several kinds, by their names; empty for most.
    pub fn prompts(&self) -> &BTreeMap<String, String> {
        self.embeds().settings.as_ref().map_or(&NO_PROMPTS, |settings| &settings.prompts)
    }

    /// What the prompt of this name puts before a text.
    fn before(&self, name: Option<&str>) -> Result<Option<&str>> {
        let Some(name) = name else { return Ok(None) };
        let unknown = || {
            let known: Vec<&str> = self.prompts().keys().map(String::as_str).collect();
            let why = match known[..] {
                [] => "the checkpoint has no prompts; put the words before the texts".to_owned(),
                _ => format!("the checkpoint has no such prompt; known are {}", known.join(", ")),
            };
            ModelError::invalid(&format!("prompt `{name}`"), why)
        };
        Ok(Some(self.prompts().get(name).ok_or_else(unknown)?))
    }

    /// Tokens that a text begins with by a prompt, what begins every text among them: as sentence-transformers counts them, by
    /// the prompt alone, without the space at its end, which goes to the next word.
    fn tokens_before(&self, before: &str) -> Result<usize> {
        let ids = self.encode(&Prompt::Text(before.trim().to_owned()))?;
        Ok(ids.len().saturating_sub(self.tokenizer()?.around()[1].len()))
    }

    /// The ids of texts, none of which is longer than it may be, and how many of each are not pooled.
    fn cut<P: Into<Prompt>>(
        &self,
        texts: impl IntoIterator<Item = P>,
        how: &Embed,
    ) -> Result<(Vec<Vec<u32>>, Vec<usize>)> {
        let context = self.context();
        let unread = |why: &String| ModelError::invalid("embed", why.as_str());
        let settings = self.embeds().settings.as_ref().map_err(unread)?;
        let own = how.max_tokens.or(settings.max_tokens).filter(|own| *own <= context);
        let most = own.unwrap_or(context);
        let before = self.before(how.prompt.as_deref().or(settings.default_prompt.as_deref()))?;
        let cased = |text: &str| if settings.lower_case { text.to_lowercase() } else { text.to_owned() };
        let fits = |(i, text): (usize, P)| {
            let (mut prompt, mut left_out) = (text.into(), 0);
            if let Prompt::Text(text) = &mut prompt {
                *text = cased(&format!("{}{text}", before.unwrap_or_default()));
                if let Some(before) = before.filter(|b| settings.prompt_left_out && !b.trim().is_empty()) {
                    left_out = self.tokens_before(&cased(before))?;
                }
            }
            // As whoever gives lines counts them.
            let n = i + 1;
            let mut ids = self.encode(&prompt).map_err(|e| match e {
                Error::EmptyPrompt => {
                    let why = "it has no token, and none was added to begin a text with; leave it out";
                    ModelError::invalid("embed", format!("text {n} is empty: {why}")).into()
                }
                e => e,
            })?;
            if how.truncate && ids.len() > most {
                // What ends a text ends its beginning too.
                let end = match (&prompt, self.tokenizer()) {
                    (Prompt::Text(_), Ok(tokenizer)) => tokenizer.around()[1],
                    _ => &[],
                };
                ids.truncate(most.saturating_sub(end.len()));
                ids.extend(end.iter().take(most));
            }
            if ids.len() <= most {
                return Ok((ids, left_out));
            }
            let why = format!("text {n} has {} tokens", ids.len());
            let cut = "let it be cut (`truncate`, --truncate)";
            let why = match own {
                Some(own) if how.max_tokens.is_some() => {
                    format!("{why}, and {own} are asked for; cut it, or {cut}")
                }
                Some(own) => {
                    let more = "or allow more (`max_tokens`, --context)";
                    format!("{why}, and the checkpoint takes {own} of a text; cut it, {cut}, {more}")
                }
                None => {
                    let longer = "or open the model for a longer context";
                    format!("{why}, and the context is {context}; cut it, {cut}, {longer}")
                }
            };
            Err(ModelError::invalid("embed", why).into())
        };
        texts.into_iter().enumerate().map(fits).collect::<Result<Vec<_>>>().map(|all| all.into_iter().unzip())
    }
}
