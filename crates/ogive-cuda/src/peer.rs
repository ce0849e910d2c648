//! What another backend of this crate computed, copied by the driver from device to device. The host waits for nothing.
//!
//! The copy is queued in the stream of the device that wants the values, so memory of that device is used again as everywhere: in the
//! order of its one stream. It waits for a mark behind what made the values. Whatever the other device does next waits for a
//! mark behind the copy, so its memory too is used again as everywhere, and no buffer has to know who else reads it. Waiting only where
//! memory is used again would order less, but nearly every step uses it: a recorded one writes where the last one wrote.
//!
//! A device that fails says so to whoever waits for it, and here nobody does. So whoever fetches values asks the devices that they came
//! through, which costs a call and no wait.

use crate::device::Device;
use crate::driver::{Address, Context, Event};
use crate::error::Result;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a device knows of those that values come from.
#[derive(Debug)]
pub(crate) struct Peers {
    /// Whether copies are made by the driver where they can be.
    pub(crate) on: bool,
    context: Arc<Context>,
    /// For one copy after the other: who waits for it waits for what it marked then.
    mark: Arc<Mutex<Event>>,
    /// The marks of devices whose values came here, be it through others, and of which it is not known whether they failed.
    open: Mutex<Vec<Arc<Mutex<Event>>>>,
    /// Whether the driver copies from there.
    known: Mutex<Vec<(Weak<Context>, bool)>>,
}

impl Peers {
    pub(crate) fn new(context: &Arc<Context>) -> Result<Self> {
        let mark = Arc::new(Mutex::new(Event::new(context)?));
        let context = Arc::clone(context);
        Ok(Self { on: true, context, mark, open: Mutex::default(), known: Mutex::default() })
    }

    /// Notes that values come from `other`.
    fn lean_on(&self, other: &Self) {
        let theirs = lock(&other.open).clone();
        let mut open = lock(&self.open);
        for mark in theirs.into_iter().chain([Arc::clone(&other.mark)]) {
            if !Arc::ptr_eq(&mark, &self.mark) && open.iter().all(|known| !Arc::ptr_eq(known, &mark)) {
                open.push(mark);
            }
        }
    }

    /// An error if a device failed whose values came here. Asked after a wait for what was made of them.
    pub(crate) fn check(&self) -> Result<()> {
        let (mut open, mut failed) = (lock(&self.open), Ok(()));
        open.retain(|mark| match lock(mark).is_reached() {
            Ok(reached) => !reached,
            Err(e) => {
                failed = Err(e);
                true
            }
        });
        failed
    }

    /// Whether the driver copies from `other`. Asked for the first time, has the two reach each other's memory.
    fn copies_from(&self, other: &Self) -> bool {
        if !self.on {
            return false;
        }
        let mut known = lock(&self.known);
        known.retain(|(context, _)| context.strong_count() > 0);
        let same = |context: &Weak<Context>| std::ptr::eq(context.as_ptr(), Arc::as_ptr(&other.context));
        if let Some((_, copies)) = known.iter().find(|(context, _)| same(context)) {
            return *copies;
        }
        let copies = self.context.has_peers();
        if copies {
            // Both ways: which of the two a copy wants is nowhere said. Where neither is had, the driver goes through the host itself.
            let reach = |a: &Context, b: &Context| {
                let reached = a.reach(b).inspect_err(
                    |e| tracing::debug!(target: "ogive::cuda", error = %e, "a device does not reach another"),
                );
                reached.unwrap_or(false)
            };
            let reached = reach(&self.context, &other.context) & reach(&other.context, &self.context);
            tracing::debug!(target: "ogive::cuda", reached, "the driver copies from device to device");
        } else {
            tracing::info!(target: "ogive::cuda", "the driver does not copy from device to device: values go through the host");
        }
        known.push((Arc::downgrade(&other.context), copies));
        copies
    }

    /// Notes that the driver does not copy from `other`.
    fn refuse(&self, other: &Self) {
        let mut known = lock(&self.known);
        for (context, copies) in known.iter_mut() {
            *copies &= !std::ptr::eq(context.as_ptr(), Arc::as_ptr(&other.context));
        }
    }
}

/// Queues a copy of `len` bytes from another device, behind what made them. Says no where the driver does not copy: then the host does.
pub(crate) fn copy(to: &Device, target: Address, from: &Device, source: Address, len: usize) -> Result<bool> {
    if len == 0 {
        return Ok(true);
    }
    if to.id() == from.id() {
        return to.stream().copy_within(target, source, len).map(|()| true);
    }
    if !to.peers.copies_from(&from.peers) {
        return Ok(false);
    }
    let Err(e) = queue(to, target, from, source, len) else { return Ok(true) };
    to.peers.refuse(&from.peers);
    let (there, here) = (from.info.number, to.info.number);
    tracing::warn!(target: "ogive::cuda", error = %e, "what cuda:{there} computes goes to cuda:{here} through the host: the driver does not copy it");
    // A copy that the other device does not know of must be over before its memory is used again.
    to.stream().wait("bring")?;
    Ok(false)
}

fn queue(to: &Device, target: Address, from: &Device, source: Address, len: usize) -> Result<()> {
    let order = |first: &Device, then: &Device| {
        let mark = lock(&first.peers.mark);
        mark.record(first.stream())?;
        then.stream().after(&mark)
    };
    to.peers.lean_on(&from.peers);
    order(from, to)?;
    to.stream().copy_from(target, from.stream(), source, len)?;
    order(to, from)
}
