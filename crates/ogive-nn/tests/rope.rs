//! Frequencies of every way of stretching, against numbers from a transcription of transformers' formulas to Python, and
//! the settings that must be refused. (Llama 3's are also held to transformers itself by the golden model `llama3-rope`.)
#![allow(clippy::unwrap_used)]

use ogive_backend::{Estimate, Rope};
use ogive_nn::tensor::serde_json::{Value, json};
use ogive_nn::tensor::{Config, Error, HostWeight, Result, Source, WeightInfo};
use ogive_nn::{Loader, rope_of};

/// A file that holds nothing but the divisors of GGUF's Llama 3.
#[derive(Debug)]
struct Divisors(Vec<f32>);

impl Source for Divisors {
    fn get(&self, name: &str) -> Result<HostWeight> {
        if name == "rope_freqs.weight" && !self.0.is_empty() {
            return HostWeight::from_f32(name, [1, 1, self.0.len()], &self.0);
        }
        Err(Error::missing(name))
    }
    fn tensors(&self) -> Vec<WeightInfo> {
        Vec::new()
    }
}

fn rope(config: Value, dim: usize, context: Option<usize>, divisors: &[f32]) -> Result<Rope> {
    let (source, backend) = (Divisors(divisors.to_vec()), Estimate::new());
    let loader = Loader::new(&source, &backend);
    rope_of(&Config(config), &context.map_or(loader.clone(), |c| loader.for_context(c)), dim)
}

/// The first frequency, those at the quarters, and the last.
fn check(rope: &Rope, factor: f32, want: [f32; 5]) {
    let (f, n) = (&rope.inv_freq, rope.inv_freq.len());
    for (i, want) in [0, n / 4, n / 2, 3 * n / 4, n - 1].into_iter().zip(want) {
        assert!((f[i] / want - 1.0).abs() < 1e-6, "frequency {i} of {n} is {} and not {want}", f[i]);
    }
    assert!((rope.factor / factor - 1.0).abs() < 1e-6, "the factor is {} and not {factor}", rope.factor);
}

#[test]
fn frequencies_are_those_of_the_reference() {
    let plain = rope(json!({}), 64, None, &[]).unwrap();
    check(&plain, 1.0, [1.0, 0.1, 0.01, 0.001, 1.333_521_4e-4]);
    let linear = json!({"rope_scaling": {"type": "linear", "factor": 4.0}});
    check(&rope(linear, 64, None, &[]).unwrap(), 1.0, [0.25, 0.025, 0.0025, 0.00025, 3.333_804e-5]);
    let llama3 = json!({"rope_theta": 5e5, "rope_scaling": {"rope_type": "llama3", "factor": 32.0,
        "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}});
    let want = [1.0, 0.037_606_03, 4.295_568e-4, 1.661_967e-6, 9.418_307e-8];
    check(&rope(llama3, 64, None, &[]).unwrap(), 1.0, want);
}

/// Of Llama 4 Scout, by transformers 4.57.
#[test]
fn llama_3s_stretch_may_be_a_step() {
    let scout = json!({"rope_theta": 5e5, "max_position_embeddings": 10_485_760, "rope_scaling": {"rope_type": "llama3",
        "factor": 16.0, "low_freq_factor": 1.0, "high_freq_factor": 1.0, "original_max_position_embeddings": 8192}});
    let stretched = rope(scout.clone(), 128, None, &[]).unwrap();
    check(&stretched, 1.0, [1.0, 0.037_606_03, 0.001_414_213_4, 3.323_934_8e-6, 1.534_463e-7]);
    let plain = rope(json!({"rope_theta": 5e5}), 128, None, &[]).unwrap();
    let by: Vec<f32> =
        plain.inv_freq.iter().zip(stretched.inv_freq.iter()).map(|(p, s)| (p / s).round()).collect();
    assert_eq!(by, [vec![1.0; 35], vec![16.0; 64 - 35]].concat());
    // A wave as long as the context is not stretched.
    let mut even = scout;
    even["rope_scaling"]["original_max_position_embeddings"] = json!(std::f32::consts::TAU);
    assert_eq!(rope(even, 128, None, &[]).unwrap().inv_freq[0], 1.0);
}

#[test]
fn yarn_ramps_and_scales() {
    let qwen = json!({"rope_theta": 1e6, "rope_scaling": {"rope_type": "yarn", "factor": 4.0,
        "original_max_position_embeddings": 32768}});
    let want = [1.0, 0.031_622_78, 5.833_333e-4, 7.905_694e-6, 3.849_816e-7];
    check(&rope(qwen, 64, None, &[]).unwrap(), 1.138_629, want);
    let deepseek = json!({"rope_scaling": {"rope_type": "yarn", "factor": 16.0, "beta_fast": 16.0, "beta_slow": 2.0,
        "mscale": 0.707, "mscale_all_dim": 1.2, "original_max_position_embeddings": 1024}});
    check(&rope(deepseek, 32, None, &[]).unwrap(), 0.897_435_6, [1.0, 0.1, 6.25e-4, 6.25e-5, 1.111_425e-5]);
    let untruncated = json!({"rope_theta": 1.5e5, "rope_scaling": {"rope_type": "yarn", "factor": 32.0,
        "truncate": false, "original_max_position_embeddings": 4096}});
    let want = [1.0, 0.050_813_27, 4.564_839e-4, 4.099_978e-6, 4.387_978e-7];
    check(&rope(untruncated, 32, None, &[]).unwrap(), 1.346_574, want);
}

#[test]
fn dynamic_scaling_follows_the_context_that_was_asked_for() {
    let config =
        json!({"max_position_embeddings": 2048, "rope_scaling": {"rope_type": "dynamic", "factor": 2.0}});
    let want = [1.0, 0.066_499_44, 0.004_422_175, 2.940_721e-4, 2.744_224e-5];
    check(&rope(config.clone(), 64, Some(6000), &[]).unwrap(), 1.0, want);
    // Of an original context this way of scaling knows nothing.
    let mut said = config.clone();
    said["original_max_position_embeddings"] = json!(256);
    said["rope_scaling"]["original_max_position_embeddings"] = json!(512);
    check(&rope(said.clone(), 64, Some(6000), &[]).unwrap(), 1.0, want);
    said.as_object_mut().unwrap().remove("max_position_embeddings");
    assert!(rope(said, 64, Some(6000), &[]).unwrap().inv_freq[16] < want[2]);
    let short = rope(config, 64, Some(100), &[]).unwrap();
    assert_eq!(short.inv_freq, rope(json!({}), 64, None, &[]).unwrap().inv_freq);
}

#[test]
fn divisors_come_from_the_file() {
    let config = json!({"rope_scaling": {"rope_type": "factors"}});
    let divisors: Vec<f32> = (0..32).map(|i| 1.0 + i as f32).collect();
    let (plain, divided) =
        (rope(json!({}), 64, None, &[]).unwrap(), rope(config.clone(), 64, None, &divisors).unwrap());
    for (i, (p, d)) in plain.inv_freq.iter().zip(divided.inv_freq.iter()).enumerate() {
        assert!((p / d / divisors[i] - 1.0).abs() < 1e-6);
    }
    assert!(rope(config.clone(), 64, None, &[]).unwrap_err().is_missing());
    for bad in [&divisors[..31], &[0.0; 32], &[f32::NAN; 32]] {
        assert!(rope(config.clone(), 64, None, bad).unwrap_err().to_string().contains("32 divisors"));
    }
}

#[test]
fn what_the_context_comes_to_is_told() {
    let means = |scaling: Value, context: usize| {
        let (source, backend) = (Divisors(Vec::new()), Estimate::new());
        let loader = Loader::new(&source, &backend).for_context(context);
        let config = Config(json!({"max_position_embeddings": 64, "rope_scaling": scaling}));
        rope_of(&config, &loader.at("layers").at(0), 4).unwrap();
        loader.context_means()
    };
    for kind in ["linear", "yarn", "llama3"] {
        assert!(means(json!({"rope_type": kind, "factor": 2.0}), 40).is_empty(), "{kind}");
    }
    let dynamic = |context| means(json!({"rope_type": "dynamic", "factor": 2.0}), context);
    assert!(dynamic(40) == dynamic(64) && dynamic(64) != dynamic(65) && dynamic(65) != dynamic(66));
    let lists = json!({"type": "su", "short_factor": [1.0, 2.0], "long_factor": [4.0, 8.0]});
    let long = |context| means(lists.clone(), context);
    assert!(long(40) == long(64) && long(64) != long(65) && long(65) == long(512));
    // Of one that says nothing of what it makes of it, each context is one of its own.
    let (source, backend) = (Divisors(Vec::new()), Estimate::new());
    let loader = Loader::new(&source, &backend).for_context(7);
    assert_eq!((loader.at("x").context(), loader.context_means()), (Some(7), vec![7]));
    assert!(Loader::new(&source, &backend).context().is_none());
}

/// As transformers has it since 5.0: what stands beside the model's context is put in the place of the other.
#[test]
fn of_two_trained_contexts_the_outer_counts() {
    let lists = json!({"short_factor": [1.0, 2.0], "long_factor": [4.0, 8.0]});
    for kind in ["llama3", "yarn", "longrope"] {
        let of = |outer: Option<u32>, nested: Option<u32>| {
            let mut c = json!({"max_position_embeddings": 4096, "rope_theta": 100.0,
                "rope_scaling": {"rope_type": kind, "factor": 8.0}});
            if kind == "longrope" {
                c["rope_scaling"].as_object_mut().unwrap().extend(lists.as_object().unwrap().clone());
            }
            let key = "original_max_position_embeddings";
            nested.into_iter().for_each(|v| c["rope_scaling"][key] = v.into());
            outer.into_iter().for_each(|v| c[key] = v.into());
            let rope = rope(c, 4, Some(100), &[]).unwrap();
            (rope.inv_freq.to_vec(), rope.factor)
        };
        assert_eq!(of(Some(64), Some(2048)), of(Some(64), None), "{kind}");
        assert_eq!(of(Some(2048), Some(64)), of(Some(2048), None), "{kind}");
        assert_ne!(of(Some(64), None), of(Some(2048), None), "{kind}");
    }
}

#[test]
fn longrope_has_a_list_for_each_side_of_the_trained_context() {
    let config = |extra: &str| {
        let mut c = json!({"max_position_embeddings": 4096, "original_max_position_embeddings": 64,
            "rope_scaling": {"type": "longrope", "short_factor": [1.0, 2.0], "long_factor": [4.0, 8.0]}});
        if !extra.is_empty() {
            c["rope_scaling"][extra] = json!(1.25);
        }
        c
    };
    let of = |context, extra| rope(config(extra), 4, context, &[]).unwrap();
    for (context, want) in [(None, [1.0, 0.005]), (Some(64), [1.0, 0.005]), (Some(65), [0.25, 0.00125])] {
        assert_eq!(*of(context, "").inv_freq, want, "{context:?}");
        // The root of 1 + ln 64 / ln 64.
        assert_eq!(of(context, "").factor, std::f32::consts::SQRT_2);
    }
    assert_eq!(of(None, "attention_factor").factor, 1.25);
    // The trained context beside the lists, as transformers 5 writes it; by an early name.
    let nested = |kind: &str, extra: Value| {
        let mut c = json!({"max_position_embeddings": 4096, "rope_scaling": {"type": kind, "original_max_position_embeddings": 64,
            "short_factor": [1.0, 2.0], "long_factor": [4.0, 8.0]}});
        c["rope_scaling"].as_object_mut().unwrap().extend(extra.as_object().unwrap().clone());
        rope(c, 4, Some(65), &[]).unwrap()
    };
    for kind in ["longrope", "su", "yarn"] {
        let same = nested(kind, json!({}));
        assert_eq!(
            (&*same.inv_freq, same.factor),
            (&[0.25, 0.00125][..], std::f32::consts::SQRT_2),
            "{kind}"
        );
        // The root of 1 + ln 8 / ln 64.
        assert!((nested(kind, json!({"factor": 8.0})).factor - 1.5f32.sqrt()).abs() < 1e-6, "{kind}");
    }
}

#[test]
fn part_of_a_head_rotates_where_that_is_asked_for() {
    let half = rope(json!({"partial_rotary_factor": 0.5}), 64, None, &[]).unwrap();
    assert_eq!(half.inv_freq.len(), 16);
    assert_eq!(half.inv_freq, rope(json!({}), 32, None, &[]).unwrap().inv_freq);
}

/// GGUF has a count, and it comes as a part in single precision.
#[test]
fn a_count_comes_back_from_its_part_of_the_head() {
    for head_dim in 8..=256 {
        for count in (2..=head_dim).step_by(2) {
            let part: f64 = (count as f32 / head_dim as f32).to_string().parse().unwrap();
            let rope = rope(json!({"partial_rotary_factor": part}), head_dim, None, &[]).unwrap();
            assert_eq!(2 * rope.inv_freq.len(), count, "{count} of {head_dim}");
        }
    }
    // What is no even count is cut off, as ever.
    for (part, count) in [(0.3, 18), (0.33, 20), (0.999, 62), (0.51, 32)] {
        let rope = rope(json!({"partial_rotary_factor": part}), 64, None, &[]).unwrap();
        assert_eq!(2 * rope.inv_freq.len(), count, "{part}");
    }
}

#[test]
fn settings_that_make_no_sense_are_refused_by_name() {
    let scaled = |s: Value| json!({"max_position_embeddings": 64, "rope_scaling": s});
    for (config, word) in [
        (scaled(json!({"rope_type": "longer"})), "known are"),
        (scaled(json!({"rope_type": "linear"})), "factor"),
        (scaled(json!({"rope_type": "linear", "factor": 0.0})), "factor"),
        (scaled(json!({"rope_type": "linear", "factor": "4"})), "factor"),
        (scaled(json!({"rope_type": "llama3", "factor": 2.0, "low_freq_factor": 4.5})), "high_freq_factor"),
        (json!({"rope_scaling": {"rope_type": "yarn", "factor": 2.0}}), "original_max_position_embeddings"),
        (scaled(json!({"rope_type": "longrope", "short_factor": [1.0]})), "32 divisors"),
        (scaled(json!({"rope_type": "longrope", "long_factor": [1.0]})), "short_factor"),
        (
            json!({"rope_parameters": {"full_attention": {"factor": 8.0}}}),
            "each kind of layer (full_attention)",
        ),
        (json!({"rope_theta": -1.0}), "rope_theta"),
        (json!({"rope_theta": "ten"}), "rope_theta"),
        (json!({"partial_rotary_factor": 2.0}), "rotate"),
        (json!({"partial_rotary_factor": 0.0}), "rotate"),
    ] {
        let e = rope(config, 64, None, &[]).unwrap_err().to_string();
        assert!(e.contains(word), "{e}");
    }
    assert!(rope(json!({}), 1 << 40, None, &[]).is_err());
}

#[test]
fn pairs_turn_by_places_in_sections_or_in_turn() {
    let by = |scaling: Value, dim: usize| {
        let rope = rope(json!({"rope_scaling": scaling}), dim, None, &[])?;
        let axes = rope.axes.clone().unwrap();
        // Each pair has its frequency by one of the three places.
        let of = |i: usize| {
            let by: Vec<usize> = (0..3).filter(|a| axes[*a][i] == rope.inv_freq[i]).collect();
            let others = (0..3).filter(|a| axes[*a][i] == 0.0).count();
            assert_eq!((by.len(), others), (1, 2), "pair {i}");
            by[0]
        };
        Ok::<_, Error>((0..rope.inv_freq.len()).map(of).collect::<Vec<_>>())
    };
    let sections = json!({"type": "mrope", "mrope_section": [2, 3, 3]});
    assert_eq!(by(sections, 16).unwrap(), [0, 0, 1, 1, 1, 2, 2, 2]);
    let in_turn = json!({"rope_type": "default", "mrope_section": [4, 2, 2], "mrope_interleaved": true});
    assert_eq!(by(in_turn, 16).unwrap(), [0, 1, 2, 0, 1, 2, 0, 0]);
    for (bad, why) in [
        (json!({"type": "mrope", "mrope_section": [2, 3, 2]}), "add up to the 8 pairs"),
        (json!({"type": "mrope", "mrope_section": [2, 3]}), "three whole numbers"),
        (json!({"type": "mrope", "mrope_section": [2, 3.5, 3]}), "three whole numbers"),
        (json!({"type": "mrope", "mrope_section": [u64::MAX, 1, 8]}), "add up"),
    ] {
        let e = by(bad, 16).unwrap_err().to_string();
        assert!(e.contains(why), "{e}");
    }
}
