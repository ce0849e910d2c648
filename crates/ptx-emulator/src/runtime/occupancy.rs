//! Attributes of kernels, and how many blocks of one fit.

use super::Machine;
use super::error::{Code, Result};
use super::handle::{Context, Function};
use super::launch::{max_threads, registers, resident_blocks};
use super::module::FunctionState;
use crate::device::Model;

impl Machine {
    fn with_function<T>(
        &self,
        function: Function,
        ask: impl FnOnce(&mut FunctionState, &'static Model) -> Result<T>,
    ) -> Result<T> {
        let mut state = self.lock();
        let context = state.function(function)?.context;
        let device = state.context(context)?.device;
        let model = self.device(device)?.model;
        match state.functions.get_mut(&function) {
            Some(found) => ask(found, model),
            None => Code::INVALID_HANDLE.error("no such function"),
        }
    }

    /// `cuFuncGetAttribute`.
    ///
    /// # Errors
    /// No such function; an unknown attribute.
    pub fn function_attribute(&self, function: Function, attribute: i32) -> Result<i32> {
        self.with_function(function, |found, model| {
            let program = &*found.program;
            let cluster = program.limits.required_cluster;
            let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
            Ok(match attribute {
                0 => number(max_threads(program)),
                1 => number(program.static_shared),
                2 => i32::try_from(found.const_bytes).unwrap_or(i32::MAX),
                3 => number(program.local_bytes),
                4 => number(registers(program)),
                5 => found.versions.0,
                6 => found.versions.1.min(number(model.arch())),
                7 | 14 | 15 => 0,
                8 => number(found.max_dynamic),
                9 => found.carveout,
                10 => i32::from(cluster.is_some()),
                11..=13 => cluster.and_then(|c| c.get(attribute as usize - 11).copied()).map_or(0, number),
                _ => return Code::INVALID_VALUE.error(format!("function attribute {attribute} is unknown")),
            })
        })
    }

    /// `cuFuncSetAttribute`: dynamic shared memory and its carve-out can be set.
    ///
    /// # Errors
    /// No such function; an attribute that cannot be set; more shared memory than the device has.
    pub fn set_function_attribute(&self, function: Function, attribute: i32, value: i32) -> Result<()> {
        self.with_function(function, |found, model| match attribute {
            8 => {
                let most = model.shared_opt_in.saturating_sub(found.program.static_shared);
                match u32::try_from(value).ok().filter(|value| *value <= most) {
                    Some(value) => {
                        found.max_dynamic = value;
                        Ok(())
                    }
                    None => Code::INVALID_VALUE.error(format!(
                        "{value} bytes of dynamic shared memory for {}; it can have {most}",
                        found.program.name
                    )),
                }
            }
            9 if (-1..=100).contains(&value) => {
                found.carveout = value;
                Ok(())
            }
            14 => Ok(()),
            _ => {
                Code::INVALID_VALUE.error(format!("function attribute {attribute} cannot be set to {value}"))
            }
        })
    }

    /// Blocks of `threads` threads with `dynamic` bytes of shared memory that fit on a multiprocessor.
    ///
    /// # Errors
    /// No such function; no threads.
    pub fn occupancy(&self, function: Function, threads: i32, dynamic: u64) -> Result<i32> {
        let Some(threads) = u32::try_from(threads).ok().filter(|n| *n > 0) else {
            return Code::INVALID_VALUE.error(format!("occupancy of blocks of {threads} threads"));
        };
        self.with_function(function, |found, model| {
            Ok(resident_blocks(model, &found.program, threads, dynamic) as i32)
        })
    }

    /// The block size that fills a multiprocessor best, and the grid that fills the device; `dynamic` gives shared memory by block size.
    ///
    /// # Errors
    /// No such function.
    pub fn best_block(
        &self,
        function: Function,
        limit: i32,
        dynamic: impl Fn(i32) -> u64,
    ) -> Result<(i32, i32)> {
        let (program, model) =
            self.with_function(function, |found, model| Ok((std::sync::Arc::clone(&found.program), model)))?;
        let most = max_threads(&program);
        let most = u32::try_from(limit).ok().filter(|n| *n > 0).map_or(most, |n| n.min(most));
        let mut best = (0, 0, 0);
        let mut threads = most;
        while threads > 0 {
            let blocks = resident_blocks(model, &program, threads, dynamic(threads as i32));
            if blocks * threads > best.0 {
                best = (blocks * threads, threads, blocks);
            }
            threads = (threads - 1) / 32 * 32;
        }
        Ok(((best.2 * model.sms) as i32, best.1 as i32))
    }

    /// Dynamic shared memory with which `blocks` blocks of `threads` threads still fit.
    ///
    /// # Errors
    /// No such function; blocks that do not fit at all.
    pub fn available_shared(&self, function: Function, blocks: i32, threads: i32) -> Result<u64> {
        let fit = self.occupancy(function, threads, 0)?;
        if blocks <= 0 || blocks > fit {
            return Code::INVALID_VALUE
                .error(format!("{blocks} blocks of {threads} threads do not fit; {fit} do"));
        }
        self.with_function(function, |found, model| {
            let each = (model.shared_per_sm / blocks as u32) / 128 * 128;
            let taken = model.shared_reserved + found.program.static_shared;
            Ok(u64::from(
                each.saturating_sub(taken)
                    .min(model.shared_opt_in.saturating_sub(found.program.static_shared)),
            ))
        })
    }

    /// The module, the context, the name of a function, and its parameters (offset, bytes).
    ///
    /// # Errors
    /// No such function.
    pub(crate) fn function_facts(
        &self,
        function: Function,
    ) -> Result<(
        super::handle::Module,
        Context,
        std::sync::Arc<std::ffi::CStr>,
        std::sync::Arc<crate::Program>,
    )> {
        let state = self.lock();
        let found = state.function(function)?;
        Ok((found.module, found.context, found.name.clone(), found.program.clone()))
    }
}
