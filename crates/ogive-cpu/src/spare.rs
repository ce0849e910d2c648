//! Buffers of results that are used again.
//!
//! A prompt's step makes and drops the same few large results in every layer. From the system each would come as fresh pages, and
//! clearing those and mapping them in takes a tenth of such a step. So a tensor's buffer comes back here when the tensor is
//! dropped. What is kept is bounded, and goes with the backend.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Fewer elements are left to the allocator, which keeps such pages itself.
const LARGE: usize = 1 << 15;
/// At most so many elements are kept.
const KEPT: usize = 24 << 20;

/// Buffers that wait to be used again.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<Vec<Vec<f32>>>);

/// A tensor's elements. They come back to where their buffer is from.
#[derive(Debug)]
pub(crate) struct Values {
    values: Vec<f32>,
    home: Weak<Spare>,
}

impl Spare {
    /// `len` elements for an operator that writes every one of them: what they are until then means nothing.
    pub(crate) fn take(&self, len: usize) -> Vec<f32> {
        let mut values = if len < LARGE { Vec::new() } else { self.find(len).unwrap_or_default() };
        values.resize(len, 0.0);
        if cfg!(debug_assertions) {
            values.fill(f32::NAN);
        }
        values
    }

    fn find(&self, len: usize) -> Option<Vec<f32>> {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // Of those that are large enough the smallest, unless it is far too large.
        let fits = list.iter().enumerate().filter(|(_, v)| (len..=4 * len).contains(&v.capacity()));
        let at = fits.min_by_key(|(_, v)| v.capacity())?.0;
        Some(list.swap_remove(at))
    }

    fn put(&self, values: Vec<f32>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.push(values);
        // The oldest go first.
        let mut kept = list.iter().map(Vec::capacity).sum::<usize>();
        while kept > KEPT {
            kept -= list.remove(0).capacity();
        }
    }
}

impl Values {
    /// Elements whose buffer comes back to `home`.
    pub(crate) fn of(home: &Arc<Spare>, values: Vec<f32>) -> Self {
        Self { values, home: Arc::downgrade(home) }
    }
}

impl From<Vec<f32>> for Values {
    fn from(values: Vec<f32>) -> Self {
        Self { values, home: Weak::new() }
    }
}

impl std::ops::Deref for Values {
    type Target = [f32];
    fn deref(&self) -> &[f32] {
        &self.values
    }
}

impl std::ops::DerefMut for Values {
    fn deref_mut(&mut self) -> &mut [f32] {
        &mut self.values
    }
}

impl Drop for Values {
    fn drop(&mut self) {
        if self.values.capacity() >= LARGE
            && let Some(home) = self.home.upgrade()
        {
            home.put(std::mem::take(&mut self.values));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_is_used_again_and_a_much_larger_one_is_not() {
        let home = Arc::new(Spare::default());
        let first = home.take(2 * LARGE);
        let at = first.as_ptr();
        drop(Values::of(&home, first));
        let small = home.take(LARGE / 4);
        assert_ne!(small.as_ptr(), at);
        let again = home.take(2 * LARGE - 5);
        assert_eq!((again.as_ptr(), again.len()), (at, 2 * LARGE - 5));
        drop(Values::of(&home, home.take(9 * LARGE)));
        assert!(home.find(LARGE).is_none());
    }

    #[test]
    fn no_more_is_kept_than_may_be() {
        let home = Arc::new(Spare::default());
        let many: Vec<_> = (0..5).map(|_| Values::of(&home, vec![0.0; KEPT / 3])).collect();
        drop(many);
        assert_eq!(home.0.lock().unwrap().len(), 3);
    }

    #[test]
    fn a_tensor_may_outlive_its_backend() {
        let home = Arc::new(Spare::default());
        let values = Values::of(&home, vec![1.0; LARGE]);
        drop(home);
        assert_eq!(values[0], 1.0);
    }
}
