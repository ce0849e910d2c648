//! Importance matrices: files in both forms and damaged ones, and what packing makes of them.

#![allow(clippy::print_stdout, reason = "a skipped test says so")]

mod common;

use common::{format, packed, shared};
use ogive_quantize::gguf_file::{GgmlType, Gguf, GgufWriter};
use ogive_quantize::{Importance, Input, Squares};
use std::path::Path;

fn squares(sums: &[f32], counts: &[u64]) -> Squares {
    Squares::new(sums.to_vec(), counts.to_vec()).unwrap()
}

fn some() -> Importance {
    let mut all = Importance::new();
    all.insert("blk.0.attn_q.weight", squares(&[1.5, 0.0, 2.5e9, 1e-9], &[1024]));
    all.insert("blk.0.ffn_up_exps.weight", squares(&[1.0, 2.0, 0.0, 0.0, 5.0, 6.0], &[7, 0, 9]));
    all.datasets = vec!["some text.txt".into(), "another.txt".into()];
    (all.chunks, all.chunk_size) = (2, 512);
    all
}

/// The older form, as llama.cpp writes it.
fn dat(entries: &[(&str, i32, &[f32])], end: &[u8]) -> Vec<u8> {
    let mut all = (entries.len() as i32).to_le_bytes().to_vec();
    for (name, calls, values) in entries {
        all.extend((name.len() as i32).to_le_bytes());
        all.extend(name.as_bytes());
        all.extend(calls.to_le_bytes());
        all.extend((values.len() as i32).to_le_bytes());
        all.extend(values.iter().flat_map(|v| v.to_le_bytes()));
    }
    all.extend(end);
    all
}

#[test]
fn what_is_written_is_read() {
    let (folder, all) = (tempfile::tempdir().unwrap(), some());
    let path = folder.path().join("imatrix.gguf");
    all.save(&path).unwrap();
    let read = Importance::open(&path).unwrap();
    assert_eq!(read.path.as_ref(), Some(&path));
    let mut same = all.clone();
    same.path = Some(path.clone());
    assert_eq!(read, same);
    // As llama.cpp reads it.
    let gguf = Gguf::open(&path).unwrap();
    assert_eq!(gguf.metadata().str("general.type").unwrap(), "imatrix");
    assert_eq!(gguf.metadata().u32("imatrix.chunk_count").unwrap(), 2);
    let dims = |name: &str| gguf.tensor(name).unwrap().dims().to_vec();
    assert_eq!(dims("blk.0.ffn_up_exps.weight.in_sum2"), [2, 3]);
    assert_eq!(dims("blk.0.ffn_up_exps.weight.counts"), [1, 3]);
    assert!(Importance::new().to_gguf().unwrap_err().to_string().contains("none to write"));
}

#[test]
fn the_older_form_is_means_times_calls() {
    let entries: [(&str, i32, &[f32]); 2] = [("a.weight", 3, &[6.0, 9.0]), ("b.weight", 0, &[2.0; 4])];
    let end = [&7_i32.to_le_bytes()[..], &4_i32.to_le_bytes(), b"text"].concat();
    let all = Importance::from_dat(&dat(&entries, &end)).unwrap();
    assert_eq!((all.chunks, &*all.datasets), (7, &["text".to_owned()][..]));
    assert_eq!(all.of("a.weight", 1, 2).unwrap().unwrap(), [2.0, 3.0]);
    // Two experts share a count, and without calls values are what they are.
    assert_eq!(all.of("b.weight", 2, 2).unwrap().unwrap(), [2.0; 4]);
    // What llama.cpp writes at the end was not always there.
    let old = Importance::from_dat(&dat(&entries, &[])).unwrap();
    assert_eq!((old.chunks, old.datasets.len(), old.len()), (0, 0, 2));
}

#[test]
fn what_is_no_importance_matrix_is_told_by_what_it_is() {
    let gguf = |kind: Option<&str>, tensors: &[(&str, GgmlType)]| {
        let (mut writer, mut bytes) = (GgufWriter::new(), Vec::new());
        if let Some(kind) = kind {
            writer.set("general.type", kind);
        }
        for (name, ty) in tensors {
            writer.tensor(name, &[32], *ty).unwrap();
        }
        let mut data = writer.write_to(&mut bytes).unwrap();
        for (name, ty) in tensors {
            data.write_data(name, &vec![0xFF; ty.bytes_for(32).unwrap() as usize]).unwrap();
        }
        data.finish().unwrap();
        Importance::from_gguf(&Gguf::from_bytes(bytes).unwrap()).unwrap_err().to_string()
    };
    let (f32, f16) = (GgmlType::F32, GgmlType::F16);
    for (e, why) in [
        (
            gguf(Some("model"), &[("a.weight", f32)]),
            "of the type `model`, and no importance matrix; make one with",
        ),
        (gguf(None, &[("a.weight", f32)]), "of the type `model`"),
        (gguf(Some("imatrix"), &[]), "there are no sums in it"),
        (gguf(Some("imatrix"), &[("a.in_sum2", f32)]), "a: it has sums and no counts"),
        (gguf(Some("imatrix"), &[("a.in_sum2", f32), ("a.counts", f32)]), "a: a count is NaN"),
        (gguf(Some("imatrix"), &[("a.in_sum2", f16), ("a.counts", f32)]), "a.in_sum2 is of the type F16"),
        (gguf(None, &[("b.counts", f32), ("a.in_sum2", f32), ("a.counts", f32)]), "b has counts and no sums"),
    ] {
        assert!(e.contains(why) && !e.contains('\n'), "{why}: {e}");
    }
    let refused = |bytes: &[u8]| Importance::from_dat(bytes).unwrap_err().to_string();
    assert!(refused(b"It was a dark night.").contains("no GGUF file"));
    assert!(refused(b"").contains("it ends in the number of entries"));
    assert!(refused(&dat(&[], &[])).contains("no GGUF file"));
    assert!(refused(&dat(&[("a", 1, &[1.0]), ("a", 1, &[1.0])], &[])).contains("a stands in it twice"));
    assert!(refused(&dat(&[("a", 1, &[f32::NAN])], &[])).contains("a: sum 0 is NaN"));
    assert!(refused(&dat(&[("a", -1, &[1.0])], &[])).contains("a number is -1"));
    assert!(
        refused(&dat(&[("a", 1, &[1.0])], &[1, 0, 0, 0, 0, 0, 0, 0, 9])).contains("1 bytes follow its end")
    );
    let missing = Importance::open("/nowhere/imatrix.gguf").unwrap_err().to_string();
    assert!(missing.contains("/nowhere/imatrix.gguf"), "{missing}");
}

fn seeds() -> std::path::PathBuf {
    std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/imatrix")
}

#[test]
#[ignore = "writes the fuzz target's seeds"]
fn write_seeds() {
    std::fs::create_dir_all(seeds()).unwrap();
    std::fs::write(seeds().join("gguf"), some().to_gguf().unwrap()).unwrap();
    let end = [&7_i32.to_le_bytes()[..], &4_i32.to_le_bytes(), b"text"].concat();
    let entries: [(&str, i32, &[f32]); 2] = [("a.weight", 3, &[6.0, 9.0]), ("b.weight", 0, &[2.0; 4])];
    std::fs::write(seeds().join("dat"), dat(&entries, &end)).unwrap();
}

#[test]
fn seeds_are_read() {
    if !seeds().is_dir() {
        println!("skipped: fuzz/corpus/imatrix not found");
        return;
    }
    for file in std::fs::read_dir(seeds()).unwrap() {
        let path = file.unwrap().path();
        assert!(Importance::open(&path).unwrap().len() == 2, "{path:?}");
    }
}

/// Nothing panics, and nothing is allocated that is not there: a length of 2 GiB in a file of 90 bytes is an error.
#[test]
fn damage_is_an_error_or_another_matrix() {
    let old = dat(&[("a.weight", 3, &[6.0, 9.0]), ("b.weight", 1, &[2.0; 4])], &7_i32.to_le_bytes());
    let new = some().to_gguf().unwrap();
    let mut read = 0;
    let mut parse = |bytes: &[u8], is_old: bool| {
        let all = match is_old {
            true => Importance::from_dat(bytes).ok(),
            false => Gguf::from_bytes(bytes.to_vec()).ok().and_then(|g| Importance::from_gguf(&g).ok()),
        };
        let finite = |s: &Squares| s.sums().iter().all(|v| v.is_finite() && *v >= 0.0);
        assert!(all.iter().flat_map(Importance::iter).all(|(_, s)| finite(s)));
        read += usize::from(all.is_some());
    };
    for (bytes, is_old) in [(&old, true), (&new, false)] {
        for end in 0..bytes.len() {
            parse(&bytes[..end], is_old);
        }
        for at in 0..bytes.len() {
            for value in [0, 1, 0x7F, 0x80, 0xFF] {
                let mut other = bytes.clone();
                other[at] = value;
                parse(&other, is_old);
            }
        }
    }
    assert!(read > 100, "{read}");
}

/// A file of some tensors, their dimensions fastest first.
fn model(tensors: &[(&str, &[u64])]) -> Input {
    let (mut writer, mut bytes) = (GgufWriter::new(), Vec::new());
    writer.set("general.architecture", "llama");
    for (name, dims) in tensors {
        writer.tensor(name, dims, GgmlType::F32).unwrap();
    }
    let mut data = writer.write_to(&mut bytes).unwrap();
    for (name, dims) in tensors {
        let values =
            (0..dims.iter().product::<u64>()).map(|i| (i * 2_654_435_761 % 1013) as f32 / 1013.0 - 0.5);
        data.write_data(name, &values.flat_map(f32::to_le_bytes).collect::<Vec<u8>>()).unwrap();
    }
    data.finish().unwrap();
    Input::from_gguf(Gguf::from_bytes(bytes).unwrap(), "model.gguf").unwrap()
}

const UP: &str = "blk.0.ffn_up.weight";
const DOWN: &str = "blk.0.ffn_down.weight";
const EXPERTS: &str = "blk.1.ffn_up_exps.weight";

#[test]
fn packing_says_by_what_it_packed_and_what_had_no_importances() {
    let input =
        model(&[(UP, &[64, 3]), (DOWN, &[32, 2]), ("blk.0.attn_norm.weight", &[64]), (EXPERTS, &[32, 2, 3])]);
    let mut all = some();
    all.path = Some("the.imatrix".into());
    all.insert(UP, squares(&[1.0; 64], &[4]));
    all.insert(EXPERTS, squares(&[1.0; 96], &[4, 0, 4]));
    let by = |all: &Importance| format("q4_0").importance(all.clone());
    let mut bytes = Vec::new();
    let summary = by(&all).write_to(&input, &mut bytes, |_| true).unwrap();
    assert_eq!(summary.without_importance, [DOWN]);
    let file = Gguf::from_bytes(bytes).unwrap();
    let metadata = file.metadata();
    assert_eq!(metadata.str("quantize.imatrix.file").unwrap(), "the.imatrix");
    assert_eq!(metadata.str("quantize.imatrix.dataset").unwrap(), "some text.txt");
    assert_eq!(metadata.u32("quantize.imatrix.entries_count").unwrap(), 4);
    assert_eq!(metadata.u32("quantize.imatrix.chunks_count").unwrap(), 2);
    // Packed again and without, it says so no more; and as long as nothing is packed, what was said of it stays.
    let input = Input::from_gguf(file, Path::new("there.gguf")).unwrap();
    for (name, stays) in [("q4_0", true), ("q5_0", false)] {
        let mut bytes = Vec::new();
        let again = format(name).allow_requantize(true);
        let summary = again.write_to(&input, &mut bytes, |_| true).unwrap();
        assert!(summary.without_importance.is_empty());
        let file = Gguf::from_bytes(bytes).unwrap();
        assert_eq!(file.metadata().contains("quantize.imatrix.entries_count"), stays, "{name}");
    }
}

#[test]
fn importances_of_other_tensors_are_refused_before_anything_is_written() {
    let input = model(&[(UP, &[64, 3]), (EXPERTS, &[32, 2, 3])]);
    let refused = |name: &str, sums: &[f32], counts: &[u64]| {
        let mut all = Importance::new();
        all.path = Some("the.imatrix".into());
        all.insert(name, squares(sums, counts));
        format("q4_0").importance(all).plan(&input).unwrap_err().to_string()
    };
    for e in [
        refused(UP, &[1.0; 32], &[1]),
        refused(UP, &[1.0; 64], &[1, 1]),
        refused(EXPERTS, &[1.0; 32], &[1]),
        refused(EXPERTS, &[1.0; 96], &[1, 1]),
    ] {
        assert!(e.contains("the.imatrix") && e.contains("was it made of this model?"), "{e}");
    }
    let e = refused("blk.7.attn_q.weight", &[1.0], &[1]);
    assert!(
        e.contains("none of its 1 tensors (blk.7.attn_q.weight is the first) is one of this model"),
        "{e}"
    );
}

/// Experts of a folder come in parts, of which each has its own row of the sums: as if they had been one tensor.
#[test]
fn experts_in_parts_are_packed_as_those_in_one() {
    let (Some(folder), Some(file)) = (shared("golden/mixtral"), shared("golden/mixtral/mixtral-f32.gguf"))
    else {
        return;
    };
    let stack = "blk.0.ffn_up_exps.weight";
    let of = |path: &std::path::Path| {
        let input = Input::open(path).unwrap();
        let plan = format("q2_k").pure(true).plan(&input).unwrap();
        let dims = &plan.iter().find(|t| t.name == stack).unwrap().dims;
        let [cols, experts] = [dims[0], dims[2]].map(|n| n as usize);
        let sums: Vec<f32> = (0..cols * experts).map(|i| (i * i % 101) as f32).collect();
        let mut all = Importance::new();
        all.insert(stack, squares(&sums, &vec![2; experts]));
        let gguf = packed(&format("q4_0").importance(all), path).unwrap();
        gguf.data_of(stack).unwrap().bytes().to_vec()
    };
    assert_eq!(of(&folder), of(&file));
}
