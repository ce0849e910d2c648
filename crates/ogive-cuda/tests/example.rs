//! The example runs: on a GPU if there is one, under the emulator, and where there is neither.
#![allow(clippy::print_stdout)]

use ogive_cuda::CudaBackend;
use ptx_emulator_launcher::{Launcher, test};
use std::path::PathBuf;
use std::process::Command;

/// Cargo builds examples beforehand, but not for a single test program.
fn program() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let built = test.ancestors().nth(2).unwrap().join("examples/operators");
    let built = built.with_extension(std::env::consts::EXE_EXTENSION);
    assert!(built.exists(), "{} is missing; `cargo test -p ogive-cuda` builds it", built.display());
    built
}

/// What it prints, after its process ended well.
fn printed(mut command: Command) -> String {
    let out =
        command.env("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels")).output().unwrap();
    let [text, err] = [out.stdout, out.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    println!("{text}{err}");
    assert!(out.status.success(), "{}", out.status);
    assert!(!err.contains("ptx-emulator:"), "{err}");
    text
}

/// The best of the rows are those of the definition, computed here in double precision.
fn held(text: &str) {
    let weight = |i: usize| f64::from((i * 7919 % 2003) as u32) / 1001.5 - 1.0;
    for row in 0..3 {
        let product = |out: usize| {
            (0..256).map(move |i| weight(out * 256 + i) * (f64::from((row * 256 + i) as u32) * 0.1).sin())
        };
        let silu = |y: f64| y / (1.0 + (-y).exp());
        let all: Vec<f64> = (0..1000).map(|out| silu(product(out).sum())).collect();
        let line = text.lines().find_map(|line| line.strip_prefix(&format!("row {row}: "))).unwrap();
        let found: Vec<f64> =
            line.split(['(', ')', ',', '[', ']']).filter_map(|word| word.trim().parse().ok()).collect();
        assert_eq!(found.len(), 6, "{line}");
        let mut sorted = all.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        for (best, pair) in sorted.iter().zip(found.chunks(2)) {
            // Weights of 8 bits are off by 1/254 of the largest at most.
            assert!(
                (pair[1] - best).abs() < 0.1 && (pair[1] - all[pair[0] as usize]).abs() < 0.1,
                "{line}: {best}"
            );
        }
    }
}

#[test]
fn operators() {
    let program = program();
    if CudaBackend::is_available() {
        return held(&printed(Command::new(program)));
    }
    let text = printed(Command::new(&program));
    assert!(text.starts_with("CUDA not used: ") && text.contains("CUDA driver: "), "{text}");
    let launcher = Launcher::new().set("PTX_EMU_CHECK", "races");
    let Some(command) = test::command(&program, &launcher) else { return };
    let text = printed(command);
    assert!(text.contains("using CUDA: NVIDIA A100") || text.contains("using NVIDIA A100"), "{text}");
    held(&text);
}
