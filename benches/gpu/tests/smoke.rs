//! The whole bench with tiny sizes, under the emulator: that it runs to its end and what its report holds, and nothing about speed.
#![cfg(unix)]
#![allow(clippy::print_stdout, clippy::unwrap_used)]

use ptx_emulator_launcher::{Launcher, test};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Stands in for a program of somebody else's.
fn stand_in(folder: &Path, name: &str, says: &str) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\ncat <<'END'\n{says}\nEND\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

/// The bench, under the emulator unless there is a GPU; `None` where neither can be had.
fn bench() -> Option<Command> {
    let program = env!("CARGO_BIN_EXE_ogive-gpu-bench");
    if ogive::cuda::CudaBackend::is_available() {
        return Some(Command::new(program));
    }
    let launcher = Launcher::new().set("PTX_EMU_CHECK", "1");
    let launcher = launcher.set("OGIVE_CUDA_CACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/kernels"));
    test::command(Path::new(program), &launcher)
}

fn names<'a>(report: &'a Value, part: &str) -> BTreeSet<&'a str> {
    let list = report["figures"][part].as_array().unwrap_or_else(|| panic!("no {part}: {report:#}"));
    list.iter().map(|f| f["name"].as_str().unwrap()).collect()
}

#[test]
fn a_smoke_run_reports_everything() {
    let Some(mut command) = bench() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let line =
        r#"{"name": "torch copy", "case": "x", "seconds": [0.5, 0.25], "bytes": 1e9, "operations": 0}"#;
    let python = stand_in(at, "python", &format!("note: torch 0.0\n{line}\nnot json"));
    let test = r#"[{"n_prompt": 0, "n_gen": 64, "n_depth": 512, "samples_ns": [2e9, 1e9], "model_size": 1e9, "model_n_params": 1e9}]"#;
    let llama = stand_in(at, "llama", test);
    stand_in(at, "llama-batched-bench", "| 8 | 2 | 3 | 30 | 0.1 | 80 | 0.5 | 12 | 0.6 | 50 |");
    command.args(["--smoke", "--trace"]).args([
        "--out",
        at.to_str().unwrap(),
        "--work",
        at.to_str().unwrap(),
    ]);
    command.arg("--python").arg(&python).arg("--llama-bench").arg(&llama);
    let written_at = at.join("figures.jsonl");
    command.arg("--figures").arg(&written_at);
    let out = command.output().unwrap();
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(out.status.success(), "{error}");
    let report: Value = serde_json::from_slice(&fs::read(at.join("report.json")).unwrap()).unwrap();
    let text = fs::read_to_string(at.join("report.md")).unwrap();

    assert_eq!(report["smoke"], true);
    for note in report["notes"].as_array().unwrap() {
        let note = note.as_str().unwrap();
        assert!(note.starts_with("cuBLAS") || note.starts_with("torch 0.0"), "{note}\n{text}");
    }
    assert!(report["ceilings"]["bandwidth"].as_f64().unwrap() > 0.0);
    assert!(report["ceilings"]["rate"].as_f64().unwrap() > 0.0);
    let ceilings = names(&report, "ceilings");
    assert!(
        ceilings.is_superset(
            &["copy, cuMemcpyDtoD", "copy, our kernel", "read, our kernel", "cuBLAS bf16"].into()
        ),
        "{ceilings:?}"
    );
    let operators = names(&report, "operators");
    let wanted = [
        "linear f32",
        "linear q4_k",
        "linear iq4_xs",
        "linear iq1_s",
        "linear mxfp4",
        "linear_gated q4_k",
        "linear_many q4_k",
        "embed q4_k",
        "attend_cache f16, decode",
        "attend_cache q8_0, decode",
        "attend_cache f16, prefill",
        "rms_norm",
        "layer_norm",
        "add_rms_norm",
        "add",
        "gated",
        "rope_attend f16, first tokens",
        "argmax",
        "best 40",
        "top_k 40",
        "moe q4_k, 2 of 4",
        "route, 2 of 8",
        "route, 8 of 256 in groups",
        "linear_each q8_0",
        "attend_cache f16, window 32, decode",
        "attend_cache f16, window 16 and sinks, decode",
        "attend_cache f16, window 32, prefill",
        "attend_latent f16, 8 heads, decode",
        "attend_latent f16, 4 heads, prefill",
        "attend, no cache",
        "store_kv f16",
        "store_kv q8_0",
        "gather_kv q8_0",
        "copy_blocks f16",
        "read_state, write_state",
        "causal_conv",
        "selective_scan",
        "linear_attention",
        "linear_attention without beta",
        "mul, a row for all",
        "activate",
        "sum",
        "split",
        "concat",
        "outputs",
        "rope",
    ];
    for name in wanted {
        let multiplies = name.starts_with("linear") && !name.starts_with("linear_attention");
        let ways = if multiplies || name.contains("prefill") { &["auto", "bf16"][..] } else { &["auto"] };
        for way in ways.iter().map(|way| format!("{name}, {way}")) {
            let found = operators.contains(&*way) || operators.contains(name);
            assert!(found, "{way} of {operators:?}");
        }
    }
    let models = ["auto", "bf16"].map(|c| ["decode", "prefill"].map(|w| format!("tiny:q4_k_m, {c}, {w}")));
    assert_eq!(names(&report, "models"), models.iter().flatten().map(String::as_str).collect());
    assert_eq!(names(&report, "peers"), ["llama.cpp tiny:q4_k_m, decode", "torch copy"].into());

    let peers = report["figures"]["peers"].as_array().unwrap();
    assert!(peers.iter().any(|f| f["case"] == "3 × 2 after 8 tokens"), "{peers:#?}");
    let all = report["figures"].as_object().unwrap().values().flat_map(|v| v.as_array().unwrap());
    for figure in all {
        let number = |key: &str| figure[key].as_f64().unwrap();
        assert!(number("bytes") + number("operations") > 0.0, "{figure}");
        assert!(figure["times"]["runs"].as_u64().unwrap() > 0, "{figure}");
        let [least, median, most] = ["least", "median", "most"].map(|k| figure["times"][k].as_f64().unwrap());
        assert!(0.0 <= least && least <= median && median <= most, "{figure}");
        assert!(text.contains(figure["case"].as_str().unwrap()), "{figure}");
    }
    // Everything that can be a graph is one; a prompt's rows are no step of decoding.
    let figures = report["figures"]["operators"].as_array().unwrap();
    let eager: BTreeSet<_> =
        figures.iter().filter(|f| f["graph"] == false).map(|f| f["name"].as_str().unwrap()).collect();
    let others: Vec<_> = eager.iter().copied().filter(|name| !name.contains("prefill")).collect();
    let want = [
        "argmax",
        "attend, no cache",
        "best 40",
        "causal_conv, auto",
        "copy_blocks f16",
        "gather_kv f16",
        "gather_kv q8_0",
        "linear_attention without beta, auto",
        "linear_attention, auto",
        "selective_scan, auto",
    ];
    assert_eq!(others, want);
    let prompts = operators.iter().filter(|name| name.contains("prefill"));
    assert!(prompts.clone().count() == 10 && prompts.clone().all(|name| eager.contains(name)), "{eager:?}");

    // What is written at once is what the report has.
    let lines = fs::read_to_string(written_at).unwrap();
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let written = |key: &str| lines.iter().filter_map(|l| l.get(key)).cloned().collect::<Vec<_>>();
    for (key, list) in [("load", "loads"), ("traced", "traced"), ("note", "notes")] {
        assert_eq!(Value::from(written(key)), report[list], "{list}");
    }
    let load = &report["loads"][0];
    assert!(load["compute"] == "auto" && text.contains("| tiny:q4_k_m | auto | 0.00 GB |"), "{load}\n{text}");
    let (file, device) = (load["file_bytes"].as_u64().unwrap(), load["device_bytes"].as_u64().unwrap());
    assert!(device > file / 2, "{load}");
    let starts: Vec<_> =
        report["starts"].as_array().unwrap().iter().map(|s| s["cache"].as_str().unwrap()).collect();
    assert_eq!(starts, ["cold", "cached"]);
    let kernels = report["kernels"].as_array().unwrap();
    assert_eq!(kernels.len(), 8);
    for step in kernels {
        let list = step["operators"].as_array().unwrap();
        assert!(
            list.iter().any(|o| o["operator"] == "linear" && o["calls"].as_u64().unwrap() > 1),
            "{step:#}"
        );
        let seconds: Vec<f64> = list.iter().map(|o| o["seconds"].as_f64().unwrap()).collect();
        assert!(seconds.is_sorted_by(|a, b| a >= b), "{seconds:?}");
    }
    let traced = report["traced"].as_array().unwrap();
    assert_eq!(traced.len(), 8);
    for step in traced {
        let list = step["kernels"].as_array().unwrap();
        let number = |k: &Value, key: &str| k[key].as_f64().unwrap();
        let sum: f64 = list.iter().map(|k| number(k, "seconds") + number(k, "gap_seconds")).sum();
        assert!(sum > 0.0 && (sum - number(step, "seconds")).abs() < 1e-6, "{step:#}");
        assert!(list.iter().any(|k| k["kernel"] == "rope_store") && step["missed"] == 0, "{step:#}");
        // One row for each sequence: decoding, which is a graph.
        assert_eq!(step["graph"], step["step"].as_str().unwrap().contains("× 1 after"), "{step:#}");
    }
    assert!(text.contains("kernel by kernel") && text.contains("| `rope_store` | f16 |"), "{text}");
    assert!(text.contains("A smoke run") && text.contains("## first kernels"), "{text}");
}

/// What a run says where a filter leaves nothing, or a norm of one row to a product that is not there.
#[test]
fn what_a_filter_leaves_is_noted() {
    for (filter, note) in
        [("no such", "no operator has no such in its name"), ("rms_norm", "rms_norm, 1 × 256: not")]
    {
        let Some(mut command) = bench() else { return };
        let folder = tempfile::tempdir().unwrap();
        command.args(["--smoke", "--only", "operators", "--compute", "auto-persistent", "--filter", filter]);
        let out = command.arg("--out").arg(folder.path()).output().unwrap();
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let report: Value =
            serde_json::from_slice(&fs::read(folder.path().join("report.json")).unwrap()).unwrap();
        let notes = report["notes"].as_array().unwrap();
        assert!(notes.iter().any(|n| n.as_str().unwrap().starts_with(note)), "{notes:?}");
        let none = vec![];
        let found = report["figures"]["operators"].as_array().unwrap_or(&none);
        let cases: Vec<_> =
            found.iter().filter(|f| f["name"] == "rms_norm, auto-persistent").map(|f| &f["case"]).collect();
        assert_eq!(cases.is_empty(), filter == "no such", "{found:?}");
        assert!(!cases.iter().any(|case| **case == "1 × 256"), "{cases:?}");
    }
}

/// What the bench asks of Python parses, where there is one.
#[test]
fn the_script_is_python() {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/src/torch_peer.py");
    let check = "import ast, sys; ast.parse(open(sys.argv[1]).read())";
    match Command::new("python3").args(["-c", check, script]).output() {
        Ok(out) => assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr)),
        Err(e) => println!("skipped: python3: {e}"),
    }
}
