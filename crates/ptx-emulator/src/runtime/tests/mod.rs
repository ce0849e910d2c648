//! The rules of the machine, each by a program that keeps or breaks it. Kernels are written by hand, so that nothing else is needed.

mod capture;
mod dependent;
mod faults;
mod graphs;
mod launches;
mod memories;
mod orders;
mod peers;
mod streams;

use super::{Argument, Context, Function, LaunchConfig, Machine, Module, NON_BLOCKING, Result, Stream};
use crate::settings::{Schedule, Settings};

/// `set(p, v)`: p[i] = v. `add(p, v)`: p[i] += v. `past(p)`: writes 16 MiB behind p. `narrow`: at most 64 threads. `room`: 1024 bytes of static
/// shared memory and some dynamic. `first` releases its dependents, works for a while and then sets; `second` copies before its wait, and after it.
const KERNELS: &str = r"
.version 8.0
.target sm_80
.address_size 64
.visible .global .align 4 .u32 counter = 41;
.extern .shared .align 4 .b8 dynamic[];
.visible .entry set(.param .u64 p, .param .u32 v)
{
    .reg .b32 %r<6>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [v];
    mov.u32 %r2, %ctaid.x; mov.u32 %r3, %ntid.x; mov.u32 %r4, %tid.x; mad.lo.s32 %r5, %r2, %r3, %r4;
    mul.wide.u32 %rd2, %r5, 4; add.s64 %rd3, %rd1, %rd2; st.global.u32 [%rd3], %r1;
    ret;
}
.visible .entry add(.param .u64 p, .param .u32 v)
{
    .reg .b32 %r<7>; .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [p]; ld.param.u32 %r1, [v];
    mov.u32 %r4, %tid.x; mul.wide.u32 %rd2, %r4, 4; add.s64 %rd3, %rd1, %rd2;
    ld.global.u32 %r5, [%rd3]; add.s32 %r6, %r5, %r1; st.global.u32 [%rd3], %r6;
    ret;
}
.visible .entry past(.param .u64 p)
{
    .reg .b32 %r<2>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p]; mov.u32 %r1, 1; st.global.u32 [%rd1+16777216], %r1;
    ret;
}
.visible .entry narrow() .maxntid 64, 1, 1
{
    ret;
}
.visible .entry room(.param .u64 p)
{
    .shared .align 4 .b8 fixed[1024];
    .reg .b32 %r<4>; .reg .b64 %rd<2>;
    ld.param.u64 %rd1, [p]; mov.u32 %r1, 5; st.shared.u32 [fixed], %r1; st.shared.u32 [dynamic], %r1;
    ld.shared.u32 %r2, [fixed]; ld.shared.u32 %r3, [dynamic]; add.s32 %r2, %r2, %r3; st.global.u32 [%rd1], %r2;
    ret;
}
.visible .entry first(.param .u64 p)
{
    .reg .b32 %r<3>; .reg .b64 %rd<2>; .reg .pred %more;
    ld.param.u64 %rd1, [p]; griddepcontrol.launch_dependents; mov.u32 %r2, 0;
again:
    add.s32 %r2, %r2, 1; setp.lt.u32 %more, %r2, 1000; @%more bra again;
    mov.u32 %r1, 7; st.global.u32 [%rd1], %r1;
    ret;
}
.visible .entry second(.param .u64 p, .param .u64 q)
{
    .reg .b32 %r<3>; .reg .b64 %rd<3>;
    ld.param.u64 %rd1, [p]; ld.param.u64 %rd2, [q];
    ld.global.u32 %r1, [%rd1]; st.global.u32 [%rd2], %r1;
    griddepcontrol.wait;
    ld.global.u32 %r2, [%rd1]; st.global.u32 [%rd2+4], %r2;
    ret;
}
";

/// A machine with one device, its context and the kernels.
struct Bench {
    machine: Machine,
    context: Context,
    module: Module,
}

impl Bench {
    fn new(schedule: Schedule) -> Self {
        Self::with(Settings { schedule, idle: None, workers: 1, ..Settings::default() })
    }

    fn with(settings: Settings) -> Self {
        let machine = Machine::new(settings);
        let context = machine.retain_primary(0).expect("a device");
        let arch = machine.settings().devices[0].model.arch();
        let text = if arch >= 90 { KERNELS.replace("sm_80", "sm_90") } else { without_waits(KERNELS) };
        let module = machine.load_module(context, &text).expect("the kernels load");
        Self { machine, context, module }
    }

    fn function(&self, name: &str) -> Function {
        self.machine.function(self.module, name).expect(name)
    }

    fn stream(&self) -> Stream {
        self.machine.create_stream(self.context, NON_BLOCKING, 0).expect("a stream")
    }

    /// Four words of device memory, zero.
    fn words(&self) -> u64 {
        let words = self.machine.allocate(self.context, 16).expect("room");
        self.machine.fill(self.context, Stream::DEFAULT, words, 0, (0, 4), 4, 1).expect("filled");
        self.machine.synchronize(self.context).expect("done");
        words
    }

    fn launch(&self, stream: Stream, name: &str, arguments: &[Argument<'_>]) -> Result<()> {
        let config = LaunchConfig { grid: [1; 3], block: [1; 3], ..LaunchConfig::default() };
        self.machine.launch(self.context, stream, self.function(name), &config, arguments)
    }

    fn set(&self, stream: Stream, at: u64, value: u32) {
        self.launch(stream, "set", &[Argument::Pointer(at), Argument::U32(value)]).expect("launched");
    }

    /// Device to device, in a stream.
    fn copy(&self, stream: Stream, to: u64, from: u64, bytes: u64) {
        let transfer = super::Transfer::line(to, true, from, true, bytes);
        self.transfer(stream, &transfer);
    }

    #[allow(unsafe_code)]
    fn transfer(&self, stream: Stream, transfer: &super::Transfer) {
        // SAFETY: the tests copy between memory of the machine only.
        unsafe { self.machine.transfer(self.context, stream, transfer, false) }.expect("queued");
    }

    /// The first word, without anything else being waited for.
    fn word(&self, at: u64) -> u32 {
        let stream = self.stream();
        let mut bytes = [0; 4];
        self.machine.download(self.context, stream, &mut bytes, at).expect("read");
        u32::from_le_bytes(bytes)
    }
}

/// Before sm_90 there are no dependent launches: the kernels without their waits.
fn without_waits(text: &str) -> String {
    text.replace("griddepcontrol.launch_dependents;", "").replace("griddepcontrol.wait;", "")
}

const POLICIES: [Schedule; 4] = [Schedule::Eager, Schedule::Lazy, Schedule::Random, Schedule::Adversarial];
