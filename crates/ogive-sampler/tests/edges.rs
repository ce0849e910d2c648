//! Input that is not a sensible row of logits, and settings that make no sense: a clear error or a
//! defined token.

use ogive_sampler::stages::{
    AdaptiveP, Breakers, Dry, DynamicTemperature, Greedy, LogitBias, MinP, Mirostat, MirostatV2, Penalties,
    Temperature, TopK, TopNSigma, TopP, Typical, Xtc,
};
use ogive_sampler::{Candidate, Candidates, Chain, SampleError, SamplerParams, Stage};

const INF: f32 = f32::INFINITY;
const NAN: f32 = f32::NAN;

fn chains() -> Vec<Chain> {
    let default = SamplerParams::default();
    let off = SamplerParams { top_k: 0, top_p: 1.0, min_p: 0.0, temperature: 1.0, ..default.clone() };
    let nucleus = SamplerParams { top_p: 0.9, ..off.clone() };
    [default, off, nucleus, SamplerParams::greedy()].iter().map(|p| p.build().expect("valid")).collect()
}

#[test]
fn nothing_to_choose_from() {
    for mut chain in chains() {
        assert_eq!(chain.sample(&[], &[]), Err(SampleError::Empty));
        assert_eq!(chain.sample_candidates(Vec::new(), &[]), Err(SampleError::Empty));
        assert_eq!(chain.distribution(&[], &[]), Err(SampleError::Empty));
        for logits in [vec![NAN; 70], vec![-INF; 70], vec![-NAN, -INF, NAN]] {
            let count = logits.len();
            assert_eq!(chain.sample(&logits, &[]), Err(SampleError::NoLogit { count }));
            assert_eq!(chain.distribution(&logits, &[]), Err(SampleError::NoLogit { count }));
        }
        // The chain is none the worse for it.
        assert_eq!(chain.sample(&[-INF, 0.0], &[]), Ok(1));
    }
}

/// A draw that failed offered nothing: a token that is accepted after it moves a stage as far as one that was never drawn.
#[test]
fn a_draw_that_failed_moves_nothing() {
    let default = SamplerParams::default();
    for params in [
        SamplerParams { mirostat: 1, ..default.clone() },
        SamplerParams { mirostat: 2, ..default.clone() },
        SamplerParams { adaptive_target: 0.5, ..default.clone() },
    ] {
        let mut chains = [params.build().expect("valid"), params.build().expect("valid")];
        assert!(chains[0].sample(&[-INF; 3], &[]).is_err());
        chains.iter_mut().for_each(|chain| chain.accept(1));
        let [failed, plain] = chains;
        assert_eq!(failed.state(), plain.state(), "{plain}");
    }
}

#[test]
fn infinities_and_nan() {
    for mut chain in chains() {
        for _ in 0..20 {
            assert_eq!(chain.sample(&[f32::MAX, NAN, INF, 3.0, INF], &[]), Ok(2));
            let token = chain.sample(&[NAN, 2.0, -INF, 2.0, -NAN], &[]).expect("a token");
            assert!(token == 1 || token == 3);
            // Alone among the impossible.
            assert_eq!(chain.sample(&[NAN, -INF, f32::MIN, -INF], &[]), Ok(2));
        }
        assert_eq!(chain.distribution(&[INF, 1.0, INF], &[]), Ok(vec![(0, 1.0)]));
    }
}

#[test]
fn ties_go_to_the_lower_token() {
    assert_eq!(Chain::greedy().sample(&[-0.0, 0.0, -1.0], &[]), Ok(0));
    assert_eq!(Chain::greedy().sample(&[1.0, 2.0, 2.0], &[]), Ok(1));
    let list = [(9, 2.0), (4, 2.0), (5, 1.0)].map(|(id, logit)| Candidate { id, logit });
    assert_eq!(Chain::greedy().sample_candidates(list.to_vec(), &[]), Ok(4));
    let mut candidates = Candidates::from_logits(&[1.0; 100]).expect("some logits");
    TopK::new(3).apply(&mut candidates, &[]);
    assert_eq!(candidates.as_slice().iter().map(|c| c.id).collect::<Vec<_>>(), [0, 1, 2]);
}

#[test]
fn bans_and_forced_tokens() {
    let logits = [5.0, 4.0, NAN, INF];
    let greedy = |biases: &[(u32, f32)]| {
        let mut chain = Chain::new(0).then(LogitBias::new(biases).expect("valid")).then(Greedy);
        chain.sample(&logits, &[])
    };
    assert_eq!(greedy(&[]), Ok(3));
    assert_eq!(greedy(&[(3, -INF)]), Ok(0));
    assert_eq!(greedy(&[(3, -INF), (0, -INF)]), Ok(1));
    assert_eq!(greedy(&[(2, INF)]), Ok(2));
    assert_eq!(greedy(&[(3, -INF), (1, 1.5), (u32::MAX, INF)]), Ok(1));
    let error = greedy(&[(0, -INF), (1, -INF), (3, -INF)]).expect_err("nothing is left");
    assert_eq!(error, SampleError::AllBanned { stages: "logit-bias, greedy".to_owned() });
}

#[test]
fn extreme_numbers_neither_force_nor_forbid() {
    let sharp = || Temperature::new(1e-38).expect("valid");
    assert_eq!(Chain::new(0).then(sharp()).sample(&[1e10, 2e10, -1e30], &[]), Ok(1));
    assert_eq!(Chain::new(0).then(sharp()).sample(&[-2e10, -1e10, -INF], &[]), Ok(1));
    assert_eq!(Chain::new(0).then(sharp()).sample(&[f32::MAX, f32::MIN], &[]), Ok(0));
    let harsh = Penalties::new(4, 1e30, 1e38, f32::MAX).expect("valid");
    assert_eq!(Chain::new(0).then(harsh.clone()).sample(&[1e20, -1e20], &[1, 1]), Ok(0));
    assert_eq!(Chain::new(0).then(harsh).sample(&[7.0, -INF, NAN], &[0, 0]), Ok(0));
}

#[test]
fn penalties_look_back_so_far_and_no_further() {
    let logits = [2.0, -2.0, 1.0];
    let after = |last_n, repeat, frequency, presence, history: &[u32]| {
        let mut candidates = Candidates::from_logits(&logits).expect("some logits");
        let stage = Penalties::new(last_n, repeat, frequency, presence);
        stage.expect("valid").apply(&mut candidates, history);
        candidates.as_slice().iter().map(|c| c.logit).collect::<Vec<_>>()
    };
    assert_eq!(after(2, 2.0, 0.0, 0.0, &[2, 0, 1]), [1.0, -4.0, 1.0]);
    assert_eq!(after(64, 1.0, 0.5, 0.25, &[2, 2, 2, 0]), [1.25, -2.0, -0.75]);
    assert_eq!(after(usize::MAX, 1.0, -0.5, 0.0, &[1, 1]), [2.0, -1.0, 1.0]);
    assert_eq!(after(0, 2.0, 1.0, 1.0, &[0, 1, 2]), logits);
    assert_eq!(after(5, 2.0, 1.0, 1.0, &[]), logits);
    assert_eq!(after(5, 2.0, 1.0, 1.0, &[99, u32::MAX]), logits);
}

#[test]
fn parameters_are_checked() {
    let bad = |change: fn(&mut SamplerParams)| {
        let mut params = SamplerParams::default();
        change(&mut params);
        params.build().expect_err("a bad parameter").to_string()
    };
    assert_eq!(
        bad(|p| p.temperature = -0.5),
        "building a sampler: temperature is -0.5, but must be a number of at least 0 (0 is greedy)"
    );
    assert!(bad(|p| p.temperature = NAN).contains("temperature is NaN"));
    assert!(bad(|p| p.temperature = INF).contains("temperature is inf"));
    assert!(bad(|p| p.top_p = 1.1).contains("top_p is 1.1"));
    assert!(bad(|p| p.top_p = -0.1).contains("top_p"));
    assert!(bad(|p| p.top_p = NAN).contains("top_p"));
    assert!(bad(|p| p.min_p = -0.1).contains("at least 0 (off); above 1 only the best is left"));
    assert!(bad(|p| p.min_p = NAN).contains("min_p"));
    assert!(bad(|p| p.repeat_penalty = 0.0).contains("repeat_penalty"));
    assert!(bad(|p| p.frequency_penalty = INF).contains("frequency_penalty"));
    assert!(bad(|p| p.presence_penalty = NAN).contains("presence_penalty"));
    assert!(bad(|p| p.logit_bias = vec![(1, NAN)]).contains("logit_bias"));
    assert!(bad(|p| p.logit_bias = vec![(1, 0.0), (2, 1.0), (1, 0.0)]).contains("token 1"));
    assert!(bad(|p| p.typical_p = 1.5).contains("typical_p is 1.5"));
    assert!(bad(|p| p.typical_p = NAN).contains("typical_p"));
    assert!(bad(|p| p.top_n_sigma = INF).contains("top_n_sigma"));
    assert!(bad(|p| p.top_n_sigma = NAN).contains("top_n_sigma"));
    assert!(bad(|p| p.xtc_probability = -0.5).contains("xtc_probability"));
    assert!(bad(|p| p.xtc_threshold = NAN).contains("xtc_threshold"));
    assert!(bad(|p| p.dynatemp_range = -1.0).contains("dynatemp_range"));
    assert!(bad(|p| p.dynatemp_exponent = INF).contains("dynatemp_exponent"));
    assert!(bad(|p| p.dry_multiplier = NAN).contains("dry_multiplier"));
    assert!(bad(|p| p.dry_base = 0.9).contains("dry_base is 0.9, but must be a number of at least 1"));
    assert!(bad(|p| p.mirostat_tau = -1.0).contains("mirostat_tau"));
    assert!(bad(|p| p.mirostat_eta = NAN).contains("mirostat_eta"));
    assert!(bad(|p| p.adaptive_target = 1.1).contains("adaptive_target"));
    assert!(
        bad(|p| p.adaptive_decay = 1.0).contains("adaptive_decay is 1, but must be a number from 0 to 0.99")
    );
    // Also where greedy would not use it.
    assert!(bad(|p| (p.temperature, p.top_p) = (0.0, 2.0)).contains("top_p"));
}

#[test]
fn a_token_twice_is_an_error() {
    let twice = [3, 1, 3].map(|id| Candidate { id, logit: 0.0 });
    let error = Chain::greedy().sample_candidates(twice.to_vec(), &[]);
    assert_eq!(error, Err(SampleError::DuplicateCandidate { token: 3 }));
}

#[test]
fn needs_add_up() {
    let needs = |change: fn(&mut SamplerParams)| {
        let mut params = SamplerParams::default();
        change(&mut params);
        params.build().expect("valid").needs()
    };
    assert_eq!(needs(|_| ()), Some(40));
    assert_eq!(needs(|p| p.repeat_penalty = 1.1), Some(104));
    assert_eq!(needs(|p| p.repeat_penalty = 0.9), None);
    assert_eq!(needs(|p| (p.repeat_penalty, p.penalty_last_n) = (1.1, usize::MAX)), None);
    assert_eq!(needs(|p| p.logit_bias = vec![(5, f32::NEG_INFINITY), (6, -1.0)]), Some(42));
    assert_eq!(needs(|p| p.logit_bias = vec![(5, 1.0)]), None);
    assert_eq!(needs(|p| p.top_k = 0), None);
    assert_eq!(needs(|p| p.temperature = 0.0), Some(1));
    assert_eq!(Chain::greedy().needs(), Some(1));
    assert_eq!(Chain::new(0).needs(), None);
    // As in llama.cpp, which takes any number.
    assert_eq!(Chain::new(0).then(MinP::new(2.0).expect("valid")).needs(), Some(1));
    let min_first = Chain::new(0).then(MinP::new(0.1).expect("valid")).then(TopK::new(8));
    assert_eq!(min_first.needs(), Some(8));
    let nucleus_first = Chain::new(0).then(TopP::new(0.9).expect("valid")).then(TopK::new(8));
    assert_eq!(nucleus_first.needs(), None);
}

#[test]
fn temperature_can_make_equals_of_two() {
    // Two neighbouring floats whose quotients round to the same one: then the lower token wins, so that
    // the best logit alone would not have been enough.
    let temperature = 0.8f32;
    let mut floats = (0..1000).map(|i| f32::from_bits(1.7f32.to_bits() + i));
    let low = floats.find(|&l| l / temperature == l.next_up() / temperature).expect("such a pair");
    let logits = [low, low.next_up()];
    let hot = Temperature::new(temperature).expect("valid");
    assert_eq!(Chain::greedy().sample(&logits, &[]), Ok(1));
    let mut chain = Chain::new(0).then(hot).then(Greedy);
    assert_eq!(chain.needs(), None);
    assert_eq!(chain.sample(&logits, &[]), Ok(0));
}

#[test]
fn retain_never_empties_the_list() {
    let mut candidates = Candidates::from_logits(&[1.0, 3.0, 2.0, 3.0]).expect("some logits");
    candidates.retain(|_| false);
    assert_eq!(candidates.as_slice(), [Candidate { id: 1, logit: 3.0 }]);
    let mut candidates = Candidates::from_logits(&[5.0, 3.0, 2.0]).expect("some logits");
    candidates.retain(|_| false);
    assert_eq!(candidates.as_slice(), [Candidate { id: 0, logit: 5.0 }]);
}

/// Every stage that looks at probabilities, with settings that bite.
fn biting() -> Vec<Box<dyn Stage>> {
    vec![
        Box::new(Typical::new(0.1).expect("valid")),
        Box::new(TopNSigma::new(0.1).expect("valid")),
        Box::new(Xtc::new(1.0, 0.0, 0).expect("valid")),
        Box::new(DynamicTemperature::new(0.5, 0.5, 3.0).expect("valid")),
        Box::new(Dry::new(1e30, 1e30, 0, usize::MAX, Breakers::none()).expect("valid")),
        Box::new(Mirostat::new(0.0, 1.0).expect("valid")),
        Box::new(MirostatV2::new(0.0, 1.0).expect("valid")),
        Box::new(AdaptiveP::new(0.0, 0.0).expect("valid")),
    ]
}

#[test]
fn what_is_certain_or_impossible_stays_so() {
    for stage in biting() {
        let mut chain = Chain::new(1).then_boxed(stage);
        for _ in 0..5 {
            // A forced token, also where several are; one possible token; none; extremes.
            assert_eq!(chain.sample(&[1.0, INF, 3.0, INF], &[1, 1, 1]), Ok(1), "{chain}");
            assert_eq!(chain.sample(&[-INF, NAN, -7.0], &[2, 2, 2]), Ok(2), "{chain}");
            assert_eq!(chain.sample(&[NAN, -INF], &[]), Err(SampleError::NoLogit { count: 2 }), "{chain}");
            assert_eq!(chain.sample(&[5.0], &[0, 0]), Ok(0), "{chain}");
            chain.sample(&[f32::MAX, f32::MIN, 0.0, f32::MAX], &[0, 3]).expect("a token");
        }
    }
}

#[test]
fn xtc_at_a_threshold_of_nothing_leaves_the_least_likely_that_is_possible() {
    // 28 below the best is the least that has any weight.
    let logits = [0.0, -28.2, -3.0, -29.5, -INF, -27.9];
    let mut chain = Chain::new(0).then(Xtc::new(1.0, 0.0, 0).expect("valid"));
    assert_eq!(chain.sample(&logits, &[]), Ok(1));
    // Alone above the threshold, the best stays.
    let mut chain = Chain::new(0).then(Xtc::new(1.0, 0.4, 0).expect("valid")).then(Greedy);
    assert_eq!(chain.sample(&[2.0, 1.0, 0.5], &[]), Ok(0));
}

#[test]
fn a_harsh_dry_is_no_ban() {
    let dry = || Dry::new(f32::MAX, f32::MAX, 0, usize::MAX, Breakers::none()).expect("valid");
    let mut chain = Chain::new(0).then(dry());
    assert_eq!(chain.sample(&[3.0, 2.0], &[0, 0, 0]), Ok(1));
    assert_eq!(chain.sample(&[3.0, -INF], &[0, 0, 0]), Ok(0));
    // Tokens that are no candidates, and the largest id.
    assert_eq!(chain.sample(&[3.0], &[u32::MAX, 7, u32::MAX, 7]), Ok(0));
    let reward = Dry::new(-f32::MAX, 2.0, 1, usize::MAX, Breakers::none()).expect("valid");
    assert_eq!(Chain::new(0).then(reward).then(Greedy).sample(&[3.0, 0.0, 5.0], &[1, 1, 1]), Ok(1));
}

#[test]
fn surprise_without_end_does_not_break_mirostat() {
    for version in [1, 2] {
        let params = SamplerParams {
            mirostat: version,
            mirostat_eta: 1e30,
            temperature: 1.0,
            ..SamplerParams::default()
        };
        let mut chain = params.build().expect("valid");
        for step in 0..50u8 {
            chain.sample(&[0.0, f32::from(step) - 25.0, -1.0], &[]).expect("a token");
        }
    }
}

#[test]
fn a_bias_counts_where_only_the_best_token_is_kept() {
    let logits = [1.0, 3.0, 2.0, 0.0];
    for samplers in
        ["top_k:40,temperature,logit_bias", "logit_bias,temperature", "temperature,top_p,logit_bias"]
    {
        let mut params = SamplerParams { logit_bias: vec![(1, -INF)], ..SamplerParams::greedy() };
        params.temperature = 0.0;
        params.samplers = samplers.parse().expect("known");
        let mut chain = params.build().expect("valid");
        assert_eq!(chain.sample(&logits, &[]), Ok(2), "{samplers}: {chain}");
    }
}
