//! The suite under test: backends that are broken on purpose, each of which a named case must catch.
//!
//! A suite that passes everything is worth nothing; this is how we know that it does not.

mod fault;
mod mutant;
mod overwriter;

use fault::Fault;
use mutant::Mutant;
use ogive_backend::Backend;
use ogive_conformance::{Options, Status, run};
use overwriter::Overwriter;
use std::sync::Arc;

/// What a case of exactly this name says of a backend.
fn verdict(backend: &Arc<dyn Backend>, case: &str) -> Status {
    let options = Options::new().bit_exact_batching().filter(case);
    let report = run(backend, &options);
    let outcome = report.outcomes.into_iter().find(|o| o.name == case);
    outcome.unwrap_or_else(|| panic!("there is no case called {case}")).status
}

#[test]
fn every_fault_is_caught_by_the_case_that_names_it() {
    use Fault::*;
    let caught = [
        (IgnoresWindow, "attend/window"),
        (IgnoresWindow, "attend_cache/window/f32-cache"),
        (IgnoresAhead, "attend/around"),
        (IgnoresAhead, "attend_cache/bidirectional-around"),
        (IgnoresChunk, "attend/chunks"),
        (IgnoresChunk, "attend_cache/chunks/f32-cache"),
        (IgnoresCausal, "attend/causal"),
        (IgnoresMutual, "attend/mutual"),
        (IgnoresMutual, "attend_cache/mutual/f32-cache"),
        (IgnoresSoftCap, "attend/soft-cap"),
        (IgnoresSinks, "attend/sinks"),
        (IgnoresAlibi, "attend/alibi"),
        (IgnoresMask, "attend/mask"),
        (IgnoresUnknownOption, "attend/unknown-option"),
        (CapsFirst, "attend/mask-then-cap"),
        (MisindexesGroupedHeads, "attend/causal"),
        (MisindexesGroupedHeads, "attend_cache/heads/groups-of-7"),
        (SwapsRopeLayouts, "rope/halves"),
        (SwapsRopeLayouts, "rope/pairs/partial"),
        (IgnoresRopeFactor, "rope/halves/factor"),
        (RoundsNothingIntoTheCache, "gather_kv/f16-cache"),
        (RoundsNothingIntoTheCache, "gather_kv/q8_0-cache"),
        (RoundsNothingIntoTheCache, "attend_cache/causal/bf16-cache"),
        (StoresRowsOfNobody, "attend_cache/causal/f32-cache"),
        (CopiesBlocksBackwards, "copy_blocks/f32-cache"),
        (WritesTheSlotItReads, "state/read-one-slot-write-the-other"),
        (WritesTheSlotItReads, "causal_conv"),
        (StartsFromAnOldState, "state/read-one-slot-write-the-other"),
        (AddsBiasToScores, "moe/biased"),
        (IgnoresRouterBias, "moe/biased"),
        (TiesToTheHigherIndex, "moe/ties"),
        (IgnoresGroups, "moe/groups"),
        (IgnoresWeightScale, "linear/q8_0/scale-and-permutation"),
        (IgnoresInputPermutation, "linear/f32/scale-and-permutation"),
        (IgnoresInputPermutation, "embed/q4_k"),
        (ClampsIds, "embed/refused"),
        (ForgetsEpsilon, "rms_norm"),
        (TakesGeluForItsApproximation, "activate/gelu"),
        (SortsOutputs, "outputs"),
        (ForgetsTheResidual, "add_rms_norm"),
        (ReplaysStaleResults, "replay/decoding"),
        (ReplaysStaleResults, "replay/download-inside"),
        (ReplaysOtherModels, "replay/two-models"),
        (DependsOnTheBatch, "bits/linear/f32"),
        (DependsOnTheBatch, "bits/linear/q4_0"),
        (DependsOnHowAPromptIsCut, "bits/attend_cache/causal/f32-cache"),
        (SpreadsNan, "extremes/linear/f32"),
        (PanicsOnWrongShapes, "linear/refused"),
        (CallsForeignInvalid, "foreign-handles"),
        (PlansAnything, "plan/refused"),
        (TakesNanForTheLargest, "best/nan-and-infinity"),
        (BestTiesToTheHigherIndex, "best/ties"),
        (KeepsTheFirst, "best/ties"),
        (KeepsTheFirst, "replay/top-k"),
        (AttendsToUnroundedKeys, "rope_attend/bf16-cache"),
        (LosesPrecision, "linear/f32"),
        (LosesPrecision, "linear_each"),
        (ReadsTheFirstTable, "attend_cache/layers-and-groups/f16-cache"),
        (ReadsTheFirstTable, "rope_attend/layers-and-groups"),
        (ReadsTheFirstTable, "attend_latent/layers-and-groups"),
        (ReadsTheFirstLayer, "attend_cache/layers-and-groups/f32-cache"),
        (ReadsTheFirstLayer, "rope_attend/layers-and-groups"),
        (ReadsTheFirstLayer, "attend_latent/layers-and-groups"),
        (IgnoresSharing, "attend_cache/layers-and-groups/q8_0-cache"),
        (IgnoresSharing, "attend_latent/layers-and-groups"),
        (LosesRowsPast64, "linear/many-rows/f32/65"),
        (LosesRowsPast64, "linear/many-rows/q4_k/129"),
        (LosesRowsPast64, "linear/many-rows/q8_0/300"),
        (RotatesHalvesOnly, "rope_attend/pairs/causal"),
        (RotatesWholeHeads, "rope_attend/halves/causal"),
        (RotatesByNoFactor, "rope_attend/halves/sinks"),
        (FusesCausalOnly, "rope_attend/pairs/window"),
        (FusesCausalOnly, "rope_attend/halves/soft-cap"),
        (FusesCausalOnly, "rope_attend/halves/sinks"),
        (FusesCausalOnly, "rope_attend/pairs/alibi"),
        (FusesCausalOnly, "attend_latent/window"),
        (FusesCausalOnly, "attend_latent/soft-cap"),
        (FusesCausalOnly, "attend_latent/sinks"),
        (FusesCausalOnly, "attend_latent/alibi"),
        (ForgetsBeyond128, "attend_cache/dims/256/f16-cache"),
        (ForgetsBeyond128, "rope_attend/dims/256"),
        (ForgetsBeyond128, "attend_latent/dims/576/q8_0-cache"),
        (KnowsSiluOnly, "moe/gelu/f32"),
        (KnowsSiluOnly, "moe/gelu-tanh/q8_0"),
        (KnowsSiluOnly, "moe/quick-gelu/f32"),
        (IgnoresBiasesOfExperts, "moe/biases/f32"),
        (IgnoresBiasesOfExperts, "moe/biases-and-permutation/q8_0"),
        (ClampsNoGates, "moe/clamped/mxfp4"),
        (ClampsNoGates, "moe/biases-clamped/f32"),
        (GatesByItself, "moe/ungated/f32"),
        (GatesByItself, "moe/ungated/mxfp4"),
        (IgnoresBiasesOfExperts, "moe/refused"),
        (IgnoresScaleOfStacks, "moe/scale-and-permutation/f32"),
        (IgnoresOrderOfStacks, "moe/scale-and-permutation/q8_0"),
        (KnowsElementsByName, "attend_cache/element-of-a-known-name"),
        (MixesHeads, "linear/refused"),
        (SumsNothing, "sum"),
        (ReadsTheFirstState, "state/read-one-slot-write-the-other"),
        (ReadsTheFirstState, "linear_attention"),
        (WritesTheSlotItReads, "linear_attention"),
        (StartsFromAnOldState, "linear_attention"),
        (MisindexesGroupedHeads, "linear_attention"),
        (ForgetsToDecay, "linear_attention"),
        (IgnoresBetas, "linear_attention"),
        (TakesNoBetasForOnes, "linear_attention"),
        (TakesKeysForQueries, "linear_attention"),
        (KnowsKeysOf64, "linear_attention"),
        (ForgetsAfter64Rows, "recurrent/long-prompts"),
    ];
    let sound: Arc<dyn Backend> = Arc::new(Mutant::new(Nothing));
    let mut missed = Vec::new();
    for (fault, case) in caught {
        let verdict_of_sound = verdict(&sound, case);
        assert_eq!(verdict_of_sound, Status::Passed, "{case}, without a fault");
        let broken: Arc<dyn Backend> = Arc::new(Mutant::new(fault));
        if !matches!(verdict(&broken, case), Status::Failed(_)) {
            missed.push((fault, case));
        }
    }
    assert!(missed.is_empty(), "not caught: {missed:?}");
}

/// With the bounds of rounded activations, which are on means: three outputs of thousands would be lost in one.
#[test]
fn outputs_that_are_missing_among_thousands_are_caught() {
    for (fault, fails) in [(Fault::Nothing, false), (Fault::LosesTheLastOutputs, true)] {
        let backend: Arc<dyn Backend> = Arc::new(Mutant::new(fault));
        let report = run(&backend, &Options::new().exact_weights(false).filter("linear/wide"));
        let all: Vec<_> = report.failures().map(|o| format!("{:?}", o.status)).collect();
        assert_eq!(all.len(), usize::from(fails), "{report}");
        assert!(
            all.iter().all(|text| text.contains("result 1")),
            "the last outputs are compared apart: {all:?}"
        );
    }
}

#[test]
fn overwriting_what_others_hold_is_caught() {
    let sound: Arc<dyn Backend> = Arc::new(Overwriter::new(false));
    let broken: Arc<dyn Backend> = Arc::new(Overwriter::new(true));
    for case in
        ["add/broadcast", "mul/broadcast", "activate/silu", "gated/silu", "reshape/shares-but-does-not-leak"]
    {
        assert_eq!(verdict(&sound, case), Status::Passed, "{case}");
        assert!(
            matches!(verdict(&broken, case), Status::Failed(_)),
            "{case} lets shared inputs be overwritten"
        );
    }
}

#[test]
fn a_failure_says_where_and_how_far_off() {
    let broken: Arc<dyn Backend> = Arc::new(Mutant::new(Fault::ForgetsEpsilon));
    let report = run(&broken, &Options::new().filter("rms_norm").seed(5));
    assert!(!report.passed());
    let text = report.to_string();
    for part in ["FAILED  rms_norm", "times the limit; element", "seed 5", "of size 1e-3"] {
        assert!(text.contains(part), "`{part}` is not in\n{text}");
    }
    let panicking: Arc<dyn Backend> = Arc::new(Mutant::new(Fault::PanicsOnWrongShapes));
    let text = run(&panicking, &Options::new().filter("linear/refused")).to_string();
    assert!(text.contains("panicked: told to"), "{text}");
}
