//! Runs every example as a newcomer would and looks at what it prints.
//!
//! `cargo test -p ogive-examples` (or nextest) builds them beforehand. They are examples and not programs of the package,
//! for `--example` is where people look; Cargo tells a test no path to those, so it is found beside the test itself.
#![allow(clippy::unwrap_used)]

// Both run programs as users do.
#[path = "../../crates/ogive-cli/tests/common/chain.rs"]
mod chain;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A file of the test data, or `None` with a visible word where that is missing.
fn shared(file: &str) -> Option<PathBuf> {
    let beside = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../shared");
    let shared = std::env::var_os("OGIVE_SHARED").map_or(beside, PathBuf::from);
    if shared.is_dir() {
        return Some(shared.join(file));
    }
    println!("skipped: shared test data not found");
    None
}

fn stories() -> Option<PathBuf> {
    shared("models/stories260K/stories260K-f32.gguf")
}

fn start(example: &str, args: &[&Path]) -> Output {
    let test = std::env::current_exe().unwrap(); // target/PROFILE/deps/run-HASH
    let built = test.parent().unwrap().parent().unwrap().join("examples").join(example);
    let built = built.with_extension(std::env::consts::EXE_EXTENSION);
    assert!(built.exists(), "{} is missing; `cargo test -p ogive-examples` builds it", built.display());
    Command::new(built).args(args).output().unwrap()
}

/// What the example prints.
fn run(example: &str, args: &[&Path]) -> String {
    let output = start(example, args);
    assert!(output.status.success(), "{example}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// How many tokens of each prompt were read, and how many there are, as a conversation tells it.
fn read(text: &str) -> Vec<(usize, usize)> {
    let told = text.lines().filter(|l| l.starts_with('(') && l.ends_with("tokens had to be read)"));
    told.map(|l| {
        let mut numbers = l.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok());
        (numbers.next().unwrap(), numbers.next().unwrap())
    })
    .collect()
}

#[test]
fn generate_tells_the_published_story() {
    let Some(model) = stories() else { return };
    let golden = std::fs::read_to_string(shared("models/stories260K/golden.json").unwrap()).unwrap();
    let story = run("01_generate", &[&model]);
    // The file is JSON, where a line break is written as two characters.
    let escaped = story.trim_end().replace('\n', "\\n").replace('"', "\\\"");
    assert!(escaped.len() > 200 && golden.contains(&escaped), "{story}");
}

#[test]
fn chat_reads_only_what_is_new() {
    let Some(model) = stories() else { return };
    let text = run("02_chat", &[&model]);
    let [(first, whole), (second, both)] = *read(&text) else { panic!("{text}") };
    assert!(first == whole && both > whole + 40 && second < both - whole, "{text}");

    let template = shared("templates/Qwen-Qwen2.5-7B-Instruct.jinja").unwrap();
    assert!(run("02_chat", &[&model, &template]).contains("user: And of Japan?"));
}

#[test]
fn an_image_is_read_once() {
    // Small and random: what it says of the image is noise.
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates");
    let model = tempfile::tempdir().unwrap();
    for part in ["ogive-models/tests/vision/qwen2.5-vl", "ogive/tests/vision/qwen2.5-vl"] {
        for entry in std::fs::read_dir(crates.join(part)).unwrap() {
            let file = entry.unwrap();
            std::fs::copy(file.path(), model.path().join(file.file_name())).unwrap();
        }
    }
    let image = crates.join("ogive-vision/tests/data/smooth.png");
    let text = run("14_look", &[model.path(), &image, "Is it smooth?".as_ref()]);
    assert!(text.starts_with("200 x 133 pixels\nuser: Is it smooth?\nassistant: "), "{text}");
    let [(first, whole), (second, both)] = *read(&text) else { panic!("{text}") };
    assert!(first == whole && both > whole && second < both - whole + 60, "{text}");
    let output = start("14_look", &[model.path()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("MODEL IMAGE [QUESTION]"), "{output:?}");
    let output = start("14_look", &[model.path(), "nowhere.png".as_ref()]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("nowhere.png"), "{output:?}");
}

/// Multiplies whatever it is asked, and says what came of it.
#[test]
fn a_model_calls_functions() {
    let tokens = [
        ("<s>", true),
        ("<|im_end|>", true),
        ("<|asked|>", true),
        ("<|told|>", true),
        ("<call>", false),
        (r#"{"name": "multiply", "arguments": {"a": 3, "b": 4}}"#, false),
        ("12.", false),
        (r#"{"result":12.0}"#, false),
    ];
    let template = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}\
        {{ '<call>' ~ {'name': c.function.name, 'arguments': c.function.arguments}|tojson }}{% endfor %}<|im_end|>{% endfor %}\
        {% if add_generation_prompt %}{{ '<|told|>' if messages[-1].role == 'tool' else '<|asked|>' }}{% endif %}";
    let folder = tempfile::tempdir().unwrap();
    chain::write_model(folder.path(), &tokens, &[&[2, 4, 5, 1], &[3, 6, 1]], template);
    let text = run("15_tools", &[folder.path(), "o".as_ref()]);
    assert_eq!(text, "\nmultiply {\"a\":3,\"b\":4} -> {\"result\":12.0}\n12.\n");
    let output = start("15_tools", &[]);
    assert!(String::from_utf8_lossy(&output.stderr).contains("MODEL [QUESTION]"), "{output:?}");
}

#[test]
fn a_service_answers_who_listens() {
    let Some(model) = stories() else { return };
    let text = run("12_service", &[&model]);
    let [_, whole, hung_up, refused] = text.split("> ").collect::<Vec<_>>()[..] else { panic!("{text}") };
    for (told, prompt) in [(whole, "Once upon a time"), (hung_up, "The dog")] {
        let alone = run("01_generate", &[&model, prompt.as_ref()]);
        assert!(told.len() > prompt.len() + 4 && alone.starts_with(told.trim_end()), "{told}\n{alone}");
    }
    assert!(refused.starts_with("Lily and Tom: ") && refused.contains("one to draw"), "{refused}");
}

#[test]
fn guesses_change_no_text() {
    let Some(model) = stories() else { return };
    let prompt = "Once upon a time";
    let text = run("13_guess_ahead", &[&model, &model, prompt.as_ref()]);
    let [alone, by_model, by_words, tale] = text.splitn(4, '\n').collect::<Vec<_>>()[..] else {
        panic!("{text}")
    };
    assert!(alone.ends_with(" 0 of 0 guesses right)") && by_words.starts_with("(its own words: "), "{text}");
    let numbers: Vec<u32> = by_model.split([' ', '(']).filter_map(|word| word.parse().ok()).collect();
    let [right, guessed] = numbers[..] else { panic!("{text}") };
    assert!(right <= guessed && guessed > 50, "{text}");
    let alone = run("01_generate", &[&model, prompt.as_ref()]);
    let both = tale.chars().zip(alone.chars()).take_while(|(a, b)| a == b).count();
    assert!(tale.starts_with(prompt) && both > prompt.len() + 40, "{text}\n{alone}");
}

#[test]
fn many_sequences_tell_what_each_tells_alone() {
    let Some(model) = stories() else { return };
    let text = run("03_many_sequences", &[&model]);
    assert_eq!(text.matches(" (Length)\n").count(), 3, "{text}");
    for prompt in ["Once upon a time", "Lily and Tom went to the park. They", "The dog"] {
        let together = text.split('[').find_map(|t| t.get(3..).filter(|t| t.starts_with(prompt))).unwrap();
        let alone = run("01_generate", &[&model, prompt.as_ref()]);
        let together = together.trim_end().strip_suffix(" (Length)").unwrap();
        assert!(together.len() > prompt.len() + 40 && alone.starts_with(together), "{together}\n{alone}");
    }
}

#[test]
fn a_stage_of_ones_own_forbids_a_letter() {
    let Some(model) = stories() else { return };
    for letter in ["s", "e"] {
        let text = run("04_sampler_stage", &[&model, letter.as_ref()]);
        assert!(text.len() > 60 && !text.to_lowercase().contains(letter), "{text}");
    }
}

/// Tokens that end a text have a `|` in their names, which is no part of a story: it ends where it does with all tokens.
#[test]
fn a_stage_of_ones_own_lets_a_story_end() {
    let without = |letter: &str| run("04_sampler_stage", &["ogive:demo".as_ref(), letter.as_ref()]);
    let story = without("|");
    assert!(story.len() > 60 && story == without("~"), "{story}");
}

#[test]
fn an_architecture_of_another_crate_runs() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("outside/golden");
    let text = run("05_architecture", &[&folder]);
    let known: Vec<&str> =
        text.lines().find_map(|l| l.strip_prefix("known: ")).unwrap().split(", ").collect();
    for name in ["OwnGPTNeoXForCausalLM", "LlamaForCausalLM"] {
        assert!(known.contains(&name), "{text}");
    }
    assert!(text.contains("opened: OwnGPTNeoXForCausalLM, contexts of up to 64 tokens"), "{text}");
    // Ogive's own registry does not know it, and says what it knows.
    let refused = start("01_generate", &[&folder]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        !refused.status.success() && why.contains("OwnGPTNeoXForCausalLM") && why.contains("Llama"),
        "{why}"
    );
}

#[test]
fn a_weight_format_of_ones_own_packs_and_runs() {
    let Some(folder) = shared("models/stories260K/hf") else { return };
    let new = tempfile::tempdir().unwrap();
    let text = run("06_weight_format", &[&folder, new.path()]);
    let before = folder.join("model.safetensors").metadata().unwrap().len();
    let after = new.path().join("model.safetensors").metadata().unwrap().len();
    assert!(after * 3 < before, "{after} of {before} bytes");
    assert!(text.contains("goes on with \", there was a little"), "{text}");
    // Without the format the error names the tensor, the type and what is known.
    let refused = start("01_generate", &[new.path()]);
    let why = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(why.contains("embed_tokens") && why.contains("F8_E5M2") && why.contains("q4_k"), "{why}");
}

#[test]
fn a_weight_format_needs_no_data_from_elsewhere() {
    let text = run("06_weight_format", &[]);
    assert!(text.contains("Ids([1, 5, 17]) goes on with") && text.contains("ids ["), "{text}");
}

#[test]
fn a_backend_of_ones_own_conforms_and_is_used() {
    let Some(model) = stories() else { return };
    let text = run("07_backend", &[&model]);
    assert!(text.contains("0 failed"), "{text}");
    let calls = |name: &str| -> usize {
        let line = text.lines().find(|l| l.ends_with(&format!(" {name}"))).unwrap_or_default();
        line.split_whitespace().next().map_or(0, |n| n.parse().unwrap())
    };
    // Five layers, a prompt and 19 further tokens: one pair of products in each.
    assert_eq!((calls("linear_many"), calls("gather_kv")), (100, 100), "{text}");
    let story = run("01_generate", &[&model]);
    assert!(text.lines().any(|l| l.len() > 20 && story.contains(l.trim())), "{text}");
}

#[test]
fn logits_and_hidden_states_are_arrays() {
    let Some(model) = stories() else { return };
    let text = run("08_logits", &[&model]);
    assert!(text.contains("MiB: weights 1") && text.contains("(13, 512), hidden states (13, 64)"), "{text}");
    let perplexity = text.lines().find_map(|l| l.strip_prefix("perplexity: ")).unwrap();
    assert!((1.0..4.0).contains(&perplexity.parse::<f32>().unwrap()), "{text}");
    // The model has learned this sentence by heart.
    let best = text.lines().rev().nth(4).unwrap();
    assert!(best.starts_with("0.") && best.contains("named"), "{text}");
}

#[test]
fn a_missing_argument_or_file_is_said() {
    let folder = tempfile::tempdir().unwrap();
    let new = folder.path().join("new");
    let output = start("06_weight_format", &["nowhere".as_ref(), &new]);
    assert!(!output.status.success() && !new.exists());
    assert!(String::from_utf8_lossy(&output.stderr).contains("nowhere: no such file"), "{output:?}");
    for example in ["01_generate", "02_chat", "03_many_sequences", "04_sampler_stage", "05_architecture"] {
        let output = start(example, &["nowhere.gguf".as_ref()]);
        assert!(String::from_utf8_lossy(&output.stderr).starts_with("Error: nowhere.gguf: "), "{output:?}");
    }
}

#[test]
fn ogives_own_model_serves_where_none_is_given() {
    let story = run("01_generate", &[]);
    assert!(story.starts_with("Once upon a time") && story.len() > 200, "{story}");
    let chat = run("02_chat", &[]);
    assert!(
        chat.contains("The capital of France is Paris.") && chat.contains("The capital of Japan is Tokyo."),
        "{chat}"
    );
    assert_eq!(run("03_many_sequences", &[]).matches("[").count(), 3);
    assert!(run("05_architecture", &[]).contains("opened: OwnGPTNeoXForCausalLM"));
    let without = run("04_sampler_stage", &[]);
    assert!(without.len() > 60 && !without.to_lowercase().contains('s'), "{without}");
    assert!(run("07_backend", &[]).contains("0 failed"));
    let text = run("08_logits", &[]);
    let perplexity = text.lines().find_map(|l| l.strip_prefix("perplexity: ")).unwrap();
    assert!((1.0..20.0).contains(&perplexity.parse::<f32>().unwrap()), "{text}");
    let empty = run("08_logits", &["ogive:demo".as_ref(), "".as_ref()]);
    assert!(empty.contains("perplexity: none, for there is one token and nothing to foresee"), "{empty}");
}

#[test]
fn capitals_are_counted() {
    let text = run("11_capitals", &[]);
    let last = text.lines().last().unwrap();
    let right: usize = last.strip_suffix(" of 100 right").unwrap().parse().unwrap();
    assert_eq!(text.lines().count(), 101 - right);
    assert!(right >= 95, "{text}");
}

#[test]
fn json_is_json() {
    let text = run("09_json", &[]);
    let (json, count) = text.trim_end().rsplit_once('\n').unwrap();
    let value: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(count, "3 keys");
    assert!((3..=9).contains(&value["age"].as_u64().unwrap()), "{json}");
}

#[test]
fn texts_of_one_kind_are_near() {
    let text = run("10_embeddings", &[]);
    let ranked: Vec<(f32, &str)> = text
        .lines()
        .skip(2)
        .map(|l| l.trim().split_once(' ').unwrap())
        .map(|(cosine, text)| (cosine.parse().unwrap(), text))
        .collect();
    assert_eq!((ranked.len(), ranked[0].1), (4, "What is the capital of France?"), "{text}");
    assert!(ranked[0].0 > 0.7 && ranked[1].0 < 0.6, "{text}");
}
