//! Chains as text: what is read, what is printed, what is refused and how it is said.

use ogive_sampler::stages::{Greedy, LogitBias, Temperature, TopK};
use ogive_sampler::{Chain, SampleError, Sampler, SamplerParams, Samplers};

fn read(text: &str) -> Samplers {
    text.parse().unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn chain(text: &str) -> String {
    let params =
        SamplerParams { samplers: read(text), dry_sequence_breakers: Vec::new(), ..SamplerParams::default() };
    params.build().unwrap_or_else(|e| panic!("{text}: {e}")).to_string()
}

#[test]
fn names_values_and_spellings() {
    for (text, printed) in [
        ("top_k:40,min_p:0.05,temp:0.8", "top_k:40,min_p:0.05,temperature:0.8"),
        ("penalties;dry;top_n_sigma;top_k;typ_p;top_p;min_p;xtc;temperature", ""),
        (" Top-K : 7 , nucleus:.5 ;typical:1e-1", "top_k:7,top_p:0.5,typ_p:0.1"),
        ("penalties:1.1:0.5:-0.25:-1", ""),
        ("dry:0.8:1.75:2:-1", ""),
        ("dry:0.8:1.75:2:512", ""),
        ("xtc:0.5:0.1,temp_ext:1:0.5:2", "xtc:0.5:0.1,temperature:1:0.5:2"),
        ("top_k,top_k:5,top_k", ""),
        ("logit-bias,greedy", "logit_bias,greedy"),
        ("mirostat-v2:4:0.2", "mirostat_v2:4:0.2"),
        ("adaptive-p:0.3,top_k", "adaptive_p:0.3,top_k"),
        ("", ""),
        ("  ", ""),
    ] {
        let samplers = read(text);
        let expected = if printed.is_empty() { text.trim().replace(';', ",") } else { printed.to_owned() };
        assert_eq!(samplers.to_string(), expected);
        assert_eq!(read(&expected), samplers);
    }
    let order = Samplers::default().to_string();
    assert_eq!(order, "penalties,dry,top_n_sigma,top_k,typ_p,top_p,min_p,xtc,temperature,adaptive_p");
}

#[test]
fn a_value_that_is_left_out_is_the_settings() {
    assert_eq!(chain("top_k,min_p:0.2,temp"), "top_k:40,min_p:0.2,temperature:0.8");
    assert_eq!(chain("dry:0.5"), "dry:0.5:1.75:2:64");
    assert_eq!(chain("temp:1.2:0.3"), "temperature:1.2:0.3:1");
    assert_eq!(chain("penalties:1.5,penalties:1.1:0:0:9"), "penalties:1.5:0:0:64,penalties:1.1:0:0:9");
    assert_eq!(chain("mirostat"), "mirostat:5:0.1");
    // Off is left out, adaptive-p comes last, greedy needs nothing before it that keeps the best.
    assert_eq!(chain("xtc,top_k:0,top_p:1,temp:1,typ_p"), "");
    assert_eq!(chain("adaptive_p:0.4,min_p:0.1"), "min_p:0.1,adaptive_p:0.4:0.9");
    assert_eq!(chain("adaptive_p,top_k:5"), "top_k:5");
    assert_eq!(chain("top_k,typ_p:0.5,top_p,temp:0,top_k:3"), "top_k:40,typ_p:0.5,greedy");
    assert_eq!(SamplerParams::greedy().build().expect("valid").to_string(), "greedy");
    assert_eq!(
        SamplerParams::default().build().expect("valid").to_string(),
        "top_k:40,top_p:0.95,min_p:0.05,temperature:0.8"
    );
}

#[test]
fn what_the_text_says_is_a_setting_like_others_once_it_is_settled() {
    let samplers = "top_k:7,min_p:0.2,temp:0.5,penalties:1.5,penalties:1.1".parse().expect("samplers");
    let params = SamplerParams { samplers, ..SamplerParams::default() };
    let mut settled = params.settled();
    let built = |params: &SamplerParams| params.build().expect("valid").to_string();
    assert_eq!(built(&settled), built(&params));
    assert_eq!(settled.samplers.to_string(), "top_k,min_p,temperature,penalties:1.5,penalties:1.1");
    (settled.top_k, settled.temperature) = (3, 0.9);
    assert_eq!(
        built(&settled),
        "top_k:3,min_p:0.2,temperature:0.9,penalties:1.5:0:0:64,penalties:1.1:0:0:64"
    );
}

#[test]
fn mirostat_replaces_the_list_as_in_llama_cpp() {
    for (version, printed) in [(1, "mirostat:5:0.1"), (2, "mirostat_v2:5:0.1")] {
        let params = SamplerParams {
            mirostat: version,
            dynatemp_range: 0.5,
            logit_bias: vec![(3, 1.0)],
            ..SamplerParams::default()
        };
        let chain = params.build().expect("valid").to_string();
        assert_eq!(chain, format!("logit_bias,temperature:0.8,{printed}"));
    }
    let params = SamplerParams { mirostat: 3, ..SamplerParams::default() };
    let message = params.build().expect_err("no such version").to_string();
    assert_eq!(message, "building a sampler: mirostat is 3, but must be 0 (off), 1 or 2");
}

#[test]
fn a_chain_made_by_hand_prints_too() {
    let hand = Chain::new(1)
        .then(LogitBias::new(&[(1, 2.0)]).expect("valid"))
        .then(TopK::new(9))
        .then(Temperature::new(0.0).expect("valid"))
        .then(Greedy);
    assert_eq!(hand.to_string(), "logit_bias,top_k:9,temperature:0,greedy");
}

#[test]
fn what_is_wrong_is_said() {
    let wrong = |text: &str| text.parse::<Samplers>().expect_err(text).to_string();
    let known = "logit_bias, penalties, dry, top_n_sigma, top_k, typ_p, top_p, min_p, xtc, temperature, greedy, \
                 mirostat, mirostat_v2, adaptive_p";
    for (text, message) in [
        (
            "top_k:40,tempr:0.8",
            format!("there is no \"tempr\"; did you mean temperature?; known are {known}"),
        ),
        ("beam search", format!("there is no \"beam search\"; known are {known}")),
        (
            "top_k,,temp",
            "number 2 is empty; write names with commas between them, such as \"top_k:40,temperature:0.8\""
                .into(),
        ),
        ("top_k,", "number 2 is empty".into()),
        (":40", "there is no \"\"".into()),
        ("top_k:many", "k of top_k is \"many\", but must be a whole number from 0".into()),
        ("top_k:-1", "k of top_k is \"-1\", but must be a whole number from 0".into()),
        ("top_k:99999999999999999999999", "k of top_k".into()),
        ("top_p:", "p of top_p is \"\", but must be a number".into()),
        ("temp:nan", "t of temperature is \"nan\", but must be a number".into()),
        ("temp:1e99", "t of temperature".into()),
        ("temp:0.8:inf", "range of temperature is \"inf\"".into()),
        ("top_p:0.9:0.5", "top_p has too many values; it takes p".into()),
        ("xtc:1:2:3", "xtc has too many values; it takes probability:threshold".into()),
        ("greedy:1", "greedy has too many values; it takes none".into()),
        ("dry:1:2:3:-2", "last_n of dry is \"-2\", but must be a whole number from 0, or -1 for all".into()),
    ] {
        let found = wrong(text);
        assert!(
            found.starts_with("reading a chain of samplers: ") && found.contains(&message),
            "{text}: {found}"
        );
    }
}

#[test]
fn numbers_out_of_range_are_refused_when_it_is_built() {
    let build = |text: &str| SamplerParams { samplers: read(text), ..SamplerParams::default() }.check();
    for (text, name) in [
        ("top_p:1.5", "top_p is 1.5"),
        ("typ_p:-0.1", "typical_p is -0.1"),
        ("xtc:1.5", "xtc_probability is 1.5"),
        ("xtc:0.5:-1", "xtc_threshold is -1"),
        ("temp:-1", "temperature is -1"),
        ("temp:1:-1", "dynatemp_range is -1"),
        ("temp:1:1:-1", "dynatemp_exponent is -1"),
        ("penalties:0", "repeat_penalty is 0"),
        ("dry:1:0.5", "dry_base is 0.5"),
        ("mirostat:-1", "mirostat_tau is -1"),
        ("mirostat_v2:5:-1", "mirostat_eta is -1"),
        ("adaptive_p:1.5", "adaptive_target is 1.5"),
        ("adaptive_p:0.5:1", "adaptive_decay is 1"),
    ] {
        let message = build(text).expect_err(text).to_string();
        assert!(message.contains(name), "{text}: {message}");
    }
    for text in ["mirostat,top_k:5", "mirostat,mirostat_v2", "adaptive_p:0.5,mirostat_v2"] {
        assert!(matches!(build(text), Err(SampleError::NotLast { .. })), "{text}");
    }
    // Nothing that follows does anything.
    assert_eq!(build("mirostat,top_k:0"), Ok(()));
}

#[test]
fn breakers_are_text_and_need_a_vocabulary() {
    let params = SamplerParams { dry_multiplier: 0.8, ..SamplerParams::default() };
    assert!(matches!(params.build(), Err(SampleError::NoVocabulary)));
    assert_eq!(params.check(), Ok(()));
    let none = SamplerParams { dry_sequence_breakers: Vec::new(), ..params };
    assert!(none.build().expect("valid").to_string().starts_with("dry:0.8:1.75:2:64,"));
}

#[test]
fn the_list_for_help_texts_is_whole() {
    let all: Vec<_> = Sampler::all().collect();
    assert_eq!(all.len(), 14);
    assert!(all.contains(&(Sampler::Xtc, vec!["probability", "threshold"])));
    let names: Samplers = all.iter().map(|(sampler, _)| *sampler).collect();
    assert_eq!(read(&names.to_string()), names);
}
