//! `ogive quantize`: folders become files that give the references' logits, and packed files get worse as they get smaller.
#![allow(clippy::print_stdout, reason = "figures are to be seen")]

mod common;

use common::{ogive, ogive_reads, shared, shared_json};
use ndarray_npy::{ReadNpyExt, read_npy};
use ogive::ndarray::Array2;
use ogive_quantize::GgmlType;
use ogive_quantize::gguf_file::GgufWriter;
use std::fs;

/// Folders, and how much a logit may differ.
const FOLDERS: [(&str, f32); 11] = [
    ("llama", 5e-5),
    ("llama-bf16-sharded", 5e-5),
    ("llama3-rope", 5e-5),
    ("mistral", 5e-5),
    ("mixtral", 5e-5),
    ("qwen2", 5e-5),
    ("qwen3", 5e-5),
    ("gemma2", 1e-4),
    ("gemma3", 1e-4),
    ("phi3", 1e-4),
    ("gpt2", 1e-4),
];

#[test]
fn folders_become_files_that_compute_the_same() {
    let folder = tempfile::tempdir().unwrap();
    for (name, tolerance) in FOLDERS {
        let Some(golden) = shared_json(&format!("golden/{name}/golden.json")) else { return };
        let here = shared("golden").unwrap().join(name);
        let (out, npy) = (folder.path().join(format!("{name}.gguf")), folder.path().join("logits.npy"));
        let made = ogive(args!["quantize", here, out, "--format", "f32"]);
        assert_eq!(made.text(), "");
        assert!(made.stderr.contains("32.00 bits a weight"), "{}", made.stderr);
        for case in golden["cases"].as_array().unwrap() {
            let ids: Vec<String> = case["ids"].as_array().unwrap().iter().map(ToString::to_string).collect();
            let expected: Array2<f32> = read_npy(here.join(case["logits"].as_str().unwrap())).unwrap();
            ogive(args!["logits", "--model", out, "--tokens", ids.join(","), "--out", npy, "--exact"]).text();
            let got = Array2::<f32>::read_npy(fs::File::open(&npy).unwrap()).unwrap();
            assert_eq!(got.dim(), expected.dim());
            let worst = (&got - &expected).iter().fold(0.0_f32, |w, d| w.max(d.abs()));
            assert!(worst <= tolerance, "{name}: {worst}");
        }
        let text = golden["text"].as_str().unwrap().as_bytes();
        let ids = |model| ogive_reads(args!["tokenize", "--special", "--model", model], text).json();
        assert_eq!(ids(out), ids(here), "{name}");
    }
}

/// What a model sees with is a file of its own, in halves where nothing is said.
#[test]
fn what_a_model_sees_with_is_packed_beside_it() {
    let folder = tempfile::tempdir().unwrap();
    let model =
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../ogive-models/tests/vision/qwen2-vl");
    let out = folder.path().join("mmproj.gguf");
    let plan = ogive(args!["quantize", model, "--plan", "--mmproj"]).text();
    assert!(plan.lines().all(|line| line.starts_with("v.") || line.starts_with("mm.")), "{plan}");
    let line = plan.lines().find(|line| line.starts_with("v.blk.0.attn_q.weight")).unwrap();
    assert!(line.contains("24x24") && line.contains("f16"), "{line}");
    let made = ogive(args!["quantize", model, out, "--mmproj"]);
    assert!(made.text().is_empty() && made.stderr.contains("f16"), "{}", made.stderr);
    let again = folder.path().join("again.gguf");
    let e = ogive(args!["quantize", out, again, "--mmproj"]);
    assert!(e.stderr.contains("the folder that both were made of"), "{}", e.stderr);
    let e = ogive(args!["quantize", out, again]);
    assert!(e.stderr.contains("--format"), "{}", e.stderr);
}

#[test]
fn stories_get_less_likely_as_bits_get_fewer() {
    let Some(model) = shared("models/stories260K/stories260K-f32.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let story =
        ogive(args!["run", "--model", model, "--raw", "--temp", "0", "-n", "480", "-q", "Once upon a time"]);
    let text = folder.path().join("story.txt");
    fs::write(&text, story.text()).unwrap();
    let perplexity = |model: &std::path::Path| {
        let got = ogive(args!["perplexity", "--model", model, "-c", "64", "--json", "--exact", &text]).json();
        assert!(got["windows"].as_u64().unwrap() > 3);
        got["perplexity"].as_f64().unwrap()
    };
    let mut last = perplexity(&model);
    let original = last;
    for (format, most) in [("q8_0", 1.01), ("q5_1", 1.1), ("q4_0", 1.6)] {
        let out = folder.path().join(format!("{format}.gguf"));
        ogive(args!["quantize", model, out, "-f", format]).text();
        let now = perplexity(&out);
        // Eight bits are as good as all, within what chance does.
        assert!(now > last * 0.999 && now < original * most, "{format}: {now} after {last}, of {original}");
        last = now;
    }
}

#[test]
fn our_own_model_gets_worse_format_by_format() {
    let folder = tempfile::tempdir().unwrap();
    let model = folder.path().join("own.gguf");
    fs::write(&model, ogive_demo_model::GGUF).unwrap();
    // What the model says unbent is what it holds for likely: any change of its weights makes it less so.
    let unbent = args!["--temperature", "1", "--top-k", "0", "--top-p", "1", "--min-p", "0"];
    let story = |seed: u32| {
        let fixed = args!["run", "--model", model, "--raw", "-q", "-n", "200", "--seed", seed.to_string()];
        ogive(fixed.into_iter().chain(unbent.clone()).chain(args!["Once upon a time"])).text()
    };
    let own = ogive::open(&model).unwrap();
    let whole = |seed| own.encode(&format!("Once upon a time{}", story(seed)).into()).unwrap();
    // Each by itself: the model has never seen one story after another.
    let stories: Vec<Vec<u32>> = (1..=40).map(whole).collect();
    let before = own.logits(&stories[0]).unwrap();
    let (mut last, mut last_perplexity) = (0.0, 0.0);
    for format in ["q8_0", "q6_k", "q5_k_m", "q4_k_m", "q3_k_m", "q2_k"] {
        let out = folder.path().join(format!("{format}.gguf"));
        ogive(args!["quantize", model, out, "-f", format, "--allow-requantize"]).text();
        let quantized = ogive::open(&out).unwrap();
        // How far it is from what the model says.
        let now = divergence(&before, &quantized.logits(&stories[0]).unwrap());
        assert!(
            if format == "q8_0" { now < 1e-6 } else { now > last && now < 1.0 },
            "{format}: {now} after {last}"
        );
        last = now;
        let perplexity = perplexity(&quantized, &stories);
        println!("{format}: perplexity {perplexity:.4}, divergence {now:.6}");
        assert!(perplexity > last_perplexity, "{format}: {perplexity} after {last_perplexity}");
        last_perplexity = perplexity;
    }
}

/// Of all tokens of the stories but each one's first.
fn perplexity(model: &ogive::Model, stories: &[Vec<u32>]) -> f64 {
    let mut surprise = (0.0, 0);
    for ids in stories {
        let logits = model.logits(ids).unwrap();
        for (row, next) in logits.rows().into_iter().zip(&ids[1..]) {
            surprise = (surprise.0 - logs(row.to_slice().unwrap())[*next as usize], surprise.1 + 1);
        }
    }
    (surprise.0 / f64::from(surprise.1)).exp()
}

/// Logarithms of the probabilities.
fn logs(row: &[f32]) -> Vec<f64> {
    let top = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let sum: f64 = row.iter().map(|v| f64::from(v - top).exp()).sum();
    row.iter().map(|v| f64::from(v - top) - sum.ln()).collect()
}

/// The mean Kullback-Leibler divergence, in nats, of what `after` foretells from what `before` does.
fn divergence(before: &Array2<f32>, after: &Array2<f32>) -> f64 {
    let of =
        |(p, q): (&[f32], &[f32])| logs(p).iter().zip(logs(q)).map(|(p, q)| p.exp() * (p - q)).sum::<f64>();
    let rows = before.rows().into_iter().zip(after.rows());
    let each: Vec<f64> = rows.map(|(p, q)| of((p.to_slice().unwrap(), q.to_slice().unwrap()))).collect();
    each.iter().sum::<f64>() / each.len() as f64
}

#[test]
fn options_are_heard_and_plans_write_nothing() {
    let Some(model) = shared("golden/llama-k256/llama-k256-f32.gguf") else { return };
    let plan = |more: &[&str]| {
        let fixed = args!["quantize", model, "--plan", "--format"];
        ogive(fixed.into_iter().chain(more.iter().map(Into::into))).text()
    };
    let ty = |plan: &str, tensor: &str| {
        let line = plan.lines().find(|l| l.starts_with(tensor)).unwrap_or_else(|| panic!("{plan}"));
        line.split_whitespace().nth(3).unwrap().to_owned()
    };
    let p = plan(&["q4_k_m"]);
    assert_eq!((ty(&p, "output.weight"), ty(&p, "blk.0.attn_q.")), ("q6_k".into(), "q4_k".into()));
    let p = plan(&["q4_k_m", "--pure"]);
    assert_eq!(ty(&p, "output.weight"), "q4_k");
    let p = plan(&[
        "iq4_xs",
        "--output-tensor-type",
        "q8_0",
        "--token-embedding-type",
        "F16",
        "--tensor-type",
        "ffn_.*=mxfp4",
    ]);
    assert_eq!(
        (ty(&p, "output.weight"), ty(&p, "token_embd"), ty(&p, "blk.0.ffn_up")),
        ("q8_0".into(), "f16".into(), "mxfp4".into())
    );
    assert_eq!(ty(&p, "blk.0.attn_norm"), "f32");
    let p = plan(&["q4_k_m", "--tensor-type", "attn_v=keep"]);
    assert_eq!((ty(&p, "blk.0.attn_v."), ty(&p, "blk.0.attn_q.")), ("f32".into(), "q4_k".into()));
    // A rule that an earlier one leaves nothing to is for a tensor all the same.
    plan(&["q8_0", "--tensor-type", "attn=q5_0", "--tensor-type", "attn_v=q4_0"]);
    let packed = shared("golden/llama/llama-Q8_0.gguf").unwrap();
    let shown = ogive(args!["quantize", packed, "--plan", "-f", "q4_0"]);
    assert_eq!(ty(&shown.text(), "blk.0.attn_q."), "q4_0");
    assert!(shown.stderr.contains("takes --allow-requantize"), "{}", shown.stderr);
    assert_eq!(ogive(args!["quantize", packed, "--plan", "-f", "q4_0", "--allow-requantize"]).stderr, "");
}

#[test]
fn mistakes_are_told_in_a_line() {
    let Some(model) = shared("golden/llama/llama-f32.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.gguf");
    for (more, why) in [
        (&["--format", "q9"][..], "q4_k_m"),
        (&["--format", "q8_0", "--tensor-type", "attn_v"], "no `=`"),
        (&["--format", "q8_0", "--output-tensor-type", "i8"], "iq4_nl"),
        (&[], "--format"),
    ] {
        let fixed = args!["quantize", model, out];
        let wrong = ogive(fixed.into_iter().chain(more.iter().map(Into::into)));
        assert_eq!(wrong.code, Some(2), "{}", wrong.stderr);
        assert!(wrong.stderr.contains(why), "{}", wrong.stderr);
    }
    let quantize = |input: &std::path::Path, more: &[&str]| {
        let fixed = args!["quantize", input, out, "-f", "q4_0"];
        ogive(fixed.into_iter().chain(more.iter().map(Into::into))).error(1).to_owned()
    };
    let empty = folder.path().join("empty");
    fs::write(&empty, b"").unwrap();
    assert!(quantize(&empty, &[]).contains("neither a GGUF file nor a folder"));
    assert!(quantize(&shared("golden/llama/llama-Q8_0.gguf").unwrap(), &[]).contains("allow requantizing"));
    assert!(quantize(&model, &["--tensor-type", "attn_v=q4_k"]).contains("blk.0.attn_v.weight"));
    // The second is no matrix.
    for rule in ["nothing_matches=q8_0", "attn_norm=q8_0"] {
        for more in
            [&["--tensor-type", rule][..], &["--tensor-type", "attn_v=f16", "--tensor-type", rule, "--plan"]]
        {
            let why = quantize(&model, more);
            assert!(why.contains(rule) && why.contains("token_embd.weight"), "{why}");
        }
    }
    for threads in ["0", "4097", "1000000"] {
        let wrong = ogive(args!["quantize", model, out, "-f", "q4_0", "-t", threads]);
        assert!(wrong.error(2).contains("is not in 1..=4096"), "{}", wrong.stderr);
    }
    assert!(!out.exists());
    fs::write(&out, b"precious").unwrap();
    assert!(quantize(&model, &[]).contains("--force"));
    assert_eq!(fs::read(&out).unwrap(), b"precious");
    assert_eq!(ogive(args!["quantize", model, out, "-f", "q4_0", "--force", "-q"]).text(), "");
    assert!(fs::read(&out).unwrap().starts_with(b"GGUF"));
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2);
}

/// Which tensors are packed depends on the architecture.
#[test]
fn rules_are_for_what_this_architecture_packs() {
    let folder = tempfile::tempdir().unwrap();
    let (model, out) = (folder.path().join("m.gguf"), folder.path().join("out.gguf"));
    for (architecture, is_packed) in [("llama", true), ("glm5-next", false)] {
        let mut writer = GgufWriter::new();
        writer.set("general.architecture", architecture);
        let names = ["blk.0.attn_k_b.weight", "blk.0.attn_q.weight"];
        for name in names {
            writer.tensor(name, &[32, 2], GgmlType::F32).unwrap();
        }
        let mut file = Vec::new();
        let mut data = writer.write_to(&mut file).unwrap();
        for name in names {
            data.write_data(name, &[0; 256]).unwrap();
        }
        data.finish().unwrap();
        fs::write(&model, file).unwrap();
        let ran =
            ogive(args!["quantize", model, out, "-f", "q8_0", "--tensor-type", "attn_k_b=q4_0", "--plan"]);
        if is_packed {
            assert!(ran.text().contains("q4_0"), "{}", ran.text());
        } else {
            assert!(ran.error(1).starts_with("--tensor-type attn_k_b=q4_0: no tensor"), "{}", ran.stderr);
        }
    }
}

#[test]
fn texts_that_cannot_be_scored() {
    let Some(model) = shared("models/stories260K/stories260K-q8_0.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    let text = folder.path().join("t.txt");
    fs::write(&text, "Once upon a time").unwrap();
    let wrong = |more: &[&str], code| {
        let fixed = args!["perplexity", "--model", model, text];
        ogive(fixed.into_iter().chain(more.iter().map(Into::into))).error(code).to_owned()
    };
    let short = wrong(&[], 1);
    assert!(short.contains("one window takes 512") && short.ends_with("as with -c 5"), "{short}");
    assert!(wrong(&["-c", "2"], 2).contains("at least 4"));
    let empty = folder.path().join("empty.txt");
    fs::write(&empty, "").unwrap();
    for (file, what) in [(empty.to_str().unwrap(), "empty.txt"), ("-", "stdin")] {
        let ran = ogive(args!["perplexity", "--model", model, file]);
        assert!(
            ran.error(1).ends_with(&format!("{what}: it is empty; give a text to score")),
            "{}",
            ran.stderr
        );
    }
    let encoder = concat!(env!("CARGO_MANIFEST_DIR"), "/../ogive-models/tests/golden/bert");
    let ran = ogive(args!["perplexity", "--model", encoder, "-c", "4", text]);
    assert!(ran.error(1).contains("is an encoder") && !ran.stderr.contains("windows"), "{}", ran.stderr);
    let missing = folder.path().join("none.txt");
    assert!(ogive(args!["perplexity", "--model", model, missing]).error(1).contains("none.txt"));
    let line = ogive(args!["perplexity", "--model", model, "-c", "4", "--chunks", "1", text]).text();
    // Of the one token that is scored there is no error to tell.
    assert!(line.starts_with("PPL = ") && !line.contains("+/-"), "{line}");
}
