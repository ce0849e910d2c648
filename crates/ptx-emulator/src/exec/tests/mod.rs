//! Kernels written by hand, for each part of the machine.

mod atomics;
mod basics;
mod checks;
mod rows;
mod synchronisation;
mod system;

use std::sync::Arc;

use super::{Environment, Grid, Launch, Progress, Until};
use crate::fault::{Fault, Kind};
use crate::memory::{Allocation, Memory, Place};
use crate::program::Program;

/// A device with one module.
pub(super) struct Bench {
    pub(super) memory: Arc<Memory>,
    program: Arc<Program>,
    pub(super) environment: Environment,
    arguments: Vec<u8>,
    pub(super) dynamic: u32,
    pub(super) cooperative: bool,
}

impl Bench {
    /// Lowers the kernel `k` whose body and parameters are given.
    pub(super) fn new(params: &str, body: &str) -> Self {
        Self::module(&format!(".visible .entry k({params})\n{{\n{body}\n}}\n"))
    }

    /// Lowers the kernel `k` of a module without its header.
    pub(super) fn module(text: &str) -> Self {
        let text = format!(".version 8.4\n.target sm_90\n.address_size 64\n{text}");
        let module = crate::ptx::parse(&text).unwrap_or_else(|error| panic!("{error}"));
        let memory = Arc::new(Memory::tracking());
        let mut symbols = std::collections::HashMap::new();
        for variable in &module.variables {
            let bytes = variable.ty.size() * variable.len.unwrap_or(0);
            if matches!(variable.space, crate::ptx::ast::Space::Global | crate::ptx::ast::Space::Const) {
                let allocation = memory.allocate(Place::Device(0), bytes).expect("room");
                super::raw::write(allocation.host(), &vec![0; bytes as usize]);
                super::raw::write(allocation.host(), &variable.init);
                if let Some(written) = allocation.written() {
                    written.mark(0, bytes);
                }
                symbols.insert(variable.name.clone(), allocation.start);
            }
        }
        let program = crate::lower::lower(&module, "k", &|name| symbols.get(name).copied());
        let program = Arc::new(program.unwrap_or_else(|error| panic!("{error}")));
        let mut environment = Environment::new(Arc::clone(&memory));
        environment.arch = 90;
        environment.sms = 4;
        environment.checks.memory = true;
        environment.seed = 1;
        environment.workers = 2;
        environment.limit = Some(50_000_000);
        Self { memory, program, environment, arguments: Vec::new(), dynamic: 0, cooperative: false }
    }

    /// Rows of the variables of each class.
    pub(super) fn variables(&self) -> [u32; 3] {
        self.program.variables
    }

    /// Device memory that holds these words; its address is the next argument.
    pub(super) fn buffer(&mut self, words: &[u32]) -> Arc<Allocation> {
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        let allocation = self.memory.allocate(Place::Device(0), bytes.len() as u64).expect("room");
        super::raw::write(allocation.host(), &bytes);
        if let Some(written) = allocation.written() {
            written.mark(0, bytes.len() as u64);
        }
        self.argument(allocation.start);
        allocation
    }

    /// Device memory that nothing wrote; its address is the next argument.
    pub(super) fn fresh(&mut self, words: usize) -> Arc<Allocation> {
        let allocation = self.memory.allocate(Place::Device(0), 4 * words as u64).expect("room");
        self.argument(allocation.start);
        allocation
    }

    /// The next argument, of 64 bits.
    pub(super) fn argument(&mut self, value: u64) {
        self.arguments.extend(value.to_le_bytes());
    }

    /// A grid of so many blocks of so many threads.
    pub(super) fn grid(&self, blocks: u32, threads: u32) -> Grid {
        let launch = Launch {
            program: Arc::clone(&self.program),
            grid: [blocks, 1, 1],
            block: [threads, 1, 1],
            dynamic_shared: self.dynamic,
            arguments: self.arguments.clone(),
            cooperative: self.cooperative,
        };
        Grid::new(launch, self.environment.clone()).expect("a launch in order")
    }

    /// Runs to the end.
    pub(super) fn run(&self, blocks: u32, threads: u32) -> Result<(), Fault> {
        match self.grid(blocks, threads).run(Until::End)? {
            Progress::Finished => Ok(()),
            other => panic!("{other:?} instead of an end"),
        }
    }

    /// Runs to the end, which must be good.
    pub(super) fn succeeds(&self, blocks: u32, threads: u32) {
        if let Err(fault) = self.run(blocks, threads) {
            panic!("{fault}");
        }
    }

    /// Runs, and must fail in this way.
    pub(super) fn fails(&self, blocks: u32, threads: u32, kind: Kind) -> Fault {
        let fault = self.run(blocks, threads).expect_err("a fault");
        assert_eq!(fault.kind, kind, "{fault}");
        fault
    }
}

/// The words an allocation holds.
pub(super) fn words(allocation: &Allocation) -> Vec<u32> {
    let mut bytes = vec![0; allocation.len as usize];
    super::raw::read(allocation.host(), &mut bytes);
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}
