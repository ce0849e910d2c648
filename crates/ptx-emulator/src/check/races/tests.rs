//! The detector alone, driven by hand: each way to order two accesses, and what is left when a part of it is missing.

use std::sync::Arc;

use super::{Known, Moment, Races};
use crate::check::clocks::Clocks;
use crate::check::watch::{Access, BlockWatch, Order, Scope, Watch, Who};
use crate::fault::{Fault, Kind};
use crate::memory::Memory;
use crate::program::Program;

const DATA: u64 = 1 << 20;
const FLAG: u64 = 2 << 20;
const ALL: u32 = !0;

/// A block of two warps with its clocks, as the machine keeps them.
struct Block {
    clocks: Clocks,
    watch: Box<dyn BlockWatch>,
}

impl Block {
    fn new(kernel: &Arc<dyn Watch>, x: u32) -> Self {
        let mut clocks = Clocks::default();
        clocks.reset(2);
        Self { clocks, watch: kernel.block([x, 0, 0], 2) }
    }

    fn access(&mut self, warp: u32, lane: u32, address: u64, access: Access) -> Result<(), Box<Fault>> {
        let who = Who { warp, lane, place: 0 };
        self.watch.access(&mut self.clocks, who, address, 4, access)?;
        if matches!(access, Access::Strong { .. }) {
            self.watch.strong_done(who, address, access);
        }
        Ok(())
    }

    fn write(&mut self, warp: u32, address: u64) -> Result<(), Box<Fault>> {
        self.access(warp, 0, address, Access::Write)
    }

    fn read(&mut self, warp: u32, address: u64) -> Result<(), Box<Fault>> {
        self.access(warp, 0, address, Access::Read)
    }

    fn atomic(&mut self, warp: u32, order: Order) {
        let access = Access::Strong { reads: true, writes: true, order, scope: Scope::Device };
        self.access(warp, 0, FLAG, access).expect("atomics do not race among themselves");
    }

    fn fence(&mut self, warp: u32, scope: Scope) {
        self.watch.fence(&mut self.clocks, warp, Order::Sequential, scope);
    }

    fn barrier(&mut self) {
        let both: Vec<_> = (0..2).map(|w| self.clocks.release(w)).collect();
        for warp in 0..2 {
            both.iter().for_each(|clock| self.clocks.acquire(warp, clock));
        }
        self.watch.barrier(&[(0, ALL), (1, ALL)], &[(0, ALL), (1, ALL)]);
    }
}

fn program() -> Arc<Program> {
    Arc::new(Program::empty("kernel"))
}

fn races() -> Arc<Races> {
    Races::new(Arc::new(Memory::new()))
}

fn kernel(races: &Arc<Races>, chain: u32, count: u64, known: Known) -> Arc<dyn Watch> {
    races.kernel(&program(), [4, 1, 1], Moment { chain, count }, known.clone(), known)
}

/// Two blocks of one kernel.
fn blocks() -> (Block, Block) {
    let kernel = kernel(&races(), 1, 1, Known::new());
    (Block::new(&kernel, 0), Block::new(&kernel, 1))
}

fn is_race(outcome: Result<(), Box<Fault>>) -> bool {
    matches!(outcome, Err(fault) if fault.kind == Kind::GlobalRace)
}

#[test]
fn warps_of_a_block_need_a_barrier() {
    let (mut a, _) = blocks();
    a.write(0, DATA).unwrap();
    a.read(0, DATA).unwrap();
    assert!(is_race(a.read(1, DATA)));
    a.barrier();
    a.read(1, DATA).unwrap();
    assert!(is_race(a.write(0, DATA)));
}

#[test]
fn lanes_of_a_warp_need_a_warp_barrier() {
    let (mut a, _) = blocks();
    a.access(0, 3, DATA, Access::Write).unwrap();
    assert!(is_race(a.access(0, 4, DATA, Access::Read)));
    a.clocks.release(0);
    a.access(0, 4, DATA, Access::Read).unwrap();
}

#[test]
fn blocks_are_not_ordered_by_barriers() {
    let (mut a, mut b) = blocks();
    a.write(0, DATA).unwrap();
    a.barrier();
    b.barrier();
    let fault = b.read(0, DATA).unwrap_err();
    assert_eq!(fault.kind, Kind::GlobalRace);
    assert_eq!(fault.site.as_ref().map(|s| s.block), Some([1, 0, 0]));
    assert_eq!(fault.other.as_ref().map(|s| (s.block, s.kernel.as_str())), Some(([0, 0, 0], "kernel")));
}

/// The last block reduces: warp 1 wrote, warp 0 counts. Each flag leaves one part of the protocol out.
fn last_block(release: bool, barrier: bool, acquire: bool) -> Result<(), Box<Fault>> {
    let (mut a, mut b) = blocks();
    a.write(1, DATA)?;
    if release {
        a.fence(1, Scope::Device);
    }
    if barrier {
        a.barrier();
    }
    a.atomic(0, Order::Relaxed);
    b.atomic(0, Order::Relaxed);
    if acquire {
        b.fence(0, Scope::Device);
    }
    b.barrier();
    b.read(1, DATA)
}

#[test]
fn a_last_block_reduction_is_in_order_only_with_all_its_parts() {
    last_block(true, true, true).unwrap();
    assert!(is_race(last_block(false, true, true)));
    assert!(is_race(last_block(true, false, true)));
    assert!(is_race(last_block(true, true, false)));
}

#[test]
fn the_counting_thread_may_fence_for_its_block() {
    let (mut a, mut b) = blocks();
    a.write(1, DATA).unwrap();
    a.barrier();
    a.fence(0, Scope::Device);
    a.atomic(0, Order::Relaxed);
    b.atomic(0, Order::AcquireRelease);
    b.read(0, DATA).unwrap();
    // What came after the fence was not released.
    a.write(1, DATA + 4).unwrap();
    assert!(is_race(b.read(0, DATA + 4)));
}

#[test]
fn a_fence_of_the_block_does_not_reach_another() {
    let (mut a, mut b) = blocks();
    a.write(0, DATA).unwrap();
    a.fence(0, Scope::Block);
    a.atomic(0, Order::Relaxed);
    b.atomic(0, Order::Acquire);
    assert!(is_race(b.read(0, DATA)));
}

#[test]
fn release_and_acquire_of_the_accesses_themselves() {
    let (mut a, mut b) = blocks();
    a.write(0, DATA).unwrap();
    let store = Access::Strong { reads: false, writes: true, order: Order::Release, scope: Scope::Device };
    a.access(0, 0, FLAG, store).unwrap();
    let load = Access::Strong { reads: true, writes: false, order: Order::Acquire, scope: Scope::Device };
    b.access(1, 0, FLAG, load).unwrap();
    b.read(1, DATA).unwrap();
    assert!(is_race(b.write(0, DATA)));
}

#[test]
fn knowledge_goes_on_through_a_third_block() {
    let kernel = kernel(&races(), 1, 1, Known::new());
    let [mut a, mut b, mut c] = [0, 1, 2].map(|x| Block::new(&kernel, x));
    a.write(0, DATA).unwrap();
    for block in [&mut a, &mut b, &mut c] {
        block.atomic(0, Order::AcquireRelease);
    }
    c.read(0, DATA).unwrap();
}

#[test]
fn a_flag_read_too_early_orders_nothing() {
    let (mut a, mut b) = blocks();
    b.atomic(0, Order::Acquire);
    a.write(0, DATA).unwrap();
    a.atomic(0, Order::Release);
    assert!(is_race(b.read(0, DATA)));
}

#[test]
fn an_mbarrier_hands_foreign_knowledge_on() {
    let (mut a, mut b) = blocks();
    a.write(0, DATA).unwrap();
    a.atomic(0, Order::Release);
    b.atomic(0, Order::Acquire);
    assert!(is_race(b.read(1, DATA)));
    b.watch.mbarrier_arrive(0, 1, 64);
    b.watch.mbarrier_wait(1, 1, 128);
    assert!(is_race(b.read(1, DATA)));
    b.watch.mbarrier_wait(1, 1, 64);
    b.read(1, DATA).unwrap();
}

#[test]
fn kernels_of_two_streams_need_an_event() {
    let races = races();
    let first = Moment { chain: 1, count: 1 };
    let mut a = Block::new(&kernel(&races, 1, 1, Known::new()), 0);
    a.write(0, DATA).unwrap();
    let mut b = Block::new(&kernel(&races, 2, 1, Known::new()), 0);
    let fault = b.read(0, DATA).unwrap_err();
    assert!(fault.message.contains("read after write"), "{fault}");
    let mut known = Known::new();
    known.add(first);
    let mut c = Block::new(&kernel(&races, 2, 2, known), 0);
    c.read(0, DATA).unwrap();
}

#[test]
fn a_dependent_launch_knows_its_predecessor_only_after_the_wait() {
    let races = races();
    let mut a = Block::new(&kernel(&races, 1, 1, Known::new()), 0);
    a.write(0, DATA).unwrap();
    let mut after = Known::new();
    after.add(Moment { chain: 1, count: 1 });
    let watch = races.kernel(&program(), [4, 1, 1], Moment { chain: 1, count: 2 }, Known::new(), after);
    let mut b = Block::new(&watch, 0);
    assert!(is_race(b.read(0, DATA)));
    b.watch.dependency_wait();
    b.read(0, DATA).unwrap();
}

#[test]
fn copies_and_kernels_race_too() {
    let races = races();
    let mut a = Block::new(&kernel(&races, 1, 1, Known::new()), 0);
    a.write(0, DATA + 8).unwrap();
    let second = Moment { chain: 2, count: 1 };
    let fault =
        races.transfer("cuMemcpyDtoHAsync", second, &Known::new()).touch(DATA, 64, false).unwrap_err();
    assert_eq!(fault.site.map(|s| s.kernel), Some("cuMemcpyDtoHAsync".into()));
    assert_eq!(fault.other.map(|s| s.kernel), Some("kernel".into()));
    let mut known = Known::new();
    known.add(Moment { chain: 1, count: 1 });
    races.transfer("cuMemcpyDtoHAsync", second, &known).touch(DATA, 64, false).unwrap();
    // The kernel still runs and writes what the copy has read: the copy knows the kernel, the kernel not the copy.
    assert!(is_race(a.write(0, DATA + 8)));
    races.forget(DATA, 64);
    a.write(0, DATA + 8).unwrap();
}
