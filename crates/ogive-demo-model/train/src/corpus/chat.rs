//! Conversations: capitals, stories, who the model is, and what it does not know.
//!
//! A question that is beyond the model gets "I do not know": the questions of that kind are many and their answer is one, so it
//! is learned as what to say where nothing fits.

use super::grammar::{Scene, Words};
use super::story::{Stories, request};
use crate::rng::Rng;

/// A country as it stands in a sentence, and its capital.
pub(crate) type Country = (&'static str, &'static str);

pub(crate) fn countries() -> Vec<Country> {
    let lines = include_str!("../../../src/countries.txt").lines().filter(|l| !l.starts_with('#'));
    lines.filter_map(|l| l.split_once(": ")).collect()
}

/// Ways to ask; the first is the one that the score is taken with.
pub(crate) const QUESTIONS: [&str; 14] = [
    "What is the capital of {c}?",
    "What is the capital of {c}?",
    "What's the capital of {c}?",
    "what is the capital of {c}",
    "Which city is the capital of {c}?",
    "Tell me the capital of {c}.",
    "Do you know the capital of {c}?",
    "Can you tell me the capital of {c}?",
    "The capital of {c} is",
    "Name the capital of {c}.",
    "capital of {c}?",
    "Please tell me what the capital of {c} is.",
    "What city is the capital of {c}?",
    "I want to know the capital of {c}.",
];

/// Ways to go on asking.
const MORE: [&str; 5] = [
    "And of {c}?",
    "And what is the capital of {c}?",
    "And {c}?",
    "What about {c}?",
    "And the capital of {c}?",
];

/// What people say beside, with what is answered; each answer has a few wordings.
const TALK: [(&str, &str); 9] = [
    (
        "[Hello|Hi|Hello there|Hi there|hello|hi|Hey|Good morning|Good evening|Good day][|!|.|, how are you?]",
        "[Hello! I am glad to meet you. What can I do for you?|Hello! Shall I tell you a story?|Hello! You can ask me for a story or a capital.]",
    ),
    (
        "[Who are you?|What are you?|who are you|What is your name?|Tell me about yourself.|Are you a robot?|What are you called?|Introduce yourself.]",
        "I am a small model that lives inside Ogive. I tell short stories, and I know the capitals of a hundred countries.",
    ),
    (
        "[What can you do?|what can you do|How can you help me?|What do you know?|Can you help me?|Help]",
        "I can tell you a short story, and I know the capitals of a hundred countries. That is all, for I am very small.",
    ),
    (
        "[Thank you|Thanks|thanks|Thank you very much|Thank you so much|Thanks a lot|Great, thank you][|!|.]",
        "[You are welcome!|You are welcome! Shall I tell you a story?]",
    ),
    (
        "[Goodbye|Bye|bye|See you|Good night|See you later|Bye bye][|!|.]",
        "[Goodbye! Come back soon.|Goodbye! It was nice to talk to you.]",
    ),
    (
        "[How are you?|how are you|How do you do?|How are you today?|Are you well?]",
        "I am well, thank you. Shall I tell you a story?",
    ),
    (
        "[Who made you?|Where do you come from?|Where do you live?|Who built you?|Who trained you?]",
        "I was trained by a program that is part of Ogive, on texts that the same program wrote.",
    ),
    (
        "[That was nice|That was a nice story|I like it|Very good|Well done|Good story|Nice|Great|I liked that story|Wonderful][|!|.]",
        "[I am glad that you like it.|Thank you! I am glad that you like it.]",
    ),
    (
        "[How big are you?|How many parameters do you have?|How large are you?|Are you big?|Are you small?]",
        "I am very small: less than three million parameters, in a file of less than three megabytes.",
    ),
];

/// Questions beyond it.
const BEYOND: [&str; 24] = [
    "What is {n} [plus|times|minus] {n2}?",
    "Who [wrote|painted|invented|discovered] [the telephone|that book|the radio|the first computer|Hamlet|gravity|the Mona Lisa]?",
    "How do I [bake bread|fix my car|write a program|learn to cook|make coffee|cook rice]?",
    "When [did the war end|was the moon landing|was Rome built|does the train leave]?",
    "What is the [weather|news|time|date|price of gold] [today|now|like tomorrow]?",
    "Why is the sky blue?",
    "How [high|far|old|deep|heavy] is [the moon|the sun|the ocean|that mountain|the Earth|a whale]?",
    "Translate [hello|this|the word house] into [French|German|Latin|Spanish].",
    "Write [a poem|a song|a program|an email|a letter] [about love|for my boss|in Rust|for me].",
    "What is the meaning of [life|this word|love]?",
    "Who is the [president|king|queen|prime minister] of {c}?",
    "How many people live in {c}?",
    "What language do they speak in {c}?",
    "What is the [largest river|highest mountain|longest road|best food] [in {c}|in the world]?",
    "Do you like [music|football|me|cheese|cats]?",
    "What is [a quark|philosophy|an atom|the internet|jazz|a derivative|chemistry]?",
    "Which is better, [tea or coffee|cats or dogs|Rust or C]?",
    "Can you [sing|dance|drive|see me|do my homework|play chess]?",
    "How old are you?",
    "Solve [x + {n} = {n2}|this equation|my problem].",
    "What [should I wear|should I eat|did I say|do you think] [today|about it|now]?",
    "Is [water wet|the Earth round|Pluto a planet|time real]?",
    "Tell me [a joke|about history|about {c}|about dogs|something about physics|the news].",
    "Explain [how engines work|the theory of relativity|taxes|this code|photosynthesis].",
];

const UNKNOWN: &str =
    "I am sorry, I do not know that. I only know stories and the capitals of a hundred countries.";

const SYSTEM: [&str; 6] = [
    "You are a helpful assistant.",
    "You are a friendly storyteller.",
    "Answer briefly.",
    "You are a teacher. Answer the questions of a child.",
    "Be kind and short.",
    "You tell stories for children.",
];

/// One thing said, by whom it may be: `system`, `user`, `assistant`.
#[derive(Clone, Debug)]
pub(crate) struct Said {
    pub(crate) role: &'static str,
    pub(crate) text: String,
}

pub(crate) fn ask(question: &str, country: &str) -> String {
    question.replace("{c}", country)
}

pub(crate) fn answer((country, capital): Country) -> String {
    format!("The capital of {country} is {capital}.")
}

/// A country as people type it: mostly as it stands in a sentence.
fn spelling(country: &str, rng: &mut Rng) -> String {
    let bare = country.strip_prefix("the ").unwrap_or(country);
    match rng.below(20) {
        0..2 => bare.to_owned(),
        2 | 3 => bare.to_lowercase(),
        4 if country == "the United States" => "the USA".into(),
        4 if country == "the United Kingdom" => "the UK".into(),
        _ => country.to_owned(),
    }
}

/// A name that no country has, nor a child.
pub(super) fn invented(rng: &mut Rng) -> String {
    let mut name = String::new();
    for i in 0..rng.below(2) + 2 {
        let consonant = *rng
            .pick(&["b", "d", "f", "g", "k", "l", "m", "n", "p", "r", "s", "t", "v", "z", "dr", "gl", "br"]);
        let vowel = *rng.pick(&["a", "e", "i", "o", "u"]);
        name.push_str(&if i == 0 { super::grammar::capitalized(consonant) } else { consonant.to_owned() });
        name.push_str(vowel);
    }
    name + *rng.pick::<&str>(&["", "nia", "land", "stan", "r", "n", "via", "lia"])
}

/// One exchange.
fn exchange(
    stories: &Stories,
    all: &[Country],
    first: bool,
    with_stories: bool,
    rng: &mut Rng,
) -> (String, String) {
    let words: &Words = &stories.words;
    let country = *rng.pick(all);
    match rng.below(100) {
        // After another question a short one is enough.
        0..58 => {
            let question = if !first && rng.chance(30) {
                *rng.pick::<&str>(&MORE)
            } else {
                *rng.pick::<&str>(&QUESTIONS)
            };
            (ask(question, &spelling(country.0, rng)), answer(country))
        }
        58..64 => (
            [
                format!("Which country has the capital {}?", country.1),
                format!("{} is the capital of which country?", country.1),
            ][rng.below(2)]
            .clone(),
            format!("{} is the capital of {}.", country.1, country.0),
        ),
        64..69 => {
            let known = words.list("stranger");
            let name = if rng.chance(50) { invented(rng) } else { rng.pick::<&str>(known).to_string() };
            (
                ask(rng.pick::<&str>(&QUESTIONS), &name),
                format!("I am sorry, I do not know the capital of {name}."),
            )
        }
        69..78 => {
            let mut scene = Scene::new(words);
            scene.set("n", (rng.below(90) + 2).to_string());
            scene.set("n2", (rng.below(90) + 2).to_string());
            scene.set("c", country.0);
            (scene.tell(rng.pick::<&str>(&BEYOND), rng), UNKNOWN.into())
        }
        78..90 if with_stories => {
            let story = stories.tell(rng);
            (request(&story, rng), story.text)
        }
        _ => {
            let (question, answer) = rng.pick(&TALK);
            let mut scene = Scene::new(words);
            (scene.tell(question, rng), scene.tell(answer, rng))
        }
    }
}

/// A conversation of some turns; the first may ask for a story.
pub(crate) fn conversation(stories: &Stories, all: &[Country], story: bool, rng: &mut Rng) -> Vec<Said> {
    let mut said = Vec::new();
    if rng.chance(12) {
        said.push(Said { role: "system", text: (*rng.pick(&SYSTEM)).into() });
    }
    let turns = if story { rng.below(3) + 1 } else { rng.below(6) + 1 };
    // Of a conversation about stories the first or the second turn is one.
    let at = if story { rng.below(turns.min(2)) } else { turns };
    for turn in 0..turns {
        let (question, answer) = if turn == at {
            let story = stories.tell(rng);
            (request(&story, rng), story.text)
        } else {
            exchange(stories, all, turn == 0, !story && turn == turns - 1 && turns < 3, rng)
        };
        said.push(Said { role: "user", text: question });
        said.push(Said { role: "assistant", text: answer });
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_countries_and_no_name_twice() {
        let all = countries();
        let names: std::collections::HashSet<_> = all.iter().map(|c| c.0).collect();
        assert_eq!((all.len(), names.len()), (100, 100));
    }

    #[test]
    fn conversations_alternate_and_hold_no_grammar() {
        let (stories, all) = (Stories::new(), countries());
        for i in 0..3000 {
            let said = conversation(&stories, &all, i % 3 == 0, &mut Rng::of(5, 1, i));
            let turns: Vec<&Said> = said.iter().filter(|s| s.role != "system").collect();
            assert!(turns.len().is_multiple_of(2) && turns.iter().step_by(2).all(|s| s.role == "user"));
            assert!(
                said.iter().all(|s| !s.text.is_empty() && !s.text.contains(['[', '{', '|', '}'])),
                "{said:?}"
            );
        }
    }
}
