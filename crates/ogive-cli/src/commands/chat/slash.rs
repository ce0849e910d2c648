//! What a line that begins with a slash means.
//!
//! An unknown command is an error and not a message: a slip of the finger should not be answered by a model.

use std::path::PathBuf;

pub(super) const HELP: &str = "\
/help         this list
/reset        forgets the conversation, but not what the assistant is to be
/system TEXT  says what the assistant is to be; without TEXT, nothing in particular
/image FILE   shows an image with the next message, before it; without FILE, none
/save FILE    writes the conversation and what the model has read of it; only the messages, where FILE ends in .json
/load FILE    goes on with a conversation that was saved, either way
/stats        the context used, and how fast the last answer came
/exit         leaves, as Ctrl-D does
A line that ends with \\ goes on in the next. Ctrl-C ends an answer. A message that begins with / is written with two.";

pub(super) const NAMES: [&str; 8] =
    ["/help", "/exit", "/reset", "/system", "/image", "/save", "/load", "/stats"];

/// A command within a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Slash {
    Help,
    Exit,
    Reset,
    System(String),
    Image(Option<PathBuf>),
    Save(PathBuf),
    Load(PathBuf),
    Stats,
}

impl Slash {
    /// `None` for a message; an error for a command that is none.
    pub(super) fn parse(line: &str) -> Option<Result<Self, String>> {
        let line = line.trim();
        if !line.starts_with('/') || line.starts_with("//") {
            return None;
        }
        let (name, rest) = line.split_once(char::is_whitespace).unwrap_or((line, ""));
        let rest = rest.trim();
        let command = match name {
            "/system" => return Some(Ok(Self::System(rest.into()))),
            "/save" | "/load" if rest.is_empty() => {
                return Some(Err(format!("{name} needs the name of a file")));
            }
            "/image" => return Some(Ok(Self::Image(Some(rest.into()).filter(|_| !rest.is_empty())))),
            "/save" => return Some(Ok(Self::Save(rest.into()))),
            "/load" => return Some(Ok(Self::Load(rest.into()))),
            "/help" => Self::Help,
            "/exit" => Self::Exit,
            "/reset" => Self::Reset,
            "/stats" => Self::Stats,
            _ => return Some(Err(format!("unknown command `{name}`; /help lists the commands"))),
        };
        Some(if rest.is_empty() { Ok(command) } else { Err(format!("{name} takes nothing after it")) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_with_a_slash_are_commands() {
        let ok = |line| Slash::parse(line).unwrap().unwrap();
        assert_eq!(
            (ok("/help"), ok(" /exit "), ok("/reset"), ok("/stats")),
            (Slash::Help, Slash::Exit, Slash::Reset, Slash::Stats)
        );
        assert_eq!(ok("/system  Be brief. "), Slash::System("Be brief.".into()));
        assert_eq!(ok("/system a\nb"), Slash::System("a\nb".into()));
        assert_eq!(ok("/save a b.json"), Slash::Save("a b.json".into()));
        assert_eq!(ok("/load a b.session"), Slash::Load("a b.session".into()));
        assert_eq!(ok("/image a b.png"), Slash::Image(Some("a b.png".into())));
        assert_eq!(ok("/image"), Slash::Image(None));
        for bad in ["/", "/load", "/quit", "/Help", "/help me", "/save", "/?"] {
            assert!(Slash::parse(bad).unwrap().is_err(), "{bad}");
        }
        for message in ["", "hi", "a /help", "//help", "  "] {
            assert_eq!(Slash::parse(message), None, "{message}");
        }
        assert!(NAMES.iter().all(|n| HELP.contains(n)));
    }
}
