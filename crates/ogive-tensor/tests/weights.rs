//! Weights are ranges of what someone owns, and every field means what it says.

use ogive_tensor::{Bytes, F8_E4M3, F32, Format, HostWeight, Scale};
use std::sync::{Arc, Mutex};

fn row(w: &HostWeight, r: usize) -> Vec<f32> {
    let mut out = vec![0.0; w.shape[2]];
    w.decode_row(r, &mut out);
    out
}

#[test]
fn parts_share_bytes_and_fields_apply() {
    let file: Arc<Vec<u8>> = Arc::new((0..12u8).flat_map(|i| f32::from(i).to_le_bytes()).collect());
    let w = HostWeight::new("w", [1, 4, 2], &F32, Bytes::new(file.clone(), 16..48).unwrap()).unwrap();
    let part = w.rows(1..3).unwrap();
    assert!(std::ptr::eq(&part.bytes[0], &file[24]), "no copy was made");
    assert_eq!((row(&part, 0), row(&w.transposed().unwrap(), 1)), (vec![6., 7.], vec![5., 7., 9., 11.]));
    assert_eq!(row(&w.reordered(&[3, 2, 1, 0]).unwrap(), 0), [10., 11.]);
    let scaled = w.clone().with_scale(Scale { values: Arc::from([1., 10.]), tile: [2, 2] }).unwrap();
    assert_eq!((row(&scaled, 1), row(&scaled, 2)), (vec![6., 7.], vec![80., 90.]));
    assert_eq!(row(&scaled.rows(2..4).unwrap(), 0), [80., 90.]);
    let permuted = scaled.with_input_perm(Arc::from([1, 0])).unwrap();
    assert_eq!(row(&permuted, 0), [5., 4.]);
    assert_eq!(row(&permuted.decoded().unwrap(), 3), [110., 100.]);
    assert!(Bytes::new(file, 40..49).is_err());
}

#[test]
fn an_owner_hears_of_what_is_no_longer_needed() {
    let heard = Arc::new(Mutex::new(Vec::new()));
    let to = Arc::clone(&heard);
    let bytes = Bytes::new(Arc::new(vec![7; 64]), 8..48).unwrap();
    bytes.release();
    let bytes = bytes.on_release(move |range| to.lock().unwrap().push(range));
    bytes.release();
    let part = bytes.part(10..20).unwrap();
    drop(bytes);
    part.release();
    assert_eq!(*heard.lock().unwrap(), [8..48, 18..28]);
    assert_eq!(*part, [7; 10], "it is still there");
}

/// A cut through tiles looks at no other row: as many cuts as rows are still as many factors as elements.
#[test]
fn many_cuts_of_many_rows_are_as_many_factors() {
    let experts = 65_536;
    let values: Arc<[f32]> = (0..experts * 2).map(|i| i as f32).collect();
    let bytes = vec![0x38; experts * 24]; // ones
    let w = HostWeight::new("w", [1, experts * 6, 4], &F8_E4M3, bytes.into()).unwrap();
    let w = w.with_scale(Scale { values, tile: [3, 4] }).unwrap();
    for e in 0..experts {
        let part = w.rows(e * 6 + 2..e * 6 + 6).unwrap();
        assert_eq!([0, 1, 3].map(|r| row(&part, r)[3]), [0, 1, 1].map(|i| (e * 2 + i) as f32));
    }
}

/// Strangers' formats, that make no sense.
#[test]
fn blocks_of_nothing_are_refused() {
    const fn format(block_len: usize, block_bytes: usize) -> Format {
        Format { name: "empty", block_len, block_bytes, decode: |_, _| {}, encode: Some(|_, _, _| {}) }
    }
    static EMPTY: [Format; 3] = [format(0, 1), format(4, 0), format(0, 0)];
    for format in &EMPTY {
        for cols in [0, 4] {
            let e = HostWeight::new("w", [1, 1, cols], format, Vec::new().into()).unwrap_err().to_string();
            let why = format!("blocks of {} elements in {} bytes", format.block_len, format.block_bytes);
            assert!(e.contains(&why), "{e}");
            assert!(format.encode_row(&vec![0.0; cols], &mut []).is_err());
        }
        let mut row = [1.0; 4];
        format.decode_row(&[0; 4], &mut row);
        assert_eq!((row, format.row_bytes(4)), ([1.0; 4], 0));
    }
    assert_eq!(F32.row_bytes(usize::MAX), usize::MAX);
}

/// Zeros in their place would be another weight.
#[test]
fn lazy_bytes_that_could_not_be_made_are_never_zeros() {
    let bytes = Bytes::lazy(8, |_| panic!("broken"));
    for _ in 0..2 {
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| bytes.to_vec()));
        assert!(read.is_err(), "{read:?}");
    }
}

#[test]
fn lazy_bytes_are_made_once_and_when_they_are_read() {
    let made = Arc::new(Mutex::new(0));
    let count = Arc::clone(&made);
    let bytes = Bytes::lazy(8, move |bytes| {
        *count.lock().unwrap() += 1;
        bytes.iter_mut().zip(1..).for_each(|(b, i)| *b = i);
    });
    let w = HostWeight::new("w", [1, 2, 1], &F32, bytes.clone()).unwrap();
    let both = HostWeight::stack("both", &[w.clone(), w.clone()]).unwrap();
    let part = w.rows(1..2).unwrap();
    assert_eq!(
        (bytes.len(), both.bytes.len(), part.bytes.is_empty(), *made.lock().unwrap()),
        (8, 16, false, 0)
    );
    assert_eq!(*part.bytes, [5, 6, 7, 8]);
    assert_eq!((*bytes)[..4], [1, 2, 3, 4]);
    assert_eq!(both.bytes[8..12], [1, 2, 3, 4]);
    assert_eq!(*made.lock().unwrap(), 1);
}

#[test]
fn experts_with_tiles_or_orders_of_their_own_are_decoded_when_they_are_read() {
    let made = Arc::new(Mutex::new(0));
    let count = Arc::clone(&made);
    let bytes = Bytes::lazy(8, move |bytes| {
        *count.lock().unwrap() += 1;
        bytes.iter_mut().zip(0..).for_each(|(b, i)| *b = i);
    });
    let plain = HostWeight::new("w", [1, 2, 4], &BYTE, bytes).unwrap();
    let turned = plain.clone().with_input_perm(Arc::from([3, 2, 1, 0])).unwrap();
    let scaled = plain.clone().with_scale(Scale { values: Arc::from([2.0]), tile: [2, 4] }).unwrap();
    let one = HostWeight::stack("one", &[turned.clone(), turned.clone()]).unwrap();
    assert_eq!((one.format.name, one.input_perm.as_deref()), ("byte", Some(&[3, 2, 1, 0][..])));
    let orders = HostWeight::stack("orders", &[plain.clone(), turned]).unwrap();
    let by_row = plain.clone().with_scale(Scale { values: Arc::from([2.0, 2.0]), tile: [1, 4] }).unwrap();
    let factors = HostWeight::stack("factors", &[scaled, by_row]).unwrap();
    assert_eq!((orders.bytes.len(), orders.file_bits(), *made.lock().unwrap()), (64, 8.0, 0));
    assert_eq!(
        orders.unpacked.as_ref().map(|u| &*u.why),
        Some("experts have their columns in orders of their own")
    );
    assert_eq!(
        factors.unpacked.as_ref().map(|u| &*u.why),
        Some("experts have factors for tiles of different sizes")
    );
    let ones = [0., 1., 2., 3., 4., 5., 6., 7.];
    assert_eq!(orders.to_vec(), [ones, [3., 2., 1., 0., 7., 6., 5., 4.]].concat());
    assert_eq!(one.to_vec(), [3., 2., 1., 0., 7., 6., 5., 4.].repeat(2));
    assert_eq!(factors.to_vec(), ones.map(|v| 2.0 * v).repeat(2));
}

/// As where zero points decide the format, and each expert has its own.
#[test]
fn experts_in_different_formats_are_decoded_when_they_are_read() {
    let bytes = HostWeight::new("w", [1, 2, 2], &BYTE, vec![1, 2, 3, 4].into()).unwrap();
    let floats = HostWeight::from_f32("v", [1, 2, 2], &[0.5, 1.5, 2.5, 3.5]).unwrap();
    let both = HostWeight::stack("both", &[bytes.clone(), floats.clone()]).unwrap();
    assert_eq!((both.shape, both.format, both.file_bits()), ([2, 2, 2], &F32, 20.0));
    assert_eq!(both.to_vec(), [1., 2., 3., 4., 0.5, 1.5, 2.5, 3.5]);
    assert_eq!(both.unpacked.map(|u| u.why.to_string()).unwrap(), "experts are packed in different formats");
    // One of them in an order of its own.
    let turned = floats.with_input_perm(Arc::from([1, 0])).unwrap();
    let both = HostWeight::stack("both", &[bytes, turned]).unwrap();
    assert_eq!(both.to_vec(), [1., 2., 3., 4., 1.5, 0.5, 3.5, 2.5]);
}

/// One byte an element.
static BYTE: Format = Format {
    name: "byte",
    block_len: 1,
    block_bytes: 1,
    decode: |b, o| o[0] = f32::from(b[0]),
    encode: None,
};

#[test]
fn what_does_not_fit_is_an_error() {
    let w = HostWeight::from_f32("w", [1, 2, 2], &[0.0; 4]).unwrap();
    assert!(HostWeight::from_f32("w", [1, 2, 3], &[0.0; 4]).is_err());
    assert!(HostWeight::from_f32("w", [usize::MAX, 2, 3], &[0.0; 4]).is_err());
    assert!(w.rows(1..3).is_err());
    assert!(w.reordered(&[0, 2]).is_err());
    assert!(w.clone().with_input_perm(Arc::from([0, 0])).is_err());
    assert!(w.clone().with_scale(Scale { values: Arc::from([1.0]), tile: [1, 2] }).is_err());
    let other = HostWeight::from_f32("v", [1, 1, 2], &[0.0; 2]).unwrap();
    let e = HostWeight::stack("experts", &[w, other]).unwrap_err().to_string();
    assert!(e.contains("experts: `v` has the shape [1, 1, 2] and `w` [1, 2, 2]"), "{e}");
}

/// Whatever is done to a weight with factors is what is done to its numbers, and nothing is decoded for it: with tiles that are cut, that are
/// whole, that are a row, a column or all.
#[test]
fn factors_go_where_their_elements_go() {
    let (experts, rows, cols) = (2, 12, 10);
    let bytes: Vec<u8> = (0..experts * rows * cols).map(|i| (i * 7 % 251) as u8).collect();
    let plain = HostWeight::new("w", [experts, rows, cols], &BYTE, bytes.into()).unwrap();
    for tile @ [tr, tc] in [[4, 5], [4, 3], [5, 4], [1, 10], [12, 10], [3, 1], [100, 100], [1, 1], [6, 20]] {
        let count = experts * rows.div_ceil(tr) * cols.div_ceil(tc);
        let values = (0..count).map(|i| 1.0 + i as f32 / 64.0).collect();
        let w = plain.clone().with_scale(Scale { values, tile }).unwrap();
        let same = |got: HostWeight, want: HostWeight, what: &str| {
            assert_eq!((got.shape, got.to_vec()), (want.shape, want.to_vec()), "{what}, tiles of {tile:?}");
            assert!(got.format == &BYTE && got.unpacked.is_none(), "{what}, tiles of {tile:?}");
            got.clone().with_scale(got.scale.unwrap()).unwrap();
        };
        let decoded = w.decoded().unwrap();
        same(w.transposed().unwrap(), decoded.transposed().unwrap(), "transposed");
        for n in [1, 2, 3, 4, 6, 8, 24] {
            same(w.regrouped(n).unwrap(), decoded.regrouped(n).unwrap(), &format!("{n} experts"));
        }
        let (one, of) = (w.regrouped(1).unwrap(), decoded.regrouped(1).unwrap());
        for range in [0..24, 0..4, 4..12, 3..20, 13..14, 5..5, 24..24] {
            same(one.rows(range.clone()).unwrap(), of.rows(range.clone()).unwrap(), &format!("{range:?}"));
        }
        let orders = [
            (0..24).rev().collect::<Vec<_>>(),
            (0..24).map(|i| (i + 4) % 24).collect(),
            (0..24).map(|i| i * 5 % 24).collect(),
        ];
        for order in orders {
            same(one.reordered(&order).unwrap(), of.reordered(&order).unwrap(), "in an order");
        }
        let both = [one.rows(0..12).unwrap(), one.rows(12..24).unwrap()];
        if both[0].scale.as_ref().unwrap().tile == both[1].scale.as_ref().unwrap().tile {
            same(HostWeight::stack("w", &both).unwrap(), decoded, "stacked");
        }
    }
    assert!(plain.regrouped(5).is_err() && plain.regrouped(0).is_err());
}

#[test]
fn factors_that_do_not_cover_a_weight_are_refused() {
    let w = HostWeight::from_f32("w", [2, 3, 4], &[1.0; 24]).unwrap();
    for (count, tile) in
        [(7, [1, 4]), (5, [1, 4]), (6, [0, 4]), (6, [3, 0]), (0, [3, 4]), (2, [usize::MAX, 4])]
    {
        let scale = Scale { values: vec![1.0; count].into(), tile };
        let is_right = count == 2;
        assert_eq!(w.clone().with_scale(scale).is_ok(), is_right, "{count} for {tile:?}");
    }
}
