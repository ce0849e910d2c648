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
            let (rate, _) = peer.rate(row.phase, &sizes)?;
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
    // An entry for each row and engine that is measured in it: a line of the table.
    let mut entries = Vec::new();
    for (r, row) in rows.iter().enumerate() {
        for (t, team) in teams.iter().enumerate() {
            if let Some((_, peer)) = team.best.iter().find(|b| b.0 == *row) {
                entries.push((
                    Entry { row: *row, engine: team.peers[*peer].about.clone(), rounds: team.rounds },
                    r,
                    t,
                    *peer,
                ));
            }
        }
    }
    let memory = Memory::new(how.threads, SHARE);
    let mut all = Vec::new();
    for i in 0..=repetitions {
        let mut now = Repetition {
            bandwidth: memory.read_rate(),
            peaks: Peaks::measure(how.threads),
            rates: vec![0.0; entries.len()],
            ..Repetition::default()
        };
        let mut order: Vec<usize> = (0..entries.len()).collect();
        // Rows stay in order, engines turn round.
        if i % 2 == 1 {
            order.sort_by_key(|&n| (entries[n].1, usize::MAX - n));
        }
        for &n in &order {
            let (Entry { row, .. }, _, team, peer) = &entries[n];
            let (rate, first) = teams[*team].peers[*peer].rate(row.phase, &row.sizes)?;
            now.rates[n] = rate;
            // Another cache may draw another token.
            if row.phase == Phase::Decode && row.cache == asked.cache() {
                now.first.push(first);
            }
        }
        now.load = report::load();
        eprintln!("{} {i}/{repetitions}: {now:.1?}", model.display());
        // The first pays for page faults and packing at first use.
        if i > 0 {
            all.push(now);
        }
    }
    Ok(Measured { entries: entries.into_iter().map(|e| e.0).collect(), repetitions: all, ..nothing })
}
