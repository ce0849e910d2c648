//! Sessions and conversations in files.
//!
//! A file gets its name only when it is whole, and is checked to its last byte when it is read. Beside what
//! [`Engine::save`](crate::engine::Engine::save) writes it has a note, a JSON object: text that was drawn and not yet given
//! away (`held`), and the messages of a conversation with what was thought at each. So a conversation is a session too, and either opens as the other.

use crate::engine::{Placed, Request, sampler::Chain};
use crate::session::is_of_one_answer;
use crate::tensor::serde_json::{Value, from_slice, json};
use crate::tensor::{Error as ModelError, ErrorKind};
use crate::thinking::Place;
use crate::tokenizer::template::{ChatTemplate, Message};
use crate::{Chat, Error, Generate, Generation, Model, Result, Session};
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

const SAVING: &str = "saving a session";
const LOADING: &str = "loading a session";

/// Bytes that are read or written at a time.
const BUFFER: usize = 1 << 20;
/// Temporary names that are tried.
const TRIES: usize = 1000;

/// What a session's note says.
#[derive(Clone, Debug, Default)]
pub(crate) struct Note {
    /// Text that was drawn and not given away.
    pub(crate) held: String,
    /// Text at the end of an answer that was cut which may be the beginning of a stop string, and was given away.
    pub(crate) given: String,
    pub(crate) messages: Vec<Message>,
    /// What these show, in order, until it is with them: the message, what stands for it in the prompt, and how many tokens of that are rows.
    pub(crate) images: Vec<(usize, String, usize)>,
    /// Whether the last of them is over: the tokens go on with a question that was not answered and is none of the messages.
    pub(crate) closed: bool,
    /// Where in that message it stands, where thoughts are told apart, and what waits there.
    pub(crate) place: Option<(Place, String)>,
}

impl Note {
    /// The answer that what is drawn belongs to.
    pub(crate) fn answer(&self) -> Option<&Message> {
        self.messages.last().filter(|m| !self.closed && m.role == "assistant")
    }

    pub(crate) fn answer_mut(&mut self) -> Option<&mut Message> {
        let open = !self.closed;
        self.messages.last_mut().filter(|m| open && m.role == "assistant")
    }

    fn to_bytes(&self) -> Vec<u8> {
        let message = |(i, m): (usize, &Message)| {
            let mut object = m.to_json();
            let own = self.images.iter().filter(|(of, ..)| *of == i);
            let images: Vec<Value> =
                own.map(|(_, text, rows)| json!({ "text": text, "rows": rows })).collect();
            if !images.is_empty() {
                object["images"] = images.into();
            }
            object
        };
        let said: Vec<Value> = self.messages.iter().enumerate().map(message).collect();
        let mut note =
            json!({ "held": self.held, "given": self.given, "messages": said, "closed": self.closed });
        if let Some((place, waits)) = &self.place {
            note["place"] = json!([place.name(), waits]);
        }
        note.to_string().into_bytes()
    }

    fn from_bytes(bytes: &[u8]) -> Option<Self> {
        // Other programs on the same engine may write notes of their own.
        let Ok(note) = from_slice::<Value>(bytes) else { return Some(Self::default()) };
        let text = |value: &Value| value.as_str().map(ToOwned::to_owned);
        let messages = note.get("messages").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let [held, given] = ["held", "given"].map(|key| note.get(key).and_then(text).unwrap_or_default());
        let closed = note.get("closed").and_then(Value::as_bool).unwrap_or_default();
        let place = |value: &Value| Some((Place::named(value.get(0)?.as_str()?)?, text(value.get(1)?)?));
        let place = note.get("place").and_then(place);
        let image = |of: usize, value: &Value| {
            let rows = value.get("rows").and_then(Value::as_u64).and_then(|n| usize::try_from(n).ok());
            Some((of, text(value.get("text")?)?, rows?))
        };
        let list = |m: &Value| m.get("images").and_then(Value::as_array).cloned().unwrap_or_default();
        let images = messages.iter().enumerate().flat_map(|(i, m)| list(m).into_iter().map(move |v| (i, v)));
        let images = images.map(|(i, value)| image(i, &value)).collect::<Option<_>>()?;
        let messages = messages.iter().map(Message::from_json).collect::<Option<_>>()?;
        Some(Self { held, given, messages, images, closed, place })
    }
}

impl Model {
    /// A session that [`Session::save`] or [`Chat::save`] wrote, with this model. It goes on as if nothing had been in
    /// between: what it has read is not computed again, and [`Session::resume`] draws what would have been drawn.
    ///
    /// ```no_run
    /// # fn main() -> ogive::Result<()> {
    /// let model = ogive::open("model.gguf")?;
    /// let how = ogive::Generate::new().max_tokens(50);
    /// let mut session = model.session()?;
    /// print!("{}", session.generate("Once upon a time", &how)?.text()?);
    /// session.save("story.session")?;
    /// // Tomorrow, in another process:
    /// print!("{}", model.load_session("story.session")?.resume(&how)?.text()?);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the file is no saved session or a damaged one, if it is of another model, cache element or, where positions are
    /// scaled by it, context, or if it is longer than the context here.
    pub fn load_session(&self, path: impl AsRef<Path>) -> Result<Session> {
        let saved = Saved::open(path.as_ref())?;
        let mut session = self.session()?;
        saved.fill(&mut session)?;
        Ok(session)
    }

    /// A conversation that [`Chat::save`] wrote, with this model and its own template. With another template:
    /// [`Chat::new`] with a [loaded](Self::load_session) session.
    ///
    /// # Errors
    /// If the model has no template or one that cannot be read, and as [`load_session`](Self::load_session).
    pub fn load_chat(&self, path: impl AsRef<Path>) -> Result<Chat> {
        let source = self.chat_template().ok_or(Error::NoTemplate)?;
        Chat::new(self.load_session(path)?, ChatTemplate::new(source)?)
    }
}

impl Session {
    /// Goes on with a session that was saved with this model, instead of what this one holds. It takes the place of that in the cache, where
    /// [`Model::load_session`] would reserve another one.
    ///
    /// # Errors
    /// As of [`Model::load_session`], and the session is as it was: the file is read to its end before anything is given up. Should it fail
    /// only when it is read again, or the device then, the session holds nothing any more.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let mut saved = Saved::open(path.as_ref())?;
        if let Some(old) = self.seq {
            saved.check(self)?;
            self.engine.cancel(old);
            (self.seq, self.note) = Default::default();
        }
        saved.fill(self)
    }

    /// Writes the session to a file for [`Model::load_session`]: its tokens, what the cache holds of them, and where its
    /// sampler stands. It takes about as many bytes as the session does of the cache.
    ///
    /// # Errors
    /// If the session has no tokens yet, or writing fails. Of a file that was not written to its end nothing is left, and
    /// one that was there before stays. Who may read and write that one may do so with what replaces it; on Unix a new one is for its owner
    /// alone.
    pub fn save(&self, path: impl AsRef<Path>) -> Result<()> {
        self.save_with(path.as_ref(), &self.note)
    }

    pub(crate) fn save_with(&self, path: &Path, note: &Note) -> Result<()> {
        let id = self.seq.ok_or_else(|| nothing(SAVING))?;
        #[cfg(feature = "vision")]
        let note = &Note { images: crate::vision::noted(self, id, &note.messages)?, ..note.clone() };
        let note = note.to_bytes();
        whole_file(path, |out| self.engine.save(id, self.model.number(), &note, out))
            .map_err(|e| in_file(path, e))
    }

    /// Goes on where the session stopped, whether just now, or before it was saved: its sampler goes on too, with the random
    /// numbers it was at, so that the texts together are the one that would have come without a stop. `how` must ask for
    /// the same samplers and, as before, to [ignore the end](Generate::ignore_end) or not to; its seed is not looked at. Of a
    /// conversation that was loaded it is the last answer that goes on.
    ///
    /// # Errors
    /// If the session has no tokens yet, if there is no room to go on, or if `how` draws otherwise than it did: to go on so, there is
    /// [`resume_anew`](Self::resume_anew).
    pub fn resume(&mut self, how: &Generate) -> Result<Generation<'_>> {
        let chain = self.model.chain(&how.sampler)?;
        self.resume_with(how, chain)
    }

    /// The same by a chain of stages of one's own, made as the session's was; `how.sampler` is not looked at.
    ///
    /// # Errors
    /// If the session has no tokens yet, if there is no room to go on, or if `chain` has other stages than it drew by.
    pub fn resume_with(&mut self, how: &Generate, chain: Chain) -> Result<Generation<'_>> {
        self.go_on(how, chain, false)
    }

    /// Goes on where the session stopped, but draws anew: by the samplers that `how` asks for, from their beginning and its
    /// seed. The text is one still: what a stop string held back comes first, a character that was begun is ended, and a
    /// grammar goes on where it was.
    ///
    /// # Errors
    /// If the session has no tokens yet, if there is no room to go on, or if a setting of `how` is wrong.
    pub fn resume_anew(&mut self, how: &Generate) -> Result<Generation<'_>> {
        let chain = self.model.chain(&how.sampler)?;
        self.go_on(how, chain, true)
    }

    /// `anew`: the chain is not brought to where the last one stood.
    fn go_on(&mut self, how: &Generate, chain: Chain, anew: bool) -> Result<Generation<'_>> {
        let doing = "going on with a session";
        let state = self.seq.and_then(|id| self.engine.chain_state(id)).ok_or_else(|| nothing(doing))?;
        // A clone of the session's own has what `how` asks for already.
        let mut chain = self.model.endless(how, chain.without(is_of_one_answer))?;
        #[cfg(feature = "grammar")]
        let constraint;
        #[cfg(feature = "grammar")]
        {
            (chain, constraint) = self.model.constrained(how, chain)?;
        }
        if !anew {
            chain.restore(&state)?;
        }
        #[cfg(feature = "grammar")]
        if anew && constraint.is_some() {
            chain.restore_first(&state)?;
        }
        let inputs = self.seq.and_then(|id| self.engine.inputs(id)).unwrap_or_default().to_vec();
        let generation = self.start(self.tokens().to_vec(), inputs, how, chain, true)?;
        #[cfg(feature = "grammar")]
        let generation = generation.held_to(constraint);
        Ok(generation)
    }
}

impl Chat {
    /// Writes the conversation to a file for [`Model::load_chat`]: its messages, and the [session](Session::save) with what
    /// it has read of them, if it has read any.
    ///
    /// # Errors
    /// If nothing was said yet, or writing fails; if nothing was read yet, and the template does not take the messages; if these were changed, and
    /// show other images than the session has read.
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<()> {
        if self.session.seq.is_none() && !self.talk.messages.is_empty() {
            self.hold()?;
        }
        let note = Note { messages: self.talk.messages.clone(), ..self.session.note.clone() };
        self.session.save_with(path.as_ref(), &note)
    }

    /// Has the session hold the conversation unread, as a saved one has tokens: as much as it could go on with.
    fn hold(&mut self) -> Result<()> {
        let (prompt, _) = self.talk.rendered()?;
        let (mut ids, mut inputs) = self.session.model.read(&prompt)?;
        ids.truncate(self.session.model.context().saturating_sub(1).max(1));
        if let Some(first) = inputs.iter().position(|input| input.tokens().end > ids.len()) {
            ids.truncate(inputs[first].at.max(1));
            inputs.truncate(first);
        }
        let (id, _) = self.session.place(Request::new(ids, 1).inputs(inputs).keep())?;
        self.session.engine.pause(id);
        // What is drawn from here on belongs to no message.
        self.session.note.closed = true;
        Ok(())
    }

    /// Goes on with a conversation that was saved with this model, instead of this one: see [`Session::load`]. The template stays.
    ///
    /// # Errors
    /// As of [`Session::load`]; the messages are then as they were. Where the session holds nothing any more, they are read anew.
    pub fn load(&mut self, path: impl AsRef<Path>) -> Result<()> {
        self.session.load(path)?;
        self.talk.messages = std::mem::take(&mut self.session.note.messages);
        Ok(())
    }
}

/// A file that has a session in it, it is to be hoped.
struct Saved<'p> {
    path: &'p Path,
    file: BufReader<File>,
    len: u64,
}

impl<'p> Saved<'p> {
    fn open(path: &'p Path) -> Result<Self> {
        let file = File::open(path).map_err(|e| unread(path, e))?;
        let len = file.metadata().map_err(|e| unread(path, e))?.len();
        Ok(Self { path, file: BufReader::with_capacity(BUFFER, file), len })
    }

    /// That `session` would take it; it is at its beginning again then.
    fn check(&mut self, session: &Session) -> Result<()> {
        let number = session.model.number();
        let would = session.engine.would_load(number, &mut self.file, self.len);
        let (note, inputs) = would.map_err(|e| in_file(self.path, e))?;
        self.note(&note, &session.model, &inputs)?;
        self.file.rewind().map_err(|e| unread(self.path, e))
    }

    /// Loads it into a session that holds nothing.
    fn fill(mut self, session: &mut Session) -> Result<()> {
        let loaded = session.engine.load(session.model.number(), &mut self.file, self.len);
        let loaded = loaded.map_err(|e| in_file(self.path, e))?;
        let inputs = session.engine.inputs(loaded.id).unwrap_or_default();
        let note = self.note(&loaded.note, &session.model, inputs).inspect_err(|_| {
            session.engine.cancel(loaded.id);
        })?;
        (session.seq, session.note) = (Some(loaded.id), note);
        Ok(())
    }

    /// The note, with the images that its messages show, of which the session has what stands in place of its tokens.
    #[cfg_attr(not(feature = "vision"), expect(unused, reason = "such a build has no images"))]
    fn note(&self, bytes: &[u8], model: &Model, inputs: &[Placed]) -> Result<Note> {
        let wrong = |why: &str| in_file(self.path, ModelError::invalid(LOADING, why));
        let none = || wrong("its note is not one of this program's");
        let mut note = Note::from_bytes(bytes).ok_or_else(none)?;
        #[cfg(feature = "vision")]
        if !crate::vision::restore(&mut note, model, inputs) {
            return Err(wrong("its messages show other images than it has"));
        }
        #[cfg(not(feature = "vision"))]
        if !note.images.is_empty() {
            return Err(wrong("its messages show images, and this build of Ogive does not see"));
        }
        Ok(note)
    }
}

fn unread(path: &Path, e: io::Error) -> Error {
    in_file(path, ModelError::new(LOADING, ErrorKind::Io(e)))
}

fn nothing(doing: &str) -> Error {
    ModelError::invalid(doing, "it holds no tokens yet; generate something first").into()
}

fn in_file(path: &Path, e: ModelError) -> Error {
    e.within(&path.display().to_string()).into()
}

/// Writes a file under a temporary name beside its own, and gives it its own when it is whole.
fn whole_file(
    path: &Path,
    write: impl FnOnce(&mut dyn Write) -> Result<(), ModelError>,
) -> Result<(), ModelError> {
    // Two that save at a time must not meet.
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let failed = |e: io::Error| ModelError::new(SAVING, ErrorKind::Io(e));
    // What a link points to is replaced, and not the link.
    let path = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let name = path.file_name().filter(|_| path.metadata().map_or(true, |m| m.is_file()));
    let name = name.ok_or_else(|| ModelError::invalid(SAVING, "this is not the name of a file"))?;
    // One that was killed may have left its file, and had this number: in containers every program is the first.
    let mut tries = 0..TRIES;
    let (file, temporary) = loop {
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}-{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
        let temporary = path.with_file_name(hidden);
        let mut new = OpenOptions::new();
        // A conversation is nobody else's.
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut new, 0o600);
        match new.write(true).create_new(true).open(&temporary) {
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists && tries.next().is_some() => {}
            file => break (file.map_err(failed)?, Temporary(temporary)),
        }
    };
    let mut out = BufWriter::with_capacity(BUFFER, file);
    write(&mut out)?;
    // Unless somebody has decided otherwise. (A file system that has no permissions says so, and needs none.)
    #[cfg(unix)]
    if let Ok(old) = fs::metadata(&path) {
        let _ = out.get_ref().set_permissions(old.permissions());
    }
    out.flush().and_then(|()| out.get_ref().sync_all()).map_err(failed)?;
    fs::rename(&temporary.0, &path).map_err(failed)
}

/// A name that stands for nothing when this is dropped.
struct Temporary(PathBuf);

impl Drop for Temporary {
    fn drop(&mut self) {
        // Gone already where it was renamed; else nobody can be told of a failure here.
        let _ = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_keeps_thoughts_and_reads_those_without() {
        let old = br#"{"held":"a","given":"","messages":[{"role":"user","content":"Hi"}],"closed":false}"#;
        let mut note = Note::from_bytes(old).unwrap();
        assert_eq!((&*note.messages, &note.place), (&[Message::new("user", "Hi")][..], &None));
        assert_eq!(from_slice::<Value>(&note.to_bytes()).unwrap(), from_slice::<Value>(old).unwrap());
        note.messages.push(Message::new("assistant", "4").thinking("2 and 2"));
        note.place = Some((Place::Thinking, "\n".into()));
        let read = Note::from_bytes(&note.to_bytes()).unwrap();
        assert_eq!((read.messages, read.place), (note.messages, note.place));
        assert!(Note::from_bytes(br#"{"messages":[{"role":"user"}]}"#).is_none());
    }
}
