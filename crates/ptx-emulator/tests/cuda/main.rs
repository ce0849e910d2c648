//! The emulator from outside: CUDA programs that know nothing of it, on kernels compiled by NVIDIA's own compiler.
//!
//! Each test runs itself again under the emulator (`support::run`), once for each of several seeds, numbers of workers and
//! checks. `cargo xtask emu --fetch` gets the compilers beforehand; without them, the tests say `skipped:`.

mod corpus;
mod faults;
mod kernels;
mod programs;
mod speed;
mod support;
