//! Registers to rows: those that are never live at the same time share one.
//!
//! A compiler numbers registers by the hundred and uses each once. With a row for each, a warp's registers fill a cache by themselves and must be
//! zeroed for each block; shared, they fit into a corner of it. It is a linear scan over intervals (Poletto and Sarkar, 1999), which
//! never runs out of rows here and thus never spills.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::live::Interval;
use crate::exec::registers::Slot;

/// The row of each register of one class, and how many rows that takes; the first `reserved` are left out.
pub(super) fn rows(intervals: &[Interval], reserved: u32) -> (Vec<Slot>, u32) {
    let mut order: Vec<(u32, u32, usize)> = intervals
        .iter()
        .enumerate()
        .filter_map(|(number, interval)| interval.map(|(from, to)| (from, to, number)))
        .collect();
    order.sort_unstable();
    let mut rows = vec![0; intervals.len()];
    let mut taken: BinaryHeap<Reverse<(u32, Slot)>> = BinaryHeap::new();
    let mut free: BinaryHeap<Reverse<Slot>> = BinaryHeap::new();
    let mut count = reserved;
    for (from, to, number) in order {
        while let Some(&Reverse((end, row))) = taken.peek()
            && end < from
        {
            taken.pop();
            free.push(Reverse(row));
        }
        let row = match free.pop() {
            Some(Reverse(row)) => row,
            None => {
                count += 1;
                count - 1
            }
        };
        rows[number] = row;
        taken.push(Reverse((to, row)));
    }
    (rows, count)
}

#[cfg(test)]
mod tests {
    use super::rows;

    #[test]
    fn what_overlaps_has_rows_of_its_own() {
        let intervals = [Some((0, 9)), Some((1, 2)), None, Some((3, 4)), Some((4, 8)), Some((5, 5))];
        let (rows, count) = rows(&intervals, 1);
        assert_eq!((rows, count), (vec![1, 2, 0, 2, 3, 2], 4));
    }

    #[test]
    fn random_intervals_never_share_while_live() {
        let mut state = 1u64;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (state >> 33) as u32 % below
        };
        for _ in 0..200 {
            let intervals: Vec<_> = (0..60)
                .map(|_| {
                    let from = random(100);
                    (random(8) != 0).then(|| (from, from + random(30)))
                })
                .collect();
            let (rows, count) = rows(&intervals, 0);
            let mut most = 0;
            for at in 0..130 {
                let live: Vec<_> = (0..60)
                    .filter(|&n| intervals[n].is_some_and(|(from, to)| from <= at && at <= to))
                    .map(|n| rows[n])
                    .collect();
                let mut unique = live.clone();
                unique.sort_unstable();
                unique.dedup();
                assert_eq!(unique.len(), live.len());
                most = most.max(live.len());
            }
            assert_eq!(most as u32, count, "no more rows than are live at once");
        }
    }
}
