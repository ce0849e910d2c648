//! A model that is open: immutable, shared by cloning, and the place sessions come from.

use crate::engine::{Engine, Evaluate, Limits, Placed, backend::Backend, evaluate};
use crate::fingerprint::Noted;
use crate::nn::{self, Loader};
use crate::sampler::{Chain, SamplerParams};
use crate::tensor::{Config, Error as ModelError, ErrorKind, Source};
use crate::tokenizer::{EncodeOptions, Tokenizer, template::ChatTemplate};
use crate::vocabulary::Words;
use crate::weights::Checkpoint;
use crate::{Chat, Draft, Error, Options, Prompt, Result, Session, device, embed, fits, notes};
use ndarray::Array2;
#[cfg(feature = "grammar")]
use std::sync::OnceLock;
use std::{path::Path, sync::Arc, time::Instant};

/// A model, its vocabulary and the machine it is on. Cheap to clone; `Send` and `Sync`.
#[derive(Clone, Debug)]
pub struct Model {
    inner: Arc<Inner>,
    /// What its engines guess by.
    draft: Option<Arc<Draft>>,
}

#[derive(Debug)]
struct Inner {
    backend: Arc<dyn Backend>,
    device: String,
    notes: Vec<String>,
    model: Arc<dyn nn::Model>,
    architecture: String,
    config: Config,
    limits: Limits,
    tokenizer: Result<Tokenizer, String>,
    template: Option<String>,
    number: u64,
    embeds: embed::Says,
    #[cfg(feature = "vision")]
    vision: Option<Arc<crate::vision::Vision>>,
    /// Its vocabulary as grammars see it, once one was used.
    #[cfg(feature = "grammar")]
    vocabulary: OnceLock<Result<ogive_grammar::Vocabulary, ogive_grammar::GrammarError>>,
}

/// Sequence, step and cache limits for one session.
pub(crate) fn limits(config: &Config, options: &Options) -> Result<Limits> {
    let trained = config.opt_usize("max_position_embeddings")?;
    let context = options.context.unwrap_or_else(|| trained.unwrap_or(4096).min(4096));
    let step = options.step_tokens.clamp(1, context.max(1));
    Ok(Limits::new(context).step_tokens(step).element(options.element()))
}

/// Sequences that options may ask room for. An estimate lists them.
const MOST_SEQUENCES: usize = 1 << 12;

/// The same for as many sequences as there is to be room for.
pub(crate) fn limits_of_all(config: &Config, options: &Options) -> Result<Limits> {
    let (one, sequences) = (limits(config, options)?, options.sequences.max(1));
    if sequences > MOST_SEQUENCES {
        let why = format!("room for {sequences} sequences was asked for, and {MOST_SEQUENCES} are the most");
        return Err(ModelError::invalid("options", why).into());
    }
    // A step has a row for each of them.
    let rows = one.step_tokens.max(sequences);
    Ok(one.sequences(sequences).step_tokens(rows))
}

impl Model {
    /// Loads what `options` found at `path`, or a checkpoint that is at no path.
    pub(crate) fn load(checkpoint: Checkpoint, path: Option<&Path>, options: &Options) -> Result<Self> {
        let start = Instant::now();
        let config = &checkpoint.config;
        if checkpoint.gguf.is_some() && config.has("vision_config") && !config.has("num_hidden_layers") {
            let name = path.map_or("a GGUF file".into(), |path| path.display().to_string());
            let why = "it is what a model sees by (mmproj) and no model; open the model itself, and give this beside it \
                (`Options::vision_from`, `--mmproj`)";
            return Err(ModelError::invalid(&name, why).into());
        }
        let (backend, device) = match &options.backend {
            Some(own) => (Arc::clone(own), format!("using {}", device::describe(&**own))),
            None => device::backend(options, &checkpoint)?,
        };
        let Checkpoint { config, architecture, source, gguf, folder, .. } = &checkpoint;
        let limits = limits(config, options)?;
        // Once for a model, and not for each estimate that its placement takes.
        if let (Some(asked), Some(trained)) = (options.context, config.opt_usize("max_position_embeddings")?)
            && asked > trained
        {
            tracing::warn!(asked, trained, "the context is longer than the model was made for");
        }
        let noted = Noted::new(&**source, options.listener.as_ref());
        let loader = Loader::new(&noted, &*backend).for_context(limits.context);
        let free = fits::free(&*backend);
        let at = |e: ModelError| {
            // How much would do is what whoever reads this needs, and counting it takes a moment.
            let Some(path) = path else { return e };
            let what = match e.kind() {
                ErrorKind::Memory { .. } if !crate::weights::is_piped(path) => {
                    fits::loading(path, options, &backend, &free).ok()
                }
                _ => None,
            };
            match what {
                Some(what) => fits::tell(e, &format!("{} ({what})", path.display()), &free),
                None => e.within(&path.display().to_string()),
            }
        };
        let model: Arc<dyn nn::Model> =
            options.registry.build(architecture, config, &loader).map_err(at)?.into();
        if let Some(left) = noted.unused().first() {
            let why =
                format!("{architecture} does not read this as a matrix by itself, and an adapter changes it");
            return Err(at(ModelError::unsupported(left, why)).into());
        }
        noted.finish();
        let (notes, means) = (notes::of(&loader), loader.context_means());
        let tokenizer = match (gguf, folder) {
            (Some(gguf), _) => Tokenizer::from_gguf(gguf.metadata()).map_err(|e| e.to_string()),
            (None, Some(folder)) => Tokenizer::from_folder(folder).map_err(|e| e.to_string()),
            (None, None) => Err("the file has none".into()),
        };
        let embeds = embed::Says::read(config, folder.as_deref());
        let template = tokenizer.as_ref().ok().and_then(|t| t.chat_template()).map(Into::into);
        let words = tokenizer.as_ref().map_or(0, Tokenizer::vocab_size);
        let number = noted.number(architecture, config, words, &means);
        // Not by `noted`: what sees is no part of what a session goes on with.
        #[cfg(feature = "vision")]
        let vision = crate::vision::Vision::of(&checkpoint, options, &*backend, &tokenizer, &*model)?;
        let Checkpoint { config, architecture, .. } = checkpoint;
        tracing::info!(%architecture, device, seconds = start.elapsed().as_secs_f32(), "model open");
        notes.iter().for_each(|note| tracing::info!("{note}"));
        let inner = Arc::new(Inner {
            backend,
            device,
            notes,
            model,
            architecture,
            config,
            limits,
            tokenizer,
            template,
            number,
            embeds,
            #[cfg(feature = "vision")]
            vision,
            #[cfg(feature = "grammar")]
            vocabulary: OnceLock::new(),
        });
        Ok(Self { inner, draft: None })
    }

    /// What it is known again by: see [`fingerprint`](crate::fingerprint).
    pub(crate) fn number(&self) -> u64 {
        self.inner.number
    }

    #[cfg(feature = "grammar")]
    pub(crate) fn vocabulary_cell(
        &self,
    ) -> &OnceLock<Result<ogive_grammar::Vocabulary, ogive_grammar::GrammarError>> {
        &self.inner.vocabulary
    }

    /// The name of its architecture.
    pub fn architecture(&self) -> &str {
        &self.inner.architecture
    }

    /// Its settings, under the keys of `config.json`.
    pub fn config(&self) -> &Config {
        &self.inner.config
    }

    /// One line that says which device was taken and why.
    pub fn device(&self) -> &str {
        &self.inner.device
    }

    /// What else there is to know of how it was loaded, a line each: weights that could not stay as packed as the file has them, and why,
    /// and what the file has otherwise than its settings say.
    /// Of most models nothing.
    pub fn notes(&self) -> &[String] {
        &self.inner.notes
    }

    /// Tokens that a session may have, prompt and answer together.
    pub fn context(&self) -> usize {
        self.inner.limits.context
    }

    /// Where it computes.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.inner.backend
    }

    /// The layers themselves, for those who drive them.
    pub fn layers(&self) -> &Arc<dyn nn::Model> {
        &self.inner.model
    }

    /// Its vocabulary.
    ///
    /// # Errors
    /// If the checkpoint has none, or one that cannot be read; the message says why.
    pub fn tokenizer(&self) -> Result<&Tokenizer> {
        self.inner.tokenizer.as_ref().map_err(|e| Error::NoTokenizer(e.clone()))
    }

    /// Its chat template's source, if it has one.
    pub fn chat_template(&self) -> Option<&str> {
        self.inner.template.as_deref()
    }

    /// What a session may take, as the [`Options`] said it: tokens, rows of a step, and what keys and values are kept in. Limits of an
    /// [`engine`](Self::engine) begin with these:
    ///
    /// ```no_run
    /// # fn main() -> ogive::Result<()> {
    /// # let model = ogive::open("model.gguf")?;
    /// let engine = model.engine(model.limits().clone().sequences(8))?;
    /// # Ok(()) }
    /// ```
    pub fn limits(&self) -> &Limits {
        &self.inner.limits
    }

    /// What the checkpoint says of its vectors.
    pub(crate) fn embeds(&self) -> &embed::Says {
        &self.inner.embeds
    }

    #[cfg(feature = "vision")]
    pub(crate) fn vision(&self) -> Option<&Arc<crate::vision::Vision>> {
        self.inner.vision.as_ref()
    }

    /// Whether it is an encoder: it has vectors of texts ([`embed`](Self::embed)) and draws no tokens.
    pub fn is_encoder(&self) -> bool {
        !self.inner.model.causal()
    }

    /// The same model, whose sessions and engines have `draft` guess which tokens come next, so that a step may bring several: the same text,
    /// sooner.
    ///
    /// ```no_run
    /// # fn main() -> ogive::Result<()> {
    /// let small = ogive::open("qwen3-0.6b.gguf")?;
    /// let model = ogive::open("qwen3-8b.gguf")?.with_draft(ogive::Draft::model(&small))?;
    /// let mut session = model.session()?;
    /// let mut tale = session.generate("Once upon a time", &ogive::Generate::new())?;
    /// println!("{}", tale.text()?);
    /// println!("{} of {} guesses were right", tale.times().accepted, tale.times().drafted);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If it is a model that cannot draft for this one: its vocabulary is another, it keeps states, or it draws no tokens.
    pub fn with_draft(&self, draft: Draft) -> Result<Self> {
        draft.check(self)?;
        Ok(Self { inner: Arc::clone(&self.inner), draft: Some(Arc::new(draft)) })
    }

    /// What its sessions guess by.
    pub fn draft(&self) -> Option<&Draft> {
        self.draft.as_deref()
    }

    /// A session with a cache of its own, and one for its [draft](Self::with_draft).
    ///
    /// # Errors
    /// If there is no memory for a cache of [`context`](Self::context) tokens; the message says how much was missing.
    pub fn session(&self) -> Result<Session> {
        Ok(Session::new(self.clone(), self.engine(self.inner.limits.clone())?))
    }

    /// A conversation by the model's own template.
    ///
    /// # Errors
    /// If the model has no template or one that cannot be read, and as [`session`](Self::session).
    pub fn chat(&self) -> Result<Chat> {
        let source = self.chat_template().ok_or(Error::NoTemplate)?;
        Chat::new(self.session()?, ChatTemplate::new(source)?)
    }

    /// The chain of stages that `params` describe, DRY's sequence breakers cut by the model's vocabulary: what a
    /// session draws by, and what [`Request::chain`](crate::engine::Request::chain) takes.
    ///
    /// # Errors
    /// Names the setting that is wrong, or the breaker that the vocabulary cannot cut; if there are breakers and no vocabulary.
    pub fn chain(&self, params: &SamplerParams) -> Result<Chain> {
        Ok(match self.tokenizer() {
            Ok(tokenizer) => params.build_for(&Words(tokenizer))?,
            Err(_) => params.build()?,
        })
    }

    /// An engine for many sequences at once, within `limits` and nothing else: whatever [`Options`] say of the context, of steps and of
    /// the cache is in [`Model::limits`], for sessions and for who takes it from there. A context beyond [`context`](Self::context) is
    /// taken as it is, though models with a scaled RoPE were loaded for the shorter one.
    ///
    /// It guesses by what the model was [told to](Self::with_draft).
    ///
    /// # Errors
    /// If a limit is 0 or contradicts another, or if there is no memory for the cache.
    pub fn engine(&self, limits: Limits) -> Result<Engine> {
        let (backend, model) = (&self.inner.backend, &self.inner.model);
        let engine = Engine::new(Arc::clone(backend), Arc::clone(model), limits.clone());
        let mut engine = engine.map_err(|e| {
            let what = match e.kind() {
                ErrorKind::Memory { .. } => fits::cache(&**backend, &**model, &limits).ok(),
                _ => None,
            };
            match what {
                Some(what) => fits::tell(e, &what, &fits::free(&**backend)),
                None => e,
            }
        })?;
        if let Some(draft) = &self.draft {
            draft.guide(&mut engine)?;
        }
        Ok(engine)
    }

    /// The ids that a prompt stands for. Text gets what the vocabulary begins a text with; no text at all is that alone.
    ///
    /// # Errors
    /// If it has no token, and the vocabulary begins no text with one of its own; of text, if the model has no tokenizer, or that no token
    /// for a character.
    pub fn encode(&self, prompt: &Prompt) -> Result<Vec<u32>> {
        let ids = match prompt {
            Prompt::Ids(ids) => ids.clone(),
            Prompt::Text(text) | Prompt::Special(text) => {
                let t = self.tokenizer()?;
                let parse_special = matches!(prompt, Prompt::Special(_));
                let ids = t.encode(text, EncodeOptions { parse_special, ..EncodeOptions::PROMPT })?;
                if ids.is_empty() { t.bos().into_iter().collect() } else { ids }
            }
            Prompt::Rendered(text) => {
                self.tokenizer()?.encode(text, EncodeOptions { add_special: false, parse_special: true })?
            }
            #[cfg(feature = "vision")]
            Prompt::Shown { text, images, rendered } => self.encode_shown(text, images, *rendered)?,
        };
        if ids.is_empty() { Err(Error::EmptyPrompt) } else { Ok(ids) }
    }

    /// The same, with what stands in place of some of them: of a prompt with images, what the model sees of those, which takes as long as it
    /// takes unless it saw them before. For a [`Request`](crate::engine::Request) to an [engine](Self::engine).
    ///
    /// # Errors
    /// As [`encode`](Self::encode); and of images, if the model was not opened to see or cannot read one, if the text has not a marker for each,
    /// and if computing fails.
    pub fn read(&self, prompt: &Prompt) -> Result<(Vec<u32>, Vec<Placed>)> {
        self.read_within(prompt, usize::MAX)
    }

    /// The same for a session of so many tokens: nothing is computed of images that have no room there.
    #[cfg_attr(not(feature = "vision"), expect(unused_variables, reason = "there are no images"))]
    pub(crate) fn read_within(&self, prompt: &Prompt, context: usize) -> Result<(Vec<u32>, Vec<Placed>)> {
        #[cfg(feature = "vision")]
        if let Prompt::Shown { text, images, rendered } = prompt {
            let (ids, placed) = self.read_shown(text, images, *rendered, context)?;
            return if ids.is_empty() { Err(Error::EmptyPrompt) } else { Ok((ids, placed)) };
        }
        Ok((self.encode(prompt)?, Vec::new()))
    }

    /// The logits of every token of `ids`, computed as a session would: with the options' precision and cache element.
    /// `[tokens, vocab]`
    ///
    /// # Errors
    /// If there are no `ids` or one that the model does not know, if it has no logits (an encoder, or a checkpoint without a head), if
    /// memory is short for a cache of so many tokens, or if computing fails.
    pub fn logits(&self, ids: &[u32]) -> Result<Array2<f32>> {
        self.evaluate(ids, Evaluate::new())
    }

    /// The last layer's output for every token of `ids`, normed. `[tokens, dim]`
    ///
    /// # Errors
    /// As [`logits`](Self::logits), which the model need not have.
    pub fn hidden(&self, ids: &[u32]) -> Result<Array2<f32>> {
        let mut how = Evaluate::new();
        how.hidden = true;
        self.evaluate(ids, how)
    }

    /// Sets what a session would compute with.
    pub(crate) fn adjust(&self, how: &mut Evaluate<'_>) {
        how.chunk = self.inner.limits.step_tokens;
        how.element = self.inner.limits.element;
    }

    fn evaluate(&self, ids: &[u32], mut how: Evaluate<'_>) -> Result<Array2<f32>> {
        self.adjust(&mut how);
        Ok(evaluate(&*self.inner.backend, &*self.inner.model, ids, &how)?)
    }
}
