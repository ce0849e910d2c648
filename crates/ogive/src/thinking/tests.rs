//! By marks of our own: every way of cutting an answer, and stop strings that hold it back.

use super::*;
use crate::stop::StopFilter;

fn cut(prompt: &str, shown: bool) -> impl Fn(bool) -> Cut {
    move |tags| {
        let kind = if tags { &TAGS[..] } else { &CHANNELS };
        let marks = (1..).zip(kind).map(|(id, &(mark, spelling))| Token { id, mark, spelling, shown });
        let (state, ahead, said) = (State::after(prompt, tags), VecDeque::new(), Parts::default());
        Cut { marks: marks.collect(), ahead, state, said }
    }
}

/// Text as tokens: marks, each with its id, and what is between them.
fn tokens<'t>(cut: &Cut, mut text: &'t str) -> Vec<(u32, &'t str)> {
    let mut tokens = Vec::new();
    while !text.is_empty() {
        let found = cut.marks.iter().filter_map(|m| Some((text.find(m.spelling)?, m)));
        let (at, id, len) = found
            .min_by_key(|(at, _)| *at)
            .map_or((text.len(), 0, 0), |(at, m)| (at, m.id, m.spelling.len()));
        let (before, rest) = text.split_at(at);
        let (mark, rest) = rest.split_at(len);
        tokens.extend([(0, before), (id, mark)].into_iter().filter(|(_, t)| !t.is_empty()));
        text = rest;
    }
    tokens
}

/// Thoughts, the answer and the text that shows, in the end.
fn told(mut cut: Cut, tokens: &[(u32, &str)], stops: &[&str]) -> [String; 3] {
    let mut stop = StopFilter::new(&stops.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
    let (mut all, mut shows) = (Parts::default(), String::new());
    let mut give = |cut: &mut Cut, text: &str, last| {
        shows += text;
        all.push(&cut.give(text, last));
    };
    for (id, text) in tokens {
        let shown = *id == 0 || cut.marks[0].shown;
        let said = if shown { *text } else { "" };
        cut.hear(*id, said, || None);
        let piece = stop.push(said);
        give(&mut cut, &piece, stop.stopped());
        if stop.stopped() {
            break;
        }
    }
    give(&mut cut, &stop.finish(), true);
    assert_eq!(cut.said, all);
    [all.thinking, all.answer, shows]
}

/// By every way of cutting what is between the marks, and with stop strings that hold it back.
fn check(tags: bool, prompt: &str, text: &str, thinking: &str, answer: &str) {
    for (shown, stops) in [
        (true, &[][..]),
        (false, &[]),
        (true, &["</think>!", "<|message|>!", "\n\n\n\n", "think>!"]),
        (false, &["Über 2\n\nund 2.\n\n\n4!", "é.\nassistantfinal\n4!", "ab!", "\n\n\n\n5"]),
    ] {
        let cut = cut(prompt, shown);
        let whole = tokens(&cut(tags), text);
        let shows: String = whole.iter().filter(|(id, _)| shown || *id == 0).map(|(_, t)| *t).collect();
        let want = [thinking.to_owned(), answer.to_owned(), shows];
        assert_eq!(told(cut(tags), &whole, stops), want, "{text:?} {stops:?}");
        for at in (1..text.len()).filter(|at| text.is_char_boundary(*at)) {
            let (mut start, mut two) = (0, Vec::new());
            for &(id, token) in &whole {
                let inner = at.checked_sub(start).filter(|n| id == 0 && *n < token.len()).unwrap_or(0);
                let (a, b) = token.split_at(inner);
                two.extend([(id, a), (id, b)].into_iter().filter(|(_, t)| !t.is_empty()));
                start += token.len();
            }
            assert_eq!(told(cut(tags), &two, stops), want, "{text:?} at {at}, {stops:?}");
        }
        let letters = whole.iter().flat_map(|&(id, token)| {
            let n = if id == 0 { token.chars().count() } else { 1 };
            let ends = (0..=n).map(move |i| {
                if i == n { token.len() } else { token.char_indices().nth(i).map_or(0, |(at, _)| at) }
            });
            ends.clone().zip(ends.skip(1)).map(move |(a, b)| (id, &token[a..b]))
        });
        assert_eq!(told(cut(tags), &letters.collect::<Vec<_>>(), stops), want, "{text:?} by letters");
    }
}

#[test]
fn tags_part_a_thought_from_the_answer() {
    let check = |prompt, text, thinking, answer| check(true, prompt, text, thinking, answer);
    check("", "<think>\nÜber 2\n\nund 2.\n</think>\n\n4.\n", "Über 2\n\nund 2.", "4.\n");
    check("", " \n<think>a</think>b", "a", "b");
    check("", "<think>\n\n</think>\n\n4", "", "4");
    check("", "<think>\nIt is\n", "It is", "");
    check("", "<think>", "", "");
    // None, and what is said about them.
    check("", "\n\n 4 ", "", "\n\n 4 ");
    check("", "  \n", "", "  \n");
    check("", "", "", "");
    check("Q: <think>\n", "\na</think>b", "a", "b");
    check("Q: <think>\n", "<think>\na\n</think>\nb", "a", "b");
    check("Q: <think>\n\n</think>\n\n", "\nb\n", "", "b\n");
    check("Q: <think> A:", "b", "", "b");
}

#[test]
fn tags_are_spoken_of_elsewhere() {
    let said = |prompt, text| {
        let cut = cut(prompt, true)(true);
        told(cut.clone(), &tokens(&cut, text), &[])
    };
    let text = "Use <think> and </think>.";
    assert_eq!(said("", text), ["", text, text]);
    assert_eq!(said("", "</think>."), ["", "</think>.", "</think>."]);
    let text = "<think>a <think> b</think>c <think>d</think>";
    assert_eq!(said("", text), ["a <think> b", "c <think>d</think>", text]);
    // Letters are no mark.
    let letters = told(cut("", true)(true), &[(0, "<think>"), (0, "a</think>")], &[]);
    assert_eq!(letters, ["", "<think>a</think>", "<think>a</think>"]);
}

#[test]
fn channels_part_thoughts_from_the_answer() {
    let check = |prompt, text, thinking, answer| check(false, prompt, text, thinking, answer);
    let prompt = "<|start|>user<|message|>2+2?<|end|><|start|>assistant";
    let two =
        "<|channel|>analysis<|message|>\nHm, é.\n<|end|><|start|>assistant<|channel|>final<|message|>\n4.\n";
    check(prompt, two, "\nHm, é.\n", "\n4.\n");
    // Several of each, and a header that has more.
    check(
        prompt,
        "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary<|message|>b<|end|>\
         <|start|>assistant<|channel|>analysis<|message|>c<|end|>\
         <|start|>assistant to=functions.f<|channel|>commentary json<|message|>{}",
        "a\n\nc",
        "b\n\n{}",
    );
    check(prompt, "<|message|>b", "", "b");
    check(prompt, "<|channel|>anal", "", "");
    check(prompt, "<|channel|>analysis<|message|>a<|end|><|start|>assis", "a", "");
    // Without a header, and where the prompt began more of it.
    check("", "b", "", "b");
    check(prompt, "4.", "", "4.");
    check("<|start|>assistant<|channel|>anal", "ysis<|message|>a", "a", "");
    check("<|start|>assistant<|channel|>analysis<|message|>", "a<|end|>b", "a", "b");
    check("<|start|>assistant<|channel|>final<|message|>", "b", "", "b");
    check("<|start|>assistant<|message|>", "b", "", "b");
    check("<|start|>user<|message|>2+2?<|end|>", "b", "", "b");
    let letters = told(cut(prompt, false)(false), &[(2, ""), (0, "final"), (3, ""), (0, "<|end|>a")], &[]);
    assert_eq!(letters, ["", "<|end|>a", "final<|end|>a"]);
}

#[test]
fn a_stop_string_ends_either_part() {
    let cut = |tags| cut("", true)(tags);
    let text = tokens(&cut(true), "<think>\na b\nc</think>\n\nd e").into_iter().collect::<Vec<_>>();
    assert_eq!(told(cut(true), &text, &["b"]), ["a ", "", "<think>\na "]);
    assert_eq!(told(cut(true), &text, &["e"])[..2], ["a b\nc", "d "]);
    assert_eq!(told(cut(true), &text, &["c</think>"])[..2], ["a b", ""]);
    assert_eq!(told(cut(true), &text, &["think>\n\n"]), ["a b\nc", "", "<think>\na b\nc</"]);
}
