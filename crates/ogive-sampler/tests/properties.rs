//! What must hold for any logits and any chain: no stage empties the list, the order of the input does not
//! matter, and the best candidates that a chain asks for decide the draw as the whole vocabulary would.
//!
//! Logits come from few levels on purpose: ties, infinities and NaN are where such claims break.

use std::mem::discriminant;

use ogive_sampler::stages::{
    AdaptiveP, Breakers, Dry, DynamicTemperature, Greedy, LogitBias, MinP, Mirostat, MirostatV2, Penalties,
    Temperature, TopK, TopNSigma, TopP, Typical, Xtc,
};
use ogive_sampler::{Candidate, Candidates, Chain, SampleError, SamplerParams, Samplers, Stage, best};
use proptest::collection::vec;
use proptest::prelude::*;

fn logit() -> impl Strategy<Value = f32> {
    prop_oneof![
        6 => (-12i8..12).prop_map(|x| f32::from(x) * 0.5),
        6 => -20.0f32..20.0,
        1 => Just(f32::NAN),
        1 => Just(f32::NEG_INFINITY),
        1 => prop_oneof![Just(0.0f32), Just(-0.0), Just(f32::MIN), Just(1e-40)],
    ]
}

fn logits() -> impl Strategy<Value = Vec<f32>> {
    let large = prop_oneof![Just(f32::MAX), Just(f32::INFINITY), Just(3e38f32)];
    (vec(logit(), 1..300), proptest::option::weighted(0.1, (any::<prop::sample::Index>(), large))).prop_map(
        |(mut logits, spike)| {
            if let Some((at, value)) = spike {
                let at = at.index(logits.len());
                logits[at] = value;
            }
            logits
        },
    )
}

fn history() -> impl Strategy<Value = Vec<u32>> {
    vec(0u32..40, 0..30)
}

fn bias() -> impl Strategy<Value = f32> {
    prop_oneof![3 => -5.0f32..0.0, 2 => Just(f32::NEG_INFINITY), 1 => -5.0f32..5.0, 1 => Just(f32::MIN)]
}

fn boxed(stage: impl Stage + 'static) -> Box<dyn Stage> {
    Box::new(stage)
}

fn dry() -> impl Strategy<Value = Box<dyn Stage>> {
    let numbers = (prop_oneof![Just(0.0f32), 0.1f32..3.0, -1.0f32..0.0], 1.0f32..3.0, 0usize..4);
    let window = prop_oneof![Just(usize::MAX), 0usize..20];
    (numbers, window, vec(vec(0u32..40, 0..3), 0..4)).prop_map(
        |((multiplier, base, allowed), last_n, breakers)| {
            boxed(Dry::new(multiplier, base, allowed, last_n, Breakers::from_tokens(breakers)).unwrap())
        },
    )
}

/// Those with a state or chance of their own.
fn steering() -> impl Strategy<Value = Box<dyn Stage>> {
    prop_oneof![
        (any::<u64>(), prop_oneof![Just(1.0f32), 0.0f32..=1.0], prop_oneof![Just(0.0f32), 0.0f32..0.6])
            .prop_map(|(seed, p, t)| boxed(Xtc::new(p, t, seed).unwrap())),
        (0.0f32..10.0, 0.0f32..2.0).prop_map(|(tau, eta)| boxed(Mirostat::new(tau, eta).unwrap())),
        (0.0f32..10.0, 0.0f32..2.0).prop_map(|(tau, eta)| boxed(MirostatV2::new(tau, eta).unwrap())),
        (-0.2f32..=1.0, 0.0f32..=0.99)
            .prop_map(|(target, decay)| boxed(AdaptiveP::new(target, decay).unwrap())),
    ]
}

fn stage() -> impl Strategy<Value = Box<dyn Stage>> {
    prop_oneof![
        2 => prop_oneof![Just(0.0f32), Just(1.0), 0.0f32..=1.0].prop_map(|p| boxed(Typical::new(p).unwrap())),
        2 => (-1.0f32..4.0).prop_map(|n| boxed(TopNSigma::new(n).unwrap())),
        1 => (0.0f32..2.0, 0.0f32..2.0, 0.0f32..3.0)
            .prop_map(|(t, range, e)| boxed(DynamicTemperature::new(t, range, e).unwrap())),
        3 => dry(),
        3 => steering(),
        1 => Just(()).prop_map(|()| boxed(Greedy)),
        3 => (0usize..50).prop_map(|k| boxed(TopK::new(k))),
        2 => prop_oneof![Just(0.0f32), Just(1.0), 0.0f32..=1.0].prop_map(|p| boxed(TopP::new(p).unwrap())),
        3 => prop_oneof![Just(0.0f32), Just(1.0), 0.0f32..1.2].prop_map(|p| boxed(MinP::new(p).unwrap())),
        2 => prop_oneof![Just(0.0f32), Just(1.0), Just(1e-30), 0.1f32..3.0]
            .prop_map(|t| boxed(Temperature::new(t).unwrap())),
        3 => (0usize..20, prop_oneof![Just(1.0f32), 1.0f32..3.0, 0.5f32..1.0], -0.5f32..3.0, 0.0f32..3.0)
            .prop_map(|(n, repeat, f, p)| boxed(Penalties::new(n, repeat, f.max(0.0), p).unwrap())),
        1 => (0usize..20, -2.0f32..2.0, -2.0f32..2.0)
            .prop_map(|(n, f, p)| boxed(Penalties::new(n, 1.1, f, p).unwrap())),
        3 => proptest::collection::btree_map(0u32..60, bias(), 0..6)
            .prop_map(|b| boxed(LogitBias::new(&b.into_iter().collect::<Vec<_>>()).unwrap())),
    ]
}

fn chain() -> impl Strategy<Value = Chain> {
    (any::<u64>(), vec(stage(), 0..6)).prop_map(|(seed, stages)| {
        stages.into_iter().fold(Chain::new(seed), |chain, stage| chain.then_boxed(stage))
    })
}

fn list(logits: &[f32]) -> Vec<Candidate> {
    (0..).zip(logits).map(|(id, &logit)| Candidate { id, logit }).collect()
}

/// Equal tokens, or errors of the same kind.
fn same(a: &Result<u32, SampleError>, b: &Result<u32, SampleError>) -> bool {
    match (a, b) {
        (Ok(a), Ok(b)) => a == b,
        (Err(a), Err(b)) => discriminant(a) == discriminant(b),
        _ => false,
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_stage_leaves_some_of_what_came_in(logits in logits(), history in history(), mut stage in stage()) {
        let mut candidates = Candidates::from_logits(&logits).unwrap();
        stage.apply(&mut candidates, &history);
        let mut ids: Vec<_> = candidates.as_slice().iter().map(|c| c.id as usize).collect();
        prop_assert!(!ids.is_empty());
        prop_assert!(candidates.as_slice().iter().all(|c| !c.logit.is_nan()));
        let count = ids.len();
        ids.sort_unstable();
        ids.dedup();
        prop_assert_eq!(ids.len(), count);
        prop_assert!(ids.iter().all(|&id| id < logits.len()));
    }

    #[test]
    fn the_order_of_the_input_does_not_matter(
        (logits, shuffled) in logits().prop_flat_map(|l| (Just(l.clone()), Just(list(&l)).prop_shuffle())),
        history in history(),
        chain in chain(),
    ) {
        let (mut a, mut b) = (chain.clone(), chain);
        for _ in 0..3 {
            let (x, y) = (a.sample(&logits, &history), b.sample_candidates(shuffled.clone(), &history));
            prop_assert!(same(&x, &y), "{:?} {:?}", x, y);
        }
    }

    #[test]
    fn the_needed_candidates_decide(logits in logits(), history in history(), chain in chain()) {
        let few = match chain.needs() {
            Some(n) => best(&logits, n),
            None => list(&logits),
        };
        let (mut whole, mut limited) = (chain.clone(), chain);
        for _ in 0..3 {
            // Given as a list, the whole vocabulary goes through the stages.
            let x = whole.sample_candidates(list(&logits), &history);
            let y = limited.sample_candidates(few.clone(), &history);
            prop_assert!(same(&x, &y), "{:?} {:?} {:?}", x, y, limited);
        }
    }

    #[test]
    fn equal_seeds_draw_equal_tokens(rows in vec(logits(), 1..6), history in history(), chain in chain()) {
        // A clone, a reset chain, and one that was asked about its distribution on the way.
        let (mut a, mut b, mut c) = (chain.clone(), chain.clone(), chain);
        for row in &rows {
            let _ = c.sample(row, &history);
        }
        c.reset();
        for row in &rows {
            let (x, y) = (a.sample(row, &history), b.sample(row, &history));
            let _ = c.distribution(row, &history);
            let z = c.sample(row, &history);
            prop_assert!(same(&x, &y) && same(&x, &z), "{:?} {:?} {:?}", x, y, z);
        }
    }

    #[test]
    fn a_chain_prints_what_makes_it(chain in chain(), rows in vec(logits(), 1..4), history in history()) {
        // What a text does not hold: biases, breakers, other seeds than the chain's, stages after mirostat.
        let text = chain.to_string();
        let samplers: Samplers = text.parse().unwrap();
        prop_assert_eq!(samplers.to_string(), &*text);
        let params = SamplerParams { samplers, dry_sequence_breakers: Vec::new(), ..SamplerParams::default() };
        let Ok(mut rebuilt) = params.build() else { return Ok(()) };
        // Again: off stages are gone, and nothing else changes.
        let samplers: Samplers = rebuilt.to_string().parse().unwrap();
        let mut again = SamplerParams { samplers, ..params }.build().unwrap();
        for row in &rows {
            let (x, y) = (rebuilt.sample(row, &history), again.sample(row, &history));
            prop_assert!(same(&x, &y), "{}: {:?} {:?}", rebuilt, x, y);
        }
    }

    #[test]
    fn no_text_makes_the_parser_panic(text in "[a-z_:,;. 0-9-]{0,40}|\\PC{0,40}") {
        if let Ok(samplers) = text.parse::<Samplers>() {
            prop_assert_eq!(samplers.to_string().parse::<Samplers>(), Ok(samplers));
        }
    }

    #[test]
    fn best_is_a_sort(logits in logits(), n in 0usize..320) {
        let mut sorted = list(&logits);
        for c in &mut sorted {
            if c.logit.is_nan() {
                c.logit = f32::NEG_INFINITY;
            }
        }
        sorted.sort_by(|a, b| b.logit.partial_cmp(&a.logit).unwrap().then(a.id.cmp(&b.id)));
        sorted.truncate(n);
        prop_assert_eq!(best(&logits, n), sorted);
    }

    #[test]
    fn a_distribution_is_one(logits in logits(), history in history(), mut chain in chain()) {
        let drawn = chain.clone().sample(&logits, &history);
        let distribution = chain.distribution(&logits, &history);
        match (drawn, distribution) {
            (Ok(token), Ok(distribution)) => {
                prop_assert!((distribution.iter().map(|d| d.1).sum::<f64>() - 1.0).abs() < 1e-12);
                prop_assert!(distribution.iter().all(|d| d.1 > 0.0));
                prop_assert!(distribution.windows(2).all(|w| w[0].1 >= w[1].1));
                prop_assert!(distribution.iter().any(|d| d.0 == token));
                // Asking changed nothing.
                prop_assert_eq!(chain.sample(&logits, &history), Ok(token));
            }
            (Err(a), Err(b)) => prop_assert_eq!(a, b),
            (a, b) => prop_assert!(false, "{:?} {:?}", a, b),
        }
    }
}
