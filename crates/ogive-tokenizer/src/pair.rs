//! Two texts as one, for models that judge one by the other: what stands around them, and of which type each token is.
//!
//! Made of ids and not of texts: who asks cuts texts that are too long before, and must know how much room is left.

/// A part of what two texts become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    /// Tokens that are always there.
    Tokens(Vec<u32>),
    First,
    Second,
}

/// The parts, with the type (BERT's segment) of their tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pair(pub(crate) Vec<(Part, u32)>);

impl Pair {
    /// `before`, a text, what ends it, another, what ends that.
    pub(crate) fn new(before: &[u32], between: &[u32], after: &[u32], types: [u32; 2]) -> Self {
        let [first, second] = types;
        let tokens = |ids: &[u32], kind| (Part::Tokens(ids.to_vec()), kind);
        Self(vec![
            tokens(before, first),
            (Part::First, first),
            tokens(between, first),
            (Part::Second, second),
            tokens(after, second),
        ])
    }

    /// The same with all tokens of type 0.
    pub(crate) fn untyped(self) -> Self {
        Self(self.0.into_iter().map(|(part, _)| (part, 0)).collect())
    }

    /// The tokens that are always there.
    pub(crate) fn tokens(&self) -> impl Iterator<Item = u32> {
        let tokens = |(part, _): &(Part, u32)| match part {
            Part::Tokens(ids) => ids.clone(),
            _ => Vec::new(),
        };
        self.0.iter().flat_map(tokens)
    }

    /// Ids and types.
    pub(crate) fn of(&self, first: &[u32], second: &[u32]) -> (Vec<u32>, Vec<u32>) {
        let (mut ids, mut types) = (Vec::new(), Vec::new());
        for (part, kind) in &self.0 {
            ids.extend(match part {
                Part::Tokens(tokens) => tokens,
                Part::First => first,
                Part::Second => second,
            });
            types.resize(ids.len(), *kind);
        }
        (ids, types)
    }
}
