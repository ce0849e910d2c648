//! Arguments that say what the answer must be.
//!
//! llama.cpp has an option for a text and another one for a file of each kind. Here one takes both: a schema in JSON begins with a
//! brace and a grammar has `::=` in it, which no path that anybody uses does.

use crate::error::{Doing, Error, Result};
use crate::files;
use clap::builder::NonEmptyStringValueParser;
use ogive::grammar::{Grammar, GrammarError};
use std::path::Path;

/// What the answer must be; one of the three at most.
#[derive(Clone, Debug, clap::Args)]
#[group(multiple = false)]
pub(crate) struct Constraint {
    /// Only answers of the GBNF grammar in FILE, or of this one
    #[arg(long, value_name = "FILE|GRAMMAR", visible_alias = "grammar-file", value_parser = NonEmptyStringValueParser::new())]
    grammar: Option<String>,
    /// Only JSON by the schema in FILE, or by this one
    #[arg(short = 'j', long, value_name = "FILE|JSON", visible_alias = "json-schema-file", value_parser = NonEmptyStringValueParser::new())]
    json_schema: Option<String>,
    /// Only answers that this regular expression matches as a whole
    #[arg(long, value_name = "REGEX")]
    regex: Option<String>,
}

impl Constraint {
    /// The grammar that was asked for, checked, so that mistakes are told before a model is loaded.
    pub(crate) fn grammar(&self) -> Result<Option<Grammar>> {
        let (given, kind) = if let Some(given) = &self.grammar {
            (given, Kind::Gbnf)
        } else if let Some(given) = &self.json_schema {
            (given, Kind::JsonSchema)
        } else if let Some(given) = &self.regex {
            (given, Kind::Regex)
        } else {
            return Ok(None);
        };
        let grammar = match kind.other_than_a_path(given) {
            Some(otherwise) => kind.read(&read(given, otherwise)?).doing(given)?,
            None => kind.read(given).map_err(Error::usage)?,
        };
        Ok(Some(grammar))
    }
}

/// What an argument is written in.
#[derive(Clone, Copy)]
enum Kind {
    Gbnf,
    JsonSchema,
    Regex,
}

impl Kind {
    /// Where this is the path of a file, how it could be told that it is none.
    fn other_than_a_path(self, given: &str) -> Option<&'static str> {
        match self {
            Self::Gbnf => (!given.contains("::=")).then_some("a grammar itself has `::=` in it"),
            Self::JsonSchema => {
                (!given.trim_start().starts_with('{')).then_some("a schema itself begins with a brace")
            }
            Self::Regex => None,
        }
    }

    fn read(self, text: &str) -> Result<Grammar, GrammarError> {
        let grammar = match self {
            Self::Gbnf => Grammar::gbnf(text),
            Self::JsonSchema => Grammar::json_schema(text),
            Self::Regex => Grammar::regex(text),
        }?;
        grammar.check()?;
        Ok(grammar)
    }
}

fn read(path: &str, otherwise: &str) -> Result<String> {
    let doing = format_args!("reading {path}");
    if !Path::new(path).exists() {
        return Err(Error::failed(format_args!("{doing}: there is no such file; {otherwise}")));
    }
    files::text(files::read(path.as_ref(), doing)?, doing)
}
