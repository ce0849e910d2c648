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
fn every_kernel_begins_after_the_last() {
    for source in SOURCES.iter().filter(|s| !["probe", "trial"].contains(&s.name)) {
        for (name, text) in source.files {
            for kernel in text.split("\nKERNEL ").skip(1) {
                let (head, body) = kernel.split_once('{').unwrap_or_default();
                let body = body.trim_start();
                // Where it would note its times, if it did.
                assert!(head.contains("(TRACED "), "{name}: {head}");
                // One may ask for weights first, but neither end nor read or write anything else.
                let chunks = name.ends_with("_int8.cu")
                    && body.split_once("after_the_last();").is_some_and(|(ahead, _)| {
                        let others = ["return", "scales", "codes", "y["];
                        ahead.trim_end().ends_with("s.begin();") && others.iter().all(|w| !ahead.contains(w))
                    });
                let begins = body.starts_with("after_the_last();") || body.starts_with("__trap();");
                let factors = *name == "norm.cu"
                    && body.split_once(";\n    after_the_last();").is_some_and(|(ahead, _)| {
                        ["Factors factors(w, cols)", "Factors factors(w, cols), summands(b, b ? cols : 0)"]
                            .contains(&ahead)
                    });
                assert!(begins || chunks || factors, "{name}: {}", kernel.lines().next().unwrap_or_default());
            }
        }
    }
}

/// Kernels that get as many threads as a row wants, up to 512 or 1024: without the bound a compiler may give one more registers than fit.
#[test]
fn kernels_of_rows_fit_whole_blocks() {
    let texts: Vec<String> = SOURCES.iter().map(|source| source.text()).collect();
    let norms = ["rms_norm", "add_rms_norm", "layer_norm", "sum"].map(|name| (name, 512));
    let others =
        ["outputs", "read_state", "write_state", "embed", "store", "gather", "combine", "rope", "rope_store"];
    for (name, most) in norms.into_iter().chain(others.map(|name| (name, 1024))) {
        let bounded = |rest: &str| {
            rest.split_once(')').is_some_and(|(_, f)| f.trim_start().starts_with(&format!("{name}(")))
        };
        let bound = format!("\nKERNEL __launch_bounds__({most}");
        assert!(texts.iter().any(|text| text.split(&bound).skip(1).any(bounded)), "{name}");
    }
}

#[test]
fn every_format_has_a_struct() {
    for name in WEIGHT_FORMATS.iter().chain(&CACHE_FORMATS) {
        assert!(FORMATS.1.contains(&format!("struct {name} ")), "{name}");
    }
    for name in WEIGHT_FORMATS.iter().filter(|name| !["f32", "f16", "bf16"].contains(name)) {
        assert!(LINEAR_INT8.text().contains(&format!("struct {name}_codes ")), "{name}");
    }
}
