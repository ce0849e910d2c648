//! The sources are what their descriptions say.

use super::*;

#[test]
fn sources_are_what_they_say() {
    for source in SOURCES {
        let text = source.text();
        for kernel in source.kernels {
            assert!(text.contains(&format!("{kernel}(")), "{} has no {kernel}", source.name);
        }
        assert!(!text.contains("#include"), "{} includes a header", source.name);
        assert!(!source.samples.is_empty(), "{} is never compiled", source.name);
        for (name, text) in source.files {
            assert!(text.starts_with("// "), "{name} does not open with what it is for");
        }
    }
}

#[test]
fn a_kernel_alone_is_all_that_is_left() {
    for source in SOURCES {
        let whole = source.text();
        for kernel in source.kernels {
            let text = source.text_of(kernel);
            let heads = text.split("\nKERNEL ").skip(1).map(|k| k.split('{').next().unwrap_or_default());
            let is_it = |head: &str| head.split_whitespace().any(|w| w.starts_with(&format!("{kernel}(")));
            // One or, by the device, one of two.
            let heads: Vec<&str> = heads.collect();
            assert!(!heads.is_empty() && heads.iter().all(|head| is_it(head)), "{kernel}: {heads:?}");
            // Line for line what it was, or nothing.
            let mut lines = whole.lines().zip(text.lines());
            assert_eq!(whole.lines().count(), text.lines().count(), "{kernel}");
            assert!(lines.all(|(was, is)| was == is || is.is_empty()), "{kernel}");
            let braces = |b| text.matches(b).count();
            assert_eq!(braces('{'), braces('}'), "{kernel}");
        }
    }
}

/// What may not stand before the wait of a kernel that first asks for what no kernel of a step writes: weights, factors, the step's plan. By the file,
/// with the words that read or write anything else.
const AHEAD: [(&str, &[&str]); 13] = [
    ("linear_one.cu", &["stage(", "products<", "y["]),
    ("linear_int8.cu", &["products(", "y["]),
    ("linear_gated_int8.cu", &["products(", "y["]),
    ("linear_int8_mma.cu", &["products(", "add_pair(", "y["]),
    ("experts_int8.cu", &["products(", "h[", "y["]),
    ("linear_few.cu", &[".products(", "multiply(", "y["]),
    ("norm.cu", &["x[", "x +", "out", "sum ="]),
    ("attend.cu", &["load_queries(", "attend_chunk<", "put(", "q["]),
    ("attend_split.cu", &["load_queries(", "attend_chunk<", "put(", "q[", "parts +", "atomic", "*ticket"]),
    ("rope_store.cu", &["own[", "key[", "value[", "put(", "= q +"]),
    ("causal_conv.cu", &["x[", "look(", "keep(", "states", "y["]),
    ("selective_scan.cu", &["x[", "dt[", "load(", "fetch(", "states", "y["]),
    ("linear_attention.cu", &["q +", "k +", "v +", "fetch(", "load(", "states", "y +"]),
];

/// Whether a kernel that does not begin with its wait neither ends before it nor reads or writes what the kernel before may. Where it is one call of
/// a function of its file, that function waits.
fn waits_soon(file: &str, text: &str, body: &str) -> bool {
    let Some((_, others)) = AHEAD.iter().find(|(name, _)| *name == file) else { return false };
    let clean = |ahead: &str| others.iter().all(|word| !ahead.contains(word));
    match body.split_once("after_the_last();") {
        // What comes after it is of no interest, and a kernel ends at the first brace of a line.
        Some((ahead, _)) if !ahead.contains("\n}\n") => !ahead.contains("return") && clean(ahead),
        _ => {
            let own = body.split("\n}\n").next().unwrap_or_default();
            let function = text.split("DEVICE void outputs(TRACED ").nth(1).and_then(|f| f.split_once('{'));
            let ahead =
                function.and_then(|(_, body)| body.split_once("after_the_last();")).map(|(ahead, _)| ahead);
            let calls = own.matches("outputs<").count() == own.matches("return").count() + 1;
            calls && clean(own) && ahead.is_some_and(|ahead| !ahead.contains("return") && clean(ahead))
        }
    }
}

#[test]
fn every_kernel_begins_after_the_last() {
    for source in SOURCES.iter().filter(|s| !["probe", "trial"].contains(&s.name)) {
        for (name, text) in source.files {
            for kernel in text.split("\nKERNEL ").skip(1) {
                let (head, body) = kernel.split_once('{').unwrap_or_default();
                let body = body.trim_start();
                // Where it would note its times, if it did.
                assert!(head.contains("(TRACED "), "{name}: {head}");
                let begins = body.starts_with("after_the_last();") || body.starts_with("__trap();");
                assert!(
                    begins || waits_soon(name, text, body),
                    "{name}: {}",
                    head.lines().next().unwrap_or_default()
                );
            }
        }
    }
}

/// Kernels that get as many threads as a row wants, up to 256, 512 or 1024: without the bound a compiler may give one more registers than fit.
#[test]
fn kernels_of_rows_fit_whole_blocks() {
    let texts: Vec<String> = SOURCES.iter().map(|source| source.text()).collect();
    let norms = ["rms_norm", "add_rms_norm", "layer_norm", "sum"].map(|name| (name, 512));
    let others = ["outputs", "read_state", "write_state", "embed", "store", "gather", "combine", "rope"];
    let all = norms.into_iter().chain(others.map(|name| (name, 1024))).chain([("rope_store", 256)]);
    for (name, most) in all {
        let bounded = |rest: &str| {
            rest.split_once(')').is_some_and(|(_, f)| f.trim_start().starts_with(&format!("{name}(")))
        };
        let bound = format!("\nKERNEL __launch_bounds__({most}");
        assert!(texts.iter().any(|text| text.split(&bound).skip(1).any(bounded)), "{name}");
    }
}

#[test]
fn every_format_has_a_struct() {
    for name in WEIGHT_FORMATS.iter().chain(&CACHE_FORMATS).chain([&F8_BLOCKS, &NVFP4_BLOCKS]) {
        let is = |text: &str, end| text.contains(&format!(" {name}{end}"));
        assert!(is(FORMATS.1, " :") || is(FEW.1, " :") || is(FEW.1, ";"), "{name}");
    }
    for name in WEIGHT_FORMATS.iter().filter(|name| !["f32", "f16", "bf16"].contains(name)) {
        let text = LINEAR_INT8.text();
        assert!([" :", ";"].iter().any(|end| text.contains(&format!(" {name}_codes{end}"))), "{name}");
    }
}
