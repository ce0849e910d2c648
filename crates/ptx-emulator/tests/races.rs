//! Races in global memory, through the library: kernels in PTX, streams, events and graphs. Each fault beside its correct twin.

use ptx_emulator::fault::{Fault, Kind};
use ptx_emulator::runtime::{
    Argument, CaptureMode, Context, Function, LaunchConfig, Machine, NON_BLOCKING, Stream,
};
use ptx_emulator::settings::{Check, Schedule, Settings};

const THREADS: u32 = 64;
const BLOCKS: u32 = 3;

/// `FENCE` and `ACQUIRE` are put in by the tests.
const KERNELS: &str = "
.version 7.0
.target sm_80
.address_size 64

// out[i] = i
.visible .entry fill(.param .u64 out) {
    .reg .b32 %r<5>;
    .reg .b64 %rd<4>;
    ld.param.u64 %rd1, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r1;
    mul.wide.u32 %rd2, %r4, 4;
    add.u64 %rd3, %rd1, %rd2;
    st.global.u32 [%rd3], %r4;
    ret;
}

// out[i] = in[i]
.visible .entry copy(.param .u64 in, .param .u64 out) {
    .reg .b32 %r<6>;
    .reg .b64 %rd<6>;
    ld.param.u64 %rd1, [in];
    ld.param.u64 %rd2, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r1;
    mul.wide.u32 %rd3, %r4, 4;
    add.u64 %rd4, %rd1, %rd3;
    add.u64 %rd5, %rd2, %rd3;
    ld.global.u32 %r5, [%rd4];
    st.global.u32 [%rd5], %r5;
    ret;
}

// The last block to arrive copies what block 0 wrote.
.visible .entry last_block(.param .u64 data, .param .u64 counter, .param .u64 out) {
    .reg .pred %p<3>;
    .reg .b32 %r<10>;
    .reg .b64 %rd<10>;
    .shared .align 4 .b32 ticket;
    ld.param.u64 %rd1, [data];
    ld.param.u64 %rd2, [counter];
    ld.param.u64 %rd3, [out];
    mov.u32 %r1, %tid.x;
    mov.u32 %r2, %ctaid.x;
    mov.u32 %r3, %ntid.x;
    mad.lo.u32 %r4, %r2, %r3, %r1;
    mul.wide.u32 %rd4, %r4, 4;
    add.u64 %rd5, %rd1, %rd4;
    st.global.u32 [%rd5], %r4;
    FENCE
    bar.sync 0;
    setp.ne.u32 %p1, %r1, 0;
    @%p1 bra WAIT;
    atom.global.add.u32 %r5, [%rd2], 1;
    st.shared.u32 [ticket], %r5;
WAIT:
    bar.sync 0;
    ld.shared.u32 %r6, [ticket];
    mov.u32 %r7, %nctaid.x;
    sub.u32 %r7, %r7, 1;
    setp.ne.u32 %p2, %r6, %r7;
    @%p2 bra DONE;
    ACQUIRE
    mul.wide.u32 %rd6, %r1, 4;
    add.u64 %rd7, %rd1, %rd6;
    add.u64 %rd8, %rd3, %rd6;
    ld.global.u32 %r8, [%rd7];
    st.global.u32 [%rd8], %r8;
DONE:
    ret;
}
";

struct Scene {
    machine: Machine,
    context: Context,
    buffers: [u64; 3],
    kernels: [Function; 3],
    streams: [Stream; 2],
}

impl Scene {
    fn new(fence: &str, acquire: &str, seed: u64) -> Self {
        let settings =
            Settings { check: Check::Races, schedule: Schedule::Random, seed, ..Settings::default() };
        let machine = Machine::new(settings);
        let context = machine.retain_primary(0).unwrap();
        let text = KERNELS.replace("FENCE", fence).replace("ACQUIRE", acquire);
        let module = machine.load_module(context, &text).unwrap();
        let kernels = ["fill", "copy", "last_block"].map(|name| machine.function(module, name).unwrap());
        let bytes = u64::from(THREADS * BLOCKS * 4);
        let buffers = [0; 3].map(|_| machine.allocate(context, bytes).unwrap());
        let streams = [0; 2].map(|_| machine.create_stream(context, NON_BLOCKING, 0).unwrap());
        Self { machine, context, buffers, kernels, streams }
    }

    fn launch(&self, stream: usize, kernel: usize, buffers: &[usize]) {
        let arguments: Vec<_> = buffers.iter().map(|b| Argument::Pointer(self.buffers[*b])).collect();
        let config = LaunchConfig { grid: [BLOCKS, 1, 1], block: [THREADS, 1, 1], ..LaunchConfig::default() };
        let stream = self.streams[stream];
        self.machine.launch(self.context, stream, self.kernels[kernel], &config, &arguments).unwrap();
    }

    fn fill(&self, stream: usize, to: usize) {
        self.launch(stream, 0, &[to]);
    }

    fn copy(&self, stream: usize, from: usize, to: usize) {
        self.launch(stream, 1, &[from, to]);
    }

    fn event(&self, from: usize, to: usize) {
        let event = self.machine.create_event(self.context, 0).unwrap();
        self.machine.record_event(self.context, event, self.streams[from]).unwrap();
        self.machine.stream_wait(self.context, self.streams[to], event).unwrap();
    }

    /// Runs everything; the fault if there was one.
    fn end(&self) -> Option<Fault> {
        let _ = self.machine.synchronize(self.context);
        self.machine.take_fault()
    }
}

fn clean(fault: Option<Fault>) {
    assert!(fault.is_none(), "{}", fault.unwrap());
}

/// A race between kernels of these names, in either order.
#[track_caller]
fn race(fault: Option<Fault>, mut kernels: [&str; 2]) {
    let fault = fault.expect("the race was not found");
    assert_eq!(fault.kind, Kind::GlobalRace, "{fault}");
    let names =
        [fault.site.as_ref(), fault.other.as_ref()].map(|site| site.map_or("", |s| s.kernel.as_str()));
    let mut found = names;
    found.sort_unstable();
    kernels.sort_unstable();
    assert_eq!(found, kernels, "{fault}");
}

#[test]
fn two_streams_need_an_event() {
    // Whatever order the seed takes, the missing event is found.
    for seed in 0..6 {
        let scene = Scene::new("", "", seed);
        scene.fill(0, 0);
        scene.event(0, 1);
        scene.copy(1, 0, 1);
        clean(scene.end());

        let scene = Scene::new("", "", seed);
        scene.fill(0, 0);
        scene.machine.synchronize_stream(scene.context, scene.streams[0]).unwrap();
        scene.fill(0, 0);
        scene.copy(1, 0, 1);
        race(scene.end(), ["fill", "copy"]);
    }
}

#[test]
fn an_event_recorded_too_early_orders_nothing() {
    let scene = Scene::new("", "", 1);
    scene.fill(0, 0);
    scene.event(0, 1);
    scene.fill(0, 0);
    scene.copy(1, 0, 1);
    race(scene.end(), ["fill", "copy"]);
}

#[test]
fn a_wait_of_the_host_orders_what_it_queues_next() {
    let scene = Scene::new("", "", 2);
    scene.fill(0, 0);
    scene.machine.synchronize_stream(scene.context, scene.streams[0]).unwrap();
    scene.copy(1, 0, 1);
    clean(scene.end());
}

#[test]
fn a_write_must_wait_for_readers() {
    let scene = Scene::new("", "", 3);
    scene.fill(0, 0);
    scene.event(0, 1);
    scene.copy(1, 0, 1);
    scene.fill(0, 0);
    race(scene.end(), ["fill", "copy"]);

    let scene = Scene::new("", "", 3);
    scene.fill(0, 0);
    scene.event(0, 1);
    scene.copy(1, 0, 1);
    scene.event(1, 0);
    scene.fill(0, 0);
    clean(scene.end());
}

#[test]
fn a_free_in_stream_order_must_come_after_other_streams() {
    for ordered in [true, false] {
        let scene = Scene::new("", "", 4);
        scene.fill(0, 0);
        scene.event(0, 1);
        scene.copy(1, 0, 1);
        if ordered {
            scene.event(1, 0);
        }
        scene.machine.free_async(scene.context, scene.buffers[0], scene.streams[0]).unwrap();
        match (ordered, scene.end()) {
            (true, fault) => clean(fault),
            // Depending on the order the kernel finds freed memory, or the free finds the kernel.
            (false, fault) => {
                let kind = fault.expect("the free was not found").kind;
                assert!(matches!(kind, Kind::GlobalRace | Kind::UseAfterFree), "{kind:?}");
            }
        }
    }
}

#[test]
fn branches_of_a_graph_need_an_edge() {
    for joined in [true, false] {
        let scene = Scene::new("", "", 5);
        let (machine, context, [first, second]) = (&scene.machine, scene.context, scene.streams);
        machine.begin_capture(context, first, CaptureMode::Global).unwrap();
        let fork = machine.create_event(context, 0).unwrap();
        machine.record_event(context, fork, first).unwrap();
        machine.stream_wait(context, second, fork).unwrap();
        scene.fill(0, 0);
        if joined {
            scene.event(0, 1);
        }
        scene.copy(1, 0, 1);
        scene.event(1, 0);
        let graph = machine.end_capture(context, first).unwrap();
        let exec = machine.instantiate(graph, 0).unwrap();
        // Written before, or the copy of the unjoined branch may read what nothing wrote.
        scene.fill(0, 0);
        for _ in 0..3 {
            machine.launch_graph(context, exec, first).unwrap();
        }
        match joined {
            true => clean(scene.end()),
            false => race(scene.end(), ["fill", "copy"]),
        }
    }
}

#[test]
fn a_last_block_reduction_needs_both_its_fences() {
    for (fence, acquire, good) in [
        ("membar.gl;", "membar.gl;", true),
        ("", "membar.gl;", false),
        ("membar.gl;", "", false),
        ("membar.cta;", "membar.gl;", false),
    ] {
        let scene = Scene::new(fence, acquire, 6);
        scene.machine.upload(scene.context, scene.streams[0], scene.buffers[1], &[0; 4]).unwrap();
        scene.launch(0, 2, &[0, 1, 2]);
        match good {
            true => clean(scene.end()),
            false => race(scene.end(), ["last_block", "last_block"]),
        }
    }
}
