//! Warp-wide and asynchronous instructions in kernels written by hand, run on the machine.

mod copies;
mod matrix;
mod mbarrier;
mod speed;
mod table;
mod warp;
mod wmma;

use std::sync::Arc;

use super::{Environment, Grid, Launch, Progress, Until, raw};
use crate::check::Checks;
use crate::fault::{Fault, Kind};
use crate::memory::{Allocation, Memory, Place};

/// A kernel with its buffers. Its parameters are the buffers' addresses, `p0`, `p1` and so on, loaded into `%p0`, `%p1`.
pub(super) struct Trial {
    body: String,
    memory: Arc<Memory>,
    buffers: Vec<Arc<Allocation>>,
    threads: u32,
    shared: u32,
    checked: bool,
    arch: u32,
    seed: u64,
    limit: u64,
}

impl Trial {
    /// A kernel of one block. `body` may use `%r<99>`, `%l<99>`, `%d<99>` (f64), `%q<99>` (predicates), `%h<99>` (16 bits), `%tid`, `%lane`, and
    /// the shared array `shared` of 16 KiB.
    pub(super) fn new(threads: u32, body: &str) -> Self {
        Self {
            body: body.into(),
            memory: Arc::new(Memory::tracking()),
            buffers: Vec::new(),
            threads,
            shared: 0,
            checked: true,
            arch: 90,
            seed: 1,
            limit: 1 << 24,
        }
    }

    /// A buffer that holds these bytes.
    pub(super) fn with(mut self, bytes: &[u8]) -> Self {
        let buffer = self.memory.allocate(Place::Device(0), bytes.len() as u64).unwrap();
        raw::write(buffer.host(), bytes);
        if let Some(written) = buffer.written() {
            written.mark(0, bytes.len() as u64);
        }
        self.buffers.push(buffer);
        self
    }

    /// A buffer of words.
    pub(super) fn with_words(self, words: &[u32]) -> Self {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        self.with(&bytes)
    }

    /// A buffer that nothing was written to.
    pub(super) fn with_room(mut self, bytes: u64) -> Self {
        self.buffers.push(self.memory.allocate(Place::Device(0), bytes).unwrap());
        self
    }

    pub(super) fn unchecked(mut self) -> Self {
        self.checked = false;
        self
    }

    pub(super) fn arch(mut self, arch: u32) -> Self {
        self.arch = arch;
        self
    }

    pub(super) fn text(&self) -> String {
        let params: Vec<String> = (0..self.buffers.len()).map(|n| format!(".param .u64 p{n}")).collect();
        let loads: String =
            (0..self.buffers.len()).map(|n| format!("    ld.param.u64 %p{n}, [p{n}];\n")).collect();
        format!(
            ".version 8.3\n.target sm_{}\n.address_size 64\n.visible .entry k({})\n{{\n    .reg .b32 %r<99>, %tid, %lane;\n    .reg .b64 \
             %l<99>, %p<9>;\n    .reg .f64 %d<99>;\n    .reg .b16 %h<99>;\n    .reg .pred %q<99>;\n    .shared .align 128 .b8 \
             shared[16384];\n{loads}    mov.u32 %tid, %tid.x;\n    mov.u32 %lane, %laneid;\n{}\n    ret;\n}}\n",
            if self.arch == 90 { "90a".into() } else { self.arch.to_string() },
            params.join(", "),
            self.body
        )
    }

    /// Runs it to its end.
    pub(super) fn run(&self) -> Result<(), Box<Fault>> {
        let text = self.text();
        let module = crate::ptx::parse(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let program =
            crate::lower::lower(&module, "k", &|_| None).unwrap_or_else(|error| panic!("{error}\n{text}"));
        let launch = Launch {
            program: Arc::new(program),
            grid: [1, 1, 1],
            block: [self.threads, 1, 1],
            dynamic_shared: self.shared,
            arguments: self.buffers.iter().flat_map(|buffer| buffer.start.to_le_bytes()).collect(),
            cooperative: false,
        };
        let environment = Environment {
            memory: Arc::clone(&self.memory),
            device: 0,
            arch: self.arch,
            sms: 2,
            checks: Checks { memory: self.checked, ..Checks::default() },
            watch: None,
            seed: self.seed,
            workers: 1,
            limit: Some(self.limit),
        };
        let mut grid = Grid::new(launch, environment)?;
        assert_eq!(grid.run(Until::End)?, Progress::Finished);
        Ok(())
    }

    /// The bytes of a buffer.
    pub(super) fn bytes(&self, buffer: usize) -> Vec<u8> {
        let buffer = &self.buffers[buffer];
        let mut bytes = vec![0; buffer.len as usize];
        raw::read(buffer.host(), &mut bytes);
        bytes
    }

    /// The words of a buffer.
    pub(super) fn words(&self, buffer: usize) -> Vec<u32> {
        let bytes = self.bytes(buffer);
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
    }

    /// Runs it, and gives the words of a buffer.
    pub(super) fn result(&self, buffer: usize) -> Vec<u32> {
        self.run().unwrap_or_else(|fault| panic!("{fault}\n{}", self.text()));
        self.words(buffer)
    }

    /// Runs it; it must end with this finding, whose message has this in it.
    pub(super) fn fails(&self, kind: Kind, part: &str) {
        match self.run() {
            Ok(()) => panic!("no fault, but {kind:?} was planted:\n{}", self.text()),
            Err(fault) => assert!(
                fault.kind == kind && fault.to_string().contains(part),
                "{kind:?} ({part}) was planted, found: {:?} {fault}\n{}",
                fault.kind,
                self.text()
            ),
        }
    }
}

/// Pseudo-random words.
pub(super) fn noise(seed: u64, count: usize) -> Vec<u32> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) + 1;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 32) as u32
    };
    (0..count).map(|_| next()).collect()
}

/// PTX that loads the word `%tid + offset` of buffer `p` into a register.
pub(super) fn load_word(register: &str, p: usize, offset: usize) -> String {
    format!("    mad.wide.u32 %l90, %tid, 4, %p{p};\n    ld.global.b32 {register}, [%l90+{}];\n", offset * 4)
}

/// PTX that stores a register to the word `%tid + offset` of buffer `p`.
pub(super) fn store_word(register: &str, p: usize, offset: usize) -> String {
    format!("    mad.wide.u32 %l90, %tid, 4, %p{p};\n    st.global.b32 [%l90+{}], {register};\n", offset * 4)
}
