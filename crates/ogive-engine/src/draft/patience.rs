//! When to guess again, where guesses were in vain.

/// Counts what was in vain, and has ever more steps pass between two tries.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    /// Tries in a row that were in vain.
    misses: usize,
    /// Steps that are left until the next.
    rest: usize,
}

impl Patience {
    /// After so many steps come between.
    const AFTER: usize = 2;
    /// Up to so many.
    const LONGEST: usize = 16;

    /// Whether it is time to try; if not, it is a step nearer.
    pub(crate) fn rested(&mut self) -> bool {
        let rested = self.rest == 0;
        self.rest = self.rest.saturating_sub(1);
        rested
    }

    /// It was tried.
    pub(crate) fn learn(&mut self, in_vain: bool) {
        self.misses = if in_vain { self.misses.saturating_add(1) } else { 0 };
        self.rest = self.misses.saturating_sub(Self::AFTER).min(Self::LONGEST);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tries_become_seldom_and_one_that_was_not_in_vain_makes_up_for_all() {
        let mut patience = Patience::default();
        let mut tries = |steps: usize, in_vain: bool| {
            let mut tried = 0;
            for _ in 0..steps {
                if patience.rested() {
                    patience.learn(in_vain);
                    tried += 1;
                }
            }
            tried
        };
        assert_eq!(tries(2, true), 2);
        assert_eq!(tries(169, true), 17, "one, two ... sixteen steps between, and a try each");
        assert_eq!(tries(170, true), 10, "never more than sixteen between");
        assert!(tries(17, false) > 0);
        assert_eq!(tries(10, false), 10);
    }
}
