//! One model's contest: engines are started, the best of their settings found, and then measured in turns.

use crate::engines::{Engine, Start};
use crate::peer::Peer;
use crate::phase::{Asked, Phase, Row, Sizes};
use crate::report::{Entry, Measured, Repetition};
use crate::{Result, file, report};
use ogive::cpu::ceilings::{Memory, Peaks};
use std::path::Path;

/// Bytes that each thread reads: more than caches hold, save for those of the largest servers.
const SHARE: usize = 1 << 29;
/// Tokens decoded to compare settings.
const PROBE: usize = 16;
/// Tokens that an engine decodes before it is the next one's turn.
const TURN: usize = 8;

/// An engine in the contest with one kind of cache: its processes, and which of them is measured in which row.
struct Team {
    peers: Vec<Peer>,
    /// Rows in which the engine is measured.
    best: Vec<(Row, usize)>,
    /// As the engine's.
    rounds: bool,
}

impl Team {
    fn start(engine: &Engine, model: &Path, how: &Start, rows: &[Row]) -> Result<Self> {
        let mut peers = Vec::new();
        for setting in engine.settings {
            match Peer::start(engine, model, &Start { setting: (*setting).to_owned(), ..how.clone() }) {
                Ok(peer) => peers.push(peer),
                Err(e) if engine.settings.len() > 1 => eprintln!("{}, {setting}: left out: {e}", engine.name),
                Err(e) => return Err(e),
            }
        }
        if peers.is_empty() {
            return Err(format!("{} starts with none of its settings", engine.name).into());
        }
        let mut best = Vec::new();
        for row in rows.iter().filter(|r| r.cache == how.cache && engine.phases.contains(&r.phase)) {
            best.push((*row, probe(&mut peers, row)?));
        }
        // Those that are best in nothing only take memory.
        let mut place = vec![None; peers.len()];
        let mut kept = Vec::new();
        for (i, peer) in peers.into_iter().enumerate() {
            if best.iter().any(|b| b.1 == i) {
                place[i] = Some(kept.len());
                kept.push(peer);
            }
        }
        let best = best.into_iter().filter_map(|(row, i)| Some((row, place[i]?))).collect();
        Ok(Self { peers: kept, best, rounds: engine.rounds })
    }
}

/// The fastest of several settings in a row.
fn probe(peers: &mut [Peer], row: &Row) -> Result<usize> {
    if peers.len() < 2 {
        return Ok(0);
    }
    let sizes = Sizes { decode: PROBE.min(row.sizes.decode), ..row.sizes };
    let mut rates = vec![0.0_f64; peers.len()];
    // The first round pays for page faults. Reading the long prompt is long enough for once.
    let rounds = if row.phase == Phase::Depth { 1 } else { 3 };
    for round in 0..rounds {
        for (peer, best) in peers.iter_mut().zip(&mut rates) {
            if row.phase.decodes() {
                peer.prefill(sizes.prompt(row.phase))?;
            }
            let rate = sizes.tokens(row.phase) as f64 / peer.seconds(row.phase, &sizes)?;
            if round > 0 || rounds == 1 {
                *best = best.max(rate);
            }
        }
    }
    for (peer, rate) in peers.iter().zip(&rates) {
        eprintln!("{}: {} {rate:.1} tokens/s", peer.about, row.name());
    }
    let best = rates.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    Ok(best.map_or(0, |b| b.0))
}

/// Measures `engines` on `model`.
pub(crate) fn measure(
    model: &Path,
    engines: &[&Engine],
    how: &Start,
    asked: &Asked,
    repetitions: usize,
) -> Result<Measured> {
    let name = model.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let nothing = Measured { model: name, work: file::work(model, &asked.caches)?, ..Measured::default() };
    if repetitions == 0 {
        return Ok(nothing);
    }
    let rows = asked.rows();
    let mut teams = Vec::new();
    for engine in engines {
        // With another cache an engine that keeps its own would be the same again.
        let caches = asked.caches.0.iter().take(if engine.caches { usize::MAX } else { 1 });
        for &cache in caches {
            teams.push(Team::start(engine, model, &Start { cache, ..how.clone() }, &rows)?);
        }
    }
    let mut lines = Vec::new();
    for row in rows {
        for (t, team) in teams.iter().enumerate() {
            if let Some((_, peer)) = team.best.iter().find(|b| b.0 == row) {
                let entry = Entry { row, engine: team.peers[*peer].about.clone(), rounds: team.rounds };
                lines.push(Line { entry, team: t, peer: *peer, span: Span::default() });
            }
        }
    }
    let mut contest = Contest { teams, lines, reads: Reads::new(how.threads) };
    let mut all = Vec::new();
    for i in 0..=repetitions {
        let now = contest.repetition(how.threads, asked, i % 2 == 1)?;
        eprintln!("{} {i}/{repetitions}: {now:.1?}", model.display());
        // The first pays for page faults and packing at first use.
        if i > 0 {
            all.push(now);
        }
    }
    let entries = contest.lines.into_iter().map(|line| line.entry).collect();
    Ok(Measured { entries, repetitions: all, ..nothing })
}

/// A line of the table: what is measured, which process does it, and how long it takes this time.
struct Line {
    entry: Entry,
    team: usize,
    peer: usize,
    span: Span,
}

/// Everything that measures a model.
struct Contest {
    teams: Vec<Team>,
    lines: Vec<Line>,
    reads: Reads,
}

impl Contest {
    /// Measures every line once, rows in order, and in each the engines in theirs or the other way round.
    fn repetition(&mut self, threads: usize, asked: &Asked, round: bool) -> Result<Repetition> {
        let mut now = Repetition { peaks: Peaks::measure(threads), ..Repetition::default() };
        for row in asked.rows() {
            let mut order: Vec<usize> =
                (0..self.lines.len()).filter(|&n| self.lines[n].entry.row == row).collect();
            if round {
                order.reverse();
            }
            for &n in &order {
                self.lines[n].span = Span::default();
                if row.phase.decodes() {
                    let (_, first) = self.peer(n).prefill(row.sizes.prompt(row.phase))?;
                    // Another cache may draw another token.
                    if row.phase == Phase::Decode && row.cache == asked.cache() {
                        now.first.push(first);
                    }
                }
            }
            self.reads.now();
            // Memory's rate may change in a second, so who decodes does it a few tokens at a time.
            let most = if row.phase.decodes() { TURN } else { usize::MAX };
            let mut left = row.sizes.decode;
            loop {
                let sizes = Sizes { decode: left.min(most), ..row.sizes };
                for &n in &order {
                    self.turn(n, &sizes)?;
                }
                order.reverse();
                left -= sizes.decode;
                if left == 0 {
                    break;
                }
            }
        }
        for Line { entry: Entry { row, .. }, span, .. } in &self.lines {
            now.rates.push(row.sizes.tokens(row.phase) as f64 / span.seconds);
            now.reads.push(span.reads());
        }
        now.bandwidth = std::mem::take(&mut self.reads.all);
        now.load = report::load();
        Ok(now)
    }

    fn peer(&mut self, line: usize) -> &mut Peer {
        let Line { team, peer, .. } = self.lines[line];
        &mut self.teams[team].peers[peer]
    }

    /// One engine's turn.
    fn turn(&mut self, line: usize, sizes: &Sizes) -> Result<()> {
        let phase = self.lines[line].entry.row.phase;
        let before = self.reads.last();
        let seconds = self.peer(line).seconds(phase, sizes)?;
        let after = self.reads.now();
        self.lines[line].span.add(seconds, (before + after) / 2.0);
        Ok(())
    }
}

/// What memory gives, in bytes a second, each time it was asked.
struct Reads {
    memory: Memory,
    all: Vec<f64>,
}

impl Reads {
    fn new(threads: usize) -> Self {
        Self { memory: Memory::new(threads, SHARE), all: Vec::new() }
    }

    /// What it gives now.
    fn now(&mut self) -> f64 {
        self.all.push(self.memory.read_rate());
        self.last()
    }

    /// What it gave last.
    fn last(&self) -> f64 {
        self.all.last().copied().unwrap_or_default()
    }
}

/// How long an engine was at something, in one turn or several, and the bytes that plain reads would have had meanwhile.
#[derive(Clone, Copy, Debug, Default)]
struct Span {
    seconds: f64,
    bytes: f64,
}

impl Span {
    /// A turn of so many seconds, while memory gave so many bytes a second.
    fn add(&mut self, seconds: f64, reads: f64) {
        self.seconds += seconds;
        self.bytes += seconds * reads;
    }

    /// Bytes a second that memory gave.
    fn reads(&self) -> f64 {
        self.bytes / self.seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_counts_for_as_long_as_it_gave_that_much() {
        let mut span = Span::default();
        span.add(3.0, 10.0);
        span.add(1.0, 50.0);
        assert_eq!((span.seconds, span.reads()), (4.0, 20.0));
    }
}
