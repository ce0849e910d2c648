//! One model's contest: engines are started, the best of their settings found, and then measured in turns.

use crate::engines::{Engine, Start};
use crate::peer::Peer;
use crate::phase::{Phase, Sizes};
use crate::report::{Entry, Measured, Repetition};
use crate::{Result, file, report};
use ogive::cpu::ceilings::{Memory, Peaks};
use std::path::Path;

/// Bytes that each thread reads: more than caches hold, save for those of the largest servers.
const SHARE: usize = 1 << 29;
/// Tokens decoded to compare settings.
const PROBE: usize = 16;

/// An engine in the contest: its processes, and which of them is measured in which phase.
struct Team {
    peers: Vec<Peer>,
    /// In the order of [`Phase::ALL`]; `None` where the engine is not measured.
    best: Vec<Option<usize>>,
}

impl Team {
    fn start(engine: &Engine, model: &Path, how: &Start, sizes: &Sizes) -> Result<Self> {
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
        for phase in Phase::ALL {
            best.push(match engine.phases.contains(phase) && sizes.has(*phase) {
                true => Some(probe(&mut peers, *phase, sizes)?),
                false => None,
            });
        }
        // Those that are best in nothing only take memory.
        let mut place = vec![None; peers.len()];
        let mut kept = Vec::new();
        for (i, peer) in peers.into_iter().enumerate() {
            if best.contains(&Some(i)) {
                place[i] = Some(kept.len());
                kept.push(peer);
            }
        }
        let best = best.into_iter().map(|b| b.and_then(|i| place[i])).collect();
        Ok(Self { peers: kept, best })
    }
}

/// The fastest of several settings in a phase.
fn probe(peers: &mut [Peer], phase: Phase, sizes: &Sizes) -> Result<usize> {
    if peers.len() < 2 {
        return Ok(0);
    }
    let sizes = Sizes { decode: PROBE.min(sizes.decode), ..*sizes };
    let mut rates = vec![0.0_f64; peers.len()];
    // The first round pays for page faults. Reading the long prompt is long enough for once.
    let rounds = if phase == Phase::Depth { 1 } else { 3 };
    for round in 0..rounds {
        for (peer, best) in peers.iter_mut().zip(&mut rates) {
            let (rate, _) = peer.rate(phase, &sizes)?;
            if round > 0 || rounds == 1 {
                *best = best.max(rate);
            }
        }
    }
    for (peer, rate) in peers.iter().zip(&rates) {
        eprintln!("{}: {} {rate:.1} tokens/s", peer.about, sizes.name(phase));
    }
    let best = rates.iter().enumerate().max_by(|a, b| a.1.total_cmp(b.1));
    Ok(best.map_or(0, |b| b.0))
}

/// Measures `engines` on `model`.
pub(crate) fn measure(
    model: &Path,
    engines: &[&Engine],
    how: &Start,
    sizes: &Sizes,
    repetitions: usize,
) -> Result<Measured> {
    let name = model.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let nothing = Measured { model: name, work: file::work(model, how.cache)?, ..Measured::default() };
    if repetitions == 0 {
        return Ok(nothing);
    }
    let start = |e: &&Engine| Team::start(e, model, how, sizes);
    let mut teams = engines.iter().map(start).collect::<Result<Vec<_>>>()?;
    // An entry for each phase and engine that is measured in it: a row of the table.
    let mut entries = Vec::new();
    for (p, phase) in Phase::ALL.iter().enumerate() {
        for (e, team) in teams.iter().enumerate() {
            if let Some(peer) = team.best[p] {
                entries.push((Entry { phase: *phase, engine: team.peers[peer].about.clone() }, e, peer));
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
        // Phases stay in order, engines turn round.
        if i % 2 == 1 {
            order.sort_by_key(|&n| (entries[n].0.phase as usize, usize::MAX - n));
        }
        for &n in &order {
            let (entry, team, peer) = &entries[n];
            let (rate, first) = teams[*team].peers[*peer].rate(entry.phase, sizes)?;
            now.rates[n] = rate;
            if entry.phase == Phase::Decode {
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
