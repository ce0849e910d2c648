//! Which architecture name builds which model. A plain value that the program owns: nothing registers itself behind its
//! back.

use crate::tensor::{Config, Error, Result};
use crate::{Loader, Model, Projected, Tower};
use std::{collections::BTreeMap, fmt, sync::Arc};

/// Builds a model from its configuration and weights.
pub type Build = Arc<dyn Fn(&Config, &Loader<'_>) -> Result<Box<dyn Model>> + Send + Sync>;

/// Builds what lets a model see.
pub type BuildTower = Arc<dyn Fn(&Config, &Loader<'_>) -> Result<Box<dyn Tower>> + Send + Sync>;

/// Architecture names, as `config.json` has them under `architectures`, and their builders.
#[derive(Clone, Default)]
pub struct Registry {
    models: BTreeMap<String, Build>,
    towers: BTreeMap<String, BuildTower>,
}

impl Registry {
    /// No architectures.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an architecture, or replaces it.
    #[must_use]
    pub fn with(
        mut self,
        name: &str,
        build: impl Fn(&Config, &Loader<'_>) -> Result<Box<dyn Model>> + Send + Sync + 'static,
    ) -> Self {
        self.models.insert(name.into(), Arc::new(build));
        self
    }

    /// Has models of an architecture see, or otherwise: `build` gets the same configuration and weights as the model.
    #[must_use]
    pub fn with_tower(
        mut self,
        name: &str,
        build: impl Fn(&Config, &Loader<'_>) -> Result<Box<dyn Tower>> + Send + Sync + 'static,
    ) -> Self {
        self.towers.insert(name.into(), Arc::new(build));
        self
    }

    /// The names, in alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.models.keys().map(String::as_str)
    }

    /// Builds the model called `name`, with the layers behind it that the settings list for vectors of texts ([`Projected`]).
    ///
    /// # Errors
    /// If there is none of this name; the error lists those that there are. Else those of the architecture: a setting or a weight is
    /// missing or does not fit, or the backend cannot take a weight.
    pub fn build(&self, name: &str, config: &Config, loader: &Loader<'_>) -> Result<Box<dyn Model>> {
        let unknown = || {
            let known = self.names().collect::<Vec<_>>().join(", ");
            let known = format!("{known}; a program can bring its own with `Registry::with`");
            Error::missing_among(&format!("architecture `{name}`"), &known)
        };
        self.models.get(name).ok_or_else(unknown)?(config, loader)
            .and_then(|model| Projected::load(model, config, loader))
            .map_err(|e| e.within(&format!("loading {name}")))
    }

    /// Whether models called `name` may see.
    pub fn sees(&self, name: &str) -> bool {
        self.towers.contains_key(name)
    }

    /// Builds what lets the model called `name` see.
    ///
    /// # Errors
    /// If no model of this name sees; else as [`build`](Self::build).
    pub fn tower(&self, name: &str, config: &Config, loader: &Loader<'_>) -> Result<Box<dyn Tower>> {
        let blind = || {
            let seeing = self.towers.keys().map(String::as_str).collect::<Vec<_>>().join(", ");
            let seeing = format!("{seeing}; a program can bring its own with `Registry::with_tower`");
            Error::missing_among(&format!("what lets `{name}` see"), &seeing)
        };
        self.towers.get(name).ok_or_else(blind)?(config, loader)
            .map_err(|e| e.within(&format!("loading what lets {name} see")))
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.names()).finish()
    }
}
