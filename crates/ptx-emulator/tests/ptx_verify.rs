//! Texts that must be accepted and mistakes that must be named.
//!
//! The cases are data (`ptx/refused.txt`) so that the same file can be given to `ptxas`, which refuses every one of them but the
//! read past a parameter.

use ptx_emulator::ptx::{parse, verify};

#[derive(Debug)]
struct Case<'a> {
    message: &'a str,
    target: &'a str,
    version: &'a str,
    module: String,
    body: String,
}

fn cases(text: &str) -> Vec<Case<'_>> {
    let mut cases: Vec<Case<'_>> = Vec::new();
    for line in text.lines().skip(1) {
        if let Some(head) = line.strip_prefix("# ") {
            let (message, target, version) = match head.strip_suffix(']').and_then(|h| h.rsplit_once(" [")) {
                Some((message, wanted)) => {
                    let (target, version) = wanted.split_once(' ').expect("[target version]");
                    (message, target, version)
                }
                None => (head, "80", "8.0"),
            };
            cases.push(Case { message, target, version, module: String::new(), body: String::new() });
        } else if let Some(case) = cases.last_mut() {
            match line.strip_prefix('|') {
                Some(line) => case.module += &format!("{line}\n"),
                None => case.body += &format!("{line}\n"),
            }
        }
    }
    cases
}

const REGISTERS: &str =
    ".reg .pred %p<9>; .reg .b16 %h<9>; .reg .b32 %r<9>; .reg .b64 %d<9>; .reg .f32 %f<9>; .reg .f64 %g<9>;";

#[test]
fn mistakes_are_named() {
    let cases = cases(include_str!("ptx/refused.txt"));
    assert!(cases.len() >= 50);
    for case in cases {
        let Case { target, version, module, body, .. } = &case;
        let text = format!(
            ".version {version}\n.target sm_{target}\n.address_size 64\n{module}.visible .entry k()\n{{\n{REGISTERS}\n{body}ret;\n}}\n"
        );
        let parsed = parse(&text).unwrap_or_else(|error| panic!("{case:?}: {error}"));
        let errors = verify(&parsed).expect_err(case.message);
        let first = errors.first().expect("a mistake").to_string();
        assert!(first.contains(case.message), "expected {:?}, got {first}", case.message);
    }
}

#[test]
fn whole_grammar_is_accepted() {
    let module = parse(include_str!("ptx/accepted.ptx")).unwrap_or_else(|error| panic!("{error}"));
    if let Err(errors) = verify(&module) {
        panic!("{}", errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"));
    }
}
