//! Files that are split into parts, and the names of the parts.
//!
//! Parts are found by name alone (`STEM-00001-of-00003.gguf`, as the known splitters write), and then each must say of
//! itself which part it is. So links, renamed files and parts of other models are found out, and nothing can go round
//! in circles.

use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::metadata::Metadata;

/// The part's number, from 0.
pub(crate) const NO: &str = "split.no";
/// How many parts there are.
pub(crate) const COUNT: &str = "split.count";
/// How many tensors all parts have together.
pub(crate) const TENSORS: &str = "split.tensors.count";

/// The name of part `number`, counted **from 1**, of `count`: `STEM-00001-of-00003.gguf`.
#[must_use]
pub fn split_file_name(stem: &str, number: u64, count: u64) -> String {
    format!("{stem}-{number:05}-of-{count:05}.gguf")
}

/// What a file says of being a part.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Split {
    pub(crate) no: u64,
    pub(crate) count: u64,
    pub(crate) tensors: Option<u64>,
}

impl Split {
    /// `None` if the file is whole, which a split into one part is too.
    pub(crate) fn of(metadata: &Metadata) -> Result<Option<Self>> {
        let count = metadata.opt_u64(COUNT)?.unwrap_or(0);
        let no = metadata.opt_u64(NO)?;
        if count <= 1 && no.unwrap_or(0) == 0 {
            return Ok(None);
        }
        let no = no.ok_or_else(|| Error::MissingKey { key: NO.to_owned() })?;
        if no >= count {
            return Err(problem(format!("the file says it is part {no} (from 0) of {count}")));
        }
        Ok(Some(Self { no, count, tensors: metadata.opt_u64(TENSORS)? }))
    }

    /// That this is the first part.
    pub(crate) fn expect_first(self, path: Option<&Path>) -> Result<()> {
        if self.no == 0 {
            return Ok(());
        }
        let first = path.and_then(|p| stem(p, self.no, self.count)).map_or_else(
            || "the first part".to_owned(),
            |stem| format!("`{}`", split_file_name(stem, 1, self.count)),
        );
        Err(problem(format!("this is part {} of {}; open {first} instead", self.no + 1, self.count)))
    }

    /// That `metadata` are those of part `no` of the same split.
    pub(crate) fn expect_part(self, no: u64, metadata: &Metadata) -> Result<()> {
        let found = Self::of(metadata)?.ok_or_else(|| {
            problem(format!("part {} of {} is expected here, but the file is whole", no + 1, self.count))
        })?;
        if (found.no, found.count) != (no, self.count) {
            return Err(problem(format!(
                "part {} of {} is expected here, but the file says it is part {} of {}; a part is missing, stands twice \
                 or belongs to another model",
                no + 1,
                self.count,
                found.no + 1,
                found.count
            )));
        }
        Ok(())
    }

    /// That all parts together have as many tensors as the first announces.
    pub(crate) fn expect_tensors(self, found: usize) -> Result<()> {
        match self.tensors {
            Some(n) if n != found as u64 => {
                Err(problem(format!("{n} tensors are announced but all parts together have {found}")))
            }
            _ => Ok(()),
        }
    }

    /// The path of part `no`, from 0, given that of the first.
    pub(crate) fn path(self, first: &Path, no: u64) -> Result<PathBuf> {
        let stem = stem(first, 0, self.count).ok_or_else(|| {
            let name = split_file_name("NAME", 1, self.count);
            problem(format!(
                "this is the first of {} parts and must be called `{name}`, or the others cannot be found",
                self.count
            ))
        })?;
        Ok(first.with_file_name(split_file_name(stem, no + 1, self.count)))
    }
}

pub(crate) fn problem(problem: String) -> Error {
    Error::Split { problem }
}

/// The stem of a path that is named as part `no`, from 0, of `count`.
fn stem(path: &Path, no: u64, count: u64) -> Option<&str> {
    path.file_name()?.to_str()?.strip_suffix(&split_file_name("", no.checked_add(1)?, count))
}
