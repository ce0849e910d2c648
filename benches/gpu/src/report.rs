//! The report: JSON for programs, Markdown for people, both of the same values.

use crate::figure::{Ceilings, Figure};
use crate::timeline::Traced;
use crate::trace::Kernels;
use crate::{Result, Run, is_lost};
use ogive::backend::Backend;
use serde::Serialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

/// A load of a model.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Load {
    pub(crate) model: String,
    pub(crate) compute: String,
    pub(crate) file_bytes: u64,
    pub(crate) seconds: f64,
    pub(crate) gigabytes_per_second: f64,
    /// Device memory once it is loaded, cache and steps not counted.
    pub(crate) device_bytes: u64,
}

/// A start in a process of its own.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Start {
    pub(crate) model: String,
    /// `cold`: no kernel was compiled before; `cached`: all were.
    pub(crate) cache: &'static str,
    /// Until the backend was there, its first kernel compiled or loaded.
    pub(crate) backend_seconds: f64,
    /// The first steps (a prompt of two rows and a token) less the time they take once warm.
    pub(crate) kernels_seconds: f64,
}

/// Everything that was measured.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Where figures, loads, timelines and notes are written at once.
    #[serde(skip)]
    lines: Option<File>,
    /// Where the report goes.
    #[serde(skip)]
    folder: PathBuf,
    version: &'static str,
    pub(crate) device: String,
    capability: (u32, u32),
    multiprocessors: u32,
    /// Seconds since 1970.
    time: u64,
    /// Tiny sizes: the figures mean nothing.
    smoke: bool,
    pub(crate) ceilings: Ceilings,
    /// By part: ceilings, operators, models, peers.
    pub(crate) figures: BTreeMap<&'static str, Vec<Figure>>,
    pub(crate) loads: Vec<Load>,
    pub(crate) starts: Vec<Start>,
    pub(crate) kernels: Vec<Kernels>,
    /// With `--trace` only.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) traced: Vec<Traced>,
    /// How long each part took.
    pub(crate) seconds: Vec<(String, f64)>,
    notes: Vec<String>,
}

impl Report {
    pub(crate) fn new(run: &Run, lines: Option<File>, folder: &Path) -> Self {
        let (info, time) = (run.cuda.info(), SystemTime::now().duration_since(UNIX_EPOCH));
        Self {
            lines,
            folder: folder.to_owned(),
            version: env!("CARGO_PKG_VERSION"),
            device: run.cuda.facts().description,
            capability: info.capability,
            multiprocessors: info.multiprocessors,
            time: time.map_or(0, |t| t.as_secs()),
            smoke: run.smoke,
            ceilings: Ceilings::default(),
            figures: BTreeMap::new(),
            loads: Vec::new(),
            starts: Vec::new(),
            kernels: Vec::new(),
            traced: Vec::new(),
            seconds: Vec::new(),
            notes: Vec::new(),
        }
    }

    /// Says and keeps a figure.
    pub(crate) fn add(&mut self, part: &'static str, figure: Figure) {
        let figure = figure.against(&self.ceilings);
        eprintln!("figure: {figure}");
        self.line(&json!({"part": part, "figure": figure}));
        self.figures.entry(part).or_default().push(figure);
    }

    pub(crate) fn load(&mut self, load: Load) {
        self.line(&json!({"load": load}));
        self.loads.push(load);
    }

    pub(crate) fn trace(&mut self, traced: Traced) {
        self.line(&json!({"traced": traced}));
        self.traced.push(traced);
    }

    /// What cannot be written is in the report, if the run gets so far.
    fn line(&mut self, value: &Value) {
        let _ = self.lines.as_mut().map(|file| file.write_all(format!("{value}\n").as_bytes()));
    }

    /// Writes what is known so far in place of what was. By another name first: a run that is ended meanwhile leaves the report that was.
    pub(crate) fn keep(&self) -> Result<()> {
        let texts = [("report.json", serde_json::to_string_pretty(self)?), ("report.md", self.markdown())];
        for (name, text) in texts {
            let part = self.folder.join(format!("{name}.part"));
            std::fs::write(&part, text)?;
            std::fs::rename(&part, self.folder.join(name))?;
        }
        Ok(())
    }

    /// Something that a reader must know.
    pub(crate) fn note(&mut self, text: String) {
        eprintln!("note: {text}");
        self.line(&json!({"note": text}));
        self.notes.push(text);
    }

    /// What was measured of `what`, or a note of why it was not, so that the rest is measured all the same; the error if the device is lost.
    pub(crate) fn noted<T>(&mut self, what: &str, measured: Result<T>) -> Result<Option<T>> {
        match measured {
            Err(e) if is_lost(&*e) => {
                self.note(format!("{what}: the device was lost"));
                Err(e)
            }
            Err(e) => {
                self.note(format!("{what}: {e}"));
                Ok(None)
            }
            Ok(measured) => Ok(Some(measured)),
        }
    }

    /// The same for people.
    pub(crate) fn markdown(&self) -> String {
        let mut out = String::new();
        // Writing to a string cannot fail.
        let _ = self.text(&mut out);
        out
    }

    fn text(&self, out: &mut String) -> std::fmt::Result {
        let (major, minor) = self.capability;
        writeln!(
            out,
            "# Ogive on a GPU\n\n{}, sm_{major}{minor}, {} multiprocessors.",
            self.device, self.multiprocessors
        )?;
        if self.smoke {
            writeln!(out, "\nA smoke run: sizes are tiny, and the figures mean nothing.")?;
        }
        writeln!(
            out,
            "\nCeilings: copies {:.0} GB/s, cuBLAS bf16 {:.1} TFLOP/s. “of ceiling” is the least time these allow by the time taken.",
            self.ceilings.bandwidth / 1e9,
            self.ceilings.rate / 1e12
        )?;
        for note in &self.notes {
            writeln!(out, "\n- {note}")?;
        }
        for (part, figures) in &self.figures {
            writeln!(out, "\n## {part}\n")?;
            writeln!(
                out,
                "| what | case | median | least–most (runs) | device | GB/s | TFLOP/s | tokens/s | of ceiling | bound | graph |"
            )?;
            writeln!(out, "|---|---|---:|---|---:|---:|---:|---:|---:|---|---|")?;
            for f in figures {
                row(out, f)?;
            }
        }
        if !self.loads.is_empty() {
            writeln!(
                out,
                "\n## loading\n\n| model | compute | file | seconds | GB/s | on the device | of the file |\n|---|---|---:|---:|---:|---:|---:|"
            )?;
        }
        for l in &self.loads {
            let (file, device) = (l.file_bytes as f64 / 1e9, l.device_bytes as f64 / 1e9);
            let part = 100.0 * device / file;
            writeln!(
                out,
                "| {} | {} | {file:.2} GB | {:.2} | {:.2} | {device:.2} GB | {part:.0} % |",
                l.model, l.compute, l.seconds, l.gigabytes_per_second
            )?;
        }
        if !self.starts.is_empty() {
            writeln!(
                out,
                "\n## first kernels\n\n| model | kernels | backend | first steps, less warm ones |\n|---|---|---:|---:|"
            )?;
        }
        for s in &self.starts {
            writeln!(
                out,
                "| {} | {} | {:.3} s | {:.3} s |",
                s.model, s.cache, s.backend_seconds, s.kernels_seconds
            )?;
        }
        for k in &self.kernels {
            k.text(out)?;
        }
        for t in &self.traced {
            t.text(out)?;
        }
        writeln!(out, "\n## how long it took\n")?;
        self.seconds.iter().try_for_each(|(part, seconds)| writeln!(out, "- {part}: {seconds:.1} s"))
    }
}

/// Seconds as people read them.
pub(crate) fn short(seconds: f64) -> String {
    match seconds {
        s if s >= 1.0 => format!("{s:.2} s"),
        s if s >= 1e-3 => format!("{:.2} ms", s * 1e3),
        s => format!("{:.1} µs", s * 1e6),
    }
}

fn row(out: &mut String, f: &Figure) -> std::fmt::Result {
    let t = &f.times;
    let some = |n: Option<f64>, digits: usize| n.map_or_else(String::new, |n| format!("{n:.digits$}"));
    let percent = f.of_ceiling.map_or_else(String::new, |n| format!("{:.0} %", 100.0 * n));
    writeln!(
        out,
        "| {} | {} | {} | {}–{} ({}) | {} | {:.1} | {:.2} | {} | {percent} | {} | {} |",
        f.name,
        f.case,
        short(t.median),
        short(t.least),
        short(t.most),
        t.runs,
        f.device.as_ref().map_or_else(String::new, |d| short(d.median)),
        f.gigabytes_per_second,
        f.teraflops,
        some(f.tokens_per_second, 1),
        f.bound.unwrap_or_default(),
        if f.graph { "yes" } else { "" },
    )
}
