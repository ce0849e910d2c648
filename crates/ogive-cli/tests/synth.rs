//! `ogive synth`, and a model it made, used as any other.

mod common;

use common::ogive;

#[test]
fn a_made_model_runs_and_cuts_text() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("tiny.gguf");
    let made = ogive(args!["synth", "--shape", "tiny", "--format", "q4_k_m", &out]);
    assert_eq!(made.text(), "");
    assert!(made.stderr.contains("tiny.gguf") && made.stderr.contains("MB/s"), "{}", made.stderr);
    assert!(std::fs::metadata(&out).unwrap().len() < 1_000_000);

    let run =
        ogive(args!["run", "--model", &out, "--raw", "--temp", "0", "-n", "16", "--json", "-q", "The water"]);
    let got = run.json();
    // BOS first.
    assert_eq!(got["prompt_ids"][0], 508);
    let ids = got["ids"].as_array().unwrap();
    assert!(ids.iter().any(|id| *id != ids[0]), "{ids:?}");

    let again = folder.path().join("again.gguf");
    let quiet = ogive(args!["synth", "--shape", "TINY", "--format", "Q4_K_M", "--seed", "1", "-q", &again]);
    assert_eq!((quiet.text(), &*quiet.stderr), (String::new(), ""));
    assert!(std::fs::read(&out).unwrap() == std::fs::read(&again).unwrap());
}

#[test]
fn what_is_there_is_not_replaced_unless_told_so() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.gguf");
    std::fs::write(&out, b"precious").unwrap();
    let how = args!["synth", "--shape", "tiny", "--format", "q8_0", &out];
    let refused = ogive(&how);
    let why = "x.gguf: there is something of this name already; choose another, or overwrite it with --force";
    assert!(refused.error(1).ends_with(why), "{}", refused.stderr);
    assert_eq!(std::fs::read(&out).unwrap(), b"precious");
    ogive(how.into_iter().chain(args!["--force"])).text();
    assert!(std::fs::read(&out).unwrap().starts_with(b"GGUF"));
}

#[test]
#[cfg(unix)]
fn a_name_steers_no_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("\u{1b}[2Jx.gguf");
    let made = ogive(args!["synth", "--shape", "tiny", "--format", "q8_0", &out]);
    assert!(made.text().is_empty() && made.stderr.contains(" [2Jx.gguf: "), "{:?}", made.stderr);
    let listed = ogive(args!["devices", "--model", &out]).text();
    assert!(listed.contains(" [2Jx.gguf: ") && !listed.contains('\u{1b}'), "{listed:?}");
    let run = ogive(args!["run", "--model", &out, "--raw", "-n", "1", "The"]);
    assert!(run.code == Some(0) && !run.stderr.contains('\u{1b}'), "{:?}", run.stderr);
}

#[test]
fn mistakes_are_told() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("x.gguf");
    let wrong = ogive(args!["synth", "--shape", "llama-9", "--format", "q8_0", &out]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("llama-9") && wrong.stderr.contains("llama-3.2-1b"), "{}", wrong.stderr);
    let wrong = ogive(args!["synth", "--shape", "tiny", "--format", "q9", &out]);
    assert_eq!(wrong.code, Some(2));
    assert!(wrong.stderr.contains("q4_k_m"), "{}", wrong.stderr);
    let wrong = ogive(args!["synth", "--shape", "tiny", "--format", "f16", folder.path().join("no/x.gguf")]);
    assert_eq!(wrong.code, Some(1));
    assert!(wrong.stderr.contains("no/x.gguf"), "{}", wrong.stderr);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
