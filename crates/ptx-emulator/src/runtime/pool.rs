//! Memory pools: how much each holds and keeps.
//!
//! A pool here keeps nothing back (freed memory is gone at once, so that its use is found); what it would have reserved is only counted, as the
//! attributes ask for it.

use super::Machine;
use super::error::{Code, Result};
use super::handle::{Context, Pool};
use super::state::{Origin, State};

/// A pool.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PoolState {
    pub(crate) device: u32,
    /// The device's own, which is never destroyed.
    pub(crate) default: bool,
    /// Bytes it keeps when a synchronisation lets it give memory back.
    pub(crate) threshold: u64,
    pub(crate) used: u64,
    pub(crate) used_high: u64,
    pub(crate) reserved: u64,
    pub(crate) reserved_high: u64,
    /// Reuse policies (attributes 1 to 3).
    pub(crate) reuse: [u64; 3],
}

impl Machine {
    /// Makes a pool on a device.
    ///
    /// # Errors
    /// No such device.
    pub fn create_pool(&self, device: u32) -> Result<Pool> {
        self.device(device)?;
        let mut state = self.lock();
        let pool = Pool(state.number());
        state.pools.insert(pool, PoolState { device, reuse: [1; 3], ..PoolState::default() });
        Ok(pool)
    }

    /// Destroys a pool; what was allocated from it stays until it is freed.
    ///
    /// # Errors
    /// No such pool, or a device's default one.
    pub fn destroy_pool(&self, pool: Pool) -> Result<()> {
        let mut state = self.lock();
        match state.pools.get(&pool) {
            Some(found) if found.default => {
                return Code::INVALID_VALUE.error("a device's default pool cannot be destroyed");
            }
            Some(_) => {}
            None => return Code::INVALID_HANDLE.error(format!("{pool:x?} is no memory pool")),
        }
        state.pools.remove(&pool);
        for (default, current) in state.device_pools.values_mut() {
            if *current == pool {
                *current = *default;
            }
        }
        Ok(())
    }

    /// The default pool of a device and the one in use.
    ///
    /// # Errors
    /// No such device.
    pub fn device_pools(&self, device: u32) -> Result<(Pool, Pool)> {
        self.device(device)?;
        let mut state = self.lock();
        Ok(self.pools_of(&mut state, device))
    }

    /// Chooses the pool a device allocates from.
    ///
    /// # Errors
    /// No such device or pool, or a pool of another device.
    pub fn set_device_pool(&self, device: u32, pool: Pool) -> Result<()> {
        self.device(device)?;
        let mut state = self.lock();
        if state.pools.get(&pool).map(|pool| pool.device) != Some(device) {
            return Code::INVALID_VALUE.error(format!("{pool:x?} is no memory pool of device {device}"));
        }
        let default = self.pools_of(&mut state, device).0;
        state.device_pools.insert(device, (default, pool));
        Ok(())
    }

    /// Gives back what a pool reserves beyond `keep` bytes.
    ///
    /// # Errors
    /// No such pool.
    pub fn trim_pool(&self, pool: Pool, keep: u64) -> Result<()> {
        let mut state = self.lock();
        match state.pools.get_mut(&pool) {
            Some(found) => {
                found.reserved = found.used.max(found.reserved.min(keep));
                Ok(())
            }
            None => Code::INVALID_HANDLE.error(format!("{pool:x?} is no memory pool")),
        }
    }

    /// `cuMemPoolGetAttribute`.
    ///
    /// # Errors
    /// No such pool or attribute.
    pub fn pool_attribute(&self, pool: Pool, attribute: i32) -> Result<u64> {
        let state = self.lock();
        let Some(found) = state.pools.get(&pool) else {
            return Code::INVALID_HANDLE.error(format!("{pool:x?} is no memory pool"));
        };
        Ok(match attribute {
            1..=3 => found.reuse[attribute as usize - 1],
            4 => found.threshold,
            5 => found.reserved,
            6 => found.reserved_high,
            7 => found.used,
            8 => found.used_high,
            _ => return Code::INVALID_VALUE.error(format!("pool attribute {attribute} is unknown")),
        })
    }

    /// `cuMemPoolSetAttribute`.
    ///
    /// # Errors
    /// No such pool; an attribute that cannot be set.
    pub fn set_pool_attribute(&self, pool: Pool, attribute: i32, value: u64) -> Result<()> {
        let mut state = self.lock();
        let Some(found) = state.pools.get_mut(&pool) else {
            return Code::INVALID_HANDLE.error(format!("{pool:x?} is no memory pool"));
        };
        match attribute {
            1..=3 => found.reuse[attribute as usize - 1] = value,
            4 => found.threshold = value,
            // High-water marks can only be reset.
            6 if value == 0 => found.reserved_high = found.reserved,
            8 if value == 0 => found.used_high = found.used,
            _ => {
                return Code::INVALID_VALUE
                    .error(format!("pool attribute {attribute} cannot be set to {value}"));
            }
        }
        Ok(())
    }

    pub(super) fn pools_of(&self, state: &mut State, device: u32) -> (Pool, Pool) {
        if let Some(pools) = state.device_pools.get(&device) {
            return *pools;
        }
        let pool = Pool(state.number());
        let found = PoolState { device, default: true, reuse: [1; 3], ..PoolState::default() };
        state.pools.insert(pool, found);
        state.device_pools.insert(device, (pool, pool));
        (pool, pool)
    }
}

impl State {
    pub(super) fn pool_took(&mut self, pool: Pool, bytes: u64) {
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.used += bytes;
            pool.used_high = pool.used_high.max(pool.used);
            pool.reserved = pool.reserved.max(pool.used);
            pool.reserved_high = pool.reserved_high.max(pool.reserved);
        }
    }

    pub(super) fn pool_gave(&mut self, pool: Pool, bytes: u64) {
        if let Some(pool) = self.pools.get_mut(&pool) {
            pool.used = pool.used.saturating_sub(bytes);
            // Memory goes back at the next synchronisation; nothing can be seen of it until then.
            pool.reserved = pool.reserved.min(pool.used.max(pool.threshold));
        }
    }

    /// Addresses a context owns.
    pub(super) fn owned_by(&self, context: Context, fits: impl Fn(Origin) -> bool) -> Vec<u64> {
        let mut all: Vec<u64> = self
            .owned
            .iter()
            .filter(|(_, o)| o.context == context && fits(o.origin))
            .map(|(a, _)| *a)
            .collect();
        all.sort_unstable();
        all
    }
}
