//! Saved and loaded: a sequence goes on in another engine as if nothing had been in between.

mod common;

use common::*;
use ogive_conformance::Oracle;
use ogive_engine::sampler::{Chain, SamplerParams};
use ogive_engine::{Engine, Limits, Request, SeqId};
use ogive_nn::tensor::{BF16, F16, F32, Format, Q8_0};
use random::Random;
use std::sync::Arc;

const MODEL: u64 = 77;

fn params() -> [SamplerParams; 3] {
    let base = SamplerParams { seed: 5, ..SamplerParams::default() };
    [
        SamplerParams { mirostat: 2, ..base.clone() },
        SamplerParams { adaptive_target: 0.3, repeat_penalty: 1.2, ..base.clone() },
        SamplerParams {
            xtc_probability: 0.4,
            dry_multiplier: 0.8,
            dry_sequence_breakers: Vec::new(),
            ..base
        },
    ]
}

fn save(e: &Engine, id: SeqId) -> Vec<u8> {
    let mut out = Vec::new();
    e.save(id, MODEL, b"a note", &mut out).unwrap();
    out
}

fn load(e: &mut Engine, bytes: &[u8]) -> (SeqId, usize) {
    let loaded = e.load(MODEL, &mut &*bytes, bytes.len() as u64).unwrap();
    assert_eq!(loaded.note, b"a note");
    (loaded.id, loaded.cached)
}

/// Goes on by the chain as it was saved.
fn go_on(e: &mut Engine, id: SeqId, mut chain: Chain, n: usize) -> Vec<u32> {
    chain.restore(&e.chain_state(id).unwrap()).unwrap();
    e.resume(id, Request::new([], n).chain(chain).keep()).unwrap();
    e.follow(id).map(|event| event.unwrap().token.unwrap()).collect()
}

fn limits(element: &'static Format) -> Limits {
    wide().element(element).step_tokens(8)
}

#[test]
fn every_model_goes_on_as_if_nothing_had_been() {
    for (i, (arch, r)) in zoo().into_iter().enumerate() {
        // Every element for pages, pages with a window, and states; one of them for each of the others.
        let elements: [&'static Format; 4] = [&F32, &F16, &BF16, &Q8_0];
        let all = ["LlamaForCausalLM", "Gemma2ForCausalLM", "MambaForCausalLM"].contains(&arch);
        for &element in if all { &elements[..] } else { &elements[i % 4..=i % 4] } {
            let new = |limits| engine(Arc::new(Oracle), arch, &r, limits);
            let chain = || params()[i % 3].build().unwrap();
            let prompt: Vec<u32> = (1..12).collect();
            let mut whole = new(limits(element));
            let id = whole.add(Request::new(&*prompt, 40).chain(chain()).keep()).unwrap();
            let want: Vec<u32> = whole.follow(id).map(|e| e.unwrap().token.unwrap()).collect();
            for cut in [1, 21] {
                let mut first = new(limits(element));
                let id = first.add(Request::new(&*prompt, cut).chain(chain()).keep()).unwrap();
                assert_eq!(first.follow(id).count(), cut);
                let bytes = save(&first, id);
                assert_eq!(bytes, save(&first, id), "the same bytes each time");
                // In an engine that has others, with blocks of another length, and in one that has room for its tokens alone.
                let mut busy = new(limits(element));
                let other = busy.add(Request::new([9, 8, 7], 30)).unwrap();
                busy.step().unwrap();
                for (mut second, what) in [
                    (busy, "busy"),
                    (new(limits(element)), "empty"),
                    (new(limits(element).block_len(7)), "longer blocks"),
                    (new(limits(element).block_len(1).step_tokens(16)), "shorter blocks"),
                ] {
                    let (id, cached) = load(&mut second, &bytes);
                    assert_eq!(second.tokens(id).unwrap(), [&*prompt, &want[..cut]].concat());
                    let windowed = arch.starts_with("Gemma2");
                    assert!(
                        cached == prompt.len() + cut - 1 || (windowed && what.contains("blocks")),
                        "{arch} {what}"
                    );
                    if what != "longer blocks" && what != "shorter blocks" {
                        assert!(
                            save(&second, id) == bytes,
                            "{arch} {what}: what was loaded is what was saved"
                        );
                    }
                    let rows = second.stats().rows;
                    let rest = go_on(&mut second, id, chain(), 40 - cut);
                    assert_eq!(rest, want[cut..], "{arch}, {}, cut at {cut}, {what}", element.name);
                    if what == "empty" {
                        assert_eq!(second.stats().rows - rows, 40 - cut as u64, "{arch}: only what is new");
                    }
                }
                let _ = other;
            }
        }
    }
}

#[test]
fn after_rewinds_and_in_the_middle_of_things() {
    for (arch, r) in zoo() {
        let new = || engine(Arc::new(Oracle), arch, &r, limits(&F16));
        let mut e = new();
        let id = e.add(Request::new((1..20).collect::<Vec<u32>>(), 20).keep()).unwrap();
        assert_eq!(e.follow(id).count(), 20);
        for keep in [30, 25, 3] {
            e.rewind(id, keep).unwrap();
            let bytes = save(&e, id);
            let mut later = new();
            let (loaded, _) = load(&mut later, &bytes);
            // The twin was never saved; both go on with a new prompt.
            let next = |e: &mut Engine, id| {
                e.resume(id, Request::new([40, 41], 6).keep()).unwrap();
                e.follow(id).map(|e| e.unwrap().token.unwrap()).collect::<Vec<u32>>()
            };
            assert_eq!(next(&mut later, loaded), next(&mut e, id), "{arch} to {keep}");
        }
        // While its prompt is still being read.
        let mut e = new();
        let id = e.add(Request::new((1..30).collect::<Vec<u32>>(), 5).keep()).unwrap();
        e.step().unwrap();
        let mut later = new();
        let (loaded, cached) = load(&mut later, &save(&e, id));
        assert_eq!(cached, 8, "{arch}");
        assert_eq!(
            go_on(&mut later, loaded, Chain::greedy(), 5),
            e.follow(id).map(|e| e.unwrap().token.unwrap()).collect::<Vec<u32>>()
        );
    }
}

#[test]
fn without_room_for_its_pages_it_is_computed_anew() {
    let (arch, r) = &zoo()[0];
    let limits = || Limits::new(32).sequences(2).cache_tokens(32).block_len(4).element(&F32);
    let mut e = engine(Arc::new(Oracle), arch, r, limits());
    let id = e.add(Request::new([1; 20], 4).keep()).unwrap();
    assert_eq!(e.follow(id).count(), 4);
    let bytes = save(&e, id);
    let (second, cached) = load(&mut e, &bytes);
    assert_eq!(cached, 0, "the first holds most pages");
    let want = go_on(&mut e, id, Chain::greedy(), 4);
    assert_eq!(go_on(&mut e, second, Chain::greedy(), 4), want);
    assert!(e.cancel(id) && e.cancel(second));
    // A load that fails gives its pages back.
    for _ in 0..20 {
        let mut bad = bytes.clone();
        *bad.last_mut().unwrap() ^= 1;
        assert!(e.load(MODEL, &mut &*bad, bad.len() as u64).is_err());
    }
    assert_eq!(load(&mut e, &bytes).1, 23);
}

#[test]
fn what_was_saved_elsewhere_is_refused_with_a_reason() {
    let (arch, r) = &zoo()[0];
    let mut e = engine(Arc::new(Oracle), arch, r, limits(&F16));
    let id = e.add(Request::new([1, 2, 3], 6).keep()).unwrap();
    assert_eq!(e.follow(id).count(), 6);
    let bytes = save(&e, id);
    let len = bytes.len() as u64;
    let refused = |e: &mut Engine, model: u64, bytes: &[u8]| {
        e.load(model, &mut &*bytes, bytes.len() as u64).unwrap_err().to_string()
    };
    assert!(refused(&mut e, MODEL + 1, &bytes).contains("with another model"));
    let mut gemma = engine(Arc::new(Oracle), "Gemma2ForCausalLM", &Random::gemma2(), limits(&F16));
    assert!(refused(&mut gemma, MODEL, &bytes).contains("with another model"), "whatever its number is");
    let mut q8 = engine(Arc::new(Oracle), arch, r, limits(&Q8_0));
    let error = refused(&mut q8, MODEL, &bytes);
    assert!(error.contains("\"f16\"") && error.contains("\"q8_0\""), "{error}");
    let mut small = engine(Arc::new(Oracle), arch, r, Limits::new(8).block_len(4).element(&F16));
    let error = refused(&mut small, MODEL, &bytes);
    assert!(error.contains("9 tokens") && error.contains("context of 8"), "{error}");
    assert!(refused(&mut e, MODEL, b"GGUF and so on").contains("not a saved session"));
    assert!(refused(&mut e, MODEL, b"").contains("not a saved session"));
    let mut newer = bytes.clone();
    newer[8] = 3;
    assert!(refused(&mut e, MODEL, &newer).contains("of version 3"));
    assert!(refused(&mut e, MODEL, &[&*bytes, b"x"].concat()).contains("damaged"));
    // A reader that has less than was promised.
    assert!(e.load(MODEL, &mut &bytes[..40], len).is_err());
    assert!(e.save(99, MODEL, b"", &mut Vec::new()).unwrap_err().is_missing());
    // Bytes cost about what the rows do: 3 layers of 32 keys and 32 values, 8 tokens, 2 bytes each.
    assert!((3 * 64 * 8 * 2..3 * 64 * 8 * 2 + 300).contains(&bytes.len()), "{}", bytes.len());
}

#[test]
fn a_writer_that_fails_is_an_error() {
    struct Full(usize);
    impl std::io::Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(std::io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let (arch, r) = &zoo()[0];
    let mut e = engine(Arc::new(Oracle), arch, r, limits(&F16));
    let id = e.add(Request::new([1, 2, 3], 6).keep()).unwrap();
    assert_eq!(e.follow(id).count(), 6);
    for room in [0, 10, 500] {
        let error = e.save(id, MODEL, b"", &mut Full(room)).unwrap_err().to_string();
        assert!(error.contains("saving a session"), "{error}");
    }
}
