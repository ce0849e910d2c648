//! Where the history of a user's messages is kept: the per-user data folder that the system's custom names.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;

/// The history file: `OGIVE_HISTORY` where that is set (empty for none), else below the data folder. `None` where the
/// system names no folder.
pub(super) fn path() -> Option<PathBuf> {
    match env::var_os("OGIVE_HISTORY") {
        Some(path) => Some(path).filter(|p| !p.is_empty()).map(Into::into),
        None => {
            Some(data_folder(|name| env::var_os(name), env::home_dir())?.join("ogive").join("history.txt"))
        }
    }
}

fn data_folder(var: impl Fn(&str) -> Option<OsString>, home: Option<PathBuf>) -> Option<PathBuf> {
    // A relative path there is to be ignored, says the XDG specification.
    let var = |name: &str| var(name).map(PathBuf::from).filter(|p| p.is_absolute());
    if cfg!(windows) {
        return var("APPDATA").or(Some(home?.join("AppData").join("Roaming")));
    }
    if let Some(folder) = var("XDG_DATA_HOME") {
        return Some(folder);
    }
    let below = if cfg!(target_os = "macos") { "Library/Application Support" } else { ".local/share" };
    Some(home?.join(below))
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn the_data_folder_is_the_systems() {
        let folder = |xdg: Option<&str>, home: Option<&str>| {
            data_folder(|name| xdg.filter(|_| name == "XDG_DATA_HOME").map(Into::into), home.map(Into::into))
        };
        assert_eq!(folder(Some("/data"), Some("/home/a")), Some("/data".into()));
        assert_eq!(folder(Some("data"), Some("/home/a")), Some("/home/a/.local/share".into()));
        assert_eq!(folder(None, Some("/home/a")), Some("/home/a/.local/share".into()));
        assert_eq!(folder(None, None), None);
    }
}
