//! How tokens are drawn, as a request says it.
//!
//! OpenAI's fields, and under llama.cpp's names the samplers that it has besides; vLLM's name where the two differ. What a request does not say is the
//! server's: its defaults are not OpenAI's (temperature 1, no top-k), for which small models are not made.

use crate::error::Refusal;
use crate::fields::Fields;
use crate::options::Options;
use crate::server::random;
use ogive::Generate;
use serde_json::Value;

/// The most stop strings, and bytes of each.
const STOPS: usize = 16;
const STOP_BYTES: usize = 512;
/// The most likely tokens that may be asked for at each place, as OpenAI has it.
pub(crate) const TOP: usize = 20;
/// The most answers to one request.
const ANSWERS: usize = 16;

const OTHER: &str = "leave it out";

/// Fields of other servers, of llama.cpp and vLLM mostly, that would change an answer and are not known here, and what to do instead.
const REFUSED: [(&str, &str); 35] = [
    ("add_generation_prompt", OTHER),
    ("allowed_token_ids", "hold the answer by `response_format` or `logit_bias`"),
    ("audio", "this server has text alone"),
    ("bad_words", "use `logit_bias`"),
    ("best_of", "ask for several answers by `n`"),
    ("chat_template", "the server is given one when it starts"),
    ("continue_final_message", "have the text continued by /v1/completions"),
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

/// How to draw.
pub(crate) fn generate(fields: &Fields, options: &Options) -> Result<Generate, Refusal> {
    fields.refuse(&REFUSED)?;
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
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let breakers = breakers.iter().map(text).collect::<Option<_>>();
        sampler.dry_sequence_breakers =
            breakers.ok_or_else(|| Refusal::field("dry_sequence_breakers", "it is to be a list of texts"))?;
    }
    if let Some(bias) = fields.object("logit_bias")? {
        let pair = |(id, bias): (&String, &Value)| Some((id.parse().ok()?, bias.as_f64()? as f32));
        let wrong = "it is to map ids of tokens, as texts, to numbers";
        let bias: Option<Vec<(u32, f32)>> = bias.iter().map(pair).collect();
        sampler.logit_bias.extend(bias.ok_or_else(|| Refusal::field("logit_bias", wrong))?);
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

/// The same for the answer of this number among several: another seed.
pub(crate) fn for_answer(how: &Generate, i: usize) -> Generate {
    let mut how = how.clone();
    how.sampler.seed = how.sampler.seed.wrapping_add(i as u64);
    how
}
