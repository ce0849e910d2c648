//! What stays as it is: tensors that have their type already, those that a rule keeps, and tables of whole numbers. Byte for byte.

mod common;

use common::{format, packed, shared};
use ogive_quantize::gguf_file::{Gguf, GgufWriter};
use ogive_quantize::{GgmlType, Input, Quantize, Result};
use ogive_tensor::FEW_BITS;

/// A GGUF file of these tensors.
fn file(tensors: &[(&str, [u64; 2], GgmlType, &[u8])]) -> Vec<u8> {
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", "llama");
    for (name, dims, ty, _) in tensors {
        writer.tensor(name, dims, *ty).unwrap();
    }
    let mut file = Vec::new();
    let mut data = writer.write_to(&mut file).unwrap();
    for (name, _, _, bytes) in tensors {
        data.write_data(name, bytes).unwrap();
    }
    data.finish().unwrap();
    file
}

fn again(quantize: &Quantize, input: Vec<u8>) -> Result<Gguf> {
    let mut file = Vec::new();
    quantize.write_to(&Input::from_gguf(Gguf::from_bytes(input)?, "m.gguf")?, &mut file, |_| true)?;
    Ok(Gguf::from_bytes(file)?)
}

fn bytes(file: &Gguf, tensor: &str) -> Vec<u8> {
    file.data_of(tensor).unwrap().bytes().to_vec()
}

/// As training that knows of the format makes them: codes about the middle, and none at the end that the packer would choose.
#[test]
fn blocks_that_no_packer_makes_stay() {
    // Two rows of 64; a factor of about 0.01 and codes from 1 to 15.
    let code = |n: u8| 1 + n % 15;
    let pair = |i: u8, j: u8| code(i + j) | (code(7 * i + 3 * j) << 4);
    let blocks: Vec<u8> =
        (0..4).flat_map(|i| [0x1F, 0x21].into_iter().chain((0..16).map(move |j| pair(i, j)))).collect();
    let input = file(&[("blk.0.attn_q.weight", [64, 2], GgmlType::Q4_0, &blocks)]);
    let output = again(&format("q4_0"), input).unwrap();
    assert!(bytes(&output, "blk.0.attn_q.weight") == blocks);
}

#[test]
fn packing_the_same_again_changes_nothing() {
    let Some(original) = shared("golden/llama-k256/llama-k256-f32.gguf") else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in ["q2_k", "q3_k_s", "q4_k_m", "q5_k_s", "iq4_xs", "nvfp4", "mxfp4"] {
        let path = folder.path().join(name);
        format(name).run(&original, &path, |_| true).unwrap();
        let (once, twice) = (Gguf::open(&path).unwrap(), packed(&format(name), &path).unwrap());
        for t in once.tensors() {
            let own = twice.tensor(t.name()).unwrap();
            assert_eq!(own.ggml_type(), t.ggml_type());
            assert!(bytes(&once, t.name()) == bytes(&twice, t.name()), "{name}: {}", t.name());
        }
    }
}

/// llama.cpp reads it beside such a head alone.
#[test]
fn a_head_with_a_factor_of_its_own_stays() {
    let blocks: Vec<u8> = (0..2 * 36).map(|i| if i % 36 < 4 { 56 } else { i }).collect();
    let factor = 0.5_f32.to_le_bytes();
    let head = ("output.weight", [64, 2], GgmlType::NVFP4, &*blocks);
    let scale = ("output.scale", [1, 1], GgmlType::F32, &factor[..]);
    for (tensors, ty) in [(&[head, scale][..], GgmlType::NVFP4), (&[head], GgmlType::Q8_0)] {
        let output = again(&format("q8_0").allow_requantize(true), file(tensors)).unwrap();
        assert_eq!(output.tensor("output.weight").unwrap().ggml_type(), Some(ty));
    }
    let ruled = format("q8_0").allow_requantize(true).rules(vec!["output=q8_0".parse().unwrap()]);
    let output = again(&ruled, file(&[head, scale])).unwrap();
    assert_eq!(output.tensor("output.weight").unwrap().ggml_type(), Some(GgmlType::Q8_0));
}

#[test]
fn rules_keep_what_cannot_be_decoded() {
    let codes: Vec<u8> = (0..2 * 256 / 32 * 36).map(|i| (i * 37) as u8).collect();
    let ids: Vec<u8> = (0..64_i32).flat_map(i32::to_le_bytes).collect();
    let singles: Vec<u8> = (0..512).flat_map(|i| (i as f32 - 200.0).to_le_bytes()).collect();
    let input = || {
        file(&[
            ("blk.0.attn_q.weight", [256, 2], GgmlType::Q8_1, &codes),
            ("blk.0.ids.weight", [32, 2], GgmlType::I32, &ids),
            ("blk.0.attn_v.weight", [256, 2], GgmlType::F32, &singles),
        ])
    };
    let e = again(&format("q8_0"), input()).unwrap_err().to_string();
    // What to do about it can be done.
    let rule = "blk.0.attn_q.weight=keep";
    assert!(e.contains("Q8_1") && e.contains(rule), "{e}");
    let ruled = |rules: &[&str]| format("q8_0").rules(rules.iter().map(|r| r.parse().unwrap()).collect());
    // Whole numbers stay by themselves, but a type that is asked for is not passed over.
    let e = again(&ruled(&[rule, "ids=q4_0"]), input()).unwrap_err().to_string();
    assert!(e.contains("I32") && e.contains("blk.0.ids.weight=keep"), "{e}");
    for rules in [&[rule][..], &["attn_q=KEEP", "attn_q=q4_0"], &[rule, "ids=keep", "ids=q4_0"]] {
        let output = again(&ruled(rules), input()).unwrap();
        let ty = |name: &str| output.tensor(name).unwrap().ggml_type().unwrap();
        assert_eq!(ty("blk.0.attn_v.weight"), GgmlType::Q8_0);
        assert_eq!((ty("blk.0.attn_q.weight"), ty("blk.0.ids.weight")), (GgmlType::Q8_1, GgmlType::I32));
        assert!(bytes(&output, "blk.0.attn_q.weight") == codes && bytes(&output, "blk.0.ids.weight") == ids);
    }
}

/// Of a folder what is not packed becomes single precision, but for what is to stay.
#[test]
fn rules_keep_what_a_folder_has() {
    let Some(folder) = shared("golden/llama-bf16-sharded") else { return };
    let rules = vec!["attn_|_norm=keep".parse().unwrap()];
    let plan = format("q8_0").rules(rules).plan(&Input::open(folder).unwrap()).unwrap();
    let ty = |part: &str| plan.iter().find(|t| t.name.contains(part)).unwrap().to;
    assert_eq!((ty("attn_q.weight"), ty("ffn_up")), (GgmlType::BF16, GgmlType::Q8_0));
    // A norm is no matrix, and rules are not for it.
    assert_eq!(ty("attn_norm"), GgmlType::F32);
}

/// Rules name types that no format of files is called after; what is kept is about what the numbers were.
#[test]
fn rules_pack_in_few_bits() {
    let numbers: Vec<f32> = (0..512_u32).map(|i| ((i * 7919 % 509) as f32 / 254.0 - 1.0).powi(3)).collect();
    let raw: Vec<u8> = numbers.iter().flat_map(|v| v.to_le_bytes()).collect();
    for format_of_few in FEW_BITS {
        let rule = format!("attn_q={}", format_of_few.name);
        let input = file(&[("blk.0.attn_q.weight", [256, 2], GgmlType::F32, &raw)]);
        let output = again(&format("q8_0").rules(vec![rule.parse().unwrap()]), input).unwrap();
        let tensor = output.tensor("blk.0.attn_q.weight").unwrap();
        assert!(tensor.ggml_type().unwrap().name().eq_ignore_ascii_case(format_of_few.name));
        let mut back = vec![0.0; 512];
        format_of_few.decode_row(&bytes(&output, tensor.name()), &mut back);
        let squares = |v: &mut dyn Iterator<Item = f32>| v.map(|v| v * v).sum::<f32>();
        let off = squares(&mut back.iter().zip(&numbers).map(|(a, b)| a - b))
            / squares(&mut numbers.iter().copied());
        assert!(off < 0.4, "{format_of_few:?}: {off}");
    }
}
