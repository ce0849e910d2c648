//! NVRTC as programs use it: found by its name, each version in turn.

use cudarc::nvrtc::{CompileOptions, compile_ptx_with_opts};
use ptx_emulator_launcher::{Launcher, Nvrtc, test, test_name};

use crate::support::{Gpu, args, close};

const SOURCE: &str = r#"
extern "C" __global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i] + x[i];
}
"#;

#[test]
fn programs_find_every_compiler() {
    if test::case().is_some() {
        let options = CompileOptions { arch: Some("compute_75"), ..Default::default() };
        let ptx = compile_ptx_with_opts(SOURCE, options).unwrap();
        let gpu = Gpu::open(80).with(&ptx.to_src());
        let x: Vec<f32> = (0..300u16).map(f32::from).collect();
        let y = gpu.fresh::<f32>(300);
        gpu.run("twice", 3, 128, 0, args![&gpu.up(&x), &y, 300]);
        close(&gpu.down(&y), &x.iter().map(|v| v * 2.0).collect::<Vec<_>>(), 0.0);
        return;
    }
    for nvrtc in Nvrtc::ALL {
        let launcher = Launcher::new().nvrtc(nvrtc).set("PTX_EMU_CHECK", "1");
        let Some(report) = test::run(test_name!(), &format!("NVRTC {nvrtc}"), &launcher) else { return };
        report.ok();
    }
}
