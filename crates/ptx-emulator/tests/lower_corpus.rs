//! Lowers every kernel of the PTX files in the folder that `PTX_EMU_CORPUS` names, where it is set.
//!
//! The files are what compilers emit and too large to be kept here; without them the hand-written kernels in the crate have to do.

use std::collections::BTreeMap;

#[test]
fn every_kernel_of_the_corpus_is_lowered() {
    let Some(folder) = std::env::var_os("PTX_EMU_CORPUS") else {
        println!("skipped: PTX_EMU_CORPUS names no folder of PTX files");
        return;
    };
    let (mut kernels, mut refused) = (0, BTreeMap::<String, (u32, String)>::new());
    for entry in std::fs::read_dir(folder).expect("the folder can be read") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "ptx") {
            continue;
        }
        let text = std::fs::read_to_string(&path).expect("a text");
        let module =
            ptx_emulator::ptx::parse(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        for function in module.functions.iter().filter(|f| f.entry && f.body.is_some()) {
            kernels += 1;
            if let Err(error) = ptx_emulator::lower::lower(&module, &function.name, &|_| Some(1 << 20)) {
                let ptx_emulator::lower::Error::Line { line, text, what } = error else { panic!("{error}") };
                let first = || format!("{}:{line}", path.display());
                refused.entry(format!("{text}: {what}")).or_insert_with(|| (0, first())).0 += 1;
            }
        }
    }
    let report: Vec<String> =
        refused.iter().map(|(what, (count, first))| format!("{count:5} {what} ({first})")).collect();
    assert!(refused.is_empty(), "of {kernels} kernels:\n{}", report.join("\n"));
}
