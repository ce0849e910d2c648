//! Launches: every limit of the device checked before anything is queued.

use std::sync::Arc;

use super::Machine;
use super::error::{Code, Error, Result};
use super::handle::{Context, Function, Stream};
use super::module::FunctionState;
use super::order::Order;
use super::work::{LaunchSpec, Operation};
use crate::check::Checks;
use crate::device::{self, Model};
use crate::exec::{Environment, Grid, Launch};
use crate::fault::Fault;
use crate::program::Program;
use crate::settings::Check;

/// How a kernel is launched.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchConfig {
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// Blocks may wait for one another.
    pub cooperative: bool,
    /// May begin before the launch ahead of it in the stream has ended (programmatic stream serialization).
    pub programmatic: bool,
}

/// One argument of a kernel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Argument<'a> {
    /// An address.
    Pointer(u64),
    /// Any 32-bit integer.
    U32(u32),
    /// Any 64-bit integer.
    U64(u64),
    /// A float.
    F32(f32),
    /// A double.
    F64(f64),
    /// Anything else, as it stands in memory.
    Bytes(&'a [u8]),
}

impl Machine {
    /// Launches a kernel in a stream.
    ///
    /// # Errors
    /// Handles that are none; a limit of the device or the kernel exceeded; arguments of the wrong number or size.
    pub fn launch(
        &self,
        context: Context,
        stream: Stream,
        function: Function,
        config: &LaunchConfig,
        arguments: &[Argument<'_>],
    ) -> Result<()> {
        let program = Arc::clone(&self.lock().function(function)?.program);
        let mut block = vec![0; program.param_bytes as usize];
        if arguments.len() != program.params.len() {
            let (given, needed) = (arguments.len(), program.params.len());
            return Code::INVALID_VALUE
                .error(format!("launching {}: {given} arguments, and it takes {needed}", program.name));
        }
        for (index, (slot, argument)) in program.params.iter().zip(arguments).enumerate() {
            let bytes: &[u8] = match argument {
                Argument::Pointer(value) | Argument::U64(value) => &value.to_le_bytes(),
                Argument::U32(value) => &value.to_le_bytes(),
                Argument::F32(value) => &value.to_le_bytes(),
                Argument::F64(value) => &value.to_le_bytes(),
                Argument::Bytes(bytes) => bytes,
            };
            let at = slot.offset as usize;
            let target = block.get_mut(at..at + slot.size as usize);
            match target.filter(|target| target.len() == bytes.len()) {
                Some(target) => target.copy_from_slice(bytes),
                None => {
                    return Code::INVALID_VALUE.error(format!(
                        "launching {}: argument {index} has {} bytes, and the kernel takes {}",
                        program.name,
                        bytes.len(),
                        slot.size
                    ));
                }
            }
        }
        self.launch_bytes(context, stream, function, config, block)
    }

    /// Launches a kernel with its parameter block as the kernel sees it.
    ///
    /// # Errors
    /// As [`Machine::launch`].
    pub fn launch_bytes(
        &self,
        context: Context,
        stream: Stream,
        function: Function,
        config: &LaunchConfig,
        arguments: Vec<u8>,
    ) -> Result<()> {
        let spec = self.launch_spec(context, Some(stream), function, config, arguments)?;
        self.submit(context, stream, Operation::Launch(Arc::new(spec)))
    }

    /// Checks a launch against all limits.
    pub(crate) fn launch_spec(
        &self,
        context: Context,
        stream: Option<Stream>,
        function: Function,
        config: &LaunchConfig,
        arguments: Vec<u8>,
    ) -> Result<LaunchSpec> {
        let mut state = self.lock();
        state.context(context)?;
        let mut home = context;
        if let Some(stream) = stream {
            let stream = state.stream(context, stream)?;
            home = state.streams.get(&stream).map_or(context, |stream| stream.context);
        }
        let found = state.function(function)?;
        if found.context != home {
            return Code::INVALID_HANDLE.error("launching: kernel and stream belong to different contexts");
        }
        let device = state.context(home)?.device;
        let model = self.device(device)?.model;
        check(model, found, config)
            .map_err(|e| Error::new(e.code, format!("launching {}: {}", found.program.name, e.message)))?;
        if arguments.len() < found.program.param_bytes as usize {
            return Code::INVALID_VALUE.error(format!(
                "launching {}: {} bytes of arguments, and it takes {}",
                found.program.name,
                arguments.len(),
                found.program.param_bytes
            ));
        }
        Ok(LaunchSpec {
            function,
            program: Arc::clone(&found.program),
            grid: config.grid,
            block: config.block,
            shared: config.shared,
            arguments,
            cooperative: config.cooperative,
            programmatic: config.programmatic,
        })
    }

    /// The grid of a checked launch.
    pub(super) fn begin(
        &self,
        spec: &LaunchSpec,
        device: u32,
        order: Option<&Order>,
        seed: u64,
    ) -> std::result::Result<Grid, Fault> {
        let settings = &self.shared.settings;
        let (arch, sms) =
            settings.devices.get(device as usize).map_or((80, 1), |d| (d.model.arch(), d.model.sms));
        let launch = Launch {
            program: Arc::clone(&spec.program),
            grid: spec.grid,
            block: spec.block,
            dynamic_shared: spec.shared,
            arguments: spec.arguments.clone(),
            cooperative: spec.cooperative,
        };
        let checks = Checks {
            memory: settings.check >= Check::On,
            races: settings.check >= Check::Races,
            leaks: settings.check >= Check::On,
        };
        let watch = match (&self.shared.races, order) {
            (Some(races), Some(order)) => {
                let (known, after) = (order.known.clone(), order.known_after_wait.clone());
                Some(races.kernel(&spec.program, spec.grid, order.moment, known, after))
            }
            _ => None,
        };
        let environment = Environment {
            memory: Arc::clone(&self.shared.memory),
            device,
            arch,
            sms,
            checks,
            watch,
            seed,
            workers: settings.workers,
            limit: settings.limit,
        };
        Grid::new(launch, environment)
    }
}

/// Registers of a thread. The compiler's own number depends on its allocation, which is not done here: what the PTX declares is an upper bound,
/// and taken up to what lets a full block run.
pub(crate) fn registers(program: &Program) -> u32 {
    let declared = program.rows[0] + 2 * program.rows[1];
    let most = program.limits.max_registers.unwrap_or(64).min(255);
    declared.clamp(16, 64).min(most).next_multiple_of(8)
}

/// The most threads a block of this kernel may have.
pub(crate) fn max_threads(program: &Program) -> u32 {
    let of = |shape: [u32; 3]| shape.iter().fold(1u32, |n, x| n.saturating_mul(*x));
    let most =
        program.limits.required_threads.or(program.limits.max_threads).map_or(device::BLOCK_THREADS, of);
    most.min(device::BLOCK_THREADS)
}

/// Blocks of a kernel that fit on one multiprocessor.
pub(crate) fn resident_blocks(model: &Model, program: &Program, threads: u32, dynamic: u64) -> u32 {
    if threads == 0 || threads > max_threads(program) {
        return 0;
    }
    let warps = threads.div_ceil(32);
    let by_threads = (model.threads_per_sm / 32) / warps;
    let by_registers = device::REGISTERS / (registers(program) * 32 * warps.next_multiple_of(4)).max(1);
    let shared = u64::from(program.static_shared) + dynamic;
    if shared > u64::from(model.shared_opt_in) {
        return 0;
    }
    let taken = (shared + u64::from(model.shared_reserved)).next_multiple_of(128).max(1);
    let by_shared = u32::try_from(u64::from(model.shared_per_sm) / taken).unwrap_or(u32::MAX);
    model.blocks_per_sm.min(by_threads).min(by_registers).min(by_shared)
}

fn check(model: &Model, function: &FunctionState, config: &LaunchConfig) -> Result<()> {
    let program = &*function.program;
    let [x, y, z] = config.block;
    for (what, given, most) in [("grid", config.grid, device::GRID), ("block", config.block, device::BLOCK)] {
        if given.contains(&0) || given.iter().zip(most).any(|(given, most)| *given > most) {
            return Code::INVALID_VALUE
                .error(format!("{what} {given:?}; each extent is between 1 and {most:?}"));
        }
    }
    let threads = x.saturating_mul(y).saturating_mul(z);
    if threads > device::BLOCK_THREADS {
        return Code::INVALID_VALUE.error(format!("a block of {threads} threads; the device takes 1024"));
    }
    if threads > max_threads(program) {
        return Code::INVALID_VALUE.error(format!(
            "a block of {threads} threads; the kernel was compiled for {}",
            max_threads(program)
        ));
    }
    if let Some(required) = program.limits.required_threads
        && required != config.block
    {
        return Code::INVALID_VALUE
            .error(format!("a block of {:?}; the kernel requires {required:?}", config.block));
    }
    if config.shared > function.max_dynamic {
        return Code::INVALID_VALUE.error(format!(
            "{} bytes of dynamic shared memory; {} are allowed until CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES raises it, to {} at \
             most",
            config.shared,
            function.max_dynamic,
            model.shared_opt_in.saturating_sub(program.static_shared)
        ));
    }
    let cluster = program.limits.required_cluster.unwrap_or([1; 3]);
    if cluster != [1; 3] {
        return Code::NOT_SUPPORTED.error(format!("clusters of {cluster:?} blocks are not emulated"));
    }
    if registers(program).saturating_mul(threads.next_multiple_of(32)) > device::REGISTERS {
        return Code::LAUNCH_OUT_OF_RESOURCES
            .error(format!("{threads} threads need more registers than there are"));
    }
    if config.cooperative {
        let resident = resident_blocks(model, program, threads, u64::from(config.shared));
        let fit = u64::from(resident) * u64::from(model.sms);
        let blocks: u64 = config.grid.iter().map(|n| u64::from(*n)).product();
        if blocks > fit {
            return Code::COOPERATIVE_LAUNCH_TOO_LARGE.error(format!(
                "a cooperative grid of {blocks} blocks; {fit} fit ({resident} on each of {} multiprocessors)",
                model.sms
            ));
        }
    }
    Ok(())
}
