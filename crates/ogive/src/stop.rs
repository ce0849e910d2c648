//! Stop strings: text that ends an answer and is not part of it, wherever the borders between tokens fall.

/// Passes text on until a stop string has come, holding back what may yet become one.
#[derive(Clone, Debug, Default)]
pub(crate) struct StopFilter {
    stops: Vec<String>,
    held: String,
    /// Bytes of what is held that were given away before: they may be the beginning of a stop string, and come no second time.
    given: usize,
    stopped: bool,
}

impl StopFilter {
    pub(crate) fn new(stops: &[String]) -> Self {
        Self { stops: stops.iter().filter(|s| !s.is_empty()).cloned().collect(), ..Self::default() }
    }

    /// The same with text that another held back, behind some that it gave away in the end.
    pub(crate) fn holding(self, held: String, given: &str) -> Self {
        Self { held: format!("{given}{held}"), given: given.len(), ..self }
    }

    /// Gives this much of what is held, less what was given before.
    fn give(&mut self, len: usize) -> String {
        let rest = self.held.split_off(len);
        let text = std::mem::replace(&mut self.held, rest);
        let before = self.given.min(len);
        self.given -= before;
        text[before..].to_owned()
    }

    /// Whether a stop string has come.
    pub(crate) fn stopped(&self) -> bool {
        self.stopped
    }

    /// Takes more text; gives what can no longer be part of a stop string.
    pub(crate) fn push(&mut self, text: &str) -> String {
        if self.stopped {
            return String::new();
        }
        self.held.push_str(text);
        // One that was given away as a whole ends nothing now.
        let find = |s: &String| {
            let from = (self.given + 1).saturating_sub(s.len());
            let from = (from..=self.held.len()).find(|at| self.held.is_char_boundary(*at))?;
            self.held[from..].find(s.as_str()).map(|at| from + at)
        };
        if let Some(at) = self.stops.iter().filter_map(find).min() {
            self.stopped = true;
            let text = self.give(at);
            self.held.clear();
            self.given = 0;
            return text;
        }
        let keep = self.stops.iter().map(|s| overlap(&self.held, s)).max().unwrap_or(0);
        self.give(self.held.len() - keep)
    }

    /// What may be the beginning of a stop string: what of it was given away before, and what is held back.
    pub(crate) fn held(&self) -> [&str; 2] {
        let (given, held) = self.held.split_at(self.given);
        [given, held]
    }

    /// What was held back, when no more text will come.
    pub(crate) fn finish(&mut self) -> String {
        self.give(self.held.len())
    }
}

/// Bytes of the longest end of `text` that `stop` begins with, the whole of `stop` excepted.
pub(crate) fn overlap(text: &str, stop: &str) -> usize {
    let most = text.len().min(stop.len() - 1);
    (1..=most).rev().find(|&n| stop.is_char_boundary(n) && text.ends_with(&stop[..n])).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(stops: &[&str], pieces: &[&str]) -> (String, bool) {
        let mut f = StopFilter::new(&stops.iter().map(|s| (*s).to_owned()).collect::<Vec<_>>());
        let mut out: String = pieces.iter().map(|p| f.push(p)).collect();
        let stopped = f.stopped();
        out += &f.finish();
        (out, stopped)
    }

    #[test]
    fn a_stop_string_ends_the_text_however_it_is_cut() {
        let text = "héllo END wörld";
        for cut in (0..text.len()).filter(|c| text.is_char_boundary(*c)) {
            let (a, b) = text.split_at(cut);
            assert_eq!(run(&["END", "zzz"], &[a, b]), ("héllo ".into(), true), "{cut}");
        }
        let letters: Vec<String> = text.chars().map(String::from).collect();
        assert_eq!(run(&["wörld!", "END"], &letters.iter().map(|s| &**s).collect::<Vec<_>>()).0, "héllo ");
    }

    #[test]
    fn what_was_given_away_may_begin_a_stop_string() {
        let on = |given: &str, held: &str, pieces: &[&str]| {
            let mut f = StopFilter::new(&["END".to_owned()]).holding(held.to_owned(), given);
            let mut out: String = pieces.iter().map(|p| f.push(p)).collect();
            let stopped = f.stopped();
            out += &f.finish();
            (out, stopped)
        };
        assert_eq!(on("EN", "", &["D of it"]), (String::new(), true));
        assert_eq!(on("EN", "", &["emy ", "END"]), ("emy ".into(), true));
        assert_eq!(on("E", "N", &["emy"]), ("Nemy".into(), false));
        assert_eq!(on("é", "", &[]), (String::new(), false));
        assert_eq!(on("aEND", "", &["b"]), ("b".into(), false));
        assert_eq!(on("ENEN", "", &["D"]), (String::new(), true));
        assert_eq!(on("", "EN", &["", "d"]), ("ENd".into(), false));
        let mut f = StopFilter::new(&["END".to_owned()]).holding(String::new(), "E");
        assert_eq!((f.push("N"), f.held()), (String::new(), ["E", "N"]), "as it is for who goes on");
    }

    #[test]
    fn of_a_stop_string_that_came_nothing_is_held() {
        let mut f = StopFilter::new(&["END".to_owned()]).holding(String::new(), "EN");
        assert_eq!((f.push("D"), f.stopped(), f.held()), (String::new(), true, ["", ""]));
    }

    #[test]
    fn what_was_held_back_comes_in_the_end() {
        assert_eq!(run(&["END"], &["the E", "N"]), ("the EN".into(), false));
        assert_eq!(run(&[""], &["any"]), ("any".into(), false));
        assert_eq!(run(&["aab"], &["aa", "ab"]), ("a".into(), true));
        assert_eq!(run(&["bc", "abcd"], &["xabc"]), ("xa".into(), true), "the one that is complete first");
    }
}
