//! Finding the libraries of CUDA: the driver, NVRTC, cuBLAS. Never a panic, and always a word about what was looked for.
//!
//! They are opened by path rather than left to the loader alone: NVRTC is most often had from a Python package, where no loader
//! looks, and a path says in a message what was really taken.

mod advice;
mod cublas;
mod elf;
mod nvrtc;
mod report;
mod search;

pub(crate) use cublas::{Cublas, Element, Product};
pub(crate) use nvrtc::{Nvrtc, Target, Wanted};
pub use report::{Finding, Report, report};
pub(crate) use search::told;

use crate::driver::Driver;
use crate::error::{Error, Result};
use search::{Candidate, Kind, Places};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// The driver, found and started at the first call. A failure stays: a driver does not appear while a program runs.
pub(crate) fn driver() -> Result<(Arc<Driver>, PathBuf)> {
    static DRIVER: OnceLock<Result<(Arc<Driver>, PathBuf)>> = OnceLock::new();
    DRIVER.get_or_init(|| find_driver(&Places::here())).clone()
}

fn find_driver(places: &Places) -> Result<(Arc<Driver>, PathBuf)> {
    let (mut first, mut refused) = (None, Vec::new());
    for candidate in places.candidates(Kind::Driver) {
        let library = match candidate.open() {
            Ok(library) => library,
            Err(why) => {
                // Two variables may lead to one file.
                if candidate.is_file() && !refused.contains(&why) {
                    refused.push(why);
                }
                continue;
            }
        };
        let path = candidate.loaded_from();
        match Driver::start(library, &path) {
            Ok(driver) => return Ok((driver, path)),
            // The driver is there, and that is all there is.
            Err(Error::Driver { code: 100, .. }) => {
                first = first.or(Some(Error::NoDevice { asked: 0, found: 0 }));
            }
            Err(e) => first = first.or(Some(e)),
        }
    }
    Err(first.unwrap_or_else(|| unfit(Kind::Driver, places, None, &refused)))
}

/// NVRTC for a device and a driver: of those where the user says before all others, the newest that the driver takes first, and one that knows
/// the device before one that does not. It compiles: kernels that were kept on disk would hide for a while that it does not.
pub(crate) fn nvrtc(wanted: Wanted) -> Result<Nvrtc> {
    let places = Places::here();
    let named = |n: &Nvrtc| places.is_named(&n.path);
    let mut candidates = places.candidates(Kind::Nvrtc);
    candidates.sort_by_key(|c| (!places.is_named(&c.path), wanted.order(c.generation)));
    let (mut found, mut refused) = (Vec::new(), Vec::new());
    for opened in compilers(&places, candidates) {
        match opened {
            Ok(n) if wanted.is_best(&n) && (named(&n) || !found.iter().any(named)) => {
                match compiles(&n, wanted) {
                    Ok(()) => return Ok(n),
                    Err(why) => refused.push(why),
                }
            }
            Ok(n) => found.push(n),
            Err(why) => refused.push(why),
        }
    }
    found.sort_by_key(|n| (!named(n), wanted.rank(n)));
    let (fit, others): (Vec<_>, Vec<_>) = found.into_iter().partition(|n| wanted.can_use(n));
    for n in fit {
        match compiles(&n, wanted) {
            Ok(()) => return Ok(n),
            Err(why) => refused.push(why),
        }
    }
    let (major, minor) = wanted.capability;
    refused.extend(others.iter().map(|n| format!("{}, which does not know sm_{major}{minor}", told_of(n))));
    refused.extend(left_out(&places, Kind::Nvrtc));
    Err(unfit(Kind::Nvrtc, &places, Some(wanted), &refused))
}

/// Compilers that have compiled, and for which devices: a trial takes some 25 ms.
static WHOLE: Mutex<Vec<(PathBuf, (u32, u32))>> = Mutex::new(Vec::new());

/// Whether it compiles what every whole one does; a sentence if it does not.
fn compiles(nvrtc: &Nvrtc, wanted: Wanted) -> Result<(), String> {
    let whole = || WHOLE.lock().unwrap_or_else(PoisonError::into_inner);
    let this = (nvrtc.path.clone(), wanted.capability);
    if !whole().contains(&this) {
        let said = |log: String| format!("{} and {}", told_of(nvrtc), advice::compiles_nothing(&log));
        nvrtc.compiles(wanted.capability).map_err(said)?;
        whole().push(this);
    }
    Ok(())
}

/// The error for a driver that said `said` to what this compiler made, which is newer than the driver.
pub(crate) fn newer(nvrtc: &Nvrtc, wanted: Wanted, said: &str) -> Error {
    let helps = advice::older(&Places::here(), wanted, nvrtc.version);
    let why = format!("{}, {}: {helps}; {said}", told_of(nvrtc), advice::newer_than(wanted.driver));
    Error::Library { library: "NVRTC", why }
}

/// A compiler in messages.
fn told_of(n: &Nvrtc) -> String {
    format!("{} is NVRTC {}.{}", n.path.display(), n.version.0, n.version.1)
}

/// The compilers among these that this build may load, each once and in this order, opened one by one; of other files, why they are none.
fn compilers(places: &Places, candidates: Vec<Candidate>) -> impl Iterator<Item = Result<Nvrtc, String>> {
    let mut seen = HashSet::new();
    // Told by their names, whatever links lead there.
    let left_out: HashSet<PathBuf> = places.left_out(Kind::Nvrtc).iter().map(|c| file(&c.path)).collect();
    candidates.into_iter().filter_map(move |candidate| {
        let library = match candidate.open() {
            Ok(library) => library,
            // A bare name that does not open is mostly one that is not there.
            Err(why) => {
                let is_new = candidate.is_file() && seen.insert((file(&candidate.path), None));
                return is_new.then_some(Err(why));
            }
        };
        let path = candidate.loaded_from();
        let opened = Nvrtc::of(library, &path);
        let is_new = seen.insert((file(&path), opened.as_ref().ok().map(|n| n.version)));
        let is_new = is_new && !left_out.contains(&file(&path));
        let allowed = |n: Nvrtc| match n.version.0 {
            major if places.allows(major) => Ok(n),
            major => Err(advice::left_out(&n.path, major, places)),
        };
        is_new.then(|| opened.and_then(allowed))
    })
}

/// The file itself, whatever leads to it.
fn file(path: &Path) -> PathBuf {
    std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned())
}

/// Files that this build leaves out by their names, each with the reason.
fn left_out(places: &Places, kind: Kind) -> Vec<String> {
    let mut seen = HashSet::new();
    let mut files = places.left_out(kind);
    files.retain(|c| seen.insert(file(&c.path)));
    files.iter().map(|c| advice::left_out(&c.path, c.generation, places)).collect()
}

/// Files that may be cuBLAS for this driver: those where the user says first, newest first; of those that are not, why.
fn cublas_files(places: &Places, driver: (u32, u32)) -> (Vec<PathBuf>, Vec<String>) {
    let (mut files, mut seen) = (places.files(Kind::Cublas), HashSet::new());
    files.retain(|c| seen.insert(c.path.clone()));
    files.sort_by_key(|c| (!places.is_named(&c.path), Reverse(c.generation)));
    let (fit, newer): (Vec<_>, Vec<_>) = files.into_iter().partition(|c| c.generation <= driver.0);
    let newer = newer.iter().map(|c| format!("{} is {}", c.path.display(), advice::newer_than(driver)));
    let refused = newer.chain(left_out(places, Kind::Cublas)).collect();
    (fit.into_iter().map(|c| c.path).collect(), refused)
}

/// The error where no library of this kind can be used: none is there, or those that are have been refused.
fn unfit(kind: Kind, places: &Places, wanted: Option<Wanted>, refused: &[String]) -> Error {
    let what = match refused.is_empty() {
        true => format!("{} not found; looked in {}", kind.main_name(), places.describe(kind)),
        false => refused.join("; "),
    };
    Error::Library { library: kind.name(), why: format!("{what}; {}", advice::help(kind, places, wanted)) }
}

/// Whether there is a file that may be cuBLAS for the driver; whether it starts shows when it is wanted.
pub(crate) fn has_cublas() -> bool {
    driver().is_ok_and(|(driver, _)| !cublas_files(&Places::here(), driver.version).0.is_empty())
}
