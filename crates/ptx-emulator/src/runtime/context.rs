//! Devices and contexts.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use super::Machine;
use super::error::{Code, Error, Result};
use super::handle::{Context, Stream};
use super::schedule::say;
use super::state::{ContextState, Origin, State};
use crate::memory::Place;
use crate::settings::{Check, Device};

impl Machine {
    /// How many devices there are.
    #[must_use]
    pub fn device_count(&self) -> usize {
        self.shared.settings.devices.len()
    }

    /// A device by its index.
    ///
    /// # Errors
    /// No such device.
    pub fn device(&self, device: u32) -> Result<&Device> {
        self.shared.settings.devices.get(device as usize).ok_or_else(|| {
            let count = self.device_count();
            Error::new(Code::INVALID_DEVICE, format!("there is no device {device}; there are {count}"))
        })
    }

    /// The primary context of a device, one user more.
    ///
    /// # Errors
    /// No such device.
    pub fn retain_primary(&self, device: u32) -> Result<Context> {
        self.device(device)?;
        let mut state = self.lock();
        if let Some(known) = state.primaries.get(&device).copied()
            && let Some(found) = state.contexts.get_mut(&known)
        {
            found.retained += 1;
            return Ok(known);
        }
        let context = add(&mut state, device, 0, true);
        state.primaries.insert(device, context);
        Ok(context)
    }

    /// One user less; the last one destroys the context.
    ///
    /// # Errors
    /// A context that nobody retained.
    pub fn release_primary(&self, device: u32) -> Result<()> {
        self.device(device)?;
        let mut state = self.lock();
        let Some(context) = state.primaries.get(&device).copied() else {
            return Code::INVALID_CONTEXT
                .error(format!("the primary context of device {device} is not retained"));
        };
        let left = state.contexts.get_mut(&context).map_or(0, |found| {
            found.retained = found.retained.saturating_sub(1);
            found.retained
        });
        if left == 0 {
            state.primaries.remove(&device);
            self.tear_down(state, context);
        }
        Ok(())
    }

    /// Destroys a device's primary context whoever retains it: the way out of a sticky error.
    ///
    /// # Errors
    /// No such device.
    pub fn reset_primary(&self, device: u32) -> Result<()> {
        self.device(device)?;
        let mut state = self.lock();
        if let Some(context) = state.primaries.remove(&device) {
            self.tear_down(state, context);
        }
        Ok(())
    }

    /// Whether a device's primary context is retained, and its flags.
    ///
    /// # Errors
    /// No such device.
    pub fn primary_state(&self, device: u32) -> Result<(bool, u32)> {
        self.device(device)?;
        let state = self.lock();
        let found = state.primaries.get(&device).and_then(|context| state.contexts.get(context));
        Ok(found.map_or((false, 0), |found| (true, found.flags)))
    }

    /// Makes a context beside the primary one.
    ///
    /// # Errors
    /// No such device.
    pub fn create_context(&self, device: u32, flags: u32) -> Result<Context> {
        self.device(device)?;
        Ok(add(&mut self.lock(), device, flags, false))
    }

    /// Destroys a context and all that is in it.
    ///
    /// # Errors
    /// No such context, or a primary one.
    pub fn destroy_context(&self, context: Context) -> Result<()> {
        let state = self.lock();
        match state.contexts.get(&context) {
            Some(found) if !found.primary => {
                self.tear_down(state, context);
                Ok(())
            }
            Some(_) => Code::INVALID_CONTEXT.error("a primary context is released, not destroyed"),
            None => Code::INVALID_CONTEXT.error(format!("{context:x?} is no context")),
        }
    }

    /// The device of a context, its flags; works in a dead one too.
    ///
    /// # Errors
    /// No such context.
    pub fn context_device(&self, context: Context) -> Result<(u32, u32)> {
        match self.lock().contexts.get(&context) {
            Some(found) => Ok((found.device, found.flags)),
            None => Code::INVALID_CONTEXT
                .error(format!("{context:x?} is no context; is one current on this thread?")),
        }
    }

    /// Whether a context can still do something.
    ///
    /// # Errors
    /// What killed it, or that it is none.
    pub fn check_context(&self, context: Context) -> Result<()> {
        self.lock().context(context).map(|_| ())
    }

    /// Whether `address` is memory of a context's device.
    ///
    /// # Errors
    /// It is not; no such context, or a dead one.
    pub fn check_memory_of(&self, context: Context, address: u64) -> Result<()> {
        let device = self.lock().context(context)?.device;
        let found = self.shared.memory.find(address).map(|allocation| allocation.place);
        match found {
            Some(Place::Device(other)) if other != device => Code::INVALID_VALUE.error(format!(
                "{address:#x} is memory of device {other}; the context is of device {device}"
            )),
            _ => Ok(()),
        }
    }

    /// Changes a context's flags.
    ///
    /// # Errors
    /// No such context, or a dead one.
    pub fn set_context_flags(&self, context: Context, flags: u32) -> Result<()> {
        self.lock().context_mut(context)?.flags = flags;
        Ok(())
    }

    /// Reads (`None`) or sets a limit; those the driver has are there, none is enforced.
    ///
    /// # Errors
    /// No such context or limit.
    pub fn context_limit(&self, context: Context, limit: i32, value: Option<u64>) -> Result<u64> {
        let mut state = self.lock();
        let found = state.context_mut(context)?;
        let default = match limit {
            0 => 1024,
            1 => 1 << 20,
            2 => 8 << 20,
            3 => 2,
            4 => 2048,
            5 => 128,
            6 => 0,
            _ => return Code::INVALID_VALUE.error(format!("limit {limit} is unknown")),
        };
        if let Some(value) = value {
            found.limits.insert(limit, value);
        }
        Ok(found.limits.get(&limit).copied().unwrap_or(default))
    }

    /// Reads (`None`) or sets the preference for cache or shared memory.
    ///
    /// # Errors
    /// No such context; an unknown preference.
    pub fn context_cache(&self, context: Context, value: Option<i32>) -> Result<i32> {
        let mut state = self.lock();
        let found = state.context_mut(context)?;
        if let Some(value) = value {
            if !(0..=3).contains(&value) {
                return Code::INVALID_VALUE.error(format!("cache preference {value} is unknown"));
            }
            found.cache_config = value;
        }
        Ok(found.cache_config)
    }

    /// Lets a context reach the memory of another context's device, or no longer.
    ///
    /// # Errors
    /// The same device; devices that do not reach one another; enabled already; not enabled.
    pub fn peer_access(&self, context: Context, peer: Context, enable: bool) -> Result<()> {
        let mut state = self.lock();
        let device = state.context(peer)?.device;
        let found = state.context_mut(context)?;
        if found.device == device {
            return Code::INVALID_DEVICE.error("a device is not its own peer");
        }
        if !self.shared.settings.peers {
            return Code::PEER_ACCESS_UNSUPPORTED
                .error("the settings want devices that do not reach one another");
        }
        if enable && !found.peers.insert(device) {
            return Code::PEER_ACCESS_ALREADY_ENABLED
                .error(format!("peer access to device {device} is enabled"));
        }
        if !enable && !found.peers.remove(&device) {
            return Code::PEER_ACCESS_NOT_ENABLED
                .error(format!("peer access to device {device} is not enabled"));
        }
        Ok(())
    }

    /// Removes a context: what is queued in it never runs, what it owns is gone. With checks on, what was never freed is reported.
    fn tear_down(&self, state: std::sync::MutexGuard<'_, State>, context: Context) {
        // Destroying waits for the device.
        let goals = state.queued_in(context);
        let mut state = self.run_until(state, &goals);
        if self.shared.settings.check >= Check::On {
            for line in leaks(&state, &self.shared.memory, Some(context)) {
                say(&line);
            }
        }
        let modules: Vec<_> =
            state.modules.iter().filter(|(_, m)| m.context == context).map(|(m, _)| *m).collect();
        for module in modules {
            state.drop_module(self, module);
        }
        for address in state.owned_by(context, |origin| origin != Origin::Registered) {
            self.release_memory(&mut state, address);
        }
        let captures: Vec<u64> = state
            .streams
            .values()
            .filter(|stream| stream.context == context)
            .filter_map(|stream| stream.capture.as_ref().map(|capture| capture.0))
            .collect();
        for capture in captures {
            state.captures.remove(&capture);
        }
        state.streams.retain(|_, stream| stream.context != context);
        state.events.retain(|_, event| event.context != context);
        state.contexts.remove(&context);
    }

    /// What was allocated and never freed, one line each.
    #[must_use]
    pub fn leaks(&self) -> Vec<String> {
        leaks(&self.lock(), &self.shared.memory, None)
    }
}

fn leaks(state: &State, memory: &crate::memory::Memory, context: Option<Context>) -> Vec<String> {
    let mut lines = Vec::new();
    for allocation in memory.live() {
        let Some(owned) = state.owned.get(&allocation.start) else { continue };
        let ours = context.is_none_or(|context| context == owned.context);
        // Module variables go with their module, registered memory is the program's, and what is being freed is on its way.
        // After a fault nothing can be freed: what is left then is no finding.
        let failed = state.contexts.get(&owned.context).is_some_and(|context| context.error.is_some());
        if !ours || failed || owned.freeing || matches!(owned.origin, Origin::Module(_) | Origin::Registered)
        {
            continue;
        }
        let place = if owned.origin == Origin::Pinned {
            "pinned memory".into()
        } else {
            format!("device {}", owned.device)
        };
        lines.push(format!(
            "ptx-emulator: leak: allocation #{} of {} bytes on {place} was never freed",
            allocation.serial, allocation.len
        ));
    }
    lines
}

fn add(state: &mut State, device: u32, flags: u32, primary: bool) -> Context {
    let context = Context(state.number());
    let found = ContextState {
        device,
        flags,
        retained: u32::from(primary),
        primary,
        error: None,
        legacy: Stream(0),
        thread_streams: HashMap::new(),
        limits: BTreeMap::new(),
        cache_config: 0,
        peers: BTreeSet::new(),
    };
    state.contexts.insert(context, found);
    let legacy = state.add_stream(context, 0, 0, true);
    if let Some(found) = state.contexts.get_mut(&context) {
        found.legacy = legacy;
    }
    context
}
