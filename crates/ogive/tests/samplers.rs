//! Samplers through the front door: DRY's breakers are cut by the model's vocabulary, and what stages remember is there
//! when a session goes on or back.

mod common;

use common::*;
use ogive::sampler::{SamplerParams, Samplers};
use ogive::{Error, Generate, Model};

fn stories() -> Option<Model> {
    Some(ogive::open(shared()?.join("models/stories260K/stories260K-f32.gguf")).unwrap())
}

/// Settings in which each stage that remembers something has its part.
fn steered() -> [SamplerParams; 4] {
    let hot = SamplerParams { temperature: 1.2, seed: 3, ..SamplerParams::default() };
    [
        SamplerParams { xtc_probability: 0.6, dynatemp_range: 0.4, dry_multiplier: 0.8, ..hot.clone() },
        SamplerParams { mirostat: 1, ..hot.clone() },
        SamplerParams { mirostat: 2, ..hot.clone() },
        SamplerParams { adaptive_target: 0.3, ..hot },
    ]
}

#[test]
fn state_survives_going_on_and_going_back() {
    let Some(model) = stories() else { return };
    for params in steered() {
        let how = |n| Generate::new().sampler(params.clone()).max_tokens(n).ignore_end();
        let mut session = model.session().unwrap();
        let whole = {
            session.generate("Once upon a time", &how(40)).unwrap().text().unwrap();
            session.tokens().to_vec()
        };
        // The same in two parts: the second goes on by the first one's chain.
        let mut parts = model.session().unwrap();
        parts.generate("Once upon a time", &how(20)).unwrap().text().unwrap();
        let (middle, chain) = (parts.tokens().to_vec(), parts.chain().unwrap().clone());
        parts.generate_with(middle.clone(), &how(20), chain.clone()).unwrap().text().unwrap();
        assert_eq!(parts.tokens(), whole, "{params:?}");
        // And again, back from the end to the middle.
        parts.generate_with(middle, &how(20), chain).unwrap().text().unwrap();
        assert_eq!(parts.tokens(), whole, "{params:?}");
        // The same settings anew are the same text.
        session.generate("Once upon a time", &how(40)).unwrap().text().unwrap();
        assert_eq!(session.tokens(), whole, "{params:?}");
    }
}

#[test]
fn dry_ends_a_loop_and_knows_its_breakers() {
    let Some(model) = stories() else { return };
    let tell = |multiplier: f32, breakers: &[&str]| {
        let sampler = SamplerParams {
            dry_multiplier: multiplier,
            dry_sequence_breakers: breakers.iter().map(|b| (*b).to_owned()).collect(),
            ..SamplerParams::greedy()
        };
        let how = Generate::new().sampler(sampler).max_tokens(30);
        let prompt = "The dog ran to the park. The dog ran to the park. The dog ran to the park. The dog";
        model.session().unwrap().generate(prompt, &how).unwrap().text().unwrap()
    };
    let loops = |text: &str| text.matches("He wanted to play with the dog.").count();
    let (off, on) = (tell(0.0, &["\n"]), tell(50.0, &["\n"]));
    assert!(loops(&off) > 1, "{off}");
    assert_eq!(loops(&on), 1, "{on}");
    // Where nearly every token ends what counts as a repetition, nothing is one. The vocabulary has such letters in
    // tokens of many lengths.
    assert_eq!(tell(50.0, &[" ", "a", "e", "i", "o"]), off);
}

#[test]
fn chains_as_text_and_what_is_wrong_with_them() {
    let Some(model) = stories() else { return };
    let samplers: Samplers = "dry:0.8,min-p:0.1,temp".parse().unwrap();
    let how = Generate::new().samplers(samplers);
    assert_eq!(model.chain(&how.sampler).unwrap().to_string(), "dry:0.8:1.75:2:64,min_p:0.1,temperature:0.8");
    let e = "dri:0.8".parse::<Samplers>().map_err(Error::from).unwrap_err();
    assert!(e.to_string().contains("did you mean dry?"), "{e}");
    let wrong = Generate::new().samplers("mirostat,temp:0.5".parse().unwrap());
    let e = model.session().unwrap().generate("a", &wrong).unwrap_err();
    assert!(e.to_string().contains("temperature comes after mirostat"), "{e}");
}
