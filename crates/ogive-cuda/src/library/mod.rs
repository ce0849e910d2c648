//! Finding the libraries of CUDA: the driver, NVRTC, cuBLAS. Never a panic, and always a word about what was looked for.
//!
//! They are opened by path rather than left to the loader alone: NVRTC is most often had from a Python package, where no loader
//! looks, and a path says in a message what was really taken.

mod cublas;
mod nvrtc;
mod search;

pub(crate) use cublas::{Cublas, Element, Product};
pub(crate) use nvrtc::{Nvrtc, Target, Wanted};

use crate::driver::Driver;
use crate::error::{Error, Result};
use search::{Kind, Places};
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

/// The driver, found and started at the first call. A failure stays: a driver does not appear while a program runs.
pub(crate) fn driver() -> Result<(Arc<Driver>, PathBuf)> {
    static DRIVER: OnceLock<Result<(Arc<Driver>, PathBuf)>> = OnceLock::new();
    DRIVER.get_or_init(|| find_driver(&Places::here())).clone()
}

fn find_driver(places: &Places) -> Result<(Arc<Driver>, PathBuf)> {
    let (mut first, missing) = (None, || missing(Kind::Driver, places));
    for candidate in places.candidates(Kind::Driver) {
        let Ok(library) = candidate.open() else { continue };
        match Driver::start(library, &candidate.path) {
            Ok(driver) => return Ok((driver, candidate.loaded_from())),
            // The driver is there, and that is all there is.
            Err(Error::Driver { code: 100, .. }) => {
                first = first.or(Some(Error::NoDevice { asked: 0, found: 0 }));
            }
            Err(e) => first = first.or(Some(e)),
        }
    }
    Err(first.unwrap_or_else(missing))
}

/// NVRTC for a device and a driver: the newest that the driver takes first, and one that knows the device before one that does not.
pub(crate) fn nvrtc(wanted: Wanted) -> Result<Nvrtc> {
    let places = Places::here();
    let mut found: Vec<Nvrtc> = Vec::new();
    let mut candidates = places.candidates(Kind::Nvrtc);
    candidates.sort_by_key(|c| wanted.order(c.generation));
    let mut refused = Vec::new();
    for candidate in candidates {
        match Nvrtc::open(&candidate) {
            Ok(nvrtc) if !search::allowed(nvrtc.version.0) => {
                refused.push(format!(
                    "{} is of CUDA {}, which this build leaves out",
                    candidate.path.display(),
                    nvrtc.version.0
                ));
            }
            Ok(nvrtc) if wanted.is_best(&nvrtc) => return Ok(nvrtc),
            Ok(nvrtc) => found.push(nvrtc),
            // A bare name that does not open is mostly one that is not there.
            Err(e) if candidate.is_file() => refused.push(e.brief()),
            Err(_) => {}
        }
    }
    found.sort_by_key(|n| wanted.rank(n));
    let usable = found.iter().position(|n| wanted.can_use(n));
    if let Some(at) = usable {
        return Ok(found.swap_remove(at));
    }
    let (major, minor) = wanted.capability;
    for nvrtc in &found {
        refused.push(format!(
            "{} {}.{} does not know sm_{major}{minor}",
            nvrtc.path.display(),
            nvrtc.version.0,
            nvrtc.version.1
        ));
    }
    match refused.is_empty() {
        true => Err(missing(Kind::Nvrtc, &places)),
        false => Err(Error::Library {
            library: "NVRTC",
            why: format!("{}; {}", refused.join("; "), Kind::Nvrtc.help()),
        }),
    }
}

fn missing(kind: Kind, places: &Places) -> Error {
    let why = format!("{} not found; looked in {}; {}", kind.main_name(), places.describe(kind), kind.help());
    Error::Library { library: kind.name(), why }
}

/// Whether there is a file that may be cuBLAS; whether it starts shows when it is wanted.
pub(crate) fn has_cublas() -> bool {
    !Places::here().files(Kind::Cublas).is_empty()
}

/// One library, as [`report`] has it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// Which: `driver`, `NVRTC`, `cuBLAS`.
    pub library: &'static str,
    /// Where it was found, with its version if it says one.
    pub found: Vec<(PathBuf, String)>,
    /// What is wrong, and what helps; empty if nothing is.
    pub missing: String,
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
    let (found, missing_driver) = match driver() {
        Ok((driver, path)) => {
            (vec![(path, format!("CUDA {}.{}", driver.version.0, driver.version.1))], String::new())
        }
        Err(e) => (Vec::new(), e.to_string()),
    };
    let driver = Finding { library: Kind::Driver.name(), found, missing: missing_driver };
    let compilers: Vec<Nvrtc> =
        places.candidates(Kind::Nvrtc).iter().filter_map(|c| Nvrtc::open(c).ok()).collect();
    let mut found: Vec<(PathBuf, String)> = Vec::new();
    for n in compilers {
        let version = format!("{}.{}", n.version.0, n.version.1);
        if !found.iter().any(|(path, v)| *path == n.path || *v == version) {
            found.push((n.path.clone(), version));
        }
    }
    let gap = |kind: Kind, found: &[(PathBuf, String)]| {
        if found.is_empty() { missing(kind, &places).to_string() } else { String::new() }
    };
    let nvrtc = Finding { library: Kind::Nvrtc.name(), missing: gap(Kind::Nvrtc, &found), found };
    let blas: Vec<_> =
        places.files(Kind::Cublas).into_iter().take(1).map(|path| (path, String::new())).collect();
    let cublas = Finding { library: Kind::Cublas.name(), missing: gap(Kind::Cublas, &blas), found: blas };
    Report { libraries: vec![driver, nvrtc, cublas] }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, finding) in self.libraries.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            if finding.found.is_empty() {
                write!(f, "{}", finding.missing)?;
                continue;
            }
            write!(f, "{}:", finding.library)?;
            for (i, (path, version)) in finding.found.iter().enumerate() {
                let comma = if i > 0 { "," } else { "" };
                match version.is_empty() {
                    true => write!(f, "{comma} {}", path.display())?,
                    false => write!(f, "{comma} {version} ({})", path.display())?,
                }
            }
        }
        Ok(())
    }
}
