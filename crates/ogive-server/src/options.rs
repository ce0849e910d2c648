//! How a server serves: how much at a time, who may ask, and what a request does not say.

use ogive::Generate;

/// Names, bounds and defaults of a [`Server`](crate::Server).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Options {
    /// What the model is called in answers; `ogive` unless said otherwise.
    pub name: String,
    /// Answers that are drawn at a time (4). The cache has room for so many whole contexts.
    pub sequences: usize,
    /// Requests that may wait for those (64). More are told to come again (503).
    pub queue: usize,
    /// Tokens that all answers together may keep, if less than a whole context each: they then wait for each other.
    pub cache_tokens: Option<usize>,
    /// Bytes of a request at most (32 MiB; images are in it). Some of the large ones are read at a time, and what was read has a place among those that are drawn or wait.
    pub body: usize,
    /// Keys, one of which every request but for `/health` must have; none where anybody may ask.
    pub keys: Vec<String>,
    /// The origin of web pages that may ask by a browser (`*` for all); `None` where none may but those of the server's own address.
    pub origin: Option<String>,
    /// What holds where a request says nothing: samplers, tokens to draw at most. Its stop strings hold besides those of a request.
    pub defaults: Generate,
    /// The seed where a request has none; `None` for another one each time.
    pub seed: Option<u64>,
    /// A Jinja template instead of the model's own.
    pub template: Option<String>,
}

impl Default for Options {
    fn default() -> Self {
        Self::new()
    }
}

impl Options {
    /// Four answers at a time, 64 that wait, no keys, no browsers.
    pub fn new() -> Self {
        Self {
            name: "ogive".into(),
            sequences: 4,
            queue: 64,
            cache_tokens: None,
            body: 32 << 20,
            keys: Vec::new(),
            origin: None,
            defaults: Generate::new(),
            seed: None,
            template: None,
        }
    }

    /// Another name.
    #[must_use]
    pub fn name(self, name: impl Into<String>) -> Self {
        Self { name: name.into(), ..self }
    }

    /// So many answers at a time.
    #[must_use]
    pub fn sequences(self, sequences: usize) -> Self {
        Self { sequences, ..self }
    }

    /// So many requests that wait.
    #[must_use]
    pub fn queue(self, queue: usize) -> Self {
        Self { queue, ..self }
    }

    /// Less cache than every answer's whole context.
    #[must_use]
    pub fn cache_tokens(self, tokens: usize) -> Self {
        Self { cache_tokens: Some(tokens), ..self }
    }

    /// Requests of up to so many bytes.
    #[must_use]
    pub fn body(self, bytes: usize) -> Self {
        Self { body: bytes, ..self }
    }

    /// One more key that opens the door; without any there is none.
    #[must_use]
    pub fn key(mut self, key: impl Into<String>) -> Self {
        self.keys.push(key.into());
        self
    }

    /// Lets web pages of this origin ask (CORS), or all by `*`.
    #[must_use]
    pub fn origin(self, origin: impl Into<String>) -> Self {
        Self { origin: Some(origin.into()), ..self }
    }

    /// What holds where a request says nothing.
    #[must_use]
    pub fn defaults(self, defaults: Generate) -> Self {
        Self { defaults, ..self }
    }

    /// The same seed for every request that has none.
    #[must_use]
    pub fn seed(self, seed: u64) -> Self {
        Self { seed: Some(seed), ..self }
    }

    /// Another chat template than the model's.
    #[must_use]
    pub fn template(self, jinja: impl Into<String>) -> Self {
        Self { template: Some(jinja.into()), ..self }
    }
}
