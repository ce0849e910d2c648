//! A step on the device: checked once, sent up once, so that operators can trust its numbers.
//!
//! All of it is one buffer of 32-bit words whose head says where the rest is (`step.cu` in ogive-kernels reads it), so a step costs one
//! upload whatever it is made of. What depends on the cache too (whether blocks are there) is checked at the first use of a
//! group and remembered.
//!
//! Steps that can be replayed have their words in one of two places that stay, in turn if the next is planned while one runs.

use crate::device::Device;
use crate::driver::Address;
use crate::memory::Buffer;
use ogive_backend::{Batch, Plan, StepKey};
use ogive_tensor::{Error, Result, Tensor};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Words of the head.
const HEAD: usize = 16;
/// Words of a span.
const SPAN: usize = 6;
/// Counters of a step with no more rows than these, for blocks that count who is done.
pub(crate) const TICKETS: usize = 256;
/// Words that kernels ask for at once, whatever they are (`Step::owner_soon`): none of them is a counter, which other blocks may be writing.
const ASKED: usize = 64;
/// A row of nobody's.
const NOBODY: u32 = u32::MAX;

/// Words of the smallest lasting place; others have a power of two of them.
const LEAST: usize = 1024;
/// Lasting places of one size.
const PLACES: usize = 2;

/// Places for the words of steps that can be replayed: recorded kernels read the step there.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    all: Mutex<Vec<Slot>>,
}

#[derive(Debug)]
struct Slot {
    buffer: Arc<Buffer>,
    words: usize,
}

impl Slots {
    /// A place for so many words, unless all of that size are held.
    fn take(&self, device: &Device, words: usize) -> Result<Option<Arc<Buffer>>> {
        let words = words.max(LEAST).next_power_of_two();
        if let Some(found) = Self::find(&self.all(), words) {
            return Ok(found);
        }
        // Not under the lock: a step that taking memory waits for may drop all records, and these places with them.
        let buffer = Arc::new(device.take("plan", 4 * words)?);
        let mut all = self.all();
        if let Some(sooner) = Self::find(&all, words) {
            return Ok(sooner);
        }
        all.push(Slot { buffer: Arc::clone(&buffer), words });
        Ok(Some(buffer))
    }

    fn all(&self) -> MutexGuard<'_, Vec<Slot>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place that no step holds; none where all are held and there may be no more. `None`: there may be one more.
    fn find(all: &[Slot], words: usize) -> Option<Option<Arc<Buffer>>> {
        let of_size = || all.iter().filter(|slot| slot.words == words);
        let free = of_size().find(|slot| Arc::strong_count(&slot.buffer) == 1);
        let free = free.map(|slot| Arc::clone(&slot.buffer));
        (free.is_some() || of_size().count() >= PLACES).then_some(free)
    }

    /// Gives back the places that no step holds.
    pub(crate) fn forget(&self) {
        self.all().retain(|slot| Arc::strong_count(&slot.buffer) > 1);
    }
}

/// What is known of a group of a cache with so many blocks of such a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Checked {
    pub(crate) group: usize,
    pub(crate) blocks: usize,
    pub(crate) block_len: usize,
    /// Whether the whole context must be there, or only what the step appends.
    pub(crate) context: bool,
}

/// What [`Plan::device`] is here.
#[derive(Debug)]
pub(crate) struct CudaPlan {
    buffer: Arc<Buffer>,
    lasts: bool,
    device: u64,
    /// The largest token, position and type.
    largest: [u32; 3],
    /// Rows of all contexts.
    pub(crate) contexts: usize,
    /// The longest context.
    pub(crate) longest: usize,
    /// Whether some rows see each other to both sides.
    pub(crate) mutual: bool,
    checked: Mutex<Vec<Checked>>,
}

fn wrong<T>(why: String) -> Result<T> {
    Err(Error::invalid("plan", why))
}

/// Checks that a batch is what it says; the rows of all contexts.
fn check(batch: &Batch) -> Result<u32> {
    let rows = batch.tokens.len();
    batch.check_rows()?;
    if u32::try_from(rows).is_err() {
        return wrong(format!("{rows} rows are more than can be counted"));
    }
    let (mut next, mut contexts) = (0usize, 0u32);
    for (i, span) in batch.spans.iter().enumerate() {
        let end = span.start.checked_add(span.len);
        if span.start != next || end.is_none_or(|end| end > rows) {
            let why = format!("span {i} has {} rows from {}", span.len, span.start);
            return wrong(format!("{why}, but must begin at {next} and end within {rows}"));
        }
        // Token numbers and rows of contexts are 32 bits wide.
        let context = span.past.checked_add(span.len).and_then(|c| u32::try_from(c).ok());
        let Some(all) = context.and_then(|c| contexts.checked_add(c)) else {
            return wrong(format!("span {i} follows {} tokens, more than can be counted", span.past));
        };
        contexts = all;
        next += span.len;
    }
    if let Some(row) = batch.outputs.iter().find(|&&row| row as usize >= rows) {
        return wrong(format!("row {row} is wanted of a step of {rows} rows"));
    }
    Ok(contexts)
}

/// The words of a checked batch.
fn words(batch: &Batch) -> Result<Vec<u32>> {
    let word = |n: usize| {
        u32::try_from(n).map_err(|_| Error::invalid("plan", format!("{n} is more than can be counted")))
    };
    let groups = batch.spans.iter().map(|s| s.tables.len()).max().unwrap_or(0);
    let mut all = vec![0; HEAD];
    let section = |words: &mut Vec<u32>, at: usize, part: &[u32]| {
        words[at] = word(words.len())?;
        words.extend_from_slice(part);
        Ok::<(), Error>(())
    };
    section(&mut all, 4, &batch.tokens)?;
    section(&mut all, 5, &batch.positions)?;
    section(&mut all, 6, &batch.types)?;
    let mut owners = vec![NOBODY; batch.tokens.len()];
    for (span, i) in batch.spans.iter().zip(0u32..) {
        owners[span.rows()].fill(i);
    }
    section(&mut all, 7, &owners)?;
    section(&mut all, 8, &batch.outputs)?;
    let (mut spans, mut first) = (Vec::with_capacity(SPAN * batch.spans.len()), 0);
    for span in &batch.spans {
        let [read, write] = span.slots;
        spans.extend([word(span.start)?, word(span.len)?, word(span.past)?, word(first)?, read, write]);
        first += span.context();
    }
    section(&mut all, 9, &spans)?;
    // Tables say where blocks lie from the beginning of everything.
    let entries = 3 * groups * batch.spans.len();
    let begin = all.len() + entries;
    let (mut tables, mut blocks) = (Vec::with_capacity(entries), Vec::new());
    for group in 0..groups {
        for span in &batch.spans {
            let table = span.tables.get(group);
            let (given_back, list) = table.map_or((0, &[][..]), |t| (t.first, &t.blocks[..]));
            tables.extend([word(begin + blocks.len())?, word(list.len())?, word(given_back)?]);
            blocks.extend_from_slice(list);
        }
    }
    section(&mut all, 10, &tables)?;
    section(&mut all, 11, &blocks)?;
    all.resize(all.len().max(ASKED), 0);
    // Sent as zeros with every step, so that no step leans on how the one before ended.
    section(&mut all, 12, if batch.tokens.len() <= TICKETS { &[0; TICKETS] } else { &[] })?;
    section(&mut all, 13, batch.places.as_flattened())?;
    let ends = batch.mutual().unwrap_or_default();
    section(&mut all, 14, &ends.into_iter().map(word).collect::<Result<Vec<_>>>()?)?;
    let counts = [batch.tokens.len(), batch.spans.len(), batch.outputs.len(), groups];
    for (to, n) in all.iter_mut().zip(counts) {
        *to = word(n)?;
    }
    Ok(all)
}

/// Checks a step and sends it up.
pub(crate) fn plan(device: &Device, batch: Batch) -> Result<Plan> {
    device.outside("plan")?;
    let contexts = check(&batch)? as usize;
    let words = words(&batch)?;
    let place = match StepKey::of(0, &batch) {
        Some(_) => device.slots.take(device, words.len())?,
        None => None,
    };
    let lasts = place.is_some();
    let buffer = match place {
        Some(buffer) => buffer,
        None => Arc::new(device.take("plan", 4 * words.len())?),
    };
    device.transfer.send_words(device.stream(), buffer.address(), &words)?;
    let largest =
        [&batch.tokens, &batch.positions, &batch.types].map(|ids| ids.iter().copied().max().unwrap_or(0));
    let longest = batch.spans.iter().map(|s| s.context()).max().unwrap_or(0);
    let mutual = batch.inputs.iter().any(|input| input.of.mutual);
    let (device, checked) = (device.id(), Mutex::default());
    Ok(Plan::new(batch, CudaPlan { buffer, lasts, device, largest, contexts, longest, mutual, checked }))
}

/// What this backend made of a step.
pub(crate) fn device<'a>(at: &str, d: &Device, plan: &'a Plan) -> Result<&'a CudaPlan> {
    let own = plan.device::<CudaPlan>().ok_or_else(|| Error::foreign("plan").within(at))?;
    d.own("plan", own.device).map_err(|e| e.within(at))?;
    Ok(own)
}

/// Checks that `x` has a row for each row of the step.
pub(crate) fn rows_fit(at: &str, x: &Tensor, plan: &Plan) -> Result<()> {
    let rows = plan.batch().tokens.len();
    if x.shape().first() != rows {
        return Err(Error::shape(at, x.shape(), x.shape().with_first(rows)));
    }
    Ok(())
}

impl CudaPlan {
    /// Where it lies.
    pub(crate) fn address(&self) -> Address {
        self.buffer.address()
    }

    /// Whether that is a place that stays.
    pub(crate) fn lasts(&self) -> bool {
        self.lasts
    }

    /// The largest of tokens (0), positions (1) or types (2).
    pub(crate) fn largest(&self, kind: usize) -> u32 {
        self.largest.get(kind).copied().unwrap_or(u32::MAX)
    }

    /// Checks that every token that will be touched has a block, and that the cache has that block.
    pub(crate) fn check_blocks(&self, at: &str, batch: &Batch, want: Checked) -> Result<()> {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if checked.contains(&want) {
            return Ok(());
        }
        let Checked { group, blocks, block_len, context } = want;
        for span in &batch.spans {
            let missing = |t: usize| {
                Err(Error::invalid(at, format!("a sequence has no block for token {t} in group {group}")))
            };
            let (first, end) = (if context { 0 } else { span.past }, span.context());
            let Some(table) = span.tables.get(group) else {
                if first < end {
                    return missing(first);
                }
                continue;
            };
            if !context && first < end && first / block_len < table.first {
                let why = format!("the block of token {first} was given back before it was stored");
                return Err(Error::invalid(at, why));
            }
            let held = table.first.saturating_add(table.blocks.len()).saturating_mul(block_len);
            if end > held && first < end {
                return missing(held.max(first));
            }
            if u32::try_from(table.first).is_err() {
                return missing(first);
            }
            // Only what is touched: a table may hold more than a step needs.
            let range = (first / block_len).saturating_sub(table.first)
                ..end.div_ceil(block_len).saturating_sub(table.first);
            let touched = table.blocks.get(range).unwrap_or_default();
            if let Some(block) = touched.iter().find(|&&b| b as usize >= blocks) {
                let why = format!("block {block} of group {group} is outside its {blocks}");
                return Err(Error::invalid(at, why));
            }
        }
        checked.push(want);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ogive_backend::BlockTable;

    fn batch() -> Batch {
        let mut b = Batch::default();
        b.push(&[1, 2, 3], 0, vec![BlockTable { first: 0, blocks: vec![7] }], [0, 1]);
        b.push(&[4], 7, vec![BlockTable { first: 1, blocks: vec![5, 6] }], [2, 3]);
        b.want_last();
        b.pad(6);
        b
    }

    #[test]
    fn words_are_where_the_head_says() {
        let w = words(&batch()).unwrap();
        assert_eq!(w[..4], [6, 2, 1, 1]);
        let at = |i: usize, n: usize| &w[w[i] as usize..][..n];
        assert_eq!(at(4, 6), [1, 2, 3, 4, 0, 0]);
        assert_eq!(at(5, 4), [0, 1, 2, 7]);
        assert_eq!(at(7, 6), [0, 0, 0, 1, NOBODY, NOBODY]);
        assert_eq!(at(8, 1), [3]);
        assert_eq!(at(9, 12), [0, 3, 0, 0, 0, 1, 3, 1, 7, 3, 2, 3]);
        let tables = at(10, 6);
        assert_eq!((tables[1], tables[2], tables[4], tables[5]), (1, 0, 2, 1));
        assert_eq!(w[tables[3] as usize..][..2], [5, 6]);
        assert_eq!(at(12, TICKETS), [0; TICKETS]);
        assert!(w[12] as usize >= ASKED);
    }

    #[test]
    fn wrong_steps_are_refused() {
        assert_eq!(check(&batch()).unwrap(), 11);
        let spoil: [fn(&mut Batch); 6] = [
            |b| b.positions.truncate(2),
            |b| b.types.push(0),
            |b| b.spans[1].start = 2,
            |b| b.spans[1].len = 4,
            |b| b.spans[0].past = usize::MAX,
            |b| b.outputs.push(6),
        ];
        for spoil in spoil {
            let mut b = batch();
            spoil(&mut b);
            assert!(check(&b).is_err());
        }
    }
}
