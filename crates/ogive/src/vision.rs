//! Images: from a file to the rows that stand in a prompt for it.
//!
//! A model that was opened to [see](crate::Options::vision) has two things more: a processor, which cuts an image and says what text stands for
//! it, and a tower, which makes rows of the pieces. The text has a token for each row, so that lengths are known before anything is computed;
//! the engine gets the rows in place of those tokens. What was made of an image stays with it as long as the program has it, since a
//! conversation shows it in every turn anew.

use crate::engine::backend::{Backend, Vectors};
use crate::engine::{Placed, SeqId};
use crate::images::{self, Picture, Processor};
use crate::nn::{self, Loader, Registry, Tower};
use crate::saved::Note;
use crate::tensor::{Config, Error as ModelError, ErrorKind, serde_json};
use crate::tokenizer::template::{Attached, Message};
use crate::tokenizer::{EncodeOptions, Tokenizer};
use crate::weights::Checkpoint;
use crate::{Error, Model, Options, Prompt, Result, Session};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// What lets a model see.
#[derive(Debug)]
pub(crate) struct Vision {
    processor: Processor,
    tower: Box<dyn Tower>,
    /// The token that stands for a row.
    row: u32,
}

/// What a model has made of an image.
#[derive(Clone, Debug, PartialEq)]
struct Seen {
    /// What stands for it in a prompt.
    text: String,
    /// Rows, in one piece or several, as they were made.
    parts: Vec<Arc<Vectors>>,
}

impl Seen {
    /// How many tokens of the text are rows.
    fn rows(&self) -> usize {
        self.parts.iter().map(|part| part.rows()).sum()
    }
}

/// An image before it is seen by a model: what that made of it before, or what it is cut into.
enum Look {
    Seen(Arc<Seen>),
    Cut(Picture),
}

impl Look {
    fn text(&self) -> &str {
        match self {
            Self::Seen(seen) => &seen.text,
            Self::Cut(picture) => &picture.text,
        }
    }

    fn rows(&self) -> usize {
        match self {
            Self::Seen(seen) => seen.rows(),
            Self::Cut(picture) => picture.rows(),
        }
    }
}

/// An image to show to a model. Cheap to clone; what a model makes of it is kept with it, for the model that saw it last.
#[derive(Clone, Debug)]
pub struct Image(Arc<Kept>);

#[derive(Debug)]
struct Kept {
    /// None of one that came back with a saved conversation.
    pixels: Option<images::Image>,
    seen: Mutex<Option<(Weak<Vision>, Arc<Seen>)>>,
}

impl Image {
    /// Reads a PNG, JPEG or WebP file.
    ///
    /// # Errors
    /// If it cannot be read, is none of these or damaged, or has more pixels than [an image may](images::MAX_PIXELS).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Ok(images::Image::open(path.as_ref())?.into())
    }

    /// The same of a file's bytes.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        Ok(images::Image::decode(bytes)?.into())
    }

    /// Its pixels; `None` of one that came back with a saved conversation, which has what the model saw and no more.
    pub fn pixels(&self) -> Option<&images::Image> {
        self.0.pixels.as_ref()
    }

    /// One that was seen before, by `vision` if that is there.
    fn restored(vision: Option<&Arc<Vision>>, seen: Seen) -> Self {
        let by = vision.map(Arc::downgrade).unwrap_or_default();
        Self(Arc::new(Kept { pixels: None, seen: Mutex::new(Some((by, Arc::new(seen)))) }))
    }

    /// What `vision` made of it, if that was the last to see it.
    fn seen(&self, vision: &Arc<Vision>) -> Option<Arc<Seen>> {
        let seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        let (by, seen) = seen.as_ref()?;
        Weak::ptr_eq(by, &Arc::downgrade(vision)).then(|| Arc::clone(seen))
    }

    /// What the last model that saw it made of it.
    fn seen_last(&self) -> Option<Arc<Seen>> {
        let seen = self.0.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.as_ref().map(|(_, seen)| Arc::clone(seen))
    }
}

impl From<images::Image> for Image {
    fn from(pixels: images::Image) -> Self {
        Self(Arc::new(Kept { pixels: Some(pixels), seen: Mutex::default() }))
    }
}

impl From<Image> for Attached {
    fn from(image: Image) -> Self {
        Self::new("image", image)
    }
}

impl PartialEq for Image {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || (self.0.pixels.is_some() && self.0.pixels == other.0.pixels)
    }
}

impl Eq for Image {}

fn seeing(why: impl Into<String>) -> Error {
    ModelError::invalid("images", why).into()
}

/// The checkpoint that has what a model sees by, where these options name another than the model's own.
fn other(options: &Options) -> Result<Option<Checkpoint>> {
    let path = options.vision.as_ref().and_then(Option::as_ref);
    Ok(path.map(|path| options.files.open(path)).transpose()?)
}

impl Vision {
    /// What these options ask for, if they ask for any.
    pub(crate) fn of(
        checkpoint: &Checkpoint,
        options: &Options,
        backend: &dyn Backend,
        tokenizer: &Result<Tokenizer, String>,
        model: &dyn nn::Model,
    ) -> Result<Option<Arc<Self>>> {
        if options.vision.is_none() {
            return Ok(None);
        }
        let tokenizer = tokenizer.as_ref().map_err(|e| Error::NoTokenizer(e.clone()))?;
        let other = other(options)?;
        let from = other.as_ref().unwrap_or(checkpoint);
        let vision = Self::load(from, &options.registry, backend, tokenizer)?;
        let (made, taken) = (vision.tower.dim(), model.takes_vectors());
        if taken != Some(made) {
            let text = &checkpoint.architecture;
            let takes = taken.map_or("none in place of tokens".into(), |taken| format!("rows of {taken}"));
            let why = format!("rows of {made} elements are made of images, and {text} takes {takes}");
            return Err(seeing(format!("{why}; open what this model sees by, and not another's")));
        }
        Ok(Some(vision.into()))
    }

    /// Reads what a checkpoint has of it, for a model of `tokenizer`'s vocabulary.
    fn load(
        checkpoint: &Checkpoint,
        registry: &Registry,
        backend: &dyn Backend,
        tokenizer: &Tokenizer,
    ) -> Result<Self> {
        let (processor, tower) = eyes(checkpoint, registry, backend)?;
        let options = EncodeOptions { add_special: false, parse_special: true };
        let ids = tokenizer.encode(processor.row_token(), options)?;
        let &[row] = &*ids else {
            let (name, n) = (processor.row_token(), ids.len());
            return Err(seeing(format!(
                "`{name}` stands for a row of an image, and is {n} tokens of this vocabulary"
            )));
        };
        Ok(Self { processor, tower, row })
    }

    fn picture(&self, image: &Image) -> Result<Picture> {
        let gone = "an image that came back with a saved conversation was seen by another model than this";
        let pixels = image.pixels().ok_or_else(|| seeing(format!("{gone}; show it anew")))?;
        Ok(self.processor.prepare(pixels)?)
    }

    /// An image as far as that takes no computing.
    fn look(self: &Arc<Self>, image: &Image) -> Result<Look> {
        match image.seen(self) {
            Some(seen) => Ok(Look::Seen(seen)),
            None => Ok(Look::Cut(self.picture(image)?)),
        }
    }

    /// What stands for an image, and its rows: made now, unless they were before.
    fn see(self: &Arc<Self>, b: &dyn Backend, image: &Image, look: Look) -> Result<Arc<Seen>> {
        let Picture { text, tiles, .. } = match (image.seen(self), look) {
            (Some(seen), _) | (None, Look::Seen(seen)) => return Ok(seen),
            (None, Look::Cut(picture)) => picture,
        };
        let mut parts = Vec::with_capacity(tiles.len());
        for tile in &tiles {
            let vectors = self.tower.see(b, &tile.patches, tile.grid)?;
            if vectors.rows() != tile.rows {
                let (made, grid) = (vectors.rows(), tile.grid);
                let why =
                    format!("{made} rows were made of {grid:?} patches that {} tokens stand for", tile.rows);
                return Err(seeing(format!("{why}; do weights and settings belong together?")));
            }
            parts.push(Arc::new(vectors));
        }
        let seen = Arc::new(Seen { text, parts });
        let kept = Some((Arc::downgrade(self), Arc::clone(&seen)));
        *image.0.seen.lock().unwrap_or_else(PoisonError::into_inner) = kept;
        Ok(seen)
    }

    /// `text` with what stands for each image where its marker is.
    fn written(&self, text: &str, standing: &[String]) -> Result<String> {
        let marker = self.processor.marker();
        let pieces: Vec<&str> = text.split(marker).collect();
        if pieces.len() != standing.len() + 1 {
            let (markers, images) = (pieces.len() - 1, standing.len());
            let why = format!(
                "the text has `{marker}` {markers} times, for {images} images; write it once for each"
            );
            return Err(seeing(why));
        }
        let mut all = String::from(pieces[0]);
        for (image, piece) in standing.iter().zip(&pieces[1..]) {
            all += image;
            all += piece;
        }
        Ok(all)
    }

    /// Where in `ids` the rows of these images stand.
    fn place(&self, ids: &[u32], seen: &[Arc<Seen>]) -> Result<Vec<Placed>> {
        let mut at = ids.iter().enumerate().filter(|(_, id)| **id == self.row).map(|(at, _)| at).peekable();
        let mut placed = Vec::new();
        for part in seen.iter().flat_map(|seen| &seen.parts) {
            let mut done = 0;
            while done < part.rows() {
                let Some(first) = at.next() else { return Err(self.miscounted(ids, part.rows())) };
                let mut n = 1;
                while done + n < part.rows() && at.next_if_eq(&(first + n)).is_some() {
                    n += 1;
                }
                let whole = n == part.rows();
                let vectors = if whole { Arc::clone(part) } else { part.part(done..done + n)?.into() };
                placed.push(Placed::new(first, vectors));
                done += n;
            }
        }
        Ok(placed)
    }

    /// Checks that as many of `ids` stand for rows as there are.
    fn count(&self, ids: &[u32], rows: usize) -> Result<()> {
        let there = ids.iter().filter(|id| **id == self.row).count();
        if there == rows { Ok(()) } else { Err(self.miscounted(ids, rows)) }
    }

    fn miscounted(&self, ids: &[u32], rows: usize) -> Error {
        let (name, there) = (self.processor.row_token(), ids.iter().filter(|id| **id == self.row).count());
        seeing(format!(
            "the prompt has `{name}` {there} times, for {rows} rows of its images; does its text spell it?"
        ))
    }
}

/// What these options would have a model see by; for estimates.
pub(crate) fn asked(
    checkpoint: &Checkpoint,
    options: &Options,
    backend: &dyn Backend,
) -> Result<Option<(Processor, Box<dyn Tower>)>> {
    if options.vision.is_none() {
        return Ok(None);
    }
    let other = other(options)?;
    eyes(other.as_ref().unwrap_or(checkpoint), &options.registry, backend).map(Some)
}

/// What cuts the images of a checkpoint, and what sees them.
fn eyes(
    checkpoint: &Checkpoint,
    registry: &Registry,
    backend: &dyn Backend,
) -> Result<(Processor, Box<dyn Tower>)> {
    let Checkpoint { config, architecture, source, folder, .. } = checkpoint;
    let read = |name: &str| folder.as_deref().map(|folder| settings(&folder.join(name))).transpose();
    let whole = read("processor_config.json")?.flatten();
    // Newer checkpoints have one within the other.
    let nested = whole.as_ref().map(|all| all.at("image_processor")).filter(|c| c.0.is_object());
    let own = read("preprocessor_config.json")?.flatten().or(nested);
    let processor = Processor::load(config, own.as_ref(), whole.as_ref())?.ok_or_else(|| {
        let why =
            format!("{architecture} is of no family whose images are known, or has no `vision_config`: open a model that sees, or this one without");
        ModelError::unsupported("images", why)
    })?;
    Ok((processor, registry.tower(architecture, config, &Loader::new(&**source, backend))?))
}

/// A file of settings, if it is there.
fn settings(path: &Path) -> Result<Option<Config>> {
    let at = |e: ModelError| e.within(&path.display().to_string());
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(e) => return Err(at(ModelError::new("reading settings", ErrorKind::Io(e))).into()),
    };
    let value =
        serde_json::from_slice(&bytes).map_err(|e| at(ModelError::invalid("settings", e.to_string())))?;
    Ok(Some(Config(value)))
}

impl Model {
    /// Whether it was opened to [see](crate::Options::vision).
    pub fn sees(&self) -> bool {
        self.vision().is_some()
    }

    /// What stands in a text where an image is to be, for [`Prompt::Shown`]. `None` of a model that does not see.
    pub fn image_marker(&self) -> Option<&str> {
        self.vision().map(|vision| vision.processor.marker())
    }

    fn eyes(&self) -> Result<&Arc<Vision>> {
        let blind = "the model was not opened to see; open it with `Options::vision` or `vision_from` (`--vision`, `--mmproj`)";
        self.vision().ok_or_else(|| seeing(blind))
    }

    /// The text that these images make of `text`, to its ids.
    fn shown_ids(&self, text: &str, standing: &[String], rendered: bool) -> Result<Vec<u32>> {
        let text = self.eyes()?.written(text, standing)?;
        let options = EncodeOptions { add_special: !rendered, parse_special: true };
        Ok(self.tokenizer()?.encode(&text, options)?)
    }

    /// The ids of a text with images, whose rows are not made yet.
    pub(crate) fn encode_shown(&self, text: &str, images: &[Image], rendered: bool) -> Result<Vec<u32>> {
        let vision = self.eyes()?;
        let standing = |image: &Image| Ok(vision.look(image)?.text().to_owned());
        let standing: Vec<String> = images.iter().map(standing).collect::<Result<_>>()?;
        self.shown_ids(text, &standing, rendered)
    }

    /// The same with their rows, unless there are more ids than leave room in `context` tokens. Nothing is computed for a prompt that cannot be
    /// gone on from.
    pub(crate) fn read_shown(
        &self,
        text: &str,
        images: &[Image],
        rendered: bool,
        context: usize,
    ) -> Result<(Vec<u32>, Vec<Placed>)> {
        let vision = self.eyes()?;
        vision.written(text, &vec![String::new(); images.len()])?;
        let looks: Vec<Look> = images.iter().map(|image| vision.look(image)).collect::<Result<_>>()?;
        let standing: Vec<String> = looks.iter().map(|look| look.text().to_owned()).collect();
        let ids = self.shown_ids(text, &standing, rendered)?;
        let rows = looks.iter().map(Look::rows).sum();
        vision.count(&ids, rows)?;
        if ids.len() >= context {
            let why = format!("a prompt of {} tokens, {rows} of which are rows of images,", ids.len());
            let what = format!("{why} leaves no room in a context of {context}");
            return Err(seeing(format!("{what}; ask for a longer context, or show smaller images")));
        }
        let see = |(image, look): (&Image, Look)| vision.see(&**self.backend(), image, look);
        let seen: Vec<Arc<Seen>> = images.iter().zip(looks).map(see).collect::<Result<_>>()?;
        let placed = vision.place(&ids, &seen)?;
        Ok((ids, placed))
    }
}

/// Images that messages show, in order.
pub(crate) fn shown(messages: &[Message]) -> Result<Vec<Image>> {
    let image = |what: &Attached| {
        let other = || {
            seeing(format!("a message shows something of the kind `{}`; only images are known", what.kind()))
        };
        what.get::<Image>().cloned().ok_or_else(other)
    };
    messages.iter().flat_map(|message| &message.attached).map(image).collect()
}

/// A conversation with images as `render` makes it of messages, and its text. A template that leaves out what is shown gets markers in texts.
pub(crate) fn rendered(
    model: &Model,
    messages: &[Message],
    render: &dyn Fn(&[Message]) -> Result<String>,
) -> Result<(Prompt, String)> {
    let (images, marker) = (shown(messages)?, model.eyes()?.processor.marker());
    let mut text = render(messages);
    if text.as_ref().map_or(true, |text| text.matches(marker).count() != images.len()) {
        let in_text = |message: &Message| {
            let said = marker.repeat(message.attached.len()) + &message.content;
            let mut plain = message.clone();
            (plain.content, plain.attached) = (said, Vec::new());
            plain
        };
        let plain: Vec<Message> = messages.iter().map(in_text).collect();
        text = render(&plain).or(text);
    }
    let text = text?;
    Ok((Prompt::Shown { text: text.clone(), images, rendered: true }, text))
}

/// What a saved session notes of the images that its messages show: the message of each, what stands for it, and its rows, which must be the
/// first that the sequence has: that is where they are found again. Behind them may be more, of a question that was not answered and is none of
/// the messages.
pub(crate) fn noted(
    session: &Session,
    id: SeqId,
    messages: &[Message],
) -> Result<Vec<(usize, String, usize)>> {
    let model = session.model();
    let mut inputs = session.engine.inputs(id).unwrap_or_default().iter();
    let mut noted = Vec::new();
    for (i, message) in messages.iter().enumerate() {
        for image in shown(std::slice::from_ref(message))? {
            let seen = match model.vision() {
                Some(vision) => vision.see(&**model.backend(), &image, vision.look(&image)?)?,
                None => image.seen_last().ok_or_else(unread)?,
            };
            for part in &seen.parts {
                follows(part, &mut inputs)?;
            }
            noted.push((i, seen.text.clone(), seen.rows()));
        }
    }
    Ok(noted)
}

/// Takes what a part of an image stands as, in one piece or several, if that comes next.
fn follows<'i>(part: &Arc<Vectors>, inputs: &mut impl Iterator<Item = &'i Placed>) -> Result<()> {
    let mut done = 0;
    while done < part.rows() {
        let Placed { vectors, .. } = inputs.next().ok_or_else(unread)?;
        let end = done + vectors.rows();
        let whole = Arc::ptr_eq(part, vectors) || part == vectors;
        if !whole && !part.part(done..end).is_ok_and(|part| part == **vectors) {
            return Err(unread());
        }
        done = end;
    }
    Ok(())
}

fn unread() -> Error {
    seeing("messages show images that the model has not read last; say something to it, and save then")
}

/// Gives the messages of a loaded note their images back, from the rows that the sequence has. False where those are others.
pub(crate) fn restore(note: &mut Note, model: &Model, inputs: &[Placed]) -> bool {
    let mut inputs = inputs.iter();
    for (of, text, rows) in std::mem::take(&mut note.images) {
        let (mut parts, mut left) = (Vec::new(), rows);
        while left > 0 {
            let Some(input) = inputs.next().filter(|input| input.vectors.rows() <= left) else {
                return false;
            };
            left -= input.vectors.rows();
            parts.push(Arc::clone(&input.vectors));
        }
        let Some(message) = note.messages.get_mut(of) else { return false };
        let image = Image::restored(model.vision(), Seen { text, parts });
        message.attached.push(image.into());
    }
    true
}
