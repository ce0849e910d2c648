//! What goes wrong, and that it is told in one line with the right exit code.

mod common;

use common::{command, ogive, ogive_reads, reads, shared};
use std::ffi::OsString;
use std::fs;
use std::path::PathBuf;

fn model() -> Option<PathBuf> {
    shared("models/stories260K/stories260K-f32.gguf")
}

fn message(code: i32, args: Vec<OsString>) -> String {
    ogive(args).error(code).to_owned()
}

/// Runs the program and gives its message.
macro_rules! wrong {
    ($code:literal, $($arg:expr),* $(,)?) => { message($code, args![$($arg),*]) };
}

#[cfg(unix)]
#[test]
fn what_is_no_plain_file_is_not_inspected() {
    let e = wrong!(1, "inspect", "/dev/null");
    assert!(e.contains("/dev/null: this is no plain file"), "{e}");
    let e = wrong!(1, "run", "--model", "/dev/null", "x");
    assert!(e.contains("/dev/null: what comes out of it is no GGUF file"), "{e}");
    // What has no end is not read to it.
    let e = wrong!(1, "tokenize", "--model", "/dev/zero");
    assert!(e.contains("/dev/zero"), "{e}");
    let e = wrong!(1, "detokenize", "--model", "/dev/zero", "1");
    assert!(e.contains("/dev/zero"), "{e}");
}

/// As a shell's `<(...)` gives one.
#[cfg(unix)]
#[test]
fn a_model_out_of_a_pipe_is_not_read_twice() {
    let folder = tempfile::tempdir().unwrap();
    let (model, messages) = (folder.path().join("m.gguf"), folder.path().join("m.json"));
    ogive(args!["synth", "--shape", "tiny", "--format", "q8_0", "-q", model]).text();
    fs::write(&messages, r#"[{"role": "user", "content": "Hi"}]"#).unwrap();
    let model = fs::read(model).unwrap();
    for (command, what) in [("bench", "measured"), ("devices", "counted"), ("inspect", "inspected")] {
        let ran = ogive_reads(args![command, "--model", "/dev/stdin"], &model);
        let why =
            format!("/dev/stdin: this is no plain file, and a model is {what} in several readings; write it");
        assert!(ran.error(1).starts_with(&why), "{}", ran.stderr);
    }
    let template = args!["template", "--model", "/dev/stdin", "--messages", messages];
    let ran = ogive_reads(&template, &model);
    assert!(ran.error(1).contains("this is a GGUF file and no template"), "{}", ran.stderr);
    assert_eq!(ogive_reads(&template, b"{{ messages[0].content }}").text(), "Hi");
}

#[test]
fn files_that_are_no_models() {
    let Some(model) = model() else { return };
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        fs::write(&path, bytes).unwrap();
        path
    };
    let whole = fs::read(&model).unwrap();
    let bare = folder.path().join("bare");
    fs::create_dir(&bare).unwrap();
    let strange = folder.path().join("strange.gguf");
    let mut writer = ogive::weights::gguf_file::GgufWriter::new();
    writer.set("general.architecture", "no-such-architecture");
    writer.create(&strange).unwrap().finish().unwrap();
    let cases = [
        (folder.path().join("missing.gguf"), "nothing is downloaded"),
        (write("empty.gguf", b""), "neither a GGUF file nor a folder"),
        (write("text.txt", b"Once upon a time"), "neither a GGUF file nor a folder"),
        (write("head.gguf", &whole[..3000]), "truncated or damaged"),
        (write("tail.gguf", &whole[..whole.len() - 1000]), "truncated"),
        (write("version.gguf", b"GGUF\x63\0\0\0\0\0\0\0"), "version"),
        (bare.clone(), "there is no config.json in this folder"),
        (strange, "known are"),
        (shared("golden/llama-split/llama-f32-00002-of-00003.gguf").unwrap(), "00001-of-00003"),
    ];
    for (path, why) in &cases {
        for form in [
            args!["run", "--model", path, "x"],
            args!["bench", "--model", path],
            args!["chat", "--model", path],
        ] {
            let ran = ogive(form);
            assert!(ran.error(1).contains(why), "{}: {}", path.display(), ran.stderr);
        }
    }
    for (path, _) in &cases[..7] {
        let message = wrong!(1, "inspect", path);
        assert!(message.contains(path.file_name().unwrap().to_str().unwrap()), "{message}");
        wrong!(1, "tokenize", "--model", path);
    }
}

#[test]
fn numbers_and_names_that_make_no_sense() {
    let Some(model) = model() else { return };
    let run = |more: &[&str]| {
        let fixed = args!["run", "--model", model];
        ogive(fixed.into_iter().chain(more.iter().map(Into::into)))
    };
    for (more, why) in [
        (&["--max-tokens", "-3", "x"][..], "--max-tokens"),
        (&["--max-tokens", "0", "x"], "it should be at least 1"),
        (&["--max-tokens", "five", "x"], "it should be a whole number from 0"),
        (&["--top-k", "-1", "x"], "it should be a whole number from 0"),
        (&["--grammar", "", "x"], "--grammar"),
        (&["--json-schema", "", "x"], "--json-schema"),
        (&["--max-tokens", "99999999999999999999999", "x"], "--max-tokens"),
        (&["--temperature", "warm", "x"], "--temperature"),
        (&["--seed", "-1", "x"], "--seed"),
        (&["--cache-type", "q4_0", "x"], "--cache-type"),
        (&["--device", "tpu", "x"], "cuda:N"),
        (&["--no-such-thing", "x"], "--no-such-thing"),
        (&["--samplers", "top_k:40,min-k:0.05", "x"], "did you mean min_p?"),
        (&["--samplers", "top_k:many", "x"], "must be a whole number from 0"),
        (&["--samplers", "top_k,", "x"], "number 2 is empty"),
        (&["--dry-penalty-last-n", "-2", "x"], "or -1 for all"),
        (&["--dry-sequence-breaker", "\\xzz", "x"], "hexadecimal"),
        (&["--mirostat", "-1", "x"], "--mirostat"),
        (&["--raw", "--system", "s", "x"], "--system"),
        (&["--threads", "0", "x"], "0 is not in 1..=4096"),
        (&["--threads", "1000000", "x"], "--threads"),
        (&["--context", "0", "x"], "--context 0: ask for at least one token"),
        (&["x", "y"], "y"),
        (&["--stop", "", "x"], "leave --stop out"),
        (&[], "there is no prompt, and nothing came by stdin: give the text"),
        (&["--temperature", "-1", "x"], "temperature is -1"),
        (&["--temperature", "nan", "x"], "temperature"),
        (&["--top-p", "1.5", "x"], "top_p"),
        (&["--min-p", "-0.1", "x"], "min_p is -0.1, but must be a number of at least 0 (off); above 1"),
        (&["--repeat-penalty", "0", "x"], "repeat"),
        (&["--typical", "-1", "x"], "typical_p is -1"),
        (&["--top-nsigma", "inf", "x"], "top_n_sigma is inf"),
        (&["--xtc-probability", "2", "x"], "xtc_probability is 2"),
        (&["--dry-base", "0.5", "x"], "dry_base is 0.5"),
        (&["--dynatemp-range", "nan", "x"], "dynatemp_range is NaN"),
        (&["--mirostat", "3", "x"], "must be 0 (off), 1 or 2"),
        (&["--adaptive-decay", "1", "x"], "adaptive_decay is 1"),
        (&["--samplers", "mirostat,top_k:5", "x"], "top_k comes after mirostat"),
        (&["--samplers", "top_p:7", "x"], "top_p is 7"),
    ] {
        let ran = run(more);
        ran.error(2);
        assert!(ran.stderr.contains(why), "{more:?}: {}", ran.stderr);
    }
    for (more, why) in [
        (&["--context", "100000000", "x"][..], "memory"),
        (&["--context", "1000000000000", "x"], "a shorter context"),
        (&["--context", "18446744073709551615", "x"], ""),
        (&["--context", "4", "Once upon a time"], "a prompt of 5 tokens"),
        (&["--device", "cuda:77", "x"], "cuda:77 was asked for, but"),
        (&["--device", "cuda:3", "x"], "cuda:3"),
        (&["--chat-template", "/no/such.jinja", "x"], "/no/such.jinja"),
    ] {
        let ran = run(more);
        assert!(ran.error(1).contains(why), "{more:?}: {}", ran.stderr);
    }
    assert!(wrong!(1, "chat", "--model", model).contains("no chat template"));
    wrong!(2, "frobnicate");
    wrong!(2, "bench", "--model", model, "-p", "0", "-n", "0");
    wrong!(2, "bench", "--model", model, "-r", "0");
    wrong!(1, "bench", "--model", model, "-d", "99999999999999");
    for command in ["inspect", "devices"] {
        let message = wrong!(2, command, "--model", model, "--context", "0");
        assert_eq!(message, "--context 0: ask for at least one token");
        let message = wrong!(2, command, "--model", model, "--threads", "5000");
        assert!(message.contains("5000 is not in 1..=4096"), "{message}");
    }
    assert!(wrong!(1, "devices", "--model", "/no/such.gguf").contains("nothing is downloaded"));
    assert!(
        wrong!(1, "quantize", "ogive:demo", "ogive:demo", "--format", "q4_0").contains("Ogive's own model")
    );
    let long = ogive(args!["bench", "--model", model, "-p", "600", "-n", "0", "-r", "1"]);
    assert!(long.stderr.contains("sequences of 603 tokens, 512 of which"), "{}", long.stderr);
    assert_eq!(long.stderr.matches("longer than the model was made for").count(), 1, "{}", long.stderr);
    wrong!(2, "bench", "--model", model, "-d", "18446744073709551615");
    let message = wrong!(2, "perplexity", "--model", model, "-c", "3", "/no/such/text");
    assert_eq!(message, "--context 3: a window has at least 4 tokens");
    assert!(wrong!(1, "perplexity", "--model", model, "/no/such/text").contains("No such file"));
}

#[test]
fn layers_on_a_gpu_that_was_ruled_out() {
    let why = "--gpu-layers asks for layers on a GPU, and --device cpu for none: leave one of them out";
    let run = wrong!(2, "run", "--model", "none.gguf", "--device", "cpu", "--gpu-layers", "3", "Once");
    assert_eq!(run, why);
    for (command, layers) in [("chat", "all"), ("inspect", "1"), ("bench", "1")] {
        let message = wrong!(2, command, "--model", "none.gguf", "--device", "cpu", "--gpu-layers", layers);
        assert_eq!(message, why, "{command}");
    }
    // What asks for none, or for what there is, is no contradiction.
    for layers in ["0", "auto"] {
        ogive(args!["inspect", "--device", "cpu", "--gpu-layers", layers]).text();
    }
    // The environment says the same as the option.
    let forced = |args: Vec<OsString>| reads(command().env("OGIVE_FORCE_CPU", "1").args(args), b"");
    for command in ["chat", "inspect", "bench"] {
        let ran = forced(args![command, "--model", "none.gguf", "--gpu-layers", "10"]);
        assert_eq!(ran.error(2), why.replace("--device cpu", "OGIVE_FORCE_CPU=1"), "{command}");
    }
    for layers in ["0", "auto"] {
        forced(args!["inspect", "ogive:demo", "--gpu-layers", layers]).text();
    }
    // Where there is none, which an estimate does not mind.
    let gpus = |line: &str| line.starts_with("cuda:") && !line.contains("not available");
    if !ogive(args!["devices"]).text().lines().any(gpus) {
        for layers in ["3", "all"] {
            let message = wrong!(1, "run", "--model", "ogive:demo", "--gpu-layers", layers, "Once");
            let why = format!("choosing a device: {layers} layers on a GPU were asked for, but ");
            assert!(message.starts_with(&why), "{message}");
            assert!(message.ends_with("; ask for none, or for as many as fit (auto)"), "{message}");
        }
        ogive(args!["run", "--model", "ogive:demo", "--gpu-layers", "auto", "-n", "1", "Once"]).text();
    }
    let off = reads(command().env("OGIVE_FORCE_CPU", "0").args(args!["inspect", "--gpu-layers", "10"]), b"");
    assert_ne!(off.code, Some(2), "{}", off.stderr);
}

#[test]
fn a_template_where_nothing_is_put_into_one() {
    let folder = tempfile::tempdir().unwrap();
    let (story, template) = (folder.path().join("story"), folder.path().join("t.jinja"));
    fs::write(&template, "{{ messages[0].content }}").unwrap();
    ogive(args!["run", "-m", "ogive:demo", "-n", "2", "--raw", "--save", story, "Once upon a time"]).text();
    let load = |more: Vec<OsString>| {
        let fixed = args!["run", "-m", "ogive:demo", "-n", "2", "--load", story];
        ogive(fixed.into_iter().chain(more))
    };
    for (option, more) in [
        ("--system", args!["--system", "x"]),
        ("--chat-template", args!["--chat-template", template]),
        ("--special", args!["--special"]),
    ] {
        let ran = load(more);
        let why = "is for a PROMPT, and without one the session goes on where it stopped: give a text";
        assert!(ran.error(2).starts_with(&format!("{option} {why}")), "{}", ran.stderr);
    }
    // Which is as it would be without it.
    load(args!["--raw"]).text();
    load(args!["--system", "x", "Lily"]).text();
    for option in [args!["--system", "x"], args!["--chat-template", template]] {
        let ran = ogive(args!["run", "-m", "ogive:demo", "-n", "2", ""].into_iter().chain(option));
        assert!(
            ran.error(2).contains("is for a PROMPT, and an empty one begins with BOS alone"),
            "{}",
            ran.stderr
        );
    }
}

#[test]
fn tokens_and_places_for_logits() {
    let Some(model) = model() else { return };
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("l.npy");
    for tokens in ["", "-1", "1,,2", "x", "4294967296"] {
        assert!(wrong!(2, "logits", "--model", model, "--tokens", tokens, "--out", out).contains("--tokens"));
    }
    let logits = |tokens: &str| wrong!(1, "logits", "--model", model, "--tokens", tokens, "--out", out);
    assert!(logits("1,512").contains("512"));
    assert!(logits(&vec!["1"; 513].join(",")).contains("--context"));
    assert!(!out.exists());
    let nowhere = folder.path().join("no").join("l.npy");
    assert!(wrong!(1, "logits", "--model", model, "--tokens", "1", "--out", nowhere).contains("l.npy"));
    assert!(
        wrong!(1, "logits", "--model", model, "--tokens", "1", "--out", folder.path()).contains("folder")
    );
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
}

#[test]
fn templates_and_messages() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        path
    };
    let good = write("good.json", r#"[{"role": "user", "content": "x"}]"#);
    let plain = write("plain.jinja", "{{ messages[0].content }}");
    assert_eq!(ogive(args!["template", "--model", plain, "--messages", good]).text(), "x");
    for (name, text) in
        [("a", r#"{"messages":"#), ("b", "3"), ("c", ""), ("d", "\u{0}"), ("e", &"[".repeat(100_000))]
    {
        let bad = write(name, text);
        assert!(wrong!(1, "template", "--model", plain, "--messages", bad).contains("reading messages from"));
    }
    wrong!(1, "template", "--model", plain, "--messages", folder.path().join("missing.json"));
    wrong!(1, "template", "--model", folder.path().join("missing.jinja"), "--messages", good);
    wrong!(2, "template", "--model", plain, "--messages", good, "--now", "yesterday");
    for (name, source, why) in [
        ("raise.jinja", "{{ raise_exception('not\nthis') }}", "not this"),
        ("syntax.jinja", "{% for %}", "does not compile"),
        (
            "loop.jinja",
            "{% for a in range(99999) %}{% for b in range(99999) %}{{ b }}{% endfor %}{% endfor %}",
            "stopped",
        ),
        ("deep.jinja", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "stopped"),
    ] {
        let message = wrong!(1, "template", "--model", write(name, source), "--messages", good);
        assert!(message.contains(why), "{message}");
    }
    let Some(model) = model() else { return };
    assert!(wrong!(1, "template", "--model", model, "--messages", good).contains("no chat template"));
    let raise = folder.path().join("raise.jinja");
    let ran = ogive(args!["run", "--model", model, "--chat-template", raise, "x"]);
    assert!(ran.error(1).contains("not this"), "{}", ran.stderr);
}

#[test]
fn a_prompt_of_a_megabyte_is_told_to_be_too_long() {
    let Some(model) = model() else { return };
    let prompt = "Once upon a time ".repeat(60_000);
    let ran = ogive_reads(args!["run", "--model", model, "-"], prompt.as_bytes());
    assert!(ran.error(1).contains("leaves no room in a context of 512"), "{}", ran.stderr);
    let ran = ogive_reads(args!["run", "--model", model, "-"], b"\xff");
    assert!(ran.error(1).contains("stdin"), "{}", ran.stderr);
}

#[test]
#[cfg(unix)]
fn a_session_replaces_no_device() {
    let Some(model) = model() else { return };
    let message = wrong!(1, "run", "--model", model, "--save", "/dev/null", "x");
    assert!(message.contains("/dev/null: this is no plain file"), "{message}");
}
