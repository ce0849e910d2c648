//! Bytes to the device and back, through page-locked memory.
//!
//! What goes up is copied to one of two halves and queued, so that the caller's memory is free at once and the device is waited for
//! only where both halves are full. What comes down is waited for: whoever asks for values wants them. What is more than a half comes
//! through two as well, so that the host copies one out while the next is on its way. The two ways have a lock each, so that a step can be
//! sent up while another thread waits for values.

use crate::driver::{Address, Context, Event, Pinned, Stream};
use crate::error::Result;
use std::sync::{Arc, Mutex, PoisonError};

/// Bytes of a half.
const HALF: usize = 4 << 20;
/// Copies begin at multiples of this.
const GRAIN: usize = 64;

/// A half of the buffer for one way, and a mark after what was queued with it last.
#[derive(Debug)]
struct Half {
    memory: Pinned,
    done: Event,
}

#[derive(Debug)]
struct Up {
    halves: [Half; 2],
    current: usize,
    filled: usize,
}

/// Page-locked memory between host and device.
#[derive(Debug)]
pub(crate) struct Transfer {
    up: Mutex<Up>,
    down: Mutex<[Half; 2]>,
}

impl Transfer {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        let half = || Ok(Half { memory: Pinned::new(context, HALF)?, done: Event::new(context)? });
        let up = Up { halves: [half()?, half()?], current: 0, filled: 0 };
        Ok(Self { up: Mutex::new(up), down: Mutex::new([half()?, half()?]) })
    }

    /// Queues a copy of `bytes` to the device.
    pub(crate) fn send(&self, stream: &Stream, to: Address, bytes: &[u8]) -> Result<()> {
        self.send_parts(stream, to, bytes.len(), &mut |at, part| {
            part.copy_from_slice(&bytes[at..at + part.len()]);
        })
    }

    /// Queues a copy of numbers to the device.
    pub(crate) fn send_values(&self, stream: &Stream, to: Address, values: &[f32]) -> Result<()> {
        self.send_parts(stream, to, 4 * values.len(), &mut |at, part| {
            for (bytes, value) in part.chunks_exact_mut(4).zip(&values[at / 4..]) {
                bytes.copy_from_slice(&value.to_le_bytes());
            }
        })
    }

    /// The same for words.
    pub(crate) fn send_words(&self, stream: &Stream, to: Address, words: &[u32]) -> Result<()> {
        self.send_parts(stream, to, 4 * words.len(), &mut |at, part| {
            for (bytes, word) in part.chunks_exact_mut(4).zip(&words[at / 4..]) {
                bytes.copy_from_slice(&word.to_le_bytes());
            }
        })
    }

    /// Has `fill(first byte, bytes)` fill part after part, and queues each. Parts begin at multiples of [`GRAIN`].
    fn send_parts(
        &self,
        stream: &Stream,
        to: Address,
        len: usize,
        fill: &mut dyn FnMut(usize, &mut [u8]),
    ) -> Result<()> {
        let mut up = self.up.lock().unwrap_or_else(PoisonError::into_inner);
        let mut at = 0;
        while at < len {
            if up.filled == HALF {
                // What leaves a half is marked; the other half is free once its own mark is reached.
                up.halves[up.current].done.record(stream)?;
                up.current = 1 - up.current;
                up.halves[up.current].done.wait("sending to the device")?;
                up.filled = 0;
            }
            let (from, current) = (up.filled, up.current);
            let part = (len - at).min(HALF - from);
            let memory = &mut up.halves[current].memory;
            fill(at, &mut memory.bytes()[from..from + part]);
            stream.copy_in(to + at as u64, memory, from..from + part)?;
            up.filled = (from + part).next_multiple_of(GRAIN).min(HALF);
            at += part;
        }
        Ok(())
    }

    /// Waits for the device and gives `len` bytes of it to `take`, part after part.
    pub(crate) fn fetch(
        &self,
        stream: &Stream,
        doing: &str,
        from: Address,
        len: usize,
        take: &mut dyn FnMut(&[u8]),
    ) -> Result<()> {
        let mut halves = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        let [mut half, mut other] = halves.each_mut();
        let part = |at: usize| HALF.min(len - at);
        if len > 0 {
            stream.copy_out(&mut half.memory, from, part(0))?;
        }
        for at in (0..len).step_by(HALF) {
            let next = at + HALF;
            if next < len {
                half.done.record(stream)?;
                stream.copy_out(&mut other.memory, from + next as u64, part(next))?;
                half.done.wait(doing)?;
            } else {
                stream.wait(doing)?;
            }
            take(&half.memory.bytes()[..part(at)]);
            std::mem::swap(&mut half, &mut other);
        }
        Ok(())
    }
}
