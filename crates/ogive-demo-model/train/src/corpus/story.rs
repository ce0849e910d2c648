//! Short stories for small children: somebody, a want or a trouble, what came of it, and what it teaches.
//!
//! Who is in a story is decided before it begins, so names and pronouns agree to its end; how it goes is one of the plots of
//! `plots.txt`, in one of many wordings.

use super::grammar::{Scene, Words, capitalized};
use crate::rng::Rng;

/// Openings; the plot follows.
const OPENINGS: [&str; 12] = [
    "Once upon a time, there was {size} {kind} named {name}. {He} [loved|liked] to {hobby}.",
    "Once upon a time, there was {size} {kind} named {name}. {name} was {a:good} {kind} and lived in {home} with {his} {parent}.",
    "Once upon a time, in {home}, there lived {size} {kind}. {His} name was {name}.",
    "Once upon a time, {size} {kind} named {name} lived with {his} {parent} in {home}.",
    "Once upon a time, there lived {a:good} {kind} named {name}. Every {time}, {he} liked to {hobby}.",
    "There was once {size} {kind} who loved to {hobby}. {His} name was {name}.",
    "{name} was {size} {kind}. {He} lived in {home} and liked to {hobby}.",
    "Long ago, in {home}, there was {size} {kind} called {name}.",
    "{name} was {a:good} {kind} who lived near the {place}. {His} best friend was {friend}.",
    "In {home} lived {a:good} {kind} named {name}. {He} loved to {hobby} with {his} friend {friend}.",
    "This is the story of {name}, {size} {kind} who liked to {hobby}.",
    "A long time ago, {size} {kind} named {name} lived near the {place}.",
];

/// Slots whose words are to be remembered.
const REPEATED: [&str; 9] =
    ["name", "friend", "parent", "thing", "food", "animal", "tree", "craft", "treasure"];

/// A story and what it can be asked for by.
#[derive(Clone, Debug)]
pub(crate) struct Story {
    pub(crate) text: String,
    /// As in "a girl", "a rabbit".
    pub(crate) kind: String,
    pub(crate) name: String,
    /// A word that occurs in it besides, as in "a kite".
    pub(crate) about: Option<String>,
    /// Names and things that stay the same throughout.
    pub(crate) repeated: Vec<String>,
}

/// All plots.
#[derive(Debug)]
pub(crate) struct Stories {
    pub(crate) words: Words,
    plots: Vec<Vec<&'static str>>,
}

impl Stories {
    pub(crate) fn new() -> Self {
        let lines = include_str!("plots.txt").lines().filter(|l| !l.starts_with('#')).collect::<Vec<_>>();
        let plots = lines.split(|l| l.is_empty()).filter(|p| !p.is_empty()).map(<[_]>::to_vec).collect();
        Self { words: Words::new(), plots }
    }

    pub(crate) fn tell(&self, rng: &mut Rng) -> Story {
        let mut scene = Scene::new(&self.words);
        let kind = cast(&mut scene, rng);
        let plot = rng.pick(&self.plots);
        let mut text = scene.tell(rng.pick::<&str>(&OPENINGS), rng);
        // A few stories have their turning points in paragraphs of their own.
        let paragraphs = rng.chance(25);
        let (moral, parts) = plot.split_last().expect("a plot has parts");
        for (i, part) in parts.iter().enumerate() {
            text.push_str(if paragraphs && (i == 0 || i == parts.len() / 2) { "\n" } else { " " });
            let told = scene.tell(part, rng);
            text.push_str(&told);
        }
        if rng.chance(80) {
            text.push(' ');
            let told = scene.tell(moral, rng);
            text.push_str(&told);
        }
        text = articles(&text);
        let about = ["thing", "food", "animal", "place"].iter().find_map(|slot| {
            let word = scene.get(slot, rng);
            text.contains(&word).then_some(word)
        });
        let name = scene.get("name", rng);
        let repeated = REPEATED.iter().filter_map(|slot| scene.known(slot)).collect();
        Story { text, kind, name, about, repeated }
    }
}

/// "an" before a vowel where the plots say "a".
fn articles(text: &str) -> String {
    let mut out = text.to_owned();
    for vowel in ["a", "e", "i", "o", "u"] {
        out = out.replace(&format!(" a {vowel}"), &format!(" an {vowel}"));
    }
    out
}

/// Decides who is in the story; gives what kind of being the hero is.
fn cast(scene: &mut Scene<'_>, rng: &mut Rng) -> String {
    let female = rng.chance(50);
    let kind = match rng.below(10) {
        0..7 => if female { "girl" } else { "boy" }.to_owned(),
        _ => scene.get("hero", rng),
    };
    let size = scene.get("size", rng);
    let home = scene.get("home", rng);
    let place = scene.get("place", rng);
    let at = match &*place {
        "beach" | "farm" | "lake" | "river" => "at",
        "hill" => "on",
        _ => "in",
    };
    scene.set("atplace", format!("{at} the {place}"));
    // Those who live in a village live in that one.
    if scene.is_word("town", &home) {
        scene.set("town", &*home);
    }
    scene.set("size", format!("a {size}"));
    scene.set("home", format!("a {}{home}", ["", "small ", "quiet ", "little "][rng.below(4)]));
    let animal = kind != "girl" && kind != "boy";
    let name = scene.get(if animal { "pet" } else { &kind }, rng);
    // Some have names that nobody else has, so that a name is copied and not remembered.
    let name = if rng.chance(12) { super::chat::invented(rng) } else { name };
    scene.set("name", name.clone());
    scene.set("kind", &*kind);
    pronouns(scene, "", female);
    let female = rng.chance(50);
    let list = if animal {
        "pet2"
    } else if female {
        "girl2"
    } else {
        "boy2"
    };
    let friend = scene.get(list, rng);
    debug_assert_ne!(friend, name);
    scene.set("friend", friend);
    pronouns(scene, "f", female);
    let female = rng.chance(50);
    let parent = match (female, rng.below(3)) {
        (true, 0) => "grandma",
        (true, _) => "mom",
        (false, 0) => "grandpa",
        (false, _) => "dad",
    };
    scene.set("parent", parent);
    pronouns(scene, "p", female);
    pronouns(scene, "j", rng.chance(50));
    kind
}

fn pronouns(scene: &mut Scene<'_>, who: &str, female: bool) {
    let [he, his, him] = if female { ["she", "her", "her"] } else { ["he", "his", "him"] };
    for (slot, word) in [("he", he), ("his", his), ("him", him)] {
        scene.set(&format!("{who}{slot}"), word);
    }
}

/// How a user asks for a story, and the story's own first words where the user gives them.
pub(crate) fn request(story: &Story, rng: &mut Rng) -> String {
    let article = if story.kind.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
    let mut about =
        vec![format!("{article} {}", story.kind), format!("{article} {} named {}", story.kind, story.name)];
    if let Some(word) = &story.about {
        let article = if word.starts_with(['a', 'e', 'i', 'o', 'u']) { "an" } else { "a" };
        about.push(format!("{article} {word}"));
    }
    let about = rng.pick(&about).clone();
    let name = &story.name;
    match rng.below(14) {
        0 | 1 => "Tell me a story.".into(),
        2 => "Please tell me a story.".into(),
        3 => "Can you tell me a story?".into(),
        4 => "Tell me a short story, please.".into(),
        5 => format!("Tell me a story about {about}."),
        6 => format!("Write a story about {about}."),
        7 => format!("Can you tell me a story about {about}?"),
        8 => format!("I would like a story about {name}."),
        9 => format!("{} a story about {about}", ["tell me", "write"][rng.below(2)]),
        10 => ["I want a bedtime story.", "Write a short story.", "A story, please!"][rng.below(3)].into(),
        // The user begins, and the answer is the story from its beginning.
        _ => {
            let words = rng.below(8) + 3;
            let start: Vec<&str> = story.text.split([' ', '\n']).take(words).collect();
            let start = start.join(" ");
            if story.text.starts_with("Once upon a time") && rng.chance(60) {
                ["Once upon a time", "Once upon a time,", "once upon a time"][rng.below(3)].into()
            } else if rng.chance(50) {
                capitalized(start.trim_end_matches([',', '.']))
            } else {
                start
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plot_is_whole_and_of_its_length() {
        let stories = Stories::new();
        assert!(stories.plots.len() >= 24);
        let mut seen = std::collections::HashSet::new();
        for i in 0..4000 {
            let story = stories.tell(&mut Rng::of(1, 0, i));
            let words = story.text.split_whitespace().count();
            assert!((50..=260).contains(&words), "{words}: {}", story.text);
            assert!(!story.text.contains(['[', ']', '{', '}', '|']), "{}", story.text);
            assert!(!story.text.contains("  ") && !story.text.contains(" ."), "{}", story.text);
            assert!(
                !story.text.contains(" a a")
                    && !story.text.contains(" the a ")
                    && !story.text.contains(" a an "),
                "{}",
                story.text
            );
            assert!(story.text.contains(&story.name) && story.text.is_ascii());
            assert!(seen.insert(story.text));
        }
    }
}
