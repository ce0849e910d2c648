//! A kernel's call: its defines, its arguments in order, and how it is spread over the device.
//!
//! Arguments are packed as bits of their own size, sixteen bytes for each, so that no struct has to match one of the kernel's by
//! luck. The kernel's parameter list is the contract; the emulator checks it in tests.

use crate::device::Device;
use crate::driver::{Address, Extent};
use crate::error::{Error, Result};
use crate::module::{Define, Value};
use crate::values::count;
use ogive_kernels::Source;
use ogive_tensor::Tensor;

/// Threads of a block where nothing says otherwise.
pub(crate) const THREADS: u32 = 256;
/// The most blocks along x, and along y and z.
const MOST: [u64; 3] = [i32::MAX as u64, 65_535, 65_535];

/// Modules whose kernels do not begin by waiting for the one before, nor note when they ran: what measures and tests.
const UNORDERED: [&str; 2] = ["probe", "trial"];

/// Modules whose kernels overlap although they take shared memory at the launch: the first's are the faster for it, as has been measured, and of the second's
/// two that follow one another fit a multiprocessor.
const SPREAD: [&str; 2] = ["linear_int8_mma", "linear_one"];

/// A call in the making. What cannot be counted is found at the end.
pub(crate) struct Call<'a> {
    device: &'a Device,
    at: &'a str,
    source: &'static Source,
    kernel: &'static str,
    defines: Vec<Define>,
    arguments: Vec<[u64; 2]>,
    /// Whether it may begin before the kernel before is done, where kernels do.
    overlaps: bool,
    wrong: Option<Error>,
}

impl<'a> Call<'a> {
    /// A call of `kernel` in `source` for operator `at`.
    pub(crate) fn new(
        device: &'a Device,
        at: &'a str,
        source: &'static Source,
        kernel: &'static str,
    ) -> Self {
        let (defines, arguments) = (Vec::new(), Vec::with_capacity(20));
        Self { device, at, source, kernel, defines, arguments, overlaps: true, wrong: None }
    }

    /// A define that is a number.
    pub(crate) fn define(mut self, name: &'static str, value: usize) -> Self {
        self.defines.push((name, Value::Count(value)));
        self
    }

    /// A define that is a word.
    pub(crate) fn word(mut self, name: &'static str, value: &'static str) -> Self {
        self.defines.push((name, Value::Word(value)));
        self
    }

    /// A define that is there or not.
    pub(crate) fn flag(self, name: &'static str, on: bool) -> Self {
        if on { self.define(name, 1) } else { self }
    }

    /// A define that is a number, where there is one.
    pub(crate) fn given(self, name: &'static str, value: Option<usize>) -> Self {
        match value {
            Some(value) => self.define(name, value),
            None => self,
        }
    }

    /// Begins when the kernel before is done, if `x` is for the kernel to read before it waits for that and may be its work.
    pub(crate) fn after(mut self, x: &Tensor) -> Self {
        self.overlaps &= Device::is_as_sent(x);
        self
    }

    fn bits(mut self, low: u64, high: u64) -> Self {
        self.arguments.push([low, high]);
        self
    }

    /// A pointer; 0 is null.
    pub(crate) fn at(self, address: Address) -> Self {
        self.bits(address, 0)
    }

    /// A size, as an `int`.
    pub(crate) fn count(mut self, what: &'static str, size: usize) -> Self {
        match count(self.at, what, size) {
            Ok(n) => self.bits(u64::from(n.cast_unsigned()), 0),
            Err(e) => {
                self.wrong = self.wrong.or(Some(e));
                self
            }
        }
    }

    /// A small number, as `int` or `u32`.
    pub(crate) fn number(self, n: u32) -> Self {
        self.bits(n.into(), 0)
    }

    /// A yes or no, as `int`.
    pub(crate) fn yes(self, on: bool) -> Self {
        self.number(on.into())
    }

    /// A size, as `u64`.
    pub(crate) fn long(self, n: usize) -> Self {
        self.bits(n as u64, 0)
    }

    /// A single precision number.
    pub(crate) fn float(self, v: f32) -> Self {
        self.bits(v.to_bits().into(), 0)
    }

    /// A struct of an `int`, a `float` and a pointer.
    pub(crate) fn edit(self, kind: u32, value: f32, data: Address) -> Self {
        self.bits(u64::from(kind) | u64::from(value.to_bits()) << 32, data)
    }

    /// Queues it on that many blocks of that many threads; on none, nothing happens.
    pub(crate) fn run(self, grid: [usize; 3], block: [u32; 3]) -> Result<()> {
        self.run_shared(grid, block, 0)
    }

    /// The same, with so many bytes of shared memory beside what the kernel declares.
    pub(crate) fn run_shared(mut self, grid: [usize; 3], block: [u32; 3], shared: usize) -> Result<()> {
        if let Some(e) = self.wrong {
            return Err(e);
        }
        if grid.contains(&0) {
            return Ok(());
        }
        let too_large = |what, size: u64, limit| Error::Limit { doing: self.at.into(), what, size, limit };
        let mut blocks = [0; 3];
        for (i, (to, &from)) in blocks.iter_mut().zip(&grid).enumerate() {
            let (size, limit) = (from as u64, MOST.get(i).copied().unwrap_or(1));
            let fits = u32::try_from(size).ok().filter(|_| size <= limit);
            *to = fits.ok_or_else(|| too_large("a number of blocks", size, limit))?;
        }
        let most = self.device.info.shared_memory;
        let fits = u32::try_from(shared).ok().filter(|s| *s <= most);
        let shared = fits.ok_or_else(|| too_large("shared memory in bytes", shared as u64, most.into()))?;
        let ordered = !UNORDERED.contains(&self.source.name);
        if let Some(trace) = self.device.trace.as_ref().filter(|_| ordered) {
            let record = self.device.pool.recorder.mark();
            let slot = trace.give(self.at, self.kernel, &self.defines, record);
            self.defines.push(("TRACE", Value::Count(1)));
            self.arguments.insert(0, [slot, 0]);
        }
        // Blocks with much memory of their own would take places unevenly: the first multiprocessors that the kernel before leaves would get
        // several, and the last ones none.
        let small = shared == 0 || SPREAD.contains(&self.source.name);
        let overlap = self.device.overlap && ordered && self.overlaps && small;
        if overlap {
            self.defines.push(("OVERLAP", Value::Count(1)));
        }
        let kernel = self.device.modules.kernel(self.source, self.kernel, self.defines)?;
        kernel.allow_shared(shared)?;
        let extent = Extent { grid: blocks, block, shared };
        let stream = self.device.stream();
        match overlap {
            true => stream.launch_overlapping(&kernel, self.at, extent, &mut self.arguments),
            false => stream.launch(&kernel, self.at, extent, &mut self.arguments),
        }
    }

    /// A thread for each of `n` elements, in blocks that loop where they are more than fill the device.
    pub(crate) fn over(self, n: usize) -> Result<()> {
        let most = self.device.info.multiprocessors.max(1) as usize * 32;
        let blocks = n.div_ceil(THREADS as usize).min(most);
        self.run([blocks, 1, 1], [THREADS, 1, 1])
    }

    /// A block for each of `rows`, of as many threads as `cols` elements keep busy.
    pub(crate) fn by_rows(self, rows: usize, cols: usize) -> Result<()> {
        self.run([rows, 1, 1], [threads(cols), 1, 1])
    }
}

/// Threads for a row of `cols` elements: whole warps, a few elements each. Set by the length alone, as the order of sums is. A step of one
/// row has one such block and waits for it, so no more elements than a thread has on their way at a time.
pub(crate) fn threads(cols: usize) -> u32 {
    match cols {
        0..=64 => 32,
        65..=512 => 128,
        513..=1024 => 256,
        1025..=2048 => 512,
        _ => 1024,
    }
}

#[cfg(test)]
pub(crate) mod tests {
    #![allow(clippy::print_stdout)]

    use super::*;
    use crate::CudaBackend;
    use ogive_backend::Backend;
    use ogive_kernels::TRIAL;
    use ptx_emulator_launcher::{Launcher, Nvrtc, test, test_name};

    /// Runs the trial on whole numbers, so that every path gives the very same.
    fn trial() {
        let b = CudaBackend::new().unwrap();
        let d = &b.device;
        let number = |i: usize| ((i * 37 + 11) % 23) as i32 - 11;
        let list = |n: usize, from: usize| (0..n).map(|i| number(i + from)).collect::<Vec<i32>>();
        let (a, w, x, y) = (list(256, 0), list(128, 5), list(512, 9), list(256, 2));
        let floats = |v: &[i32]| v.iter().map(|v| *v as f32).collect::<Vec<f32>>();
        let bytes = |v: &[i32]| {
            let words = v.chunks(4).map(|v| u32::from_le_bytes([v[0], v[1], v[2], v[3]].map(|v| v as u8)));
            words.map(f32::from_bits).collect::<Vec<f32>>()
        };
        let up = |v: Vec<f32>| b.upload(&v, [v.len()].into()).unwrap();
        let given = [up(floats(&a)), up(floats(&w)), up(bytes(&x)), up(bytes(&y))];
        let out = d.tensor("trial", [5, 128]).unwrap();
        let mut call = Call::new(d, "trial", &TRIAL, "trial");
        for x in given.iter().chain([&out]) {
            call = call.at(d.read("trial", x).unwrap());
        }
        call.run([1, 1, 1], [32, 1, 1]).unwrap();
        let product = |a: &[i32], w: &[i32], k: usize| -> Vec<f32> {
            let dot = |i: usize| (0..k).map(|j| a[i / 8 * k + j] * w[i % 8 * k + j]).sum::<i32>() as f32;
            (0..128).map(dot).collect()
        };
        let (halves, whole) = (product(&a, &w, 16), product(&x, &y, 32));
        assert_eq!(
            b.download(&out).unwrap(),
            [halves.clone(), halves, whole.clone(), whole.clone(), whole].concat()
        );
    }

    /// Two sizes of one kernel's, the larger one asked for first: another thread, or the record of a step, may be about to launch it so.
    fn sizes() {
        let b = CudaBackend::new().unwrap();
        let d = &b.device;
        let zeros: Vec<Tensor> = (0..5).map(|_| b.upload(&[0.0; 1024], [1024].into()).unwrap()).collect();
        let mut arguments: Vec<[u64; 2]> = zeros.iter().map(|x| [d.read("trial", x).unwrap(), 0]).collect();
        let kernel = d.modules.kernel(&TRIAL, "trial", Vec::new()).unwrap();
        // Beside what the kernel declares.
        let most = d.info.shared_memory - 4096;
        for bytes in [most, most - 1024, 0] {
            kernel.allow_shared(bytes).unwrap();
        }
        let extent = Extent { grid: [1; 3], block: [32, 1, 1], shared: most };
        d.stream().launch(&kernel, "trial", extent, &mut arguments).unwrap();
        b.synchronize().unwrap();
        // What the device has not is still refused, and changes nothing.
        assert!(kernel.allow_shared(1 << 20).is_err());
        d.stream().launch(&kernel, "trial", extent, &mut arguments).unwrap();
        b.synchronize().unwrap();
    }

    #[test]
    fn shared_memory_that_was_allowed_stays_allowed() {
        on(test_name!(), Nvrtc::V12, "sm_80", sizes);
    }

    /// Runs `body` on a GPU if there is one, else under the emulator as this kind of device.
    pub(crate) fn on(name: &str, nvrtc: Nvrtc, device: &str, body: fn()) {
        if test::case().is_some() || CudaBackend::is_available() {
            return body();
        }
        let launcher = Launcher::new().nvrtc(nvrtc).set("PTX_EMU_DEVICES", device).set("PTX_EMU_CHECK", "1");
        // What one test compiles serves the others.
        let kernels = launcher.cache_folder().map_or("off".into(), |folder| folder.join("kernels"));
        let launcher =
            launcher.set("OGIVE_CUDA_CACHE", kernels).patience(std::time::Duration::from_secs(900));
        test::run(name, device, &launcher).map(test::Report::ok);
    }

    #[test]
    fn instructions_give_what_they_should() {
        on(test_name!(), Nvrtc::V12, "sm_80", trial);
        on(test_name!(), Nvrtc::V13, "sm_90", trial);
        on(test_name!(), Nvrtc::V11, "sm_75", trial);
    }

    #[test]
    fn threads_are_whole_warps() {
        for cols in [0, 1, 64, 65, 513, 100_000] {
            assert!(threads(cols).is_multiple_of(32) && threads(cols) <= 1024);
        }
    }
}
