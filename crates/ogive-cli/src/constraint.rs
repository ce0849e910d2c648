//! Arguments that say what the answer must be.
//!
//! llama.cpp has an option for a text and another one for a file of each kind. Here one takes both: a schema in JSON begins with a
//! brace and a grammar has `::=` in it, which no path that anybody uses does.

use crate::error::{Doing, Error, Result};
use crate::files;
use clap::builder::NonEmptyStringValueParser;
use ogive::grammar::Grammar;
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
        let grammar = if let Some(given) = &self.grammar {
            match given.contains("::=") {
                true => Grammar::gbnf(given)?,
                false => Grammar::gbnf(&read(given, "a grammar itself has `::=` in it")?).doing(given)?,
            }
        } else if let Some(given) = &self.json_schema {
            match given.trim_start().starts_with('{') {
                true => Grammar::json_schema(given)?,
                false => {
                    Grammar::json_schema(&read(given, "a schema itself begins with a brace")?).doing(given)?
                }
            }
        } else if let Some(regex) = &self.regex {
            Grammar::regex(regex)?
        } else {
            return Ok(None);
        };
        grammar.check()?;
        Ok(Some(grammar))
    }
}

fn read(path: &str, otherwise: &str) -> Result<String> {
    let doing = format_args!("reading {path}");
    if !Path::new(path).exists() {
        return Err(Error::failed(format_args!("{doing}: there is no such file; {otherwise}")));
    }
    files::text(files::read(path.as_ref(), doing)?, doing)
}
