//! How tokens are drawn, as a request says it.
//!
//! OpenAI's fields, and under llama.cpp's names the samplers that it has besides; vLLM's name where the two differ. What a request does not say is the
//! server's: its defaults are not OpenAI's (temperature 1, no top-k), for which small models are not made.

use crate::error::Refusal;
use crate::fields::Fields;
use crate::server::{Shared, random};
use ogive::engine::Request;
use ogive::engine::sampler::{Sampler, SamplerParams, Step};
use ogive::{Answer, Generate};
use serde_json::Value;

/// The most stop strings, and bytes of each.
const STOPS: usize = 16;
const STOP_BYTES: usize = 512;
/// The most breakers of repetitions, each of which is looked for in the whole vocabulary.
const BREAKERS: usize = 64;
/// The most tokens that may have a bias, as OpenAI has it: they are gone through for every token that is drawn.
const BIASES: usize = 1024;
/// The most likely tokens that may be asked for at each place, as OpenAI has it.
pub(crate) const TOP: usize = 20;
/// The most answers to one request.
const ANSWERS: usize = 16;

const OTHER: &str = "leave it out";

/// Fields of other servers, of llama.cpp and vLLM mostly, that would change an answer and are not known here, and what to do instead.
const REFUSED: [(&str, &str); 37] = [
    ("add_generation_prompt", OTHER),
    ("allowed_token_ids", "hold the answer by `response_format` or `logit_bias`"),
    ("audio", "this server has text alone"),
    ("bad_words", "use `logit_bias`"),
    ("best_of", "ask for several answers by `n`"),
    ("chat_template", "the server is given one when it starts"),
    ("continue_final_message", "have the text continued by /v1/completions"),
    ("documents", "write them into the conversation"),
    ("echo", "the prompt is known to you"),
    ("function_call", "use `tool_choice`"),
    ("functions", "use `tools`"),
    ("guided_choice", "use `response_format` with an enum"),
    ("guided_grammar", "use `grammar`, in GBNF"),
    ("guided_json", "use `response_format`"),
    ("guided_regex", "use `response_format` with a pattern"),
    ("id_slot", OTHER),
    ("include_stop_str_in_output", OTHER),
    ("json_schema", "use `response_format`"),
    ("length_penalty", OTHER),
    ("lora", "adapters are given when the server starts"),
    ("min_keep", OTHER),
    ("min_tokens", "`ignore_eos` goes on to `max_tokens`"),
    ("n_discard", OTHER),
    ("n_keep", OTHER),
    ("n_predict", "use `max_tokens`"),
    ("n_probs", "use `logprobs` and `top_logprobs`"),
    ("prompt_logprobs", OTHER),
    ("reasoning", "use `reasoning_effort`"),
    ("samplers", "the server is given their order when it starts"),
    ("stop_token_ids", "use `stop`"),
    ("structured_outputs", "use `response_format`"),
    ("suffix", "write the model's tokens for the middle into the prompt"),
    ("top_a", OTHER),
    ("truncate_prompt_tokens", "cut the prompt yourself"),
    ("use_beam_search", OTHER),
    ("verbosity", "say it in the conversation"),
    ("web_search_options", "give the model a tool that searches"),
];

/// What a stage of the chain has to be there for, unless it is what would do nothing.
const WANTS: [(&str, Sampler, f32); 13] = [
    ("temperature", Sampler::Temperature, 1.0),
    ("dynatemp_range", Sampler::Temperature, 0.0),
    ("top_k", Sampler::TopK, 0.0),
    ("top_p", Sampler::TopP, 1.0),
    ("min_p", Sampler::MinP, 0.0),
    ("typical_p", Sampler::Typical, 1.0),
    ("top_n_sigma", Sampler::TopNSigma, -1.0),
    ("xtc_probability", Sampler::Xtc, 0.0),
    ("frequency_penalty", Sampler::Penalties, 0.0),
    ("presence_penalty", Sampler::Penalties, 0.0),
    ("repeat_penalty", Sampler::Penalties, 1.0),
    ("repetition_penalty", Sampler::Penalties, 1.0),
    ("dry_multiplier", Sampler::Dry, 0.0),
];

/// Refuses what the server's own order of samplers has no stage for, or one with values that are not to be changed. `server`: [settled](SamplerParams::settled).
fn can_be_done(fields: &Fields, server: &SamplerParams) -> Result<(), Refusal> {
    // Who asks for mirostat has it in place of all others.
    let asked = fields.whole("mirostat")?;
    if asked.is_some_and(|version| version > 0) {
        return Ok(());
    }
    let mirostat = asked.unwrap_or(server.mirostat.into());
    let is_there = |sampler: Sampler| match mirostat {
        0 => server.samplers.steps().contains(&Step::from(sampler)),
        _ => sampler == Sampler::Temperature,
    };
    for (name, sampler, nothing) in WANTS {
        if fields.get(name).is_some_and(|value| value.as_f64() != Some(f64::from(nothing)))
            && !is_there(sampler)
        {
            let own = if mirostat > 0 { "mirostat".to_owned() } else { server.samplers.to_string() };
            let why =
                format!("the server was told to draw by `{own}`, where this changes nothing; leave it out");
            return Err(Refusal::unsupported(name, why));
        }
    }
    Ok(())
}

/// How to draw.
pub(crate) fn generate(fields: &Fields, shared: &Shared) -> Result<Generate, Refusal> {
    let options = &shared.options;
    fields.refuse(&REFUSED)?;
    if fields.flag("skip_special_tokens")? == Some(false) {
        return Err(Refusal::unsupported(
            "skip_special_tokens",
            "special tokens are not shown here; leave it out",
        ));
    }
    can_be_done(fields, &options.defaults.sampler)?;
    let mut how = options.defaults.clone();
    let sampler = &mut how.sampler;
    for (name, value) in [
        ("temperature", &mut sampler.temperature),
        ("top_p", &mut sampler.top_p),
        ("min_p", &mut sampler.min_p),
        ("typical_p", &mut sampler.typical_p),
        ("top_n_sigma", &mut sampler.top_n_sigma),
        ("xtc_probability", &mut sampler.xtc_probability),
        ("xtc_threshold", &mut sampler.xtc_threshold),
        ("dynatemp_range", &mut sampler.dynatemp_range),
        ("dynatemp_exponent", &mut sampler.dynatemp_exponent),
        ("frequency_penalty", &mut sampler.frequency_penalty),
        ("presence_penalty", &mut sampler.presence_penalty),
        ("repeat_penalty", &mut sampler.repeat_penalty),
        ("dry_multiplier", &mut sampler.dry_multiplier),
        ("dry_base", &mut sampler.dry_base),
        ("mirostat_tau", &mut sampler.mirostat_tau),
        ("mirostat_eta", &mut sampler.mirostat_eta),
        ("adaptive_target", &mut sampler.adaptive_target),
        ("adaptive_decay", &mut sampler.adaptive_decay),
    ] {
        let asked = match name {
            // vLLM's name for it.
            "repeat_penalty" => fields.number(name)?.or(fields.number("repetition_penalty")?),
            _ => fields.number(name)?,
        };
        if let Some(asked) = asked {
            *value = asked;
        }
    }
    for (name, value, all) in [
        ("top_k", &mut sampler.top_k, 0),
        ("repeat_last_n", &mut sampler.penalty_last_n, usize::MAX),
        ("dry_allowed_length", &mut sampler.dry_allowed_length, 0),
        ("dry_penalty_last_n", &mut sampler.dry_penalty_last_n, usize::MAX),
    ] {
        // -1 is all of them to other servers.
        let all = fields.get(name).filter(|value| value.as_i64() == Some(-1)).map(|_| all);
        if let Some(asked) = all.map_or_else(|| fields.whole(name), |all| Ok(Some(all)))? {
            *value = asked;
        }
    }
    if let Some(version) = fields.within("mirostat", 0, 2)? {
        sampler.mirostat = version as u8;
    }
    if let Some(breakers) = fields.list("dry_sequence_breakers")? {
        let text = |value: &Value| value.as_str().filter(|text| text.len() <= STOP_BYTES).map(str::to_owned);
        let breakers = Some(breakers).filter(|list| list.len() <= BREAKERS);
        let breakers = breakers.and_then(|list| list.iter().map(text).collect::<Option<_>>());
        sampler.dry_sequence_breakers = breakers.ok_or_else(|| {
            let why =
                format!("it is to be a list of up to {BREAKERS} texts, of up to {STOP_BYTES} bytes each");
            Refusal::field("dry_sequence_breakers", why)
        })?;
    }
    if let Some(bias) = fields.object("logit_bias")? {
        let pair = |(id, bias): (&String, &Value)| Some((id.parse().ok()?, bias.as_f64()? as f32));
        let wrong = |why: String| Refusal::field("logit_bias", why);
        if bias.len() > BIASES {
            return Err(wrong(format!("it is of {} tokens, and {BIASES} are the most", bias.len())));
        }
        let bias: Option<Vec<(u32, f32)>> = bias.iter().map(pair).collect();
        let bias = bias.ok_or_else(|| wrong("it is to map ids of tokens, as texts, to numbers".into()))?;
        let vocab = shared.model.layers().vocab().unwrap_or(usize::MAX);
        if let Some((id, _)) = bias.iter().find(|(id, _)| *id as usize >= vocab) {
            return Err(wrong(format!("token {id} is none of the {vocab} that the model knows")));
        }
        sampler.logit_bias.extend(bias);
    }
    sampler.seed = seed(fields)?.or(options.seed).unwrap_or_else(random);
    sampler.check().map_err(|e| Refusal::bad(e.to_string()))?;
    how.max_tokens = max_tokens(fields)?.or(how.max_tokens);
    how.stop.extend(stop(fields)?);
    how.ignore_end = fields.flag("ignore_eos")?.unwrap_or(how.ignore_end);
    held(fields, how)
}

/// With a grammar, where one is given as llama.cpp's clients do.
fn held(fields: &Fields, how: Generate) -> Result<Generate, Refusal> {
    let Some(_gbnf) = fields.text("grammar")?.filter(|gbnf| !gbnf.is_empty()) else { return Ok(how) };
    #[cfg(feature = "grammar")]
    return how.grammar(_gbnf).map_err(|e| Refusal::field("grammar", e.to_string()));
    #[cfg(not(feature = "grammar"))]
    Err(Refusal::unsupported("grammar", NO_GRAMMAR))
}

/// What is told where a build has no grammars.
#[cfg(not(feature = "grammar"))]
pub(crate) const NO_GRAMMAR: &str = "this server was built without grammars (the feature `grammar`)";

fn seed(fields: &Fields) -> Result<Option<u64>, Refusal> {
    let Some(seed) = fields.get("seed") else { return Ok(None) };
    let wrong = || Refusal::field("seed", "it is to be a whole number");
    // Negative ones are as good as others.
    seed.as_u64().or(seed.as_i64().map(i64::cast_unsigned)).map(Some).ok_or_else(wrong)
}

fn max_tokens(fields: &Fields) -> Result<Option<usize>, Refusal> {
    let names = ["max_completion_tokens", "max_tokens"];
    let mut found = None;
    for name in names {
        // -1 is as many as there is room for, to llama.cpp's clients.
        if fields.get(name).is_some_and(|value| value.as_i64() == Some(-1)) {
            continue;
        }
        let n = fields.within(name, 1, usize::MAX)?;
        match (found, n) {
            (Some(a), Some(b)) if a != b => {
                return Err(Refusal::field(
                    name,
                    "it contradicts `max_completion_tokens`; leave one of them out",
                ));
            }
            _ => found = found.or(n),
        }
    }
    Ok(found)
}

fn stop(fields: &Fields) -> Result<Vec<String>, Refusal> {
    let wrong = || {
        Refusal::field(
            "stop",
            format!("it is to be a text or a list of up to {STOPS}, of up to {STOP_BYTES} bytes each"),
        )
    };
    let stops = match fields.get("stop") {
        None => Vec::new(),
        Some(Value::Array(list)) => {
            list.iter().map(|v| v.as_str().map(str::to_owned)).collect::<Option<_>>().ok_or_else(wrong)?
        }
        Some(one) => vec![one.as_str().ok_or_else(wrong)?.to_owned()],
    };
    // An empty one would end each answer before it began.
    let fits = stops.len() <= STOPS && stops.iter().all(|s| !s.is_empty() && s.len() <= STOP_BYTES);
    if fits { Ok(stops) } else { Err(wrong()) }
}

/// How many answers are asked for.
pub(crate) fn answers(fields: &Fields) -> Result<usize, Refusal> {
    Ok(fields.within("n", 1, ANSWERS)?.unwrap_or(1))
}

/// What was read for one answer, for those of these numbers: another seed for each, and the rest as it is. A prompt that has no room is refused before it
/// is copied.
pub(crate) fn for_answers(
    shared: &Shared,
    (request, answer): &(Request, Answer),
    which: &[usize],
) -> Result<Vec<(Request, Answer)>, Refusal> {
    let (tokens, context) = (request.prompt.len(), shared.model.context());
    if tokens >= context {
        let why =
            format!("a prompt of {tokens} tokens leaves no room in the context of {context}; shorten it");
        return Err(Refusal::bad(why));
    }
    let seed = request.chain.seed();
    let one = |i: &usize| {
        let mut request = request.clone();
        request.chain.reseed(seed.wrapping_add(*i as u64));
        (request, answer.clone())
    };
    Ok(which.iter().map(one).collect())
}
