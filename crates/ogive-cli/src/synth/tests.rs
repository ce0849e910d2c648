//! The files as others see them: opened, loaded and run.
#![allow(clippy::print_stdout)]

use super::*;
use ogive::cpu::{CpuBackend, Precision};
use ogive::engine::{Evaluate, evaluate};
use ogive::nn::{Loader, Model};
use ogive::tensor::{F32, format_by_name};
use ogive::tokenizer::{EncodeOptions, Tokenizer};
use ogive::weights::{OpenOptions, gguf_file::Gguf};
use ogive_conformance::Oracle;
use std::collections::{BTreeMap, HashSet};
use std::fs;

fn written(synth: &Synth) -> (tempfile::TempDir, std::path::PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.gguf");
    synth.write(&path, |_, _| true).unwrap();
    (folder, path)
}

/// Logits of every token. `[tokens, vocab]`
fn logits(model: &dyn Model, ids: &[u32]) -> ogive::ndarray::Array2<f32> {
    let mut how = Evaluate::new();
    how.element = &F32;
    evaluate(&Oracle, model, ids, &how).unwrap()
}

fn best(row: &[f32]) -> u32 {
    (0..row.len()).max_by(|a, b| row[*a].total_cmp(&row[*b])).unwrap() as u32
}

fn check_logits(model: &dyn Model, vocab: usize, what: &str) {
    check_spread(model, vocab, what);
    check_wandering(model, what);
}

fn check_spread(model: &dyn Model, vocab: usize, what: &str) {
    let ids: Vec<u32> = (0..6).map(|i| (i * 83 + 40) % vocab as u32).collect();
    let all = logits(model, &ids);
    assert_eq!(all.dim(), (6, vocab), "{what}");
    assert!(all.iter().all(|v| v.is_finite()), "{what}");
    for row in all.rows() {
        let n = vocab as f32;
        let mean = row.sum() / n;
        let deviation = (row.iter().map(|v| (v - mean).powi(2)).sum::<f32>() / n).sqrt();
        assert!(mean.abs() < 1.0 && (1.0..5.0).contains(&deviation), "{what}: {mean} {deviation}");
    }
}

/// Greedy output wanders. Of so few tokens one may by chance be its own best successor, so several texts are tried.
fn check_wandering(model: &dyn Model, what: &str) {
    let (mut steps, mut still, mut drawn) = (0, 0, HashSet::new());
    for start in 0..5 {
        let mut ids = vec![start * 97 + 20];
        for _ in 0..8 {
            let next = best(logits(model, &ids).rows().into_iter().next_back().unwrap().as_slice().unwrap());
            (steps, still) = (steps + 1, still + usize::from(ids.last() == Some(&next)));
            drawn.insert(next);
            ids.push(next);
        }
    }
    assert!(still * 3 <= steps && drawn.len() >= 16, "{what}: {still} of {steps} stand still, {drawn:?}");
}

#[test]
fn the_tiny_shape_runs_in_every_format() {
    for format in formats() {
        let (_folder, path) = written(&Synth::new("tiny", format.name, 1).unwrap());
        let checkpoint = ogive::weights::open(&path).unwrap();
        let gguf = checkpoint.gguf.as_ref().unwrap();
        assert_eq!(gguf.metadata().usize("general.file_type").unwrap() as u32, format.file_type);
        let registry = ogive::models::registry();
        let loader = Loader::new(&*checkpoint.source, &Oracle);
        let model = registry.build(&checkpoint.architecture, &checkpoint.config, &loader).unwrap();
        check_spread(&*model, 512, format.name);
        // Some, as what wanders are shapes more than formats.
        if FORMATS.contains(&format.name) {
            check_wandering(&*model, format.name);
        }
    }
}

/// A file of the tiny shape with these tensors, as it is or with every number in single precision.
fn file_of(tensors: &[TensorPlan], decoded: bool) -> ogive::weights::Checkpoint {
    let mut writer = GgufWriter::new();
    metadata::set(&mut writer, Shape::find("tiny").unwrap(), &PURE[0], 1);
    let mut all = Vec::new();
    for t in tensors {
        let mut bytes: Vec<u8> = chunks(t).flat_map(|chunk| chunk.make(1)).collect();
        if decoded {
            let mut values = vec![0.0; t.dims.iter().product::<u64>() as usize];
            format_by_name(t.ty.name()).unwrap().decode_row(&bytes, &mut values);
            bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect();
        }
        writer.tensor(&t.name, &t.dims, if decoded { GgmlType::F32 } else { t.ty }).unwrap();
        all.push(bytes);
    }
    let mut file = Vec::new();
    let mut data = writer.write_to(&mut file).unwrap();
    for bytes in &all {
        data.append(bytes).unwrap();
    }
    data.finish().unwrap();
    OpenOptions::new().of_gguf(Gguf::from_bytes(file).unwrap().into()).unwrap()
}

/// Read, loaded and multiplied packed, a file gives in single precision the bits that its numbers give, and nearly those with activations in eight bits.
#[test]
fn a_file_of_all_formats_of_few_bits_computes_what_its_numbers_do() {
    let mut tensors = plan(Shape::find("tiny").unwrap(), &PURE[0]);
    let base = PURE[0].base;
    for (t, f) in tensors.iter_mut().filter(|t| t.ty == base).zip(PURE.iter().cycle()) {
        t.ty = f.base;
    }
    assert!(PURE.iter().all(|f| tensors.iter().any(|t| t.ty == f.base)));
    let (packed, plain) = (file_of(&tensors, false), file_of(&tensors, true));
    let ids: Vec<u32> = (0..20).map(|i| (i * 83 + 40) % 512).collect();
    let run = |file: &ogive::weights::Checkpoint, precision| {
        let cpu = CpuBackend::builder().precision(precision).build().unwrap();
        let loader = Loader::new(&*file.source, &cpu);
        let model = ogive::models::registry().build(&file.architecture, &file.config, &loader).unwrap();
        assert!(loader.unpacked().is_empty());
        let mut how = Evaluate::new();
        how.element = &F32;
        evaluate(&cpu, &*model, &ids, &how).unwrap()
    };
    let want = run(&plain, Precision::Exact);
    assert!(run(&packed, Precision::Exact) == want);
    let near = run(&packed, Precision::Default);
    let error = (&near - &want).mapv(|v| v * v).sum() / want.mapv(|v| v * v).sum();
    println!("activations in eight bits: normalised mean square error {error:.1e}");
    assert!(error > 0.0 && error < 2e-3, "{error:.1e}");
}

#[test]
fn every_family_runs() {
    // Small models of each family: their own sizes would take minutes here.
    for (name, format) in [
        ("llama-3.2-1b", "q4_k_m"),
        ("qwen2.5-0.5b", "q4_k_m"),
        ("qwen3-0.6b", "q4_k_m"),
        ("gemma-2-2b", "q4_k_m"),
        ("gemma-4-e2b", "q4_k_m"),
        ("mistral-7b", "q4_k_m"),
        ("granite-3.1-3b-a800m", "q4_k_m"),
        ("qwen3-30b-a3b", "q4_k_m"),
        ("gpt-oss-20b", "mxfp4_moe"),
        ("qwen3.5-4b", "q4_k_m"),
        ("granite-4.0-h-micro", "q4_k_m"),
        ("falcon-h1-1.5b", "q4_k_m"),
        ("nemotron-3-nano-30b-a3b", "q4_k_m"),
        ("ernie-4.5-0.3b", "q4_k_m"),
        ("seed-oss-36b", "q4_k_m"),
    ] {
        let real = Shape::find(name).unwrap();
        // Rows that 256 does not divide, so that the older types are seen too.
        let small = Shape {
            // So many that a hybrid's have all kinds.
            layers: 6,
            dim: 160,
            heads: 4,
            kv_heads: 2,
            head_dim: 32,
            ffn: 256,
            experts: real.experts.map(|n| n.min(8) / 2),
            linear: real.linear.map(|n| n.div_ceil(16)),
            vocab: 640,
            context: 512,
            ..*real
        };
        let synth = Synth {
            shape: Box::leak(Box::new(small)),
            format: FileFormat::find(format).unwrap(),
            seed: 1,
            threads: 2,
        };
        let (_folder, path) = written(&synth);
        let checkpoint = ogive::weights::open(&path).unwrap();
        let registry = ogive::models::registry();
        let loader = Loader::new(&*checkpoint.source, &Oracle);
        let model = registry.build(&checkpoint.architecture, &checkpoint.config, &loader).unwrap();
        check_logits(&*model, 640, name);
    }
}

#[test]
fn the_vocabulary_works() {
    let folder = tempfile::tempdir().unwrap();
    for (shape, bos) in [("tiny", true), ("llama-3.2-1b", true), ("qwen2.5-0.5b", false)] {
        // The metadata alone: no weights, however large the model.
        let path = folder.path().join(shape);
        let mut writer = GgufWriter::new();
        metadata::set(&mut writer, Shape::find(shape).unwrap(), FileFormat::find("f32").unwrap(), 1);
        writer.create(&path).unwrap().finish().unwrap();
        let gguf = ogive::weights::gguf_file::Gguf::open(&path).unwrap();
        let t = Tokenizer::from_gguf(gguf.metadata()).unwrap();

        let english =
            "The people of the town would not know what makes the water stop, but they had an answer.";
        for text in [english, "", " ", "a\n\n b\t", "naïve café, 東京 🙂 1234567", "<|end|>", "badefo zuzazi"]
        {
            let ids = t.encode(text, EncodeOptions::TEXT).unwrap();
            assert_eq!(t.decode_bytes(&ids).unwrap(), text.as_bytes(), "{shape}: {text:?}");
        }
        let ids = t.encode(english, EncodeOptions::TEXT).unwrap();
        assert!(ids.len() * 2 < english.len(), "{shape}: {} tokens for {} letters", ids.len(), english.len());
        let special = t.encode("a", EncodeOptions::default()).unwrap();
        assert_eq!(special.first() == t.bos().as_ref(), bos, "{shape}");
        let turn = t.encode("<|end|>", EncodeOptions::PROMPT).unwrap();
        assert!(t.eog().contains(turn.last().unwrap()), "{shape}");
    }
}

#[test]
fn the_same_seed_gives_the_same_bytes_on_any_number_of_threads() {
    // f32, so that tensors have several chunks.
    let of = |seed, threads| {
        let synth = Synth { threads, ..Synth::new("tiny", "f32", seed).unwrap() };
        let (_folder, path) = written(&synth);
        fs::read(path).unwrap()
    };
    let first = of(7, 1);
    assert!(first.len() > 3 << 20);
    assert!(first == of(7, 1) && first == of(7, 2) && first == of(7, 5));
    assert!(first != of(8, 2));
}

#[test]
fn progress_ends_at_the_whole() {
    let folder = tempfile::tempdir().unwrap();
    let mut seen = Vec::new();
    let synth = Synth::new("tiny", "q8_0", 1).unwrap();
    let notes = |done, total| {
        seen.push((done, total));
        true
    };
    synth.write(&folder.path().join("m.gguf"), notes).unwrap();
    let (done, total) = *seen.last().unwrap();
    assert!(done == total && seen.is_sorted(), "{seen:?}");
    assert!(total < fs::metadata(folder.path().join("m.gguf")).unwrap().len());
}

#[test]
fn errors_list_what_is_known_and_leave_no_file() {
    let e = Synth::new("llama-9", "q4_k_m", 1).unwrap_err().to_string();
    assert!(
        e.contains("`llama-9`")
            && e.contains("tiny, stories-15m, qwen2.5-0.5b")
            && e.contains("llama-3.1-8b"),
        "{e}"
    );
    let e = Synth::new("TINY", "q4", 1).unwrap_err().to_string();
    assert!(
        e.contains("`q4`")
            && e.contains(
                "f32, f16, bf16, q8_0, q6_k, q5_k_m, q4_k_m, q4_0, nvfp4, mxfp4_moe, iq3_s, iq3_xxs"
            ),
        "{e}"
    );
    let folder = tempfile::tempdir().unwrap();
    let synth = Synth::new("Tiny", "Q4_K_M", 1).unwrap();
    let path = folder.path().join("missing/m.gguf");
    let e = synth.write(&path, |_, _| true).unwrap_err().to_string();
    assert!(e.contains("missing/m.gguf"), "{e}");
    assert!(synth.write(folder.path(), |_, _| true).is_err());
    let stopped = synth.write(&folder.path().join("m.gguf"), |_, _| false);
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// Types of one kind of tensor over the layers, as runs: `6 6 4` is Q6_K, Q6_K, Q4_K.
fn kinds(plan: &[TensorPlan]) -> BTreeMap<String, Vec<&'static str>> {
    let mut kinds: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    for t in plan {
        let part =
            t.name.strip_prefix("blk.").and_then(|n| n.split_once('.')).map_or(&*t.name, |(_, part)| part);
        kinds.entry(part.to_owned()).or_default().push(t.ty.name());
    }
    kinds
}

#[test]
fn q4_k_m_chooses_types_as_llama_cpp_does() {
    let types = |shape: &str| kinds(&plan(Shape::find(shape).unwrap(), FileFormat::find("q4_k_m").unwrap()));
    // Where `use_more_bits` holds, worked out by hand: an eighth at each end, and of the rest each third.
    let layers = |n: usize, more: &[usize], a: &'static str, b: &'static str| -> Vec<&'static str> {
        (0..n).map(|i| if more.contains(&i) { a } else { b }).collect()
    };

    let of_16 = [0, 1, 4, 7, 10, 13, 14, 15];
    let llama = types("llama-3.2-1b");
    assert_eq!(llama["token_embd.weight"], ["Q6_K"]);
    assert!(!llama.contains_key("output.weight"));
    for part in ["attn_v.weight", "ffn_down.weight"] {
        assert_eq!(llama[part], layers(16, &of_16, "Q6_K", "Q4_K"), "{part}");
    }
    for part in ["attn_q.weight", "attn_k.weight", "attn_output.weight", "ffn_gate.weight", "ffn_up.weight"] {
        assert_eq!(llama[part], layers(16, &[], "", "Q4_K"), "{part}");
    }
    for part in ["attn_norm.weight", "ffn_norm.weight"] {
        assert_eq!(llama[part], layers(16, &[], "", "F32"), "{part}");
    }
    assert_eq!((&llama["output_norm.weight"], &llama["rope_freqs.weight"]), (&vec!["F32"], &vec!["F32"]));
    assert_eq!(llama.len(), 12);

    // Rows of 896 are no multiple of 256, those of 4864 are.
    let of_24 = [0, 1, 2, 5, 8, 11, 14, 17, 20, 21, 22, 23];
    let qwen = types("qwen2.5-0.5b");
    assert_eq!(qwen["token_embd.weight"], ["Q8_0"]);
    assert_eq!(qwen["attn_v.weight"], layers(24, &of_24, "Q8_0", "Q5_0"));
    assert_eq!(qwen["ffn_down.weight"], layers(24, &of_24, "Q6_K", "Q4_K"));
    for part in ["attn_q.weight", "attn_k.weight", "attn_output.weight", "ffn_gate.weight", "ffn_up.weight"] {
        assert_eq!(qwen[part], layers(24, &[], "", "Q5_0"), "{part}");
    }
    for part in ["attn_q.bias", "attn_k.bias", "attn_v.bias"] {
        assert_eq!(qwen[part], layers(24, &[], "", "F32"), "{part}");
    }

    // Untied: the head is large, the embedding is not.
    let llama = types("llama-3.1-8b");
    assert_eq!((&*llama["token_embd.weight"], &*llama["output.weight"]), (&["Q4_K"][..], &["Q6_K"][..]));
    assert_eq!(llama["attn_v.weight"].iter().filter(|t| **t == "Q6_K").count(), 16);
}

#[test]
fn formats_of_few_bits_leave_the_embedding_and_the_head_more() {
    let types = |shape: &str| kinds(&plan(Shape::find(shape).unwrap(), &PURE[4]));
    let (tied, own, odd) = (types("llama-3.2-1b"), types("llama-3.1-8b"), types("qwen2.5-0.5b"));
    assert_eq!((tied["token_embd.weight"][0], tied["ffn_down.weight"][3]), ("Q6_K", "IQ2_XXS"));
    assert_eq!((own["token_embd.weight"][0], own["output.weight"][0]), ("Q4_K", "Q6_K"));
    // Rows of 896 are no multiple of 256.
    assert_eq!((odd["token_embd.weight"][0], odd["attn_q.weight"][0]), ("Q8_0", "Q4_0"));
    assert_eq!((odd["ffn_down.weight"][0], odd["attn_q.bias"][0]), ("IQ2_XXS", "F32"));
}

#[test]
fn shapes_have_their_published_sizes() {
    // Parameters, as the publishers count them: tied heads once.
    for (name, parameters) in [
        ("stories-15m", 15_191_712_u64),
        ("llama-3.2-1b", 1_235_814_400),
        ("llama-3.2-3b", 3_212_749_824),
        ("llama-3.1-8b", 8_030_261_248),
        ("qwen2.5-0.5b", 494_032_768),
        ("qwen2.5-3b", 3_085_938_688),
        ("qwen3-0.6b", 596_049_920),
        ("qwen3-4b", 4_022_468_096),
        ("qwen3.5-4b", 4_205_751_296),
        ("mistral-7b", 7_248_023_552),
        ("gemma-2-2b", 2_614_341_888),
        // And a number for each of 35 layers, which transformers does not count.
        ("gemma-4-e2b", 4_628_569_344 + 35),
        ("granite-3.1-3b-a800m", 3_298_793_472),
        ("granite-4.0-h-micro", 3_191_396_096),
        ("falcon-h1-1.5b", 1_554_863_488),
        ("gpt-oss-20b", 20_914_757_184),
        ("qwen3-30b-a3b", 30_532_122_624),
        ("nemotron-3-nano-30b-a3b", 31_577_940_288),
        ("ernie-4.5-0.3b", 360_748_032),
        ("seed-oss-36b", 36_151_104_512),
    ] {
        let plan = plan(Shape::find(name).unwrap(), FileFormat::find("f32").unwrap());
        // The factors of rotary frequencies are no parameters.
        let weights = plan.iter().filter(|t| t.name != "rope_freqs.weight");
        assert_eq!(weights.map(TensorPlan::blocks).sum::<u64>(), parameters, "{name}");
    }
}

#[test]
fn rope_factors_follow_the_published_rule() {
    let factors = Shape::find("llama-3.1-8b").unwrap().rope_factors().unwrap();
    // Fast turns are kept, slow ones divided by 8; between, 1 / ((1 - s) / 8 + s) at pair 32:
    // 8192 · 500000^-0.5 / 2π = 1.8438 turns, s = 0.28127.
    assert_eq!((factors.len(), factors[0], factors[28], factors[63]), (64, 1.0, 1.0, 8.0));
    assert!((factors[32] - 2.6941).abs() < 1e-3, "{}", factors[32]);
    assert!(factors.is_sorted());
    assert!(Shape::find("tiny").unwrap().rope_factors().is_none());
}

/// A GPU's own scratch counts where there is one: for products, cuBLAS's and what a record keeps.
#[cfg(unix)]
#[test]
fn a_large_model_takes_little_more_than_its_file_on_a_gpu() {
    use ptx_emulator_launcher::{Launcher, test, test_name};
    large_models();
    if test::case().is_none() {
        for device in ["sm_80:40G", "sm_90:80G"] {
            let launcher = Launcher::new().set("PTX_EMU_DEVICES", device);
            let Some(report) = test::run(test_name!(), device, &launcher) else { return };
            print!("{}", report.ok().stdout);
        }
    }
}

/// Models of billions, of which only the header is written: the rest of the file is a hole.
#[cfg(unix)]
fn large_models() {
    use std::os::unix::fs::FileExt;
    // What weights may take, and all but the cache, as a part of the packed bytes: cuBLAS's scratch is the same for a small model.
    for (shape, format, weights, most) in [
        ("llama-3.1-8b", "q4_k_m", 1.02, 1.07),
        ("llama-3.1-8b", "q8_0", 1.01, 1.04),
        ("llama-3.1-8b", "f16", 1.001, 1.01),
        ("llama-3.2-1b", "q4_k_m", 1.01, 1.15),
        ("llama-3.2-1b", "q8_0", 1.03, 1.12),
        ("qwen2.5-0.5b", "q4_k_m", 1.01, 1.22),
    ] {
        let synth = Synth::new(shape, format, 1).unwrap();
        let (tensors, mut writer, mut bytes) =
            (plan(synth.shape, synth.format), GgufWriter::new(), Vec::new());
        metadata::set(&mut writer, synth.shape, synth.format, 1);
        for t in &tensors {
            writer.tensor(&t.name, &t.dims, t.ty).unwrap();
        }
        drop(writer.write_to(&mut bytes).unwrap());
        let file = tempfile::NamedTempFile::with_suffix(".gguf").unwrap();
        fs::write(file.path(), &bytes).unwrap();
        let mut len = bytes.len() as u64;
        for t in &tensors {
            // Few numbers, but ones that loading checks.
            if let Fill::Values(values) = &t.fill {
                let values: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
                file.as_file().write_all_at(&values, len).unwrap();
            }
            len += (t.blocks() * t.ty.block_bytes()).next_multiple_of(32);
        }
        file.as_file().set_len(len).unwrap();

        // Of a build without CUDA, the sizes are those of the file.
        let options = ogive::Options::new().device(ogive::Device::Cuda(0)).context(4096);
        let memory = options.estimate_memory(file.path()).unwrap();
        let beside = memory.total() - memory.cache;
        let packed: u64 = tensors.iter().map(|t| t.blocks() * t.ty.block_bytes()).sum();
        let parts = [memory.weights, beside].map(|bytes| bytes as f64 / packed as f64);
        println!("{shape} in {format}, {packed} bytes: {memory}; {:.4} and {:.4}", parts[0], parts[1]);
        assert!(parts[0] > 0.999 && parts[0] <= weights && parts[1] <= most, "{shape}: {memory}, {parts:?}");
        // Keys and values of half precision for every token, layer and head.
        let s = synth.shape;
        let cache = 4 * (s.layers * s.kv_heads * s.head_dim * 4096) as u64;
        assert!((cache..=cache + cache / 16).contains(&memory.cache), "{memory}: {cache}");
    }
}
