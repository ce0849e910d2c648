//! The C interface itself: through the table that `cuGetProcAddress` reads, as a program would.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};

use super::symbols;

fn find<F: Copy>(name: &str) -> F {
    assert_eq!(size_of::<F>(), size_of::<*const c_void>());
    let symbol = symbols().find(|symbol| symbol.name == name).expect(name);
    // SAFETY: a pointer to a function, of the type that the test knows it has.
    unsafe { std::mem::transmute_copy(&symbol.address) }
}

type Simple = extern "C" fn(c_uint) -> c_int;
type Get = extern "C" fn(*mut u64) -> c_int;
type GetOf = extern "C" fn(*mut u64, c_int) -> c_int;
type Two = extern "C" fn(*mut u64, u64) -> c_int;
type Handle = extern "C" fn(u64) -> c_int;

fn context() -> u64 {
    assert_eq!(find::<Simple>("cuInit")(0), 0);
    let mut context = 0;
    assert_eq!(find::<GetOf>("cuDevicePrimaryCtxRetain")(&raw mut context, 0), 0);
    assert_eq!(find::<Handle>("cuCtxSetCurrent")(context), 0);
    context
}

#[test]
fn every_name_is_there_once() {
    let mut names: Vec<_> = symbols().map(|symbol| symbol.name).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for name in
        ["cuLaunchKernelEx", "cuMemAllocAsync_ptsz", "cuGraphExecKernelNodeSetParams_v2", "cuGetExportTable"]
    {
        assert!(names.contains(&name), "{name}");
    }
}

#[test]
fn bad_handles_and_null_pointers_are_errors() {
    let context = context();
    for name in [
        "cuStreamSynchronize",
        "cuStreamDestroy_v2",
        "cuEventDestroy_v2",
        "cuEventSynchronize",
        "cuModuleUnload",
    ] {
        for handle in [context, 0xdead_beef, u64::MAX] {
            assert_eq!(find::<Handle>(name)(handle), 400, "{name}");
        }
    }
    assert_eq!(find::<Handle>("cuCtxSetCurrent")(0x1234), 201);
    assert_eq!(find::<Handle>("cuMemFree_v2")(0x1234), 1);
    assert_eq!(find::<Handle>("cuMemFree_v2")(0), 0, "as free(NULL)");
    assert_eq!(find::<Two>("cuMemAlloc_v2")(std::ptr::null_mut(), 16), 1);
    assert_eq!(find::<Get>("cuCtxGetCurrent")(std::ptr::null_mut()), 1);
}

#[test]
fn without_a_current_context_nothing_is_allocated() {
    context();
    let other = std::thread::spawn(|| {
        let mut address = 0;
        find::<Two>("cuMemAlloc_v2")(&raw mut address, 16)
    });
    assert_eq!(other.join().expect("no panic"), 201);
}

#[test]
fn cubins_are_refused_with_the_number_that_says_so() {
    context();
    let load: extern "C" fn(*mut u64, *const c_void) -> c_int = find("cuModuleLoadData");
    let mut module = 0;
    assert_eq!(load(&raw mut module, c"\x7fELF\x02\x01".as_ptr().cast()), 209);
    assert_eq!(load(&raw mut module, 0xba55_ed50u64.to_le_bytes().as_ptr().cast()), 209);
    assert_eq!(load(&raw mut module, c"hello".as_ptr().cast()), 200);
    assert_eq!(load(&raw mut module, c"".as_ptr().cast()), 200);
}

#[test]
fn the_log_says_what_is_wrong_with_ptx() {
    context();
    type LoadEx = extern "C" fn(*mut u64, *const c_void, c_uint, *const c_int, *const *mut c_void) -> c_int;
    let text =
        c".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { frobnicate.u32 %r1; ret; }\n";
    let mut log = [0 as c_char; 200];
    let options = [5, 6];
    let values = [log.as_mut_ptr().cast::<c_void>(), log.len() as *mut c_void];
    let mut module = 0;
    let code = find::<LoadEx>("cuModuleLoadDataEx")(
        &raw mut module,
        text.as_ptr().cast(),
        2,
        options.as_ptr(),
        values.as_ptr(),
    );
    assert_eq!(code, 218);
    // SAFETY: the driver ends what it writes.
    let said = unsafe { CStr::from_ptr(log.as_ptr()) }.to_string_lossy().into_owned();
    assert!(said.contains("frobnicate") && said.contains("line 4"), "{said}");
}

#[test]
fn names_are_found_in_the_version_asked_for() {
    type Find = extern "C" fn(*const c_char, *mut *const c_void, c_int, u64, *mut c_int) -> c_int;
    let get = find::<Find>("cuGetProcAddress_v2");
    let ask = |name: &str, version, flags| {
        let (name, mut found, mut status) = (CString::new(name).expect("a name"), std::ptr::null(), -1);
        assert_eq!(get(name.as_ptr(), &raw mut found, version, flags, &raw mut status), 0);
        (symbols().find(|symbol| symbol.address == found).map(|symbol| symbol.name), status)
    };
    assert_eq!(ask("cuMemAlloc", 12000, 0), (Some("cuMemAlloc_v2"), 0));
    assert_eq!(ask("cuCtxCreate", 11030, 0), (Some("cuCtxCreate_v2"), 0));
    assert_eq!(ask("cuCtxCreate", 13000, 0), (Some("cuCtxCreate_v4"), 0));
    assert_eq!(ask("cuLaunchKernel", 12000, 2), (Some("cuLaunchKernel_ptsz"), 0));
    assert_eq!(ask("cuFlyToTheMoon", 12000, 0), (None, 1));
}

#[test]
fn errors_have_names() {
    type Name = extern "C" fn(c_int, *mut *const c_char) -> c_int;
    let name = |code| {
        let mut text = std::ptr::null();
        let result = find::<Name>("cuGetErrorName")(code, &raw mut text);
        // SAFETY: a constant of the driver's, where it gives one.
        (result, (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()))
    };
    assert_eq!(name(700), (0, Some("CUDA_ERROR_ILLEGAL_ADDRESS".into())));
    assert_eq!(name(0), (0, Some("CUDA_SUCCESS".into())));
    assert_eq!(name(12345), (1, None));
}
