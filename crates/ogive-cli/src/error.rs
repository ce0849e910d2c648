//! Why a command ended early.
//!
//! Whatever went wrong becomes one line here, with its causes: a user reads it once, and nobody matches on it.

use std::fmt::Display;

pub(crate) type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a command ended early.
#[derive(Debug)]
pub(crate) enum Error {
    /// The command line is wrong, whatever is in the files that it names.
    Usage(String),
    /// What was asked for failed.
    Failed(String),
    /// Ctrl-C, or a signal to end.
    Interrupted,
    /// Nobody reads stdout any more.
    ClosedPipe,
}

impl Error {
    /// A failure in words of one's own.
    pub(crate) fn failed(why: impl Display) -> Self {
        Self::Failed(one_line(&why.to_string()))
    }

    /// What a library says of a value that came from the command line.
    pub(crate) fn usage(why: impl std::error::Error) -> Self {
        Self::Usage(with_causes(&why))
    }
}

/// Any library's error. (This type is none itself, or the two implementations would meet.)
impl<E: std::error::Error> From<E> for Error {
    fn from(e: E) -> Self {
        Self::Failed(with_causes(&e))
    }
}

/// Says what was being done.
pub(crate) trait Doing<T> {
    fn doing(self, what: impl Display) -> Result<T>;
}

impl<T, E: std::error::Error> Doing<T> for std::result::Result<T, E> {
    fn doing(self, what: impl Display) -> Result<T> {
        self.map_err(|e| Error::failed(format_args!("{what}: {}", with_causes(&e))))
    }
}

/// What there is to tell of something that ended, and of how it was kept: that it is lost above all, also where nobody reads on or Ctrl-C
/// came.
pub(crate) fn both<T>(ended: Result<T>, kept: Result<()>) -> Result<T> {
    match (ended, kept) {
        (Err(Error::Failed(first)), Err(Error::Failed(then))) => {
            Err(Error::Failed(format!("{then}; and before that: {first}")))
        }
        (ended, kept) => kept.and(ended),
    }
}

/// An error and its causes in one line that cannot steer a terminal.
pub(crate) fn with_causes(e: &dyn std::error::Error) -> String {
    one_line(&ogive::with_causes(e))
}

/// The same without control characters: names in files could steer a terminal.
pub(crate) fn one_line(text: &str) -> String {
    let plain = |c: char| if c.is_control() { ' ' } else { c };
    text.lines()
        .map(str::trim)
        .filter(|l| !l.is_empty())
        .collect::<Vec<_>>()
        .join(" ")
        .chars()
        .map(plain)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct E(&'static str, Option<Box<Self>>);
    impl Display for E {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(self.0)
        }
    }
    impl std::error::Error for E {
        fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
            self.1.as_deref().map(|e| e as _)
        }
    }

    #[test]
    fn what_is_lost_is_told_first() {
        let failed = |why: &str| Err(Error::failed(why));
        let told = |ended, kept| match both(ended, kept) {
            Err(Error::Failed(why)) => why,
            other => format!("{other:?}"),
        };
        assert_eq!(told(Err(Error::ClosedPipe), failed("saving")), "saving");
        assert_eq!(told(Err(Error::Interrupted), failed("saving")), "saving");
        assert_eq!(told(Ok(()), failed("saving")), "saving");
        assert_eq!(told(failed("saying"), failed("saving")), "saving; and before that: saying");
        assert_eq!(told(failed("saying"), Ok(())), "saying");
        assert_eq!(told(Err(Error::ClosedPipe), Ok(())), "Err(ClosedPipe)");
        assert_eq!(told(Ok(()), Ok(())), "Ok(())");
    }

    #[test]
    fn causes_come_once_and_in_one_line() {
        let inner = |text| Some(Box::new(E(text, None)));
        assert_eq!(with_causes(&E("opening x", inner("no such\nfile"))), "opening x: no such file");
        assert_eq!(with_causes(&E("opening x: gone", inner("gone"))), "opening x: gone");
        assert_eq!(one_line("a\u{1b}[2Jb\r\n\n c\n"), "a [2Jb c");
    }
}
