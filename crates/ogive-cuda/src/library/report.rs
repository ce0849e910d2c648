//! What was found of CUDA, in words: for `ogive devices`, and for whoever asks why a GPU is not used.
//!
//! It opens every library that it finds, cuBLAS too, as a file may be there and lack another that it needs; it starts none but the driver
//! and takes no device. Whether a driver takes what a newer compiler makes shows only there, so such a compiler is named, and not refused.

use super::nvrtc::{Nvrtc, Wanted};
use super::search::{Kind, Places};
use super::{Cublas, advice, compilers, cublas_files, driver, left_out, unfit};
use crate::error::Error;
use std::fmt;
use std::path::PathBuf;

/// One library, as [`report`] has it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// Which: `CUDA driver`, `NVRTC`, `cuBLAS`.
    pub library: &'static str,
    /// Where it was found, with its version if it says one.
    pub found: Vec<(PathBuf, String)>,
    /// What is wrong, and what helps; empty if nothing is.
    pub missing: String,
    /// Files that are not taken, each with the reason. Where nothing was found, [`missing`](Self::missing) has them too.
    pub refused: Vec<String>,
}

/// What was found of CUDA, where, and what is missing in words that help. Prints as a line for each library.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Report {
    /// A finding for each library.
    pub libraries: Vec<Finding>,
}

/// Looks for every library and says what is there. Opens what it finds; fails on nothing.
#[must_use]
pub fn report() -> Report {
    let places = Places::here();
    let mut wanted = Vec::new();
    let mut of_driver = Finding::of(Kind::Driver);
    match driver() {
        Ok((driver, path)) => {
            of_driver.found.push((path, format!("CUDA {}.{}", driver.version.0, driver.version.1)));
            let infos =
                driver.devices().and_then(|n| (0..n).map(|i| driver.info(i)).collect::<Result<Vec<_>, _>>());
            match infos {
                Ok(all) if all.is_empty() => {
                    of_driver.missing = Error::NoDevice { asked: 0, found: 0 }.to_string();
                }
                Ok(all) => wanted
                    .extend(all.iter().map(|i| Wanted { driver: driver.version, capability: i.capability })),
                Err(e) => of_driver.missing = e.to_string(),
            }
        }
        Err(e) => {
            // All other messages say where the driver is, if it is there.
            if matches!(e, Error::NoDevice { .. }) {
                let opened = places.candidates(Kind::Driver).into_iter().find(|c| c.open().is_ok());
                of_driver.found.extend(opened.map(|c| (c.loaded_from(), String::new())));
            }
            of_driver.missing = why(e);
        }
    }
    wanted.dedup_by_key(|w| w.capability);
    Report { libraries: vec![of_driver, nvrtc(&places, &wanted), cublas(&places, wanted.first().copied())] }
}

/// An error without the library's name.
fn why(e: Error) -> String {
    match e {
        Error::Library { why, .. } => why,
        e => e.to_string(),
    }
}

fn nvrtc(places: &Places, wanted: &[Wanted]) -> Finding {
    let mut finding = Finding::of(Kind::Nvrtc);
    let mut all: Vec<Nvrtc> = Vec::new();
    for opened in compilers(places, places.candidates(Kind::Nvrtc)) {
        match opened {
            Ok(n) if all.iter().any(|other| other.version == n.version) => {}
            Ok(n) => all.push(n),
            Err(why) => finding.refused.push(why),
        }
    }
    finding.refused.extend(left_out(places, Kind::Nvrtc));
    finding.found =
        all.iter().map(|n| (n.path.clone(), format!("{}.{}", n.version.0, n.version.1))).collect();
    if all.is_empty() {
        finding.missing = why(unfit(Kind::Nvrtc, places, wanted.first().copied(), &finding.refused));
        return finding;
    }
    let gaps: Vec<(Option<String>, Vec<String>)> = wanted.iter().map(|w| gap(places, *w, &all)).collect();
    for (_, broken) in &gaps {
        let new = broken.iter().filter(|why| !finding.refused.contains(why)).cloned().collect::<Vec<_>>();
        finding.refused.extend(new);
    }
    finding.missing = gaps.into_iter().filter_map(|(gap, _)| gap).collect::<Vec<_>>().join("; ");
    finding
}

/// What is wrong with these compilers for a device, if anything is; and why those are not taken that would have been before the one that is.
fn gap(places: &Places, wanted: Wanted, all: &[Nvrtc]) -> (Option<String>, Vec<String>) {
    let (major, minor) = wanted.capability;
    let mut usable: Vec<&Nvrtc> = all.iter().filter(|n| wanted.can_use(n)).collect();
    usable.sort_by_key(|n| (!places.is_named(&n.path), wanted.rank(n)));
    let mut broken = Vec::new();
    for n in usable {
        match n.compiles(wanted.capability) {
            Ok(()) if wanted.is_newer(n) => {
                let (helps, newer) =
                    (advice::older(places, wanted, n.version), advice::newer_than(wanted.driver));
                return (Some(format!("{}.{} is {newer}: {helps}", n.version.0, n.version.1)), broken);
            }
            Ok(()) => return (None, broken),
            Err(said) => {
                broken.push(format!("{}.{} {}", n.version.0, n.version.1, advice::compiles_nothing(&said)));
            }
        }
    }
    let helps = advice::help(Kind::Nvrtc, places, Some(wanted));
    let why = if broken.is_empty() { format!("none for sm_{major}{minor}") } else { broken.join("; ") };
    (Some(format!("{why}: {helps}")), Vec::new())
}

fn cublas(places: &Places, wanted: Option<Wanted>) -> Finding {
    let mut finding = Finding::of(Kind::Cublas);
    let newest = places.generations.first().copied().unwrap_or(0);
    let (files, refused) = cublas_files(places, wanted.map_or((newest, 0), |w| w.driver));
    finding.refused = refused;
    for path in files {
        match Cublas::look(&path) {
            Ok(()) => {
                finding.found.push((path, String::new()));
                return finding;
            }
            Err(why) => finding.refused.push(why),
        }
    }
    finding.missing = why(unfit(Kind::Cublas, places, wanted, &finding.refused));
    finding
}

impl Finding {
    fn of(kind: Kind) -> Self {
        Self { library: kind.name(), found: Vec::new(), missing: String::new(), refused: Vec::new() }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one = |(path, version): &(PathBuf, String)| match version.is_empty() {
            true => path.display().to_string(),
            false => format!("{version} ({})", path.display()),
        };
        let found: Vec<String> = self.found.iter().map(one).collect();
        let mut parts = vec![found.join(", "), self.missing.clone()];
        if !self.found.is_empty() {
            parts.extend(self.refused.iter().cloned());
        }
        parts.retain(|part| !part.is_empty());
        write!(f, "{}: {}", self.library, parts.join("; "))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<String> = self.libraries.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}
