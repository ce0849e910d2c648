//! Part of a buffer that someone owns. Weights own their bytes through this, so that a backend may keep a mapped file
//! instead of copying it, and a slice of rows is a weight like any other.

use crate::{Error, Result};
use std::{
    fmt,
    ops::{Deref, Range},
    sync::{Arc, Mutex, OnceLock, PoisonError},
};

/// A range of a shared buffer: a mapped file, a `Vec`, a download. Cloning shares the owner.
#[derive(Clone)]
pub struct Bytes {
    owner: Arc<dyn AsRef<[u8]> + Send + Sync>,
    range: Range<usize>,
    release: Option<Release>,
}

type Release = Arc<dyn Fn(Range<usize>) + Send + Sync>;

/// Bytes that are there once somebody has read them.
struct Lazy<F> {
    made: OnceLock<Vec<u8>>,
    len: usize,
    /// Goes once it has been used, and with it whatever the bytes were made of.
    fill: Mutex<Option<F>>,
}

impl<F: FnOnce(&mut [u8])> AsRef<[u8]> for Lazy<F> {
    fn as_ref(&self) -> &[u8] {
        self.made.get_or_init(|| {
            let mut bytes = vec![0; self.len];
            let fill = self.fill.lock().unwrap_or_else(PoisonError::into_inner).take();
            // It panicked before, and there is nothing left to make them of: zeros would be another weight.
            let fill = fill.expect("making these bytes failed before");
            fill(&mut bytes);
            bytes
        })
    }
}

impl Bytes {
    /// The part `range` of what `owner` holds.
    ///
    /// # Errors
    /// If it reaches outside, or ends before it begins.
    pub fn new(owner: Arc<dyn AsRef<[u8]> + Send + Sync>, range: Range<usize>) -> Result<Self> {
        match (*owner).as_ref().get(range.clone()) {
            Some(_) => Ok(Self { owner, range, release: None }),
            None => Err(Error::invalid("bytes", format!("the range {range:?} is outside its owner"))),
        }
    }

    /// `len` bytes that are made when they are first read, of this or any part of them, and kept as long as anyone has them: `fill` is
    /// given zeros. Whoever only asks for their number makes nothing.
    pub fn lazy(len: usize, fill: impl FnOnce(&mut [u8]) + Send + 'static) -> Self {
        let lazy = Lazy { made: OnceLock::new(), len, fill: Mutex::new(Some(fill)) };
        Self { owner: Arc::new(lazy), range: 0..len, release: None }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.range.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.range.is_empty()
    }

    /// A part of these bytes, of the same owner; `range` counts from their start.
    ///
    /// # Errors
    /// If it reaches outside, or ends before it begins.
    pub fn part(&self, range: Range<usize>) -> Result<Self> {
        let outside =
            || Error::invalid("bytes", format!("the range {range:?} is outside {} bytes", self.range.len()));
        if range.start > range.end || range.end > self.range.len() {
            return Err(outside());
        }
        let range = self.range.start + range.start..self.range.start + range.end;
        Ok(Self { range, ..self.clone() })
    }

    /// The same bytes, with what [`release`](Self::release) does: `f` is given a range of the owner. Parts have it too.
    pub fn on_release(mut self, f: impl Fn(Range<usize>) + Send + Sync + 'static) -> Self {
        self.release = Some(Arc::new(f));
        self
    }

    /// Tells the owner that these bytes will not be read soon, so that it may give memory back: a mapped file its pages, say. They
    /// stay what they are, for everyone, and reading them costs a little more at most. Nothing happens unless the owner has said what
    /// should ([`on_release`](Self::on_release)).
    ///
    /// For a backend that keeps a weight in a form of its own.
    pub fn release(&self) {
        if let Some(release) = &self.release {
            release(self.range.clone());
        }
    }
}

impl From<Vec<u8>> for Bytes {
    fn from(v: Vec<u8>) -> Self {
        Self { range: 0..v.len(), owner: Arc::new(v), release: None }
    }
}

impl Deref for Bytes {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &(*self.owner).as_ref()[self.range.clone()]
    }
}

impl fmt::Debug for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Bytes[{}]", self.range.len())
    }
}
