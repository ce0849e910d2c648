//! GEMMs of every type against their definition, through memory as a program has it.

use half::{bf16, f16};

use super::element::Element;
use super::gemm::{Compute, Gemm, Operand, Place, Scalar};
use super::status::{ARCH_MISMATCH, INVALID_VALUE, NOT_SUPPORTED};
use crate::fault::Kind;
use crate::runtime::work::Reach;
use crate::runtime::{Context, Machine, Stream};
use crate::settings::Settings;

fn machine() -> (Machine, Context) {
    let machine = Machine::new(Settings { idle: None, ..Settings::default() });
    let context = machine.retain_primary(0).expect("a device");
    (machine, context)
}

fn bytes(element: Element, values: &[f64]) -> Vec<u8> {
    let each = |v: &f64| match element {
        Element::F32 => (*v as f32).to_le_bytes().to_vec(),
        Element::F64 => v.to_le_bytes().to_vec(),
        Element::F16 => f16::from_f64(*v).to_le_bytes().to_vec(),
        Element::Bf16 => bf16::from_f64(*v).to_le_bytes().to_vec(),
        Element::I8 => (*v as i8).to_le_bytes().to_vec(),
        Element::I32 => (*v as i32).to_le_bytes().to_vec(),
    };
    values.iter().flat_map(each).collect()
}

fn put(machine: &Machine, context: Context, element: Element, values: &[f64]) -> u64 {
    let data = bytes(element, values);
    let address = machine.allocate(context, data.len() as u64).expect("room");
    machine.upload(context, Stream::DEFAULT, address, &data).expect("queued");
    machine.synchronize(context).expect("done");
    address
}

fn scalar(compute: Compute, value: f64) -> Scalar {
    let mut eight = [0; 8];
    for (to, from) in eight.iter_mut().zip(bytes(compute.scalar(), &[value])) {
        *to = from;
    }
    Scalar::Value(eight)
}

const SHAPE: [usize; 3] = [5, 7, 20];
const BATCH: usize = 2;

fn ask(compute: Compute, [ab, c]: [Element; 2], [a_at, b_at, c_at]: [u64; 3], [ta, tb]: [bool; 2]) -> Gemm {
    let [m, n, k] = SHAPE.map(|extent| extent as i64);
    let operand = |at, element, ld: i64, transposed, size: i64| Operand {
        place: Place::Strided(at, ld * size),
        element,
        ld,
        transposed,
    };
    Gemm {
        m,
        n,
        k,
        alpha: scalar(compute, 2.0),
        beta: scalar(compute, 1.0),
        a: if ta { operand(a_at, ab, 24, true, m) } else { operand(a_at, ab, 8, false, k) },
        b: if tb { operand(b_at, ab, 8, true, k) } else { operand(b_at, ab, 20, false, n) },
        c: operand(c_at, c, 6, false, n),
        batch: BATCH as i64,
        compute,
        threads: 2,
    }
}

#[test]
fn every_type_and_transposition_is_the_definition() {
    use Element::{Bf16, F16, F32, F64, I8, I32};
    let (machine, context) = machine();
    let reach = Reach { memory: machine.memory(), told: &|_, _, _| Ok(()) };
    // Small whole numbers: exact in every type, in any order.
    let values: Vec<f64> = (0..1000).map(|i| f64::from((i * 37) % 5 - 2)).collect();
    for (compute, ab, c) in [
        (Compute::F32, F32, F32),
        (Compute::F64, F64, F64),
        (Compute::F32, F16, F16),
        (Compute::F32, F16, F32),
        (Compute::F32, Bf16, Bf16),
        (Compute::F32, Bf16, F32),
        (Compute::F16, F16, F16),
        (Compute::I32, I8, I32),
        (Compute::F32, I8, F32),
    ] {
        for ta in [false, true] {
            for tb in [false, true] {
                let places = [ab, ab, c].map(|element| put(&machine, context, element, &values));
                let gemm = ask(compute, [ab, c], places, [ta, tb]);
                gemm.check(80).expect("known");
                gemm.run(&reach).expect("done");
                let [m, n, k] = SHAPE;
                let mut wanted = values.clone();
                for z in 0..BATCH {
                    let (a_step, b_step) = (if ta { 24 * m } else { 8 * k }, if tb { 8 * k } else { 20 * n });
                    for (row, column) in (0..m).flat_map(|row| (0..n).map(move |column| (row, column))) {
                        let a = |i: usize| values[z * a_step + if ta { i + row * 24 } else { row + i * 8 }];
                        let b =
                            |i: usize| values[z * b_step + if tb { column + i * 8 } else { i + column * 20 }];
                        let sum: f64 = (0..k).map(|i| a(i) * b(i)).sum();
                        wanted[z * 6 * n + row + column * 6] += 2.0 * sum;
                    }
                }
                let mut got = vec![0; bytes(c, &wanted).len()];
                machine.download(context, Stream::DEFAULT, &mut got, places[2]).expect("read");
                assert!(got == bytes(c, &wanted), "{compute:?} {ab:?} {c:?} {ta} {tb}");
            }
        }
    }
}

#[test]
fn what_the_library_refuses_is_refused() {
    use Element::{Bf16, F16, F32, I8, I32};
    let good = ask(Compute::F32, [F32, F32], [0; 3], [false; 2]);
    assert_eq!(good.check(61), Ok(()));
    let short = Gemm { a: Operand { ld: 4, ..good.a }, ..good };
    assert_eq!(short.check(80), Err(INVALID_VALUE));
    assert_eq!(Gemm { m: -1, ..good }.check(80), Err(INVALID_VALUE));
    assert_eq!(ask(Compute::F16, [F32, F32], [0; 3], [false; 2]).check(80), Err(NOT_SUPPORTED));
    assert_eq!(ask(Compute::F32, [F16, Bf16], [0; 3], [false; 2]).check(80), Err(NOT_SUPPORTED));
    assert_eq!(ask(Compute::F32, [Bf16, Bf16], [0; 3], [false; 2]).check(75), Err(ARCH_MISMATCH));
    let odd = ask(Compute::I32, [I8, I32], [0; 3], [false; 2]);
    assert_eq!(Gemm { a: Operand { ld: 7, ..odd.a }, ..odd }.check(80), Err(NOT_SUPPORTED));
}

#[test]
fn operands_beyond_their_memory_are_found() {
    let (machine, context) = machine();
    let reach = Reach { memory: machine.memory(), told: &|_, _, _| Ok(()) };
    let small = put(&machine, context, Element::F32, &[1.0; 100]);
    let large = put(&machine, context, Element::F32, &[1.0; 1000]);
    for places in [[small, large, large], [large, small, large], [large, large, small - 256 + 4096]] {
        let gemm = ask(Compute::F32, [Element::F32; 2], places, [false; 2]);
        let fault = gemm.run(&reach).expect_err("too small");
        assert_eq!(fault.kind, Kind::OutOfBounds, "{fault}");
        assert!(fault.message.contains("of a GEMM"), "{fault}");
    }
}
