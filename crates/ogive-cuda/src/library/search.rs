//! Where the libraries of CUDA may be, best place first.
//!
//! The order is: what the user says (`OGIVE_CUDA_PATH`), what the toolkit's own variables say, what the loader finds, where the
//! toolkit's installer and the distributions put it, and Python's packages. The places are a value with its own view of
//! the environment and its own list of generations, so that a test can lay out any combination of missing and old libraries.
#![allow(unsafe_code)]

use super::elf;
use libloading::Library;
use std::collections::HashSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// Which library.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Driver,
    Nvrtc,
    Cublas,
}

/// Generations of CUDA that have an NVRTC and a cuBLAS for us, newest first, and whether this build may load them.
const GENERATIONS: [(u32, bool); 3] =
    [(13, cfg!(feature = "cuda-13")), (12, cfg!(feature = "cuda-12")), (11, cfg!(feature = "cuda-11"))];

/// Those generations, newest first.
pub(super) fn known() -> impl Iterator<Item = u32> {
    GENERATIONS.iter().map(|(major, _)| *major)
}

impl Kind {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Driver => "CUDA driver",
            Self::Nvrtc => "NVRTC",
            Self::Cublas => "cuBLAS",
        }
    }

    /// What messages call the file.
    pub(super) fn main_name(self) -> &'static str {
        match self {
            Self::Driver => "libcuda.so.1",
            Self::Nvrtc => "libnvrtc.so",
            Self::Cublas => "libcublas.so",
        }
    }

    /// File names of these generations and those that name none, with the generation; 0 where the name says none.
    fn names(self, generations: &[u32]) -> Vec<(String, u32)> {
        let generations = generations.iter().copied();
        match self {
            Self::Driver => vec![("libcuda.so.1".into(), 0), ("libcuda.so".into(), 0)],
            // Until CUDA 11 the name has the first version with this interface.
            Self::Nvrtc => generations
                .map(|g| match g {
                    11 => ("libnvrtc.so.11.2".to_owned(), 11),
                    g => (format!("libnvrtc.so.{g}"), g),
                })
                .chain([("libnvrtc.so".to_owned(), 0)])
                .collect(),
            Self::Cublas => generations
                .map(|g| (format!("libcublas.so.{g}"), g))
                .chain([("libcublas.so".to_owned(), 0)])
                .collect(),
        }
    }
}

/// Why the library at `path`, or a symbol of it, could not be had: the system's words, which libloading keeps in the error's source, without
/// the path that they begin with, which may be another one of the same file.
pub(crate) fn told(path: &Path, e: &libloading::Error) -> String {
    let text = std::error::Error::source(e).map_or_else(|| e.to_string(), ToString::to_string);
    match text.split_once(": ") {
        Some((begin, rest)) if begin.starts_with('/') || Path::new(begin) == path => rest.to_owned(),
        _ => text,
    }
}

/// A library that may be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// A file, or a bare name for the loader.
    pub(super) path: PathBuf,
    /// The generation its name tells, or 0.
    pub(super) generation: u32,
    /// Of a bare name: the file that `LD_LIBRARY_PATH` leads to, which the loader will take.
    file: Option<PathBuf>,
}

impl Candidate {
    pub(super) fn new(path: PathBuf, generation: u32) -> Self {
        Self { path, generation, file: None }
    }

    /// Whether it is a file that was seen, and no bare name.
    pub(super) fn is_file(&self) -> bool {
        self.path.parent().is_some_and(|folder| !folder.as_os_str().is_empty())
    }

    /// Where it lies, once it is open: for a bare name that `LD_LIBRARY_PATH` leads nowhere, what the system says was mapped.
    pub(super) fn loaded_from(&self) -> PathBuf {
        if let Some(file) = &self.file {
            return file.clone();
        }
        let name = self.path.to_string_lossy();
        let maps = if self.is_file() { None } else { std::fs::read_to_string("/proc/self/maps").ok() };
        let is_it = |path: &&Path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with(&*name));
        let found = maps.as_deref().into_iter().flat_map(str::lines).filter_map(|line| line.split_once('/'));
        let found = found.map(|(_, path)| format!("/{path}")).find(|path| is_it(&Path::new(path)));
        found.map_or_else(|| self.path.clone(), PathBuf::from)
    }

    /// Opens it; why not, in a sentence, where that fails.
    pub(super) fn open(&self) -> Result<Library, String> {
        // A bare name is the loader's to find, and it does not look in the working directory, where a file of that name may be anything.
        if let Some(file) = self.file.as_deref().or_else(|| self.is_file().then_some(&*self.path)) {
            whole(file)?;
        }
        // SAFETY: opening runs the library's initialisers. It is one of NVIDIA's by its name, from a place that the user or
        // the system chose for such libraries, as a program linked against it would get it.
        let opened = unsafe { Library::new(&self.path) };
        opened.map_err(|e| unloaded(&self.path, &told(&self.path, &e)))
    }
}

fn unloaded(path: &Path, why: &str) -> String {
    format!("{} cannot be loaded ({why})", path.display())
}

/// A sentence, where the library at `path` would end the process that opens it.
fn whole(path: &Path) -> Result<(), String> {
    elf::cut_off(path).map_or(Ok(()), |why| Err(unloaded(path, &why)))
}

/// Opens the library `name` beside `path`, if there is one, for good: what the library at `path` will ask the loader for by that name. It gets
/// what is open under it already, and else may find none, as the Python package of NVRTC 13.0 tells the loader no folder, or another
/// version's, as `LD_LIBRARY_PATH` comes before the folders that a library names. A sentence where it is cut off: nobody shall ask for it then.
pub(super) fn keep_beside(path: &Path, name: &str) -> Result<(), String> {
    // A link may lead to where it really lies.
    let places = [Some(path.to_owned()), std::fs::canonicalize(path).ok()];
    let beside = places.into_iter().flatten().map(|path| path.with_file_name(name));
    let Some(file) = beside.into_iter().find(|file| file.is_file() && file.parent() != Some(Path::new("")))
    else {
        return Ok(());
    };
    whole(&file)?;
    match Candidate::new(file, 0).open() {
        Ok(library) => std::mem::forget(library),
        // Whoever wants it will say so.
        Err(why) => tracing::debug!(target: "ogive::cuda", why, "a library's own library"),
    }
    Ok(())
}

/// The environment, by name.
type Variable = Box<dyn Fn(&str) -> Option<OsString>>;

/// Where to look.
pub(super) struct Places {
    variable: Variable,
    /// What system paths begin with: `/`, but for tests.
    root: PathBuf,
    /// Generations whose NVRTC and cuBLAS may be loaded, newest first.
    pub(super) generations: Vec<u32>,
}

/// Folders where the loader looks for bare names.
const LOADER: &str = "LD_LIBRARY_PATH";

/// Folders inside a toolkit's.
const INSIDE: [&str; 5] = ["", "lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"];
/// Where toolkits are installed.
const TOOLKITS: [&str; 3] = ["usr/local/cuda", "opt/cuda", "usr/lib/cuda"];
/// Where distributions, containers and WSL put libraries.
const SYSTEM: [&str; 9] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib64/nvidia",
    "usr/local/nvidia/lib64",
    "usr/local/nvidia/lib",
    "usr/lib/wsl/lib",
    "run/opengl-driver/lib",
];

impl Places {
    /// This machine's, for this build.
    pub(super) fn here() -> Self {
        let generations = GENERATIONS.iter().filter(|(_, on)| *on).map(|(major, _)| *major).collect();
        Self { variable: Box::new(|name| std::env::var_os(name)), root: "/".into(), generations }
    }

    /// Whether NVRTC and cuBLAS of that generation may be loaded.
    pub(super) fn allows(&self, major: u32) -> bool {
        self.generations.contains(&major)
    }

    fn paths(&self, variable: &str) -> Vec<PathBuf> {
        let value = (self.variable)(variable).filter(|v| !v.is_empty());
        let paths: Vec<PathBuf> = value.map(|v| std::env::split_paths(&v).collect()).unwrap_or_default();
        // An empty one is the working directory, and `./name` a path, where a name alone would be the loader's to find.
        let named = |path: PathBuf| if path.as_os_str().is_empty() { ".".into() } else { path };
        paths.into_iter().map(named).collect()
    }

    /// Whether the user says that libraries are to be looked for there before all others.
    pub(super) fn is_named(&self, library: &Path) -> bool {
        let within = |top: &PathBuf| INSIDE.iter().any(|inside| library.parent() == Some(&top.join(inside)));
        self.paths("OGIVE_CUDA_PATH").iter().any(within)
    }

    /// Folders before the loader's turn.
    fn first(&self, kind: Kind) -> Vec<PathBuf> {
        let mut tops = self.paths("OGIVE_CUDA_PATH");
        if kind != Kind::Driver {
            // Not for the driver: what a toolkit has of it is a stub to link against.
            tops.extend(["CUDA_PATH", "CUDA_ROOT", "CUDA_HOME"].iter().flat_map(|name| self.paths(name)));
        }
        tops.iter().flat_map(|top| INSIDE.iter().map(move |inside| top.join(inside))).collect()
    }

    /// Folders after it.
    fn last(&self, kind: Kind) -> Vec<PathBuf> {
        let mut folders: Vec<PathBuf> = Vec::new();
        if kind != Kind::Driver {
            for top in
                TOOLKITS.iter().map(|top| self.root.join(top)).chain(self.versions("usr/local", "cuda-"))
            {
                folders.extend(INSIDE.iter().skip(1).map(|inside| top.join(inside)));
            }
        }
        folders.extend(self.system());
        if kind != Kind::Driver {
            folders.extend(self.wheels());
        }
        folders
    }

    /// Folders that the loader mostly looks in, too.
    fn system(&self) -> impl Iterator<Item = PathBuf> + '_ {
        SYSTEM.iter().map(|folder| self.root.join(folder))
    }

    /// Folders of `parent` whose names begin so, newest last by name, so reversed.
    fn versions(&self, parent: &str, begin: &str) -> Vec<PathBuf> {
        let mut found = below(&self.root.join(parent));
        found.retain(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(begin)));
        found.sort();
        found.reverse();
        found
    }

    /// Library folders of NVIDIA's Python packages: of environments that are active, or whose Python is on the `PATH`, and of the system.
    fn wheels(&self) -> Vec<PathBuf> {
        let mut pythons: Vec<PathBuf> =
            ["VIRTUAL_ENV", "CONDA_PREFIX"].iter().flat_map(|v| self.paths(v)).collect();
        let mut on_path = self.paths("PATH");
        on_path.retain(|bin| bin.join("python3").is_file());
        let above =
            |bin: &PathBuf| bin.parent().filter(|top| !top.as_os_str().is_empty()).map(Path::to_path_buf);
        pythons.extend(on_path.iter().filter_map(above));
        let conda = self.paths("CONDA_PREFIX").into_iter().map(|p| p.join("lib"));
        pythons.extend(self.paths("HOME").into_iter().map(|home| home.join(".local")));
        pythons.extend(["usr/local", "usr"].map(|top| self.root.join(top)));
        // An active environment is on the path as well.
        let mut seen = HashSet::new();
        pythons.retain(|python| seen.insert(python.clone()));
        let mut folders: Vec<PathBuf> = conda.collect();
        for lib in pythons.iter().map(|top| top.join("lib")) {
            let mut versions = below(&lib);
            versions.retain(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("python3")));
            versions.sort();
            for packages in
                versions.iter().rev().flat_map(|v| ["site-packages", "dist-packages"].map(|p| v.join(p)))
            {
                let mut inside = below(&packages.join("nvidia"));
                inside.sort();
                folders.extend(inside.into_iter().rev().map(|package| package.join("lib")));
            }
        }
        folders
    }

    fn in_folders(folders: &[PathBuf], names: &[(String, u32)]) -> Vec<Candidate> {
        let in_folder = |folder: &PathBuf| {
            let file = |(name, generation): &(String, u32)| Candidate::new(folder.join(name), *generation);
            names.iter().map(file).filter(|c| c.path.is_file()).collect::<Vec<_>>()
        };
        folders.iter().flat_map(in_folder).collect()
    }

    /// All that may be opened, in order. What `LD_LIBRARY_PATH` leads to comes twice, by its name and as a file: a name that does not
    /// open is mostly one that is not there, a file that does not is a broken one. A name that may lead to a file that is cut off is left out,
    /// as nothing would say so any more once the loader has it.
    pub(super) fn candidates(&self, kind: Kind) -> Vec<Candidate> {
        let names = kind.names(&self.generations);
        let on_path = Self::in_folders(&self.paths(LOADER), &names);
        let mut cut = Self::in_folders(&self.system().collect::<Vec<_>>(), &names);
        cut.retain(|c| elf::cut_off(&c.path).is_some());
        let bare = |(name, generation): &(String, u32)| {
            let of_name = |c: &&Candidate| c.path.file_name().is_some_and(|n| n == name.as_str());
            let file = on_path.iter().find(of_name).map(|c| c.path.clone());
            let leads = file.is_some() || !cut.iter().any(|c| of_name(&c));
            leads.then(|| Candidate { file, ..Candidate::new(name.into(), *generation) })
        };
        let mut all = Self::in_folders(&self.first(kind), &names);
        all.extend(names.iter().filter_map(bare));
        all.extend(on_path);
        all.extend(Self::in_folders(&self.last(kind), &names));
        all
    }

    /// Files that exist, the loader's path among them.
    pub(super) fn files(&self, kind: Kind) -> Vec<Candidate> {
        let mut all = self.candidates(kind);
        all.retain(Candidate::is_file);
        all
    }

    /// Files of generations that this build leaves out, by their names.
    pub(super) fn left_out(&self, kind: Kind) -> Vec<Candidate> {
        let others: Vec<u32> = known().filter(|g| !self.allows(*g)).collect();
        let mut folders = self.first(kind);
        folders.extend(self.paths(LOADER));
        folders.extend(self.last(kind));
        let mut all = Self::in_folders(&folders, &kind.names(&others));
        all.retain(|c| c.generation > 0);
        all
    }

    /// The places, in words.
    pub(super) fn describe(&self, kind: Kind) -> String {
        let set = |name: &&str| (self.variable)(name).is_some_and(|v| !v.is_empty());
        let names: &[&str] = match kind {
            Kind::Driver => &["OGIVE_CUDA_PATH"],
            _ => &["OGIVE_CUDA_PATH", "CUDA_PATH", "CUDA_ROOT", "CUDA_HOME"],
        };
        let mut words: Vec<&str> = names.iter().filter(|n| set(n)).copied().collect();
        words.extend(["the loader's path", "the usual folders"]);
        if kind != Kind::Driver {
            words.push("Python's packages");
        }
        words.join(", ")
    }
}

/// What is in a folder; nothing where it cannot be read.
fn below(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    // A folder of this many entries is no folder of libraries.
    entries.take(10_000).filter_map(|entry| entry.ok().map(|e| e.path())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    fn laid_out(files: &[&str], variables: &[(&str, &str)]) -> (tempfile::TempDir, Places) {
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let path = folder.path().join(file);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "not a library").unwrap();
        }
        let at = |value: &str| folder.path().join(value).into_os_string();
        let variables: HashMap<String, OsString> =
            variables.iter().map(|(name, value)| ((*name).to_owned(), at(value))).collect();
        let root = folder.path().to_owned();
        let variable: Variable = Box::new(move |name| variables.get(name).cloned());
        (folder, Places { variable, root, generations: known().collect() })
    }

    fn found(folder: &tempfile::TempDir, places: &Places, kind: Kind) -> Vec<String> {
        let name =
            |c: Candidate| c.path.strip_prefix(folder.path()).map_or(c.path.clone(), Path::to_path_buf);
        places.candidates(kind).into_iter().map(|c| name(c).display().to_string()).collect()
    }

    #[test]
    fn what_the_user_says_comes_first_and_packages_last() {
        let files = [
            "mine/lib64/libnvrtc.so.12",
            "toolkit/lib64/libnvrtc.so.13",
            "usr/local/cuda-12.4/lib64/libnvrtc.so.12",
            "home/.local/lib/python3.12/site-packages/nvidia/cuda_nvrtc/lib/libnvrtc.so.12",
            "home/.local/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13",
        ];
        let (folder, places) =
            laid_out(&files, &[("OGIVE_CUDA_PATH", "mine"), ("CUDA_HOME", "toolkit"), ("HOME", "home")]);
        let found = found(&folder, &places, Kind::Nvrtc);
        assert_eq!(found.first().unwrap(), files[0]);
        assert_eq!(found[1], files[1]);
        assert!(found.contains(&"libnvrtc.so".to_owned()), "{found:?}");
        assert_eq!(found[found.len() - 3..], [files[2], files[3], files[4]].map(str::to_owned));
    }

    /// As in a container whose Python is an environment that nobody has activated.
    #[test]
    fn packages_of_the_python_on_the_path_are_found() {
        let file = "opt/venv/lib/python3.12/site-packages/nvidia/cu13/lib/libnvrtc.so.13";
        let files = ["opt/venv/bin/python3", "opt/other/bin/python2", file];
        for variables in
            [&[("PATH", "opt/venv/bin")][..], &[("PATH", "opt/venv/bin"), ("VIRTUAL_ENV", "opt/venv")]]
        {
            let (folder, places) = laid_out(&files, variables);
            let found = found(&folder, &places, Kind::Nvrtc);
            assert_eq!(found.iter().filter(|f| *f == file).count(), 1, "{found:?}");
        }
        let (folder, places) = laid_out(&files, &[("PATH", "opt/other/bin")]);
        assert!(!found(&folder, &places, Kind::Nvrtc).contains(&file.to_owned()));
    }

    #[test]
    fn a_toolkit_has_no_driver() {
        let (folder, places) = laid_out(
            &["toolkit/lib64/libcuda.so", "usr/lib/wsl/lib/libcuda.so.1", "mine/libcuda.so.1"],
            &[("CUDA_PATH", "toolkit"), ("OGIVE_CUDA_PATH", "mine")],
        );
        let found = found(&folder, &places, Kind::Driver);
        assert_eq!(
            found,
            ["mine/libcuda.so.1", "libcuda.so.1", "libcuda.so", "usr/lib/wsl/lib/libcuda.so.1"]
        );
    }

    /// The loader would take it, and the process with it.
    #[test]
    fn a_name_that_leads_to_what_is_cut_off_is_left_to_the_file() {
        let file = "usr/lib64/libcuda.so.1";
        let (folder, places) = laid_out(&[file], &[]);
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(found(&folder, &places, Kind::Driver), names(&["libcuda.so.1", "libcuda.so", file]));
        std::fs::write(folder.path().join(file), elf::tests::elf(&[(1, 0, 4096)])).unwrap();
        assert_eq!(found(&folder, &places, Kind::Driver), names(&["libcuda.so", file]));
        let why = places.candidates(Kind::Driver)[1].open().unwrap_err();
        assert!(
            why.ends_with("libcuda.so.1 cannot be loaded (the file is cut off: it has 120 of 4096 bytes)")
        );
        assert!(keep_beside(&folder.path().join("usr/lib64/other"), "libcuda.so.1").is_err());
    }

    /// The loader looks for a bare name elsewhere, unless it is told to look here.
    #[test]
    fn a_file_in_the_working_directory_is_nobodys_bare_name() {
        const WANT: &str = "OGIVE_TEST_CUT_OFF";
        if let Ok(want) = std::env::var(WANT) {
            let places = Places { root: "none".into(), ..Places::here() };
            let mut cut = places.candidates(Kind::Nvrtc);
            cut.retain(|c| c.open().is_err_and(|why| why.contains("is cut off")));
            let cut: Vec<_> = cut.iter().map(|c| c.path.to_string_lossy()).collect();
            return assert_eq!(cut.join(" "), want);
        }
        let (folder, name) = (tempfile::tempdir().unwrap(), "libnvrtc.so.12");
        std::fs::write(folder.path().join(name), elf::tests::elf(&[(1, 0, 4096)])).unwrap();
        for (path, want) in [("", String::new()), ("none:", format!("{name} ./{name}"))] {
            let mut command = std::process::Command::new(std::env::current_exe().unwrap());
            let test = "library::search::tests::a_file_in_the_working_directory_is_nobodys_bare_name";
            command.args(["--exact", test]).current_dir(folder.path()).env_clear();
            let out = command.env(LOADER, path).env(WANT, want).output().unwrap();
            let text = String::from_utf8_lossy(&out.stdout);
            assert!(out.status.success() && text.contains("1 passed"), "{path:?}: {text}");
        }
    }

    #[test]
    fn what_is_no_library_is_an_error() {
        let (folder, places) = laid_out(&["mine/libnvrtc.so.12"], &[("OGIVE_CUDA_PATH", "mine")]);
        let why = places.candidates(Kind::Nvrtc)[0].open().unwrap_err();
        let path = folder.path().join("mine/libnvrtc.so.12");
        assert!(why.starts_with(&format!("{} cannot be loaded (", path.display())), "{why}");
        // The system's words, without the path once more.
        assert!(!why.contains("dlopen failed") && !why.contains("(/"), "{why}");
        assert!(places.describe(Kind::Nvrtc).starts_with("OGIVE_CUDA_PATH, the loader's path"));
        drop(folder);
    }

    #[test]
    fn a_build_with_one_generation_sees_the_others_files() {
        let files =
            ["mine/libnvrtc.so.13", "mine/libnvrtc.so.11.2", "lib/libnvrtc.so.12", "lib/libcublas.so.13"];
        let (folder, mut places) =
            laid_out(&files, &[("OGIVE_CUDA_PATH", "mine"), ("LD_LIBRARY_PATH", "lib")]);
        places.generations = vec![12];
        let names = |all: Vec<Candidate>| -> Vec<String> {
            all.iter().map(|c| c.path.strip_prefix(folder.path()).unwrap().display().to_string()).collect()
        };
        assert_eq!(names(places.files(Kind::Nvrtc)), ["lib/libnvrtc.so.12"]);
        assert_eq!(names(places.left_out(Kind::Nvrtc)), ["mine/libnvrtc.so.13", "mine/libnvrtc.so.11.2"]);
        assert_eq!(names(places.left_out(Kind::Cublas)), ["lib/libcublas.so.13"]);
        assert_eq!(names(places.left_out(Kind::Driver)), [""; 0]);
        assert!(places.allows(12) && !places.allows(13) && !places.allows(14));
    }
}
