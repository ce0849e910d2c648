//! What can go wrong with a chat template.

use std::error::Error as _;

use super::values::Stop;

/// A template that cannot be compiled or rendered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The source is no Jinja template, or uses a tag that chat templates do not have.
    #[error("chat template does not compile (line {line}): {message}")]
    Syntax {
        /// The line of the template, from one; 0 where it is not known.
        line: usize,
        /// What was found and what was expected.
        message: String,
    },
    /// The template called `raise_exception`: it refuses this conversation.
    #[error("chat template refuses the conversation: {message}")]
    Raised {
        /// The template's own words.
        message: String,
    },
    /// The template ran out of what one rendering may take, or recursed too deep.
    #[error("chat template was stopped: {message}")]
    Limit {
        /// Which limit it met.
        message: String,
    },
    /// An operation failed, as a missing attribute or a sum of text and number does.
    #[error("chat template failed (line {line}): {message}")]
    Render {
        /// The line of the template, from one; 0 where it is not known.
        line: usize,
        /// What was wrong.
        message: String,
    },
    /// The variables cannot be given to a template.
    #[error("chat template's variables are not usable: {message}")]
    Variables {
        /// What is wrong with them.
        message: String,
    },
    /// Tools were to be called, and the template has no place for that.
    #[error(
        "chat template does not show how its model calls tools; is the model made for that? (some have another template for it)"
    )]
    NoCalls,
}

impl TemplateError {
    pub(super) fn syntax(error: &minijinja::Error) -> Self {
        Self::Syntax { line: error.line().unwrap_or(0), message: message(error) }
    }

    pub(super) fn render(error: &minijinja::Error) -> Self {
        if error.kind() == minijinja::ErrorKind::OutOfFuel {
            return Self::Limit { message: "template runs too long: is there a loop without an end?".into() };
        }
        let mut source = error.source();
        while let Some(cause) = source {
            match cause.downcast_ref::<Stop>() {
                Some(Stop::Raised(message)) => return Self::Raised { message: message.clone() },
                Some(Stop::Limit(message)) => return Self::Limit { message: message.clone() },
                None => {}
            }
            if let Some(inner) = cause.downcast_ref::<minijinja::Error>()
                && inner.kind() == minijinja::ErrorKind::OutOfFuel
            {
                return Self::render(inner);
            }
            source = cause.source();
        }
        let message = message(error);
        if message.contains("recursion limit") {
            return Self::Limit { message: "template calls itself too deeply".into() };
        }
        Self::Render { line: error.line().unwrap_or(0), message }
    }
}

fn message(error: &minijinja::Error) -> String {
    error.detail().map_or_else(|| error.kind().to_string(), ToString::to_string)
}
