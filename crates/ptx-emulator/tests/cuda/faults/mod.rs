//! Faults planted in kernels and programs, each beside a twin without it: the one must be found and named, of the other nothing said.

mod blocks;
mod copies;
mod grids;
mod host;
mod memory;

use ptx_emulator_launcher::Nvrtc;
use ptx_emulator_launcher::test;

use crate::support::Gpu;
use crate::support::nvrtc::Compiler;
use crate::support::run::{Source, again};

/// A fault, and how it must be reported.
#[derive(Clone, Copy, Debug)]
struct Planted<'a> {
    /// The test that asks.
    name: &'a str,
    source: Source,
    arch: u32,
    /// `1`, or `races` where only that finds it.
    check: &'a str,
    /// The kernel at fault.
    kernel: &'a str,
    /// What the report says, one of them each time.
    says: &'a [&'a str],
    /// Block and thread, where only one can be meant.
    at: Option<([u32; 3], u32)>,
    /// The kernel on the other side of a race, where it is not the same.
    other: Option<&'a str>,
    /// Warp instructions after which a kernel that spins is stopped.
    limit: &'a str,
}

impl<'a> Planted<'a> {
    fn new(name: &'a str, source: Source, kernel: &'a str, says: &'a [&'a str]) -> Self {
        Self { name, source, arch: 80, check: "1", kernel, says, at: None, other: None, limit: "0" }
    }

    fn at(mut self, block: u32, thread: u32) -> Self {
        self.at = Some(([block, 0, 0], thread));
        self
    }

    fn arch(mut self, arch: u32) -> Self {
        self.arch = arch;
        self
    }

    /// Found by the second mode of the checker.
    fn races(mut self) -> Self {
        self.check = "races";
        self
    }

    fn other(mut self, kernel: &'a str) -> Self {
        self.other = Some(kernel);
        self
    }

    /// Stopped after so many warp instructions.
    fn limit(mut self, limit: &'a str) -> Self {
        self.limit = limit;
        self
    }

    /// Runs `program` with the fault and without it. It ends with an error or with results that it has compared.
    #[track_caller]
    fn find(&self, program: impl Fn(&Gpu) -> Result<(), cudarc::driver::DriverError>) {
        if let Some(case) = test::case() {
            let planted = case == "planted";
            let define = format!("PLANTED={}", u32::from(planted));
            let compiler = Compiler::new(Nvrtc::V12);
            let ptx = compiler.compile(self.source.0, self.source.1, self.arch, &[&define], &[]);
            let gpu = Gpu::open(self.arch).with(&ptx);
            let outcome = program(&gpu);
            if planted {
                // A device with an error gives nothing back.
                std::mem::forget(gpu);
                return;
            }
            return outcome.unwrap();
        }
        for seed in ["1", "2"] {
            let settings = [
                ("PTX_EMU_CHECK", self.check),
                ("PTX_EMU_SEED", seed),
                ("PTX_EMU_SCHEDULE", "adversarial"),
                ("PTX_EMU_LIMIT", self.limit),
            ];
            let Some(twin) = again(self.name, "twin", &settings) else { return };
            let twin = twin.ok();
            assert!(!twin.stderr.contains("ptx-emulator:"), "the twin is reported:\n{}", twin.stderr);
            let Some(planted) = again(self.name, "planted", &settings) else { return };
            self.named_in(&planted.ok().stderr);
        }
    }

    /// Kernel, line, block and thread stand in the report.
    #[track_caller]
    fn named_in(&self, text: &str) {
        assert!(text.contains("ptx-emulator: error"), "nothing is reported:\n{text}");
        assert!(!text.contains("leak:"), "what a fault left behind is no leak:\n{text}");
        assert!(self.says.iter().any(|words| text.contains(words)), "none of {:?} in\n{text}", self.says);
        if let Some(([x, y, z], thread)) = self.at {
            let at = format!("block ({x}, {y}, {z}), thread {thread}");
            assert!(text.contains(&at), "no {at:?} in\n{text}");
        }
        // Of two kernels either may be the one that came second.
        let other = self.other.unwrap_or(self.kernel);
        let straight =
            self.names(text, "in", self.kernel, "FOUND").and(self.names(text, "and", other, "OTHER"));
        let swapped =
            self.names(text, "in", other, "OTHER").and(self.names(text, "and", self.kernel, "FOUND"));
        if let (Err(missing), true) = (straight, self.other.is_none() || swapped.is_err()) {
            panic!("{missing}");
        }
    }

    /// One of the marked lines of `kernel` stands in a line that begins with `word`; inlined code is named with its caller.
    fn names(&self, text: &str, word: &str, kernel: &str, mark: &str) -> Result<(), String> {
        let lines = self.marked(kernel, mark);
        let site = format!("    {word} {kernel} at ");
        let file = self.source.0;
        let named = |found: &str| {
            let mut places = lines.iter().map(|line| format!("{file}:{line}"));
            places.any(|p| found.contains(&format!("{p},")) || found.contains(&format!("{p})")))
        };
        if lines.is_empty() || text.lines().any(|line| line.starts_with(&site) && named(line)) {
            return Ok(());
        }
        Err(format!("no `{site}{file}` at one of {lines:?} in\n{text}"))
    }

    /// The lines in `kernel` that carry `mark` in a comment.
    fn marked(&self, kernel: &str, mark: &str) -> Vec<usize> {
        let start = format!("KERNEL {kernel}(");
        let lines = self.source.1.lines().enumerate().skip_while(|(_, line)| !line.starts_with(&start));
        let body = lines.enumerate().take_while(|(i, (_, line))| *i == 0 || !line.starts_with("KERNEL "));
        body.map(|(_, (at, line))| (at + 1, line))
            .filter(|(_, line)| line.split_once("//").is_some_and(|(_, comment)| comment.contains(mark)))
            .map(|(at, _)| at)
            .collect()
    }
}
