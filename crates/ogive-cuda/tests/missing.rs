//! What is missing of CUDA, or too old, is told: each combination has a sentence of its own, which names what is wrong and what helps.
//!
//! Under the emulator, but for those without a driver, which need none.
#![allow(clippy::print_stdout)]

#[path = "common/stage.rs"]
mod stage;

use ptx_emulator_launcher::{Nvrtc, test_name};
use stage::{File, HERE, Situation, Stage, is_case, situation};

/// A machine with a driver of its own cannot play one without.
#[test]
fn without_a_driver() {
    if is_case() {
        return;
    }
    let stage = Stage::bare(test_name!());
    if stage.hear(&situation("a look")).values("report").any(|line| line.starts_with("CUDA driver: CUDA ")) {
        return println!("skipped: {}: this machine has a driver", stage.test);
    }
    let installs = "install NVIDIA's driver (nvidia-smi must work); in a container, start it with the GPU";
    stage.tell_apart(&[
        situation("no driver")
            .both(&["CUDA driver: libcuda.so.1 not found; looked in the loader's path", installs]),
        situation("no library in the driver's place").file("libcuda.so.1", File::Text).both(&[
            "CUDA driver: /",
            "/libcuda.so.1 cannot be loaded (",
            installs,
        ]),
        situation("another library in the driver's place")
            .file("libcuda.so.1", File::Played(12, 0))
            .both(&["is no driver of CUDA 11 or newer", "update the driver"]),
    ]);
}

#[test]
fn a_driver_that_does_not_start() {
    if is_case() {
        return;
    }
    let Some(stage) = Stage::emulated(test_name!()) else { return };
    let visible = "look at nvidia-smi, and at CUDA_VISIBLE_DEVICES if it is set";
    let none = ["cuda:0: there is no device here", visible];
    let mut all = vec![situation("no device").driver().set("PTX_EMU_DEVICES", "none").both(&none)];
    for (code, helps) in [
        (3, "shutting down or was not started"),
        (34, "take its folder off LD_LIBRARY_PATH"),
        (304, "are there /dev/nvidia* that this user may open?"),
        (802, "nvidia-fabricmanager"),
        (803, "of different versions: reboot"),
        (804, "newer than its kernel module"),
        (999, "is the driver's kernel module loaded (nvidia-smi)?"),
    ] {
        let s = situation(&format!("init {code}")).driver().fault(&format!("init:{code}"));
        all.push(s.both(&["starting the CUDA driver ", &format!(" ({code}); "), helps]));
    }
    stage.tell_apart(&all);
    // The same, whether the driver says so when it starts or when it counts, and why.
    for hidden in [
        situation("hidden").set("CUDA_VISIBLE_DEVICES", ""),
        situation("no such number").set("CUDA_VISIBLE_DEVICES", "7"),
        situation("none at the start").fault("no-device"),
    ] {
        let heard = stage.hear(&hidden.driver());
        assert_eq!(heard.values("error").next(), Some(&*none.join("; ")), "{}", heard.stdout);
        let line = heard.values("report").next().unwrap();
        assert!(line.starts_with("CUDA driver: ") && line.contains("/libcuda.so.1"), "{line}");
    }
}

/// Opened, it would end the process without a word.
#[test]
#[cfg(target_os = "linux")]
fn a_driver_that_is_cut_off() {
    if is_case() {
        return;
    }
    let Some(stage) = Stage::emulated(test_name!()) else { return };
    let told = "/libcuda.so.1 cannot be loaded (the file is cut off: it has 200000 of ";
    let s = situation("cut off").file("libcuda.so.1", File::Cut(&File::Emulator, 200_000));
    stage.tell_apart(&[s.both(&["CUDA driver: /", told, "install NVIDIA's driver"])]);
}

/// The packages that are named are those of a build with every generation.
#[test]
fn a_compiler_that_does_not_fit() {
    if is_case() {
        return;
    }
    if !cfg!(all(feature = "cuda-11", feature = "cuda-12", feature = "cuda-13")) {
        return println!("skipped: this build leaves a generation out");
    }
    let Some(stage) = Stage::emulated(test_name!()) else { return };
    if let Some(line) =
        stage.hear(&situation("a look").driver()).values("report").find(|line| line.starts_with("NVRTC: 1"))
    {
        return println!("skipped: {}: this machine has one: {line}", stage.test);
    }
    let with = |package: &str| format!("; pip install {package}, or point OGIVE_CUDA_PATH to its folder");
    let newest = with("nvidia-cuda-nvrtc");
    let newer = |driver: &str, helps: &str| {
        format!(", newer than the driver, which is for CUDA {driver}: update the driver{helps}")
    };
    let eleven = " or install an older NVRTC (pip install nvidia-cuda-nvrtc-cu11)";
    let twelve = " or install an older NVRTC (pip install \"nvidia-cuda-nvrtc-cu12<12.5\")";
    stage.tell_apart(&[
        situation("no NVRTC")
            .driver()
            .both(&["NVRTC: libnvrtc.so not found; looked in the loader's path", "Python's packages", &newest]),
        situation("no NVRTC, an older driver")
            .driver()
            .fault("driver:12040")
            .both(&["NVRTC: libnvrtc.so not found; ", &with("nvidia-cuda-nvrtc-cu12")]),
        situation("no NVRTC, a driver that is too old")
            .driver()
            .fault("driver:10020")
            .both(&["NVRTC: libnvrtc.so not found; ", "; update the driver, which is for CUDA 10.2"]),
        situation("no library in its place")
            .driver()
            .file("libnvrtc.so.12", File::Text)
            .both(&["NVRTC: /", "/libnvrtc.so.12 cannot be loaded (", &newest]),
        situation("a compiler that is cut off")
            .driver()
            .file("libnvrtc.so.12", File::Cut(&File::Alone(Nvrtc::V12), 3_000_000))
            .both(&["NVRTC: /", "/libnvrtc.so.12 cannot be loaded (the file is cut off: it has 3000000 of ", &newest]),
        situation("another library in its place")
            .driver()
            .file("libnvrtc.so", File::Emulator)
            .both(&["NVRTC: /", "libnvrtc.so is no NVRTC (undefined symbol: nvrtcVersion)", &newest]),
        situation("an NVRTC that is too old")
            .driver()
            .file("libnvrtc.so", File::Played(11, 1))
            .both(&["libnvrtc.so is NVRTC 11.1, and 11.8 is the oldest that will do", &newest]),
        situation("an NVRTC that is a little too old")
            .driver()
            .file("libnvrtc.so", File::Played(11, 7))
            .both(&["libnvrtc.so is NVRTC 11.7, and 11.8 is the oldest that will do", &newest]),
        situation("an NVRTC of a generation that is left out")
            .driver()
            .file("libnvrtc.so", File::Played(14, 0))
            .both(&["libnvrtc.so is of CUDA 14, which this build leaves out: it loads those of CUDA 11, 12 and 13", &newest]),
        situation("an NVRTC that does not know the device")
            .driver()
            .compiler(Nvrtc::V13)
            .set("PTX_EMU_DEVICES", "sm_61")
            .error(&["libnvrtc.so.13", " is NVRTC 13.", ", which does not know sm_61", &with("nvidia-cuda-nvrtc-cu12")])
            .report(&["NVRTC: 13.", "; none for sm_61: pip install nvidia-cuda-nvrtc-cu12, or point"]),
        situation("an NVRTC of a newer generation than the driver")
            .driver()
            .compiler(Nvrtc::V12)
            .fault("driver:11080")
            .error(&["libnvrtc.so.12", " is NVRTC 12.9", &newer("11.8", eleven)])
            .report(&["NVRTC: 12.9 (", &format!("12.9 is{}", &newer("11.8", eleven)[1..])])
            .late(),
        situation("an NVRTC that is a little newer than the driver")
            .driver()
            .compiler(Nvrtc::V12)
            .fault("driver:12040")
            .error(&["libnvrtc.so.12", " is NVRTC 12.9", &newer("12.4", twelve)])
            .report(&["NVRTC: 12.9 ("])
            .late(),
        situation("a driver that is older than any NVRTC")
            .driver()
            .compiler(Nvrtc::V11)
            .fault("driver:10020")
            .error(&["libnvrtc.so.11.2", " is NVRTC 11.8", &newer("10.2", ";")])
            .report(&["NVRTC: 11.8 (", "11.8 is newer than the driver, which is for CUDA 10.2: update the driver"])
            .late(),
        situation("a device without memory")
            .driver()
            .compiler(Nvrtc::V12)
            .fault("memory:1M")
            .error(&["opening cuda:0: ", "bytes of device memory asked for", "close other programs that use the GPU"])
            .report(&["NVRTC: 12.9 ("])
            .late(),
    ]);
}

/// Also beside broken ones and one that is left out, which are told all the same; and the one that the user names before all others.
#[test]
fn the_compiler_that_fits_is_taken() {
    if is_case() {
        return;
    }
    let Some(stage) = Stage::emulated(test_name!()) else { return };
    let older =
        situation("newer and older").driver().compiler(Nvrtc::V12).compiler(Nvrtc::V11).fault("driver:11080");
    let device = situation("newest and older").driver().compiler(Nvrtc::V13).compiler(Nvrtc::V12);
    let device = device.set("PTX_EMU_DEVICES", "sm_61");
    let others = situation("others").driver().compiler(Nvrtc::V12).file("libnvrtc.so", File::Played(14, 0));
    let others = others.file("libnvrtc.so.13", File::Text);
    let whole = situation("broken and older").driver().compiler(Nvrtc::V11);
    let whole = whole.file("libnvrtc.so.12", File::Alone(Nvrtc::V12)).fault("driver:12090");
    let named = situation("named and newer").driver().compiler(Nvrtc::V12).fault("driver:13050");
    let named = named.file("mine/libnvrtc.so.11.2", File::Linked(Nvrtc::V11));
    let named = named.set("OGIVE_CUDA_PATH", &format!("{HERE}/mine"));
    let both = cfg!(all(feature = "cuda-11", feature = "cuda-12"));
    for (s, features, version, words) in [
        // A driver that takes nothing of a newer compiler, and a device that none of the newest generation knows.
        (older, cfg!(feature = "cuda-11"), "NVRTC 11.8", &["11.8 (", "libnvrtc.so.12"][..]),
        (device, cfg!(feature = "cuda-12"), "NVRTC 12.9", &["12.9 (", "libnvrtc.so.13"]),
        (
            others,
            cfg!(feature = "cuda-12"),
            "NVRTC 12.9",
            &["12.9 (", "libnvrtc.so is of CUDA 14, which this build leaves out"],
        ),
        (whole, both, "NVRTC 11.8", &["11.8 (", "12.9 compiles nothing ("]),
        (named, both, "NVRTC 11.8", &["11.8 (", "12.9 ("]),
    ] {
        if !features {
            println!("skipped: {}: this build leaves a generation out", s.name);
            continue;
        }
        let heard = stage.hear(&s);
        println!("{}: {}", s.name, heard.stdout);
        let built = heard.values("built").next().unwrap_or_else(|| panic!("{}", heard.stdout));
        assert!(built.ends_with(version), "{built}");
        let line = heard.values("report").find(|line| line.starts_with("NVRTC: ")).unwrap();
        assert!(words.iter().all(|word| line.contains(word)) && !line.contains("pip"), "{line}");
    }
}

/// Nothing needs cuBLAS, so its line is all that tells of it.
#[test]
fn a_cublas_that_does_not_fit_is_told() {
    if is_case() {
        return;
    }
    let Some(stage) = Stage::emulated(test_name!()) else { return };
    let line = |s: Situation| {
        let heard = stage.hear(&s);
        let line =
            heard.values("report").find(|line| line.starts_with("cuBLAS: ")).map(str::to_owned).unwrap();
        println!("{}: {line}", s.name);
        line
    };
    let none = line(situation("none").driver());
    if !none.contains("libcublas.so not found; ") {
        return println!("skipped: {}: this machine has one: {none}", stage.test);
    }
    assert!(none.contains("; optional, for long prompts: pip install nvidia-cublas"), "{none}");
    let with = |name| line(situation(name).driver().fault("driver:12040").file(name, File::Text));
    if cfg!(feature = "cuda-13") {
        let told =
            "libcublas.so.13 is newer than the driver, which is for CUDA 12.4; optional, for long prompts: ";
        assert!(with("libcublas.so.13").contains(told));
    }
    if cfg!(feature = "cuda-12") {
        assert!(with("libcublas.so.12").contains("/libcublas.so.12 cannot be loaded ("));
    }
}

/// Of what there is, by the name of the file alone: it is not opened.
#[test]
fn what_the_features_leave_out_is_told() {
    if is_case() {
        return;
    }
    let all = [
        ("11", "libnvrtc.so.11.2", (11, 8), cfg!(feature = "cuda-11")),
        ("12", "libnvrtc.so.12", (12, 9), cfg!(feature = "cuda-12")),
        ("13", "libnvrtc.so.13", (13, 0), cfg!(feature = "cuda-13")),
    ];
    let out: Vec<_> = all.into_iter().filter(|(.., on)| !on).collect();
    let Some(stage) = Stage::emulated(test_name!()).filter(|_| !out.is_empty()) else {
        return println!("skipped: this build leaves no generation out");
    };
    for (g, name, (major, minor), _) in out {
        let told = format!("{name} is of CUDA {g}, which this build leaves out: its feature cuda-{g} is off");
        let blas = format!("libcublas.so.{g} is of CUDA {g}, which this build leaves out");
        let s = situation(g).driver().file(name, File::Text).file(&format!("libcublas.so.{g}"), File::Text);
        stage.tell_apart(&[s.both(&[&told]).report(&[&blas])]);
        // Once, whatever else leads to it: that is known when it has been opened.
        let linked = situation(&format!("{g}, linked")).driver().file(name, File::Played(major, minor));
        let heard = stage.hear(&linked.file("libnvrtc.so", File::Link(name)));
        for key in ["error", "report"] {
            let text = heard.values(key).collect::<Vec<_>>().join("\n");
            assert_eq!(text.matches("which this build leaves out").count(), 1, "{text}");
        }
    }
}
