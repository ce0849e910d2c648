//! The choice, against what llama.cpp's source says by hand.

use super::*;
use crate::format::FILE_FORMATS;

/// The format of this name, whether or not its base has an encoder.
fn named(name: &str) -> &'static FileFormat {
    FILE_FORMATS.iter().find(|f| f.name == name).unwrap()
}

fn names(layers: usize) -> Vec<String> {
    let parts = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    let mut all: Vec<String> =
        ["token_embd.weight", "output.weight", "output_norm.weight"].map(str::to_owned).into();
    // Out of order, as converters write them.
    for layer in (0..layers).rev() {
        all.extend(parts.iter().map(|p| format!("blk.{layer}.{p}.weight")));
    }
    all
}

fn types(format: &str, facts: &Facts, cols: u64) -> Vec<(String, &'static str)> {
    types_by(&Mix::new(named(format)), facts, cols)
}

fn types_by(mix: &Mix, facts: &Facts, cols: u64) -> Vec<(String, &'static str)> {
    let (names, dims) = (names(facts.layers), [cols, 64]);
    let norm = [cols];
    let shapes: Vec<Shape<'_>> =
        names.iter().map(|n| (&**n, if n.contains("norm") { &norm[..] } else { &dims[..] })).collect();
    let types = mix.choose(facts, &shapes).unwrap();
    let named = |t: Option<GgmlType>| t.map_or("-", GgmlType::name);
    names.into_iter().zip(types).map(|(n, t)| (n, named(t))).collect()
}

/// Types of one kind of tensor, layer by layer.
fn by_layer(all: &[(String, &'static str)], part: &str, layers: usize) -> Vec<&'static str> {
    let find = |l| all.iter().find(|(n, _)| *n == format!("blk.{l}.{part}.weight")).map_or("", |(_, t)| *t);
    (0..layers).map(find).collect()
}

#[test]
fn each_mix_spends_its_bits_where_llama_cpp_does() {
    let facts = Facts::new("llama", 16, 32, 8, 0);
    let run = |format: &str| types(format, &facts, 2048);
    let sixes = |n: &[usize], a: &'static str, b: &'static str| -> Vec<&'static str> {
        (0..16).map(|i| if n.contains(&i) { a } else { b }).collect()
    };
    let more = [0, 1, 4, 7, 10, 13, 14, 15];

    let m = run("q4_k_m");
    assert_eq!(m[2].1, "-");
    assert_eq!(m[0].1, "Q4_K");
    assert_eq!(m[1].1, "Q6_K");
    assert_eq!(by_layer(&m, "attn_v", 16), sixes(&more, "Q6_K", "Q4_K"));
    assert_eq!(by_layer(&m, "ffn_down", 16), sixes(&more, "Q6_K", "Q4_K"));
    assert_eq!(by_layer(&m, "attn_output", 16), sixes(&[], "", "Q4_K"));

    let m = run("q4_k_s");
    assert_eq!(by_layer(&m, "attn_v", 16), sixes(&[0, 1, 2, 3], "Q5_K", "Q4_K"));
    assert_eq!(by_layer(&m, "ffn_down", 16), sixes(&[0, 1], "Q5_K", "Q4_K"));

    let m = run("q3_k_m");
    assert_eq!(by_layer(&m, "attn_v", 16), sixes(&[0, 1], "Q5_K", "Q4_K"));
    assert_eq!(by_layer(&m, "ffn_down", 16), sixes(&[0], "Q5_K", "Q4_K"));
    assert_eq!(by_layer(&m, "attn_output", 16), sixes(&[], "", "Q4_K"));
    assert_eq!(by_layer(&m, "ffn_up", 16), sixes(&[], "", "Q3_K"));

    let m = run("q3_k_l");
    for part in ["attn_v", "ffn_down", "attn_output"] {
        assert_eq!(by_layer(&m, part, 16), sixes(&[], "", "Q5_K"), "{part}");
    }
    assert_eq!(by_layer(&run("q3_k_s"), "attn_v", 16), sixes(&[], "", "Q3_K"));

    // Four query heads share a key head here.
    let m = run("q2_k");
    assert_eq!(
        (by_layer(&m, "attn_v", 16), by_layer(&m, "ffn_down", 16)),
        (vec!["Q4_K"; 16], vec!["Q3_K"; 16])
    );
    assert_eq!(
        (by_layer(&m, "attn_output", 16), by_layer(&m, "attn_q", 16)),
        (vec!["Q3_K"; 16], vec!["Q2_K"; 16])
    );
    let m = run("q2_k_s");
    assert_eq!(
        (by_layer(&m, "attn_v", 16), by_layer(&m, "ffn_down", 16)),
        (vec!["Q4_K"; 16], sixes(&[0, 1], "Q4_K", "Q2_K"))
    );
    assert_eq!(
        by_layer(&types("q2_k", &Facts::new("llama", 16, 32, 32, 0), 2048), "attn_v", 16),
        vec!["Q3_K"; 16]
    );

    for format in ["iq4_nl", "iq4_xs"] {
        let base = named(format).base.name();
        let m = run(format);
        assert_eq!(by_layer(&m, "attn_v", 16), vec!["Q5_K"; 16]);
        assert_eq!(by_layer(&m, "ffn_down", 16), sixes(&[0, 1], "Q5_K", base));
        assert_eq!((m[0].1, m[1].1), (base, "Q6_K"));
    }
    let m = run("mxfp4_moe");
    assert!(m.iter().all(|(n, t)| *t == if n.contains("norm") { "-" } else { "Q8_0" }), "{m:?}");
    for format in ["q8_0", "f16", "f32", "bf16"] {
        let base = named(format).base.name();
        assert!(run(format).iter().all(|(n, t)| *t == if n.contains("norm") { "-" } else { base }));
    }
}

/// What a model of 16 layers gets, by format: the head, the embedding, then, of each layer, the types of those that are not the base's, in the
/// order `q k v output gate up down`; `first` of the first two layers, `middle` of the others up to the 14th.
struct Few {
    format: &'static str,
    head: &'static str,
    embedding: &'static str,
    first: [&'static str; 7],
    middle: [&'static str; 7],
    last: [&'static str; 7],
}

fn layers_are(all: &[(String, &'static str)], want: &Few, which: &str) {
    assert_eq!((all[1].1, all[0].1), (want.head, want.embedding), "{} {which}", want.format);
    let parts = ["attn_q", "attn_k", "attn_v", "attn_output", "ffn_gate", "ffn_up", "ffn_down"];
    for (i, part) in parts.into_iter().enumerate() {
        let layers = (0..16).map(|l| match l {
            0 | 1 => want.first[i],
            14 | 15 => want.last[i],
            _ => want.middle[i],
        });
        assert_eq!(by_layer(all, part, 16), layers.collect::<Vec<_>>(), "{} {which} {part}", want.format);
    }
}

/// Read from the source by hand, branch by branch.
#[test]
fn formats_of_few_bits_spend_them_by_whether_there_are_importances() {
    // Two query heads share a key head, and then four.
    let (two, four) = (Facts::new("llama", 16, 32, 16, 0), Facts::new("llama", 16, 32, 8, 0));
    let alike =
        |format, head, embedding, all| Few { format, head, embedding, first: all, middle: all, last: all };
    let by = |format: &'static str, facts: &Facts, has_importance| {
        types_by(&Mix { has_importance, ..Mix::new(named(format)) }, facts, 2048)
    };
    let of = |head, embedding, v, o, down, base, format| Few {
        first: [base, base, v, o, base, base, down],
        ..alike(format, head, embedding, [base, base, v, o, base, base, base])
    };
    for (want, shared) in [
        (of("Q5_K", "Q2_K", "Q2_K", "IQ2_XXS", "Q2_K", "IQ1_S", "iq1_s"), "Q4_K"),
        (of("Q5_K", "Q2_K", "Q2_K", "IQ2_XXS", "Q2_K", "IQ1_M", "iq1_m"), "Q4_K"),
        (of("Q5_K", "Q2_K", "Q2_K", "IQ2_XXS", "Q2_K", "IQ2_XXS", "iq2_xxs"), "Q4_K"),
        (of("Q5_K", "Q2_K", "Q2_K", "IQ2_XS", "Q2_K", "IQ2_XS", "iq2_xs"), "Q4_K"),
        (of("Q5_K", "IQ3_S", "IQ3_S", "IQ3_S", "IQ3_S", "IQ2_XS", "iq2_s"), "Q4_K"),
        (of("Q5_K", "IQ3_S", "IQ3_S", "IQ3_S", "IQ3_S", "IQ2_S", "iq2_m"), "Q4_K"),
        (of("Q6_K", "IQ3_S", "Q4_K", "Q4_K", "Q4_K", "IQ3_S", "iq3_m"), "Q4_K"),
        (of("Q6_K", "IQ3_S", "IQ3_S", "IQ3_S", "IQ3_S", "IQ3_S", "iq3_s"), "Q4_K"),
        (of("Q6_K", "Q4_K", "TQ1_0", "TQ1_0", "TQ1_0", "TQ1_0", "tq1_0"), "TQ1_0"),
        (of("Q6_K", "Q4_K", "TQ2_0", "TQ2_0", "TQ2_0", "TQ2_0", "tq2_0"), "TQ2_0"),
    ] {
        for has_importance in [false, true] {
            layers_are(&by(want.format, &two, has_importance), &want, "of two");
            assert_eq!(by_layer(&by(want.format, &four, has_importance), "attn_v", 16), [shared; 16]);
        }
    }
    // Gates and ups of three quarters of the layers, and queries and keys.
    let (s, x) = ("IQ3_S", "IQ3_XXS");
    let want = Few { middle: [x, x, s, s, x, x, s], ..alike("iq3_xs", "Q6_K", s, [x, x, s, s, s, s, s]) };
    layers_are(&by("iq3_xs", &two, true), &want, "of two");
    layers_are(&by("iq3_xs", &two, false), &want, "of two");
    assert_eq!(by_layer(&by("iq3_xs", &four, true), "attn_v", 16), ["Q4_K"; 16]);
    let want = alike("iq3_xxs", "Q5_K", s, ["IQ2_S", "IQ2_S", x, s, x, x, x]);
    layers_are(&by("iq3_xxs", &two, true), &want, "by importance");
    let all = ["IQ2_S", "IQ2_S", s, s, x, x, "Q3_K"];
    let want = Few { first: ["IQ2_S", "IQ2_S", s, s, x, x, "Q4_K"], ..alike("iq3_xxs", "Q5_K", s, all) };
    layers_are(&by("iq3_xxs", &two, false), &want, "without");
    for has_importance in [false, true] {
        assert_eq!(by_layer(&by("iq3_xxs", &four, has_importance), "attn_v", 16), ["Q4_K"; 16]);
    }
    for (format, first, otherwise) in [
        ("q4_0", "Q4_1", "Q4_0"),
        ("q5_0", "Q5_1", "Q5_0"),
        ("iq4_nl", "IQ4_NL", "Q5_K"),
        ("iq4_xs", "IQ4_XS", "Q5_K"),
    ] {
        assert_eq!(by_layer(&by(format, &two, true), "ffn_down", 3)[..2], [first; 2]);
        assert_eq!(by_layer(&by(format, &two, false), "ffn_down", 3)[..2], [otherwise; 2]);
        assert_eq!(
            by_layer(&by(format, &two, true), "ffn_up", 3),
            by_layer(&by(format, &two, false), "ffn_up", 3)
        );
    }
}

#[test]
fn experts_have_mixes_of_few_bits_of_their_own() {
    let (eight, four) = (Facts::new("llama", 16, 32, 16, 8), Facts::new("llama", 16, 32, 16, 4));
    for (format, k, v, o) in [
        ("iq1_s", "Q4_K", "Q4_K", "Q5_K"),
        ("iq2_m", "Q4_K", "Q4_K", "Q5_K"),
        ("iq3_xxs", "Q8_0", "Q8_0", "Q5_K"),
        ("iq3_xs", "Q8_0", "Q8_0", "Q5_K"),
        ("iq3_m", "Q8_0", "Q8_0", "Q5_K"),
        ("tq1_0", "Q8_0", "Q8_0", "TQ1_0"),
    ] {
        let all = types(format, &eight, 2048);
        let of = |part| by_layer(&all, part, 3);
        assert_eq!(
            (of("attn_k"), of("attn_v"), of("attn_output")),
            (vec![k; 3], vec![v; 3], vec![o; 3]),
            "{format}"
        );
    }
    assert_eq!(by_layer(&types("iq2_xxs", &four, 2048), "attn_v", 2), ["Q4_K"; 2]);
    // Every third layer between the outer ones.
    let down = by_layer(&types("iq3_m", &eight, 2048), "ffn_down", 16);
    let better: Vec<usize> = (0..16).filter(|l| down[*l] == "Q4_K").collect();
    assert_eq!(better, [0, 1, 4, 7, 10, 13, 14, 15]);
}

/// `tensor_requires_imatrix` of its source.
#[test]
fn some_types_are_for_importances() {
    let wants = |format: &str, ty, name| crate::format::wants_importance(named(format), ty, name);
    let q = "blk.0.attn_q.weight";
    for ty in [
        GgmlType::IQ1_S,
        GgmlType::IQ1_M,
        GgmlType::IQ2_XXS,
        GgmlType::IQ2_XS,
        GgmlType::IQ2_S,
        GgmlType::IQ3_XXS,
    ] {
        assert!(wants("q4_k_m", ty, q) && !wants("q4_k_m", ty, "output.weight"));
    }
    assert!(wants("q2_k_s", GgmlType::Q2_K, q) && !wants("q2_k", GgmlType::Q2_K, q));
    for ty in [GgmlType::IQ3_S, GgmlType::TQ1_0, GgmlType::Q3_K, GgmlType::IQ4_XS] {
        assert!(!wants("q2_k_s", ty, q));
    }
}

#[test]
fn experts_and_seventy_billions_are_exceptions() {
    let m = types("q4_k_m", &Facts::new("llama", 32, 32, 8, 8), 4096);
    assert_eq!((by_layer(&m, "attn_v", 2), by_layer(&m, "attn_k", 2)), (vec!["Q8_0"; 2], vec!["Q8_0"; 2]));
    assert_eq!(by_layer(&m, "attn_output", 2), ["Q5_K"; 2]);
    let m = types("q4_k_m", &Facts::new("llama", 80, 64, 8, 0), 8192);
    // An eighth of 80 is 10; then every third.
    assert_eq!(by_layer(&m, "attn_v", 13)[9..], ["Q6_K", "Q5_K", "Q5_K", "Q6_K"]);
    let (name, stacked) = ("blk.3.ffn_down_exps.weight", [2048, 4096, 16]);
    let facts = Facts::new("qwen3moe", 48, 32, 4, 16);
    let ty = |format: &str| Mix::new(named(format)).choose(&facts, &[(name, &stacked)]).unwrap();
    assert_eq!((ty("mxfp4_moe"), ty("q4_k_m")), (vec![Some(GgmlType::MXFP4)], vec![Some(GgmlType::Q6_K)]));
}

/// `category_is_attn_v` of its source: matrices of values with queries and keys, and those that latents become values by.
#[test]
fn values_are_values_whatever_stands_with_them() {
    let facts = Facts::new("phi3", 16, 32, 8, 0);
    let of = |part: &str, format: &str, facts: &Facts| -> Vec<&'static str> {
        let names: Vec<String> = (0..16).map(|l| format!("blk.{l}.{part}.weight")).collect();
        let shapes: Vec<Shape<'_>> = names.iter().map(|n| (&**n, &[2048, 64][..])).collect();
        let types = Mix::new(named(format)).choose(facts, &shapes).unwrap();
        types.into_iter().map(|t| t.unwrap().name()).collect()
    };
    let table: &[(&str, &[usize], &str, &str)] = &[
        ("q2_k", &[], "", "Q4_K"),
        ("q2_k_s", &[], "", "Q4_K"),
        ("q3_k_s", &[], "", "Q3_K"),
        ("q3_k_m", &[0, 1], "Q5_K", "Q4_K"),
        ("q3_k_l", &[], "", "Q5_K"),
        ("q4_k_s", &[0, 1, 2, 3], "Q5_K", "Q4_K"),
        ("q4_k_m", &[0, 1, 4, 7, 10, 13, 14, 15], "Q6_K", "Q4_K"),
        ("q5_k_s", &[], "", "Q5_K"),
        ("q5_k_m", &[0, 1, 4, 7, 10, 13, 14, 15], "Q6_K", "Q5_K"),
        ("iq4_xs", &[], "", "Q5_K"),
        ("q4_0", &[], "", "Q4_0"),
    ];
    for (format, layers, better, usual) in table {
        let want: Vec<&str> = (0..16).map(|l| if layers.contains(&l) { *better } else { *usual }).collect();
        for part in ["attn_v", "attn_qkv", "attn_kv_b"] {
            assert_eq!(of(part, format, &facts), want, "{format} {part}");
        }
    }
    assert_eq!(of("attn_qkv", "q4_k_m", &Facts::new("dbrx", 16, 48, 8, 8)), ["Q8_0"; 16]);
}

/// Sources: `load_arch_hparams` of each architecture.
#[test]
fn seventy_billions_are_known_by_architecture_and_layers() {
    for (architecture, layers, heads, kv_heads, is_70b) in [
        ("llama", 80, 64, 8, true),
        ("llama", 80, 64, 64, false),
        ("llama", 60, 52, 8, false),
        ("llama-embed", 80, 64, 8, true),
        ("qwen2", 80, 64, 64, true),
        ("deci", 80, 64, 8, true),
        ("olmo", 80, 64, 64, true),
        ("jais2", 68, 64, 64, true),
        ("jais2", 80, 64, 64, false),
        ("qwen3", 80, 64, 8, false),
    ] {
        let all = types("q4_k_m", &Facts::new(architecture, layers, heads, kv_heads, 0), 8192);
        // The first layer after the edge, which gets no more bits.
        let got = by_layer(&all, "attn_v", layers)[layers / 8];
        assert_eq!(got, if is_70b { "Q5_K" } else { "Q4_K" }, "{architecture} {layers} {heads}/{kv_heads}");
    }
}

#[test]
fn embeddings_of_layers_go_with_that_of_tokens() {
    let shape = [256_u64, 64];
    let all: [Shape<'_>; 3] =
        [("token_embd.weight", &shape), ("per_layer_token_embd.weight", &shape), ("output.weight", &shape)];
    let mut mix = Mix::new(named("q4_k_m"));
    let of = |mix: &Mix, all: &[Shape<'_>]| -> Vec<&str> {
        mix.choose(&Facts::default(), all).unwrap().iter().map(|t| t.unwrap().name()).collect()
    };
    assert_eq!(of(&mix, &all[..2]), ["Q6_K", "Q6_K"]);
    assert_eq!(of(&mix, &all), ["Q4_K", "Q4_K", "Q6_K"]);
    mix.output = Some(GgmlType::F16);
    assert_eq!(of(&mix, &all[..2]), ["F16", "F16"]);
    mix.embedding = Some(GgmlType::Q8_0);
    assert_eq!(of(&mix, &all), ["Q8_0", "Q8_0", "F16"]);
}

#[test]
fn some_architectures_have_rules_of_their_own() {
    let shape = [256_u64, 64, 4];
    let ty = |architecture: &str, format: &str, name: &str| {
        let mix = Mix::new(named(format));
        let facts = Facts { architecture: architecture.to_owned(), ..Facts::default() };
        mix.choose(&facts, &[(name, &shape)]).unwrap()[0].map_or("-", GgmlType::name)
    };
    for (name, own, others) in [
        ("blk.3.attn_q_a.weight", "Q8_0", "Q4_K"),
        ("blk.3.nextn.eh_proj.weight", "Q8_0", "Q4_K"),
        ("blk.3.attn_v_b.weight", "-", "Q4_K"),
        ("blk.3.indexer.attn_q_b.weight", "-", "Q4_K"),
        ("blk.3.ffn_up.weight", "Q4_K", "Q4_K"),
    ] {
        assert_eq!(
            (ty("glm5-next", "q4_k_m", name), ty("deepseek2", "q4_k_m", name)),
            (own, others),
            "{name}"
        );
    }
    for (name, own) in [("blk.3.ffn_up_exps.weight", "MXFP4"), ("blk.3.attn_k_b.weight", "Q8_0")] {
        assert_eq!((ty("bailingmoe3", "mxfp4_moe", name), ty("llama", "mxfp4_moe", name)), (own, "MXFP4"));
    }
}

#[test]
fn rows_that_do_not_fit_get_the_nearest_older_type() {
    let facts = Facts::new("qwen2", 24, 14, 2, 0);
    let base = |format: &str, cols| by_layer(&types(format, &facts, cols), "attn_q", 1)[0];
    for (format, fallback) in [
        ("q2_k", "Q4_0"),
        ("q3_k_m", "Q4_0"),
        ("iq4_xs", "IQ4_NL"),
        ("q4_k_m", "Q5_0"),
        ("q5_k_m", "Q5_1"),
        ("q6_k", "Q8_0"),
        ("iq1_s", "IQ4_NL"),
        ("iq2_xs", "IQ4_NL"),
        ("iq3_s", "IQ4_NL"),
        ("tq1_0", "Q4_0"),
        ("tq2_0", "Q4_0"),
    ] {
        assert_eq!(base(format, 896), fallback, "{format}");
        assert_eq!(base(format, 100), "F16", "{format}");
    }
    assert_eq!((base("q8_0", 896), base("q8_0", 100), base("mxfp4", 100)), ("Q8_0", "F16", "F16"));
    let q4 = types("q4_k_m", &facts, 896);
    assert_eq!((q4[0].1, q4[1].1), ("Q5_0", "Q8_0"));
}

#[test]
fn what_is_asked_for_by_name_comes_first() {
    let facts = Facts::new("llama", 2, 4, 4, 0);
    let shape = [256_u64, 64];
    let all: [Shape<'_>; 4] = [
        ("token_embd.weight", &shape),
        ("output.weight", &shape),
        ("blk.0.attn_v.weight", &shape),
        ("blk.1.attn_q.weight", &shape),
    ];
    let mut mix = Mix::new(named("q4_k_m"));
    mix.output = Some(GgmlType::F16);
    mix.embedding = Some(GgmlType::Q8_0);
    mix.rules = vec![
        "attn_[vk]=q5_1".parse().unwrap(),
        r"^blk\.1\.=f32".parse().unwrap(),
        "attn_v=q2_k".parse().unwrap(),
    ];
    let names = |mix: &Mix| -> Vec<&str> {
        mix.choose(&facts, &all).unwrap().iter().map(|t| t.unwrap().name()).collect()
    };
    assert_eq!(names(&mix), ["Q8_0", "F16", "Q5_1", "F32"]);
    // Tied: the embedding is the head.
    assert_eq!(mix.choose(&facts, &all[..1]).unwrap(), [Some(GgmlType::Q8_0)]);
    mix.embedding = None;
    assert_eq!(mix.choose(&facts, &all[..1]).unwrap(), [Some(GgmlType::F16)]);
    let mut pure = Mix::new(named("q3_k_l"));
    pure.pure = true;
    assert_eq!(names(&pure), ["Q3_K"; 4]);

    pure.rules = vec!["attn_q=q6_k".parse().unwrap()];
    let e = pure.choose(&facts, &[("blk.0.attn_q.weight", &[100, 2])]).unwrap_err().to_string();
    assert!(e.contains("blk.0.attn_q.weight: rows of 100 elements") && e.contains("Q6_K"), "{e}");
    pure.rules = vec!["attn_v=keep".parse().unwrap(), "attn_=q6_k".parse().unwrap()];
    let types = pure.choose(&facts, &all).unwrap();
    assert_eq!(types[2..], [None, Some(GgmlType::Q6_K)]);
    for (rule, why) in
        [("attn_v", "no `=`"), ("=q8_0", "no pattern"), ("(=q8_0", "does not parse"), ("x=q9", "`q9`")]
    {
        let e = rule.parse::<Rule>().unwrap_err().to_string();
        assert!(e.contains(why) && !e.contains('\n'), "{rule}: {e}");
    }
}

#[test]
fn what_decides_or_is_small_stays() {
    let facts = Facts::default();
    let square = [256_u64, 256];
    for name in [
        "blk.0.attn_norm.weight",
        "blk.0.ffn_gate_inp.weight",
        "position_embd.weight",
        "blk.0.attn_q.bias",
        "blk.2.ssm_conv1d.weight",
        "blk.2.ffn_gate_tid2eid.weight",
        "blk.2.indexer.q_proj.weight",
        "blk.2.indexer.k_proj.weight",
        "v.position_embd.weight",
        "v.sam.pos_embd.weight",
        "v.sam.neck.0.weight",
        "v.sam.net_2.weight",
        "v.sam.blk.0.attn.rel_pos_h.weight",
        "v.patch_embd.weight",
        "mm.patch_merger.weight",
        "a.rvq.codebook.weight",
        "mm.a.code_embd.weight",
    ] {
        for format in FILE_FORMATS {
            assert_eq!(Mix::new(format).choose(&facts, &[(name, &square)]).unwrap(), [None], "{name}");
        }
    }
    let vector: Shape<'_> = ("x.weight", &[256, 1, 1]);
    assert_eq!(Mix::new(&FILE_FORMATS[1]).choose(&facts, &[vector]).unwrap(), [None]);
}
