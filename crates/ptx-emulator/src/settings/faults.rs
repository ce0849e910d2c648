//! Faults on demand: what shall fail, and when.
//!
//! Counted and not random: a test that wants "the third allocation fails" must get it on every run, and a loop over n walks through every
//! place in which a program can fail.

use super::Invalid;

/// The n-th of something fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nth {
    /// Counted from 1.
    pub at: u64,
    /// All after it fail too.
    pub onwards: bool,
    /// The driver's number to fail with.
    pub code: i32,
}

/// Everything that is made to fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// Allocations of device memory.
    pub alloc: Vec<Nth>,
    /// Allocations of pinned memory.
    pub host_alloc: Vec<Nth>,
    /// Launches, each kernel of a graph counted. Sticky numbers (700 …) come when the kernel runs, others from the call.
    pub launch: Vec<Nth>,
    /// Copies, to and from the device and within it. Sticky or not, as with launches.
    pub memcpy: Vec<Nth>,
    /// Copies from one device to another, counted for themselves. Sticky or not, as with launches.
    pub peer: Vec<Nth>,
    /// Graphs that are instantiated or launched, counted together.
    pub graph: Vec<Nth>,
    /// Modules that load.
    pub module: Vec<Nth>,
    /// Calls of cuBLAS, which fail with a status of its own.
    pub cublas: Vec<Nth>,
    /// Names `cuGetProcAddress` does not find.
    pub missing: Vec<String>,
    /// `cuInit` says that there is no device.
    pub no_device: bool,
    /// `cuInit` fails with this number.
    pub init: Option<i32>,
    /// The device is lost with this call: it and all later ones fail.
    pub lost: Option<Nth>,
}

impl Nth {
    /// Whether the `count`-th one fails.
    #[must_use]
    pub fn strikes(&self, count: u64) -> bool {
        count == self.at || self.onwards && count > self.at
    }
}

/// What the list says beside faults: it may also set the driver's version, the memory of all devices, and what they say is free of the machine's.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Parsed {
    pub(super) faults: Faults,
    pub(super) driver: Option<i32>,
    pub(super) memory: Option<u64>,
    pub(super) integrated: Option<u64>,
}

/// Reads `alloc:3,launch:2:719,missing-symbol:cuGraphLaunch,no-device`.
pub(super) fn parse(list: &str) -> Result<Parsed, Invalid> {
    let mut parsed = Parsed::default();
    for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let bad = |what: &str| Invalid::new("PTX_EMU_FAULT", item, what);
        let mut parts = item.split(':');
        let kind = parts.next().unwrap_or_default();
        let first = parts.next();
        let second = parts.next();
        if parts.next().is_some() {
            return Err(bad("has more than two arguments"));
        }
        let number = |text: Option<&str>| -> Result<i32, Invalid> {
            let text = text.ok_or_else(|| bad("needs a number, as in `init:999`"))?;
            text.parse().ok().filter(|n| *n > 0).ok_or_else(|| bad("needs a positive number"))
        };
        let nth = |default: i32| -> Result<Nth, Invalid> {
            let text = first.ok_or_else(|| bad("needs a count, as in `alloc:3` or `alloc:3+`"))?;
            let onwards = text.ends_with('+');
            let at = text.trim_end_matches('+').parse().ok().filter(|n| *n > 0);
            let at = at.ok_or_else(|| bad("needs a count from 1 on, as in `alloc:3` or `alloc:3+`"))?;
            let code = if second.is_some() { number(second)? } else { default };
            Ok(Nth { at, onwards, code })
        };
        let alone = |takes: usize| {
            let given = usize::from(first.is_some()) + usize::from(second.is_some());
            if given == takes { Ok(()) } else { Err(bad("has the wrong number of arguments")) }
        };
        match kind {
            "alloc" => parsed.faults.alloc.push(nth(2)?),
            "host-alloc" => parsed.faults.host_alloc.push(nth(2)?),
            "launch" => parsed.faults.launch.push(nth(719)?),
            "memcpy" => parsed.faults.memcpy.push(nth(719)?),
            "peer" => parsed.faults.peer.push(nth(719)?),
            "graph" => parsed.faults.graph.push(nth(2)?),
            "module" => parsed.faults.module.push(nth(209)?),
            // CUBLAS_STATUS_INTERNAL_ERROR
            "cublas" => parsed.faults.cublas.push(nth(14)?),
            "lost" => parsed.faults.lost = Some(Nth { onwards: true, ..nth(999)? }),
            "missing-symbol" => {
                alone(1)?;
                parsed.faults.missing.extend(first.map(str::to_owned));
            }
            "no-device" => {
                alone(0)?;
                parsed.faults.no_device = true;
            }
            "init" => {
                alone(1)?;
                parsed.faults.init = Some(number(first)?);
            }
            "driver" => {
                alone(1)?;
                parsed.driver = Some(number(first)?);
            }
            "memory" => {
                alone(1)?;
                parsed.memory = Some(super::bytes(first.unwrap_or_default()).map_err(|what| bad(&what))?);
            }
            "integrated" => {
                alone(1)?;
                parsed.integrated = Some(super::bytes(first.unwrap_or_default()).map_err(|what| bad(&what))?);
            }
            _ => {
                return Err(bad(
                    "is not one of alloc, host-alloc, launch, memcpy, peer, graph, module, cublas, lost, missing-symbol, no-device, init, driver, memory, integrated",
                ));
            }
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::{Nth, parse};

    #[test]
    fn a_list_is_read_and_counted() {
        let parsed =
            parse("alloc:3,launch:2+:700,cublas:4:13, missing-symbol:cuGraphLaunch,no-device,driver:11040,memory:64M,integrated:2M")
                .expect("valid");
        assert_eq!(parsed.faults.alloc, [Nth { at: 3, onwards: false, code: 2 }]);
        assert_eq!(parsed.faults.launch, [Nth { at: 2, onwards: true, code: 700 }]);
        assert_eq!(parsed.faults.cublas, [Nth { at: 4, onwards: false, code: 13 }]);
        assert!(parsed.faults.launch.iter().any(|n| n.strikes(5)));
        assert!(!parsed.faults.alloc.iter().any(|n| n.strikes(4)));
        assert_eq!(
            (parsed.driver, parsed.memory, parsed.integrated),
            (Some(11040), Some(64 << 20), Some(2 << 20))
        );
        assert!(parsed.faults.no_device);
        assert_eq!(parsed.faults.missing, ["cuGraphLaunch"]);
    }

    #[test]
    fn nonsense_is_refused_with_its_text() {
        for bad in
            ["alloc", "alloc:0", "alloc:x", "frob:1", "init", "no-device:1", "launch:1:2:3", "memory:many"]
        {
            let error = parse(bad).expect_err(bad).to_string();
            assert!(error.contains(bad), "{error}");
        }
    }
}
