//! What there is to know of a backend without using it.

/// What a backend is and what it computes with; for messages, benches and memory estimates.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct Facts {
    /// The backend's short name: `cpu`, `cuda`, `oracle`.
    pub name: String,
    /// The machine and the paths taken, in one line for people.
    pub description: String,
    /// Bytes of memory the machine has for models, if known.
    pub memory: Option<u64>,
    /// Whether packed weights are decoded and everything is computed in single precision.
    pub exact: bool,
    /// Which of `rope_attend` and `moe` it leaves to their definitions: those [`Trace`](crate::Trace) may take apart without another kernel
    /// running than without it. Others are seen whole. Of a backend itself: what wraps it may have overrides of its own, so
    /// [`forward_required`](crate::forward_required) tells none.
    pub composed: &'static [&'static str],
}

impl Facts {
    /// A backend called `name`, described in one line.
    pub fn new(name: impl Into<String>, description: impl Into<String>) -> Self {
        Self { name: name.into(), description: description.into(), ..Self::default() }
    }
}
