//! Where figures are from, so that they can be traced: the machine, the commit, the day.

use serde::Serialize;
use serde_json::Value;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

/// What a run was done on and with; absent is what the system does not tell.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Trace {
    /// Of the beginning, in UTC.
    date: String,
    /// Of the repository that the program is run in.
    #[serde(skip_serializing_if = "Option::is_none")]
    commit: Option<String>,
    machine: Machine,
    options: Value,
}

#[derive(Clone, Debug, Serialize)]
struct Machine {
    /// The processor's model.
    #[serde(skip_serializing_if = "Option::is_none")]
    cpu: Option<String>,
    /// That this process may use.
    #[serde(skip_serializing_if = "Option::is_none")]
    cores: Option<usize>,
    /// The instructions that Ogive uses, by its own name for them.
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<&'static str>,
}

impl Trace {
    pub(crate) fn now(options: Value) -> Self {
        let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
        Self {
            date: date(seconds),
            // With `-dirty` where the tree is not what was committed.
            commit: output("git", &["describe", "--always", "--dirty", "--abbrev=9", "--exclude", "*"]),
            machine: Machine {
                cpu: cpu(),
                cores: std::thread::available_parallelism().ok().map(usize::from),
                path: ogive::cpu::Path::choose().ok().map(ogive::cpu::Path::name),
            },
            options,
        }
    }
}

/// What a command prints, where it succeeds.
fn output(program: &str, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).output().ok().filter(|o| o.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

fn cpu() -> Option<String> {
    if cfg!(target_os = "macos") {
        return output("sysctl", &["-n", "machdep.cpu.brand_string"]);
    }
    model(&std::fs::read_to_string("/proc/cpuinfo").ok()?)
}

/// The model of the first processor in Linux's list.
fn model(list: &str) -> Option<String> {
    let value = |line: &str| {
        let (name, value) = line.split_once(':')?;
        (name.trim() == "model name").then(|| value.trim().to_owned())
    };
    list.lines().find_map(value)
}

/// Seconds since 1970 as ISO 8601 has them.
fn date(seconds: u64) -> String {
    let (days, second) = (seconds / 86400, seconds % 86400);
    // Howard Hinnant's `civil_from_days`: years begin in March, so that a leap day is the last of its year.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = era * 400 + year + u64::from(month <= 2);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
        ] {
            assert_eq!(date(seconds), expected);
        }
    }

    #[test]
    fn what_is_not_told_is_absent() {
        let list = "processor\t: 0\nmodel name\t: AMD EPYC 9 \nflags\t: a\nmodel name\t: other\n";
        assert_eq!(model(list).as_deref(), Some("AMD EPYC 9"));
        assert_eq!(model("CPU implementer\t: 0x41\n"), None);
        assert_eq!(output("git", &["no-such-command"]), None);
        let machine = Machine { cpu: None, cores: Some(2), path: Some("avx2") };
        let trace =
            Trace { date: date(0), commit: None, machine, options: serde_json::json!({ "threads": 1 }) };
        let expected =
            r#"{"date":"1970-01-01T00:00:00Z","machine":{"cores":2,"path":"avx2"},"options":{"threads":1}}"#;
        assert_eq!(serde_json::to_string(&trace).unwrap(), expected);
    }
}
