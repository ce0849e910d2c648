//! What one GGUF architecture's tensors and settings are called elsewhere.
//!
//! Names are matched as a whole, with `{}` for a number between dots, and not by regular expressions: rules are looked up
//! in a table, and no two can disagree about a name.

use super::settings::{self, Settings};
use super::{Change, Header, mmproj};
use gguf_file::Gguf;
use ogive_tensor::{Config, Error, Result};
use serde_json::{Value, json};
use std::{collections::HashMap, fmt, sync::Arc};

/// A function that fills in settings; see [`Translation::settings`].
type Fill = Arc<dyn Fn(&Header<'_>, &mut Settings) -> Result<()> + Send + Sync>;

/// A function that fits the rules to a file; see [`Translation::for_file`].
type Fit = Arc<dyn Fn(Translation, &Header<'_>) -> Translation + Send + Sync>;

/// What llama.cpp's converter makes of sentence-transformers' layers `Dense`.
const PROJECTIONS: &[&str] = &["dense_2.weight", "dense_3.weight"];

/// How to read the files of one GGUF architecture as a Hugging Face model.
#[derive(Clone)]
pub struct Translation {
    architecture: String,
    /// The name under `clip.projector_type`, of files that a model sees with.
    projector: Option<String>,
    class: String,
    /// By the first name that a rule takes.
    rules: HashMap<String, Rule>,
    fill: Vec<Fill>,
    fit: Vec<Fit>,
    factors_in_weights: bool,
}

/// One tensor's new name, and what it is made of.
#[derive(Clone, Debug)]
pub struct Rule {
    pub(crate) from: Vec<String>,
    pub(crate) to: String,
    pub(crate) change: Option<Change>,
}

impl Rule {
    /// A tensor that only has another name. `{}` stands for a number (a layer, an expert), in the same order in both.
    pub fn new(from: impl Into<String>, to: impl Into<String>) -> Self {
        Self { from: vec![from.into()], to: to.into(), change: None }
    }

    /// A tensor made of one or several, by `change`. All must be there, or the rule does not apply.
    pub fn changed<S: Into<String>>(
        from: impl IntoIterator<Item = S>,
        to: impl Into<String>,
        change: Change,
    ) -> Self {
        Self { from: from.into_iter().map(Into::into).collect(), to: to.into(), change: Some(change) }
    }
}

impl Translation {
    /// Files whose `general.architecture` is `architecture`, as the Hugging Face class `class`. Common settings (sizes,
    /// heads, rope, tokens) are translated; the names of tensors are up to [`rename`](Self::rename) and
    /// [`rule`](Self::rule). A tensor without a rule keeps its name.
    pub fn new(architecture: impl Into<String>, class: impl Into<String>) -> Self {
        Self {
            architecture: architecture.into(),
            projector: None,
            class: class.into(),
            rules: HashMap::new(),
            fill: Vec::new(),
            fit: Vec::new(),
            factors_in_weights: false,
        }
    }

    /// Files of what models see with (llama.cpp's `mmproj`, of the architecture `clip`) whose projector has this name, as the tower that is
    /// registered for the Hugging Face class `class`. The settings that such files share come as `vision_config`, and means and deviations of
    /// colours as `image_processor`.
    pub fn mmproj(projector: impl Into<String>, class: impl Into<String>) -> Self {
        Self { projector: Some(projector.into()), ..Self::new(mmproj::ARCHITECTURE, class) }
    }

    /// The name of the projector, where this is for files that a model sees with.
    pub fn projector(&self) -> Option<&str> {
        self.projector.as_deref()
    }

    /// Files whose writer multiplied factors of the settings into the weights, so that the settings have none. An adapter, which was trained
    /// beside the weights as they were, is refused with such a file.
    #[must_use]
    pub fn with_factors_in_weights(self) -> Self {
        Self { factors_in_weights: true, ..self }
    }

    /// What [`with_factors_in_weights`](Self::with_factors_in_weights) said.
    pub(crate) fn has_factors_in_weights(&self) -> bool {
        self.factors_in_weights
    }

    /// The Hugging Face class.
    pub(crate) fn class(&self) -> &str {
        &self.class
    }

    /// As [`new`](Self::new), with the names that nearly all decoders have: embeddings, norms, attention and gated MLP
    /// as Llama calls them. Later rules replace them.
    pub fn decoder(architecture: impl Into<String>, class: impl Into<String>) -> Self {
        let names = [
            ("token_embd", "model.embed_tokens"),
            ("output_norm", "model.norm"),
            ("output", "lm_head"),
            ("blk.{}.attn_norm", "model.layers.{}.input_layernorm"),
            ("blk.{}.attn_q", "model.layers.{}.self_attn.q_proj"),
            ("blk.{}.attn_k", "model.layers.{}.self_attn.k_proj"),
            ("blk.{}.attn_v", "model.layers.{}.self_attn.v_proj"),
            ("blk.{}.attn_output", "model.layers.{}.self_attn.o_proj"),
            ("blk.{}.attn_q_norm", "model.layers.{}.self_attn.q_norm"),
            ("blk.{}.attn_k_norm", "model.layers.{}.self_attn.k_norm"),
            ("blk.{}.ffn_norm", "model.layers.{}.post_attention_layernorm"),
            ("blk.{}.ffn_gate", "model.layers.{}.mlp.gate_proj"),
            ("blk.{}.ffn_up", "model.layers.{}.mlp.up_proj"),
            ("blk.{}.ffn_down", "model.layers.{}.mlp.down_proj"),
        ];
        names.into_iter().fold(Self::new(architecture, class), |t, (from, to)| t.rename(from, to))
    }

    /// `from.weight` becomes `to.weight`, and `from.bias` becomes `to.bias`.
    #[must_use]
    pub fn rename(self, from: &str, to: &str) -> Self {
        self.rule(Rule::new(format!("{from}.weight"), format!("{to}.weight")))
            .rule(Rule::new(format!("{from}.bias"), format!("{to}.bias")))
    }

    /// As [`rename`](Self::rename), with a change to both.
    #[must_use]
    pub fn rename_changed(self, from: &str, to: &str, change: &Change) -> Self {
        ["weight", "bias"].into_iter().fold(self, |t, leaf| {
            t.rule(Rule::changed([format!("{from}.{leaf}")], format!("{to}.{leaf}"), change.clone()))
        })
    }

    /// Adds a rule, or replaces the one for the same first tensor.
    #[must_use]
    pub fn rule(mut self, rule: Rule) -> Self {
        if let Some(first) = rule.from.first() {
            self.rules.insert(first.clone(), rule);
        }
        self
    }

    /// Takes back the rules for `from.weight` and `from.bias`, of tensors that the architecture does not have. Where another rule gives
    /// their names, [`gguf_name`](Self::gguf_name) would not know which is meant.
    #[must_use]
    pub fn without(mut self, from: &str) -> Self {
        ["weight", "bias"].into_iter().for_each(|leaf| _ = self.rules.remove(&format!("{from}.{leaf}")));
        self
    }

    /// Makes a change to every tensor that is called `….LEAF` in the GGUF file and has a rule so far.
    #[must_use]
    pub fn change_all(mut self, ends_with: &str, change: &Change) -> Self {
        for rule in self.rules.values_mut().filter(|r| r.from.iter().any(|f| f.ends_with(ends_with))) {
            rule.change = Some(change.clone());
        }
        self
    }

    /// Fills in further settings, after the common ones and those of earlier calls, which it may change.
    #[must_use]
    pub fn settings(
        mut self,
        fill: impl Fn(&Header<'_>, &mut Settings) -> Result<()> + Send + Sync + 'static,
    ) -> Self {
        self.fill.push(Arc::new(fill));
        self
    }

    /// Fits the rules to a file, after those of earlier calls: where what a tensor is called says less than its shape, or a number in its name is
    /// counted in another way.
    #[must_use]
    pub fn for_file(mut self, fit: impl Fn(Self, &Header<'_>) -> Self + Send + Sync + 'static) -> Self {
        self.fit.push(Arc::new(fit));
        self
    }

    /// The same with its rules fitted to this file.
    pub(crate) fn fitted(&self, gguf: &Gguf) -> Self {
        let header = self.header(gguf);
        self.fit.iter().fold(self.clone(), |t, fit| fit(t, &header))
    }

    /// The name under `general.architecture`.
    pub fn architecture(&self) -> &str {
        &self.architecture
    }

    fn header<'a>(&'a self, gguf: &'a Gguf) -> Header<'a> {
        Header::new(gguf, if self.projector.is_some() { mmproj::KEYS } else { &self.architecture })
    }

    /// The settings of a file, under the keys of `config.json`.
    ///
    /// # Errors
    /// If a setting is of a wrong type, if a function of [`settings`](Self::settings) fails, or if the file goes on with a layer `Dense`
    /// after its model that has no rule.
    pub fn config(&self, gguf: &Gguf) -> Result<Config> {
        let header = self.header(gguf);
        let mut settings = Settings::new();
        settings.insert("architectures".into(), json!([self.class]));
        match self.projector {
            Some(_) => mmproj::common(&header, &mut settings)?,
            None => settings::common(&header, &mut settings)?,
        }
        for fill in &self.fill {
            fill(&header, &mut settings)?;
        }
        self.refuse_projections(&header)?;
        Ok(Config(Value::Object(settings)))
    }

    /// Layers that a text's vector goes through after the model. Without them it looks right and ranks badly, so a file that has
    /// them is refused, unless the translation has a place for them.
    fn refuse_projections(&self, header: &Header<'_>) -> Result<()> {
        let unknown = |name: &&&str| header.has_tensor(name) && self.rule_for(name).is_none();
        let Some(name) = PROJECTIONS.iter().find(unknown) else { return Ok(()) };
        let why = "the file goes on with a layer `Dense` after its model, which is not known";
        Err(Error::unsupported(name, why))
    }

    /// The other way round: GGUF's name for what is called `name` here, and how the tensor must change for it. `None` for a
    /// name that no rule gives, and where the change cannot be undone.
    pub fn gguf_name(&self, name: &str) -> Option<(String, Option<Change>)> {
        let (pattern, numbers) = pattern(name);
        // Where several rules give a name, that of the tensor which sorts first, so that the answer is always the same.
        let rules = self.rules.values().filter(|r| (r.to == name || r.to == pattern) && r.from.len() == 1);
        let rule = rules.min_by_key(|r| (r.to != name, &r.from))?;
        let back = match &rule.change {
            Some(change) => Some(change.reversed()?),
            None => None,
        };
        Some((fill_in(rule.from.first()?, &numbers), back))
    }

    /// The rule for a tensor, and the numbers in the tensor's name. One for this very name comes before one with `{}`.
    pub(crate) fn rule_for<'a>(&self, tensor: &'a str) -> Option<(&Rule, Vec<&'a str>)> {
        if let Some(rule) = self.rules.get(tensor) {
            return Some((rule, Vec::new()));
        }
        let (pattern, numbers) = pattern(tensor);
        Some((self.rules.get(&pattern)?, numbers))
    }
}

impl fmt::Debug for Translation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Translation")
            .field("architecture", &self.architecture)
            .field("class", &self.class)
            .field("rules", &self.rules.len())
            .finish_non_exhaustive()
    }
}

/// The last of `all` that is for this file.
pub(crate) fn find<'a>(all: &'a [Translation], gguf: &Gguf) -> Result<&'a Translation> {
    const KEY: &str = "general.architecture";
    let name = gguf.metadata().str(KEY).map_err(|e| Error::other("reading the architecture", e))?;
    if name == mmproj::ARCHITECTURE {
        return mmproj::find(all, gguf);
    }
    all.iter().rev().find(|t| t.architecture == name).ok_or_else(|| {
        let texts = all.iter().filter(|t| t.projector.is_none());
        let mut known: Vec<&str> = texts.map(Translation::architecture).collect();
        known.sort_unstable();
        known.dedup();
        let why =
            format!("the GGUF architecture `{name}` has no translation; known are {}", known.join(", "));
        Error::unsupported(KEY, why)
    })
}

/// A tensor's name with `{}` for each part that is a number, and the numbers.
fn pattern(name: &str) -> (String, Vec<&str>) {
    let mut numbers = Vec::new();
    let parts: Vec<&str> = name
        .split('.')
        .map(|part| {
            if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
                return part;
            }
            numbers.push(part);
            "{}"
        })
        .collect();
    (parts.join("."), numbers)
}

/// A pattern with its numbers put in.
pub(crate) fn fill_in(pattern: &str, numbers: &[&str]) -> String {
    let mut out = String::with_capacity(pattern.len());
    let mut numbers = numbers.iter();
    for (i, part) in pattern.split("{}").enumerate() {
        if i > 0 {
            out.push_str(numbers.next().copied().unwrap_or("{}"));
        }
        out.push_str(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is converted gets the names that llama.cpp looks for.
    #[test]
    fn no_two_tensors_of_an_architecture_have_one_name() {
        for t in crate::gguf::arch::translations() {
            let mut seen = HashMap::new();
            for rule in t.rules.values().filter(|rule| rule.from.len() == 1) {
                let other = seen.insert(&rule.to, &rule.from);
                assert_eq!(other, None, "{}: {} is {:?} too", t.architecture, rule.to, rule.from);
            }
        }
    }

    #[test]
    fn numbers_go_through_a_rule() {
        let t = Translation::decoder("x", "XForCausalLM").rename("blk.{}.ffn_gate.{}", "l.{}.experts.{}.w1");
        let to = |name: &str| t.rule_for(name).map(|(rule, n)| fill_in(&rule.to, &n));
        assert_eq!(to("blk.12.attn_q.bias").unwrap(), "model.layers.12.self_attn.q_proj.bias");
        assert_eq!(to("blk.3.ffn_gate.7.weight").unwrap(), "l.3.experts.7.w1.weight");
        assert_eq!((to("blk.3.ffn_gate.7"), to("blk..attn_q.bias"), to("")), (None, None, None));
        let back = |name: &str| t.gguf_name(name).map(|(n, _)| n);
        assert_eq!(back("model.layers.12.self_attn.q_proj.bias").unwrap(), "blk.12.attn_q.bias");
        assert_eq!(back("l.3.experts.7.w1.weight").unwrap(), "blk.3.ffn_gate.7.weight");
        assert_eq!((back("model.layers.x.mlp.up_proj.weight"), back("")), (None, None));
        // A rule for one number stands before that for all.
        let t = t.rename("blk.7.attn_q", "first");
        let to = |name: &str| t.rule_for(name).map(|(rule, n)| fill_in(&rule.to, &n));
        assert_eq!(to("blk.7.attn_q.bias").unwrap(), "first.bias");
        assert_eq!(to("blk.70.attn_q.bias").unwrap(), "model.layers.70.self_attn.q_proj.bias");
        assert_eq!(t.gguf_name("first.bias").unwrap().0, "blk.7.attn_q.bias");
    }
}
