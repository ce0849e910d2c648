//! What is known of kernels that were compiled: `compiled.txt`, and the table of registers in docs/CUDA.md.
//!
//! A line of `compiled.txt` is a module, a compiler and a digest of what the outcome depends on of the module: text, samples, architectures. What holds
//! for all modules is [`RULES`]. The digest is FNV-1a, as nobody has a reason to look for two sources that share one.

use ogive_cuda::{Compiled, Resources};
use ogive_kernels::Source;
use ptx_emulator_launcher::Nvrtc;
use std::collections::BTreeMap;
use std::fmt::Write;

/// What writes both.
pub(crate) const WRITES: &str = "cargo test -p ogive-cuda --test kernels -- --ignored --nocapture record";
/// The first line of `compiled.txt`. Who changes the options that modules are compiled with (`module::options`), which defines a sample has on a device, or
/// what counts as a fault, counts it up: then nothing is known any more.
const RULES: &str = "rules 1";
const COMPILED: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/kernels/compiled.txt");
const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/CUDA.md");

/// What the outcome of compiling a module so depends on, but for the compiler.
pub(crate) fn digest(source: &Source, chosen: impl IntoIterator<Item = (u32, usize)>) -> u64 {
    let mut all = source.text();
    write!(all, "{:?}{:?}", source.kernels, source.samples).unwrap();
    chosen.into_iter().for_each(|pair| write!(all, "{pair:?}").unwrap());
    all.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Which modules were compiled and found right: by module and compiler, of what digest.
pub(crate) struct Record(BTreeMap<(String, String), String>);

impl Record {
    pub(crate) fn read() -> Self {
        let text = std::fs::read_to_string(COMPILED).unwrap_or_default();
        let Some(lines) = text.strip_prefix(RULES).and_then(|text| text.strip_prefix('\n')) else {
            return Self(BTreeMap::new());
        };
        let line = |line: &str| {
            let [module, compiler, digest]: [&str; 3] =
                line.split_whitespace().collect::<Vec<_>>().try_into().unwrap();
            ((module.to_owned(), compiler.to_owned()), digest.to_owned())
        };
        Self(lines.lines().map(line).collect())
    }

    fn key(source: &Source, (major, minor): (u32, u32)) -> (String, String) {
        (source.name.to_owned(), format!("{major}.{minor}"))
    }

    /// What to do if the module was not yet compiled as it is.
    pub(crate) fn lacks(&self, source: &Source, version: (u32, u32), digest: u64) -> Option<String> {
        let line = self.0.get(&Self::key(source, version));
        let known = line.is_some_and(|line| *line == format!("{digest:016x}"));
        (!known).then(|| format!("{} is not recorded as it is now: {WRITES}", source.name))
    }

    pub(crate) fn add(&mut self, source: &Source, version: (u32, u32), digest: u64) {
        let name = source.name;
        // Of another release of this generation nothing is kept.
        self.0.retain(|(module, of), _| module != name || !of.starts_with(&format!("{}.", version.0)));
        self.0.insert(Self::key(source, version), format!("{digest:016x}"));
    }

    pub(crate) fn write(&self) {
        let line = |((module, compiler), digest): (&(String, String), &String)| {
            format!("{module} {compiler} {digest}\n")
        };
        let lines: String = self.0.iter().map(line).collect();
        std::fs::write(COMPILED, format!("{RULES}\n{lines}")).unwrap();
    }
}

/// Registers are listed for these, by this compiler.
const LISTED: [u32; 3] = [75, 80, 90];
pub(crate) const LISTED_BY: Nvrtc = Nvrtc::V12;

/// Kernel and defines, as the table has them.
pub(crate) fn title(kernel: &str, sample: &[(&str, &str)]) -> [String; 2] {
    let words: Vec<&str> = sample.iter().map(|(_, value)| *value).collect();
    [format!("`{kernel}`"), words.join(" ")]
}

/// The table in docs/CUDA.md: registers for each of [`LISTED`], and shared bytes, of kernel and defines.
pub(crate) struct Table {
    /// What stands before and behind the rows.
    around: [String; 2],
    rows: Vec<([String; 2], [String; LISTED.len()], String)>,
}

impl Table {
    pub(crate) fn read() -> Self {
        let text = std::fs::read_to_string(TABLE).unwrap();
        let head = text.find("| kernel | defines |").unwrap();
        let begin = head + text[head..].match_indices('\n').nth(1).unwrap().0 + 1;
        let rows: Vec<&str> =
            text[begin..].split_inclusive('\n').take_while(|line| line.starts_with('|')).collect();
        let end = begin + rows.iter().map(|row| row.len()).sum::<usize>();
        let row = |line: &&str| {
            let cells: Vec<String> = line.split('|').map(|cell| cell.trim().to_owned()).collect();
            let [_, kernel, defines, registers, shared, _] = <[String; 6]>::try_from(cells).unwrap();
            let registers: Vec<String> = registers.split(", ").map(str::to_owned).collect();
            ([kernel, defines], registers.try_into().unwrap(), shared)
        };
        let rows = rows.iter().map(row).collect();
        Self { around: [text[..begin].to_owned(), text[end..].to_owned()], rows }
    }

    /// Kernel and defines of each row.
    pub(crate) fn titles(&self) -> impl Iterator<Item = [String; 2]> {
        self.rows.iter().map(|(title, ..)| title.clone())
    }

    /// What the table says otherwise of a module that was compiled.
    pub(crate) fn stale(
        &self,
        source: &Source,
        sample: &[(&str, &str)],
        architecture: u32,
        compiled: &Compiled,
    ) -> Vec<String> {
        let Some(column) = LISTED.iter().position(|a| *a == architecture) else { return Vec::new() };
        let mut wrong = Vec::new();
        for name in source.kernels {
            let title = title(name, sample);
            // That there is a row, another test says.
            let Some((_, registers, shared)) = self.rows.iter().find(|row| row.0 == title) else { continue };
            let found = of(compiled, name);
            let last = column + 1 == LISTED.len();
            if registers[column] != found.registers.to_string() || last && *shared != found.shared.to_string()
            {
                let says = format!("docs/CUDA.md says otherwise than {found:?}; {WRITES}");
                wrong.push(format!("sm_{architecture} {title:?}: {says}"));
            }
        }
        wrong
    }

    /// Lists a module that was compiled for one of the architectures.
    pub(crate) fn list(
        &mut self,
        source: &Source,
        sample: &[(&str, &str)],
        architecture: u32,
        compiled: &Compiled,
    ) {
        let Some(column) = LISTED.iter().position(|a| *a == architecture) else { return };
        for name in source.kernels {
            let (title, found) = (title(name, sample), of(compiled, name));
            let at = self.rows.iter().position(|row| row.0 == title).unwrap_or_else(|| {
                self.rows.push((title, Default::default(), String::new()));
                self.rows.len() - 1
            });
            let (_, registers, shared) = &mut self.rows[at];
            registers[column] = found.registers.to_string();
            if column + 1 == LISTED.len() {
                *shared = found.shared.to_string();
            }
        }
    }

    /// Writes the rows in the order of the sources, without those that are no sample's any more. What stands around them may have been written
    /// since they were read.
    pub(crate) fn write(&self) {
        let [mut text, behind] = Self::read().around;
        for source in ogive_kernels::SOURCES {
            let titles =
                source.samples.iter().flat_map(|sample| source.kernels.iter().map(|k| title(k, sample)));
            for title in titles {
                let Some((_, registers, shared)) = self.rows.iter().find(|row| row.0 == title) else {
                    continue;
                };
                let [kernel, defines] = title;
                writeln!(text, "| {kernel} | {defines} | {} | {shared} |", registers.join(", ")).unwrap();
            }
        }
        text.push_str(&behind);
        std::fs::write(TABLE, text).unwrap();
    }
}

/// What a kernel of it takes.
fn of<'a>(compiled: &'a Compiled, kernel: &str) -> &'a Resources {
    compiled.resources.iter().find(|k| k.kernel == kernel).unwrap()
}
