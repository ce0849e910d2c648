//! What helps where a library is missing or does not fit, in words: which package to install, by the driver and the device.
//!
//! One package is named where driver and device are known, and all that this build may load where they are not: who reads the message
//! should have nothing to choose.

use super::nvrtc::Wanted;
use super::search::{Kind, Places, known};
use std::path::Path;

/// The oldest NVRTC that every kernel is compiled with in tests.
pub(super) const OLDEST: (u32, u32) = (11, 8);

/// The oldest device that a generation compiles for, as 50 for 5.0.
fn oldest_device(generation: u32) -> u32 {
    match generation {
        ..=11 => 35,
        12 => 50,
        _ => 75,
    }
}

/// The name of pip's package.
fn package(kind: Kind, generation: u32) -> String {
    let name = if kind == Kind::Cublas { "nvidia-cublas" } else { "nvidia-cuda-nvrtc" };
    // From CUDA 13 on names tell no generation.
    if generation < 13 { format!("{name}-cu{generation}") } else { name.into() }
}

/// The newest of these generations that the driver takes and that compiles for the device.
fn fitting(generations: impl Iterator<Item = u32>, wanted: Wanted) -> Option<u32> {
    generations.filter(|g| *g <= wanted.driver.0 && oldest_device(*g) <= wanted.device()).max()
}

/// `CUDA 12`, `CUDA 11, 12 and 13`.
fn all_of(generations: &[u32]) -> String {
    let mut names: Vec<String> = generations.iter().rev().map(ToString::to_string).collect();
    let last = names.pop().unwrap_or_default();
    if names.is_empty() { format!("CUDA {last}") } else { format!("CUDA {} and {last}", names.join(", ")) }
}

/// What helps where the library is missing, or none that is there fits.
pub(super) fn help(kind: Kind, places: &Places, wanted: Option<Wanted>) -> String {
    let folder = "or point OGIVE_CUDA_PATH to its folder";
    let how = match (kind, wanted) {
        (Kind::Driver, _) => {
            return "install NVIDIA's driver (nvidia-smi must work); in a container, start it with the GPU"
                .into();
        }
        _ if places.generations.is_empty() => {
            "build Ogive with the features cuda-11, cuda-12 and cuda-13, or those of them that you want"
                .into()
        }
        (_, None) => {
            // The most common one first.
            let first =
                if places.allows(12) { 12 } else { places.generations.first().copied().unwrap_or(12) };
            let others = places.generations.iter().filter(|g| **g != first);
            let others: Vec<String> = others.map(|g| format!("CUDA {g}: {}", package(kind, *g))).collect();
            let others = if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
            format!("pip install {}{others}, {folder}", package(kind, first))
        }
        (_, Some(wanted)) => {
            let mine = fitting(places.generations.iter().copied(), wanted);
            match mine.or_else(|| fitting(known(), wanted)) {
                Some(g) if places.allows(g) => format!("pip install {}, {folder}", package(kind, g)),
                Some(g) => {
                    format!("build Ogive with the feature cuda-{g}, and pip install {}", package(kind, g))
                }
                None if wanted.driver.0 < OLDEST.0 => {
                    format!("update the driver, which is for CUDA {}.{}", wanted.driver.0, wanted.driver.1)
                }
                None => "no version compiles for this device: use the CPU".into(),
            }
        }
    };
    if kind == Kind::Cublas { format!("optional, for long prompts: {how}") } else { how }
}

/// Why a library of this generation is not taken.
pub(super) fn left_out(path: &Path, generation: u32, places: &Places) -> String {
    let why = match known().any(|g| g == generation) {
        true => format!("its feature cuda-{generation} is off"),
        false if places.generations.is_empty() => "it loads none".into(),
        false => format!("it loads those of {}", all_of(&places.generations)),
    };
    format!("{} is of CUDA {generation}, which this build leaves out: {why}", path.display())
}

/// That something is newer than the driver.
pub(super) fn newer_than(driver: (u32, u32)) -> String {
    format!("newer than the driver, which is for CUDA {}.{}", driver.0, driver.1)
}

/// That a compiler cannot, as it says.
pub(super) fn compiles_nothing(said: &str) -> String {
    format!("compiles nothing ({said})")
}

/// What helps where the driver refuses what an NVRTC of this version made, because it is newer.
pub(super) fn older(places: &Places, wanted: Wanted, version: (u32, u32)) -> String {
    let package = |g| package(Kind::Nvrtc, g);
    let how = match fitting(places.generations.iter().copied(), wanted) {
        // Of CUDA 11 the last version is the oldest that will do.
        Some(11) if version.0 == 11 => return "update the driver".into(),
        Some(g) if version.0 == g => {
            format!(" (pip install \"{}<{g}.{}\")", package(g), wanted.driver.1 + 1)
        }
        Some(g) => format!(" (pip install {})", package(g)),
        None => return "update the driver".into(),
    };
    format!("update the driver or install an older NVRTC{how}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(generations: &[u32]) -> Places {
        let mut places = Places::here();
        places.generations = generations.to_vec();
        places
    }

    fn wanted(driver: (u32, u32), capability: (u32, u32)) -> Option<Wanted> {
        Some(Wanted { driver, capability })
    }

    #[test]
    fn the_package_is_that_of_the_driver_and_the_device() {
        let all = places(&[13, 12, 11]);
        let names = |driver, capability| {
            let text = help(Kind::Nvrtc, &all, wanted(driver, capability));
            text.split([' ', ',']).nth(2).unwrap_or_default().to_owned()
        };
        assert_eq!(names((13, 5), (9, 0)), "nvidia-cuda-nvrtc");
        assert_eq!(names((13, 5), (6, 1)), "nvidia-cuda-nvrtc-cu12");
        assert_eq!(names((13, 5), (3, 7)), "nvidia-cuda-nvrtc-cu11");
        assert_eq!(names((12, 4), (9, 0)), "nvidia-cuda-nvrtc-cu12");
        assert_eq!(names((11, 8), (8, 0)), "nvidia-cuda-nvrtc-cu11");
        assert_eq!(
            help(Kind::Nvrtc, &all, wanted((10, 2), (7, 5))),
            "update the driver, which is for CUDA 10.2"
        );
        for driver in [(11, 4), (12, 0)] {
            assert!(help(Kind::Nvrtc, &all, wanted(driver, (3, 0))).contains("use the CPU"));
        }
    }

    #[test]
    fn a_build_advises_what_it_may_load() {
        let (none, all, one) = (places(&[]), places(&[13, 12, 11]), places(&[12]));
        let text = help(Kind::Nvrtc, &all, None);
        for word in
            ["nvidia-cuda-nvrtc-cu12", "CUDA 13: nvidia-cuda-nvrtc", "CUDA 11: nvidia-cuda-nvrtc-cu11"]
        {
            assert!(text.contains(word), "{text}");
        }
        let text = help(Kind::Cublas, &one, None);
        assert!(
            text.starts_with("optional, for long prompts: pip install nvidia-cublas-cu12, or "),
            "{text}"
        );
        // The newest that fits is left out, another fits too.
        assert!(help(Kind::Nvrtc, &one, wanted((13, 0), (9, 0))).contains("nvidia-cuda-nvrtc-cu12"));
        let text = help(Kind::Nvrtc, &one, wanted((11, 8), (8, 0)));
        assert_eq!(text, "build Ogive with the feature cuda-11, and pip install nvidia-cuda-nvrtc-cu11");
        assert!(help(Kind::Nvrtc, &none, None).starts_with("build Ogive with the features cuda-11"));
    }

    #[test]
    fn what_is_left_out_is_told_with_the_feature() {
        let at = Path::new("/x/libnvrtc.so");
        let text = left_out(at, 13, &places(&[12]));
        assert_eq!(
            text,
            "/x/libnvrtc.so is of CUDA 13, which this build leaves out: its feature cuda-13 is off"
        );
        assert!(left_out(at, 14, &places(&[13, 12, 11])).ends_with(": it loads those of CUDA 11, 12 and 13"));
        assert!(left_out(at, 14, &places(&[12])).ends_with(": it loads those of CUDA 12"));
        assert!(left_out(at, 10, &places(&[])).ends_with(": it loads none"));
    }

    #[test]
    fn an_older_compiler_is_named_where_there_is_one() {
        let all = places(&[13, 12, 11]);
        let of = |driver, version| older(&all, Wanted { driver, capability: (8, 0) }, version);
        assert!(of((11, 8), (12, 9)).ends_with("an older NVRTC (pip install nvidia-cuda-nvrtc-cu11)"));
        assert!(of((12, 4), (12, 9)).ends_with("(pip install \"nvidia-cuda-nvrtc-cu12<12.5\")"));
        assert!(of((13, 0), (13, 5)).ends_with("(pip install \"nvidia-cuda-nvrtc<13.1\")"));
        assert_eq!(of((11, 4), (11, 8)), "update the driver");
        assert_eq!(of((10, 2), (11, 8)), "update the driver");
    }
}
