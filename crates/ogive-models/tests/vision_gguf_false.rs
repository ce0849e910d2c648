//! Files of what models see with that are damaged, or say what is not so: errors and no panics, and none that sees something else.
#![allow(clippy::print_stdout)]

mod common;
#[path = "common/converted.rs"]
mod converted;
#[path = "common/vision.rs"]
mod vision;

use converted::mmproj_bytes;
use ogive_conformance::Oracle;
use ogive_nn::tensor::serde_json::json;
use ogive_nn::tensor::{Result, serde_json::Value};
use ogive_nn::{Loader, Tower};
use ogive_quantize::gguf_file::{GgmlType, Gguf, GgufWriter, Metadata, Value as Stored};
use ogive_weights::{Checkpoint, OpenOptions, Translation};
use std::path::PathBuf;
use std::sync::Arc;
use vision::*;

/// A tensor of a file: its name, its dimensions, fastest first, its type and its bytes.
type Kept = (String, Vec<u64>, GgmlType, Vec<u8>);

/// What is in a file, to be written anew.
#[derive(Clone)]
struct File {
    metadata: Metadata,
    tensors: Vec<Kept>,
}

impl File {
    fn read(bytes: Vec<u8>) -> Self {
        let gguf = Gguf::from_bytes(bytes).unwrap();
        let tensor = |t: &ogive_quantize::gguf_file::TensorInfo| {
            let bytes = gguf.data(t).unwrap().bytes().to_vec();
            (t.name().to_owned(), t.dims().to_vec(), t.known_type().unwrap(), bytes)
        };
        Self { metadata: gguf.metadata().clone(), tensors: gguf.tensors().iter().map(tensor).collect() }
    }

    fn bytes(&self) -> Vec<u8> {
        let mut writer = GgufWriter::with_metadata(self.metadata.clone());
        for (name, dims, ty, _) in &self.tensors {
            writer.tensor(name, dims, *ty).unwrap();
        }
        let mut file = Vec::new();
        let mut data = writer.write_to(&mut file).unwrap();
        // What has no elements takes no turn.
        for (name, _, _, bytes) in self.tensors.iter().filter(|(.., bytes)| !bytes.is_empty()) {
            data.write_data(name, bytes).unwrap();
        }
        data.finish().unwrap();
        file
    }

    fn without(&self, key: &str) -> Self {
        let mut file = self.clone();
        assert!(file.metadata.remove(key).is_some(), "{key}");
        file
    }

    fn with(&self, key: &str, value: impl Into<Stored>) -> Self {
        let mut file = self.clone();
        file.metadata.set(key, value);
        file
    }

    fn open(&self) -> Result<Checkpoint> {
        opened(self.bytes())
    }
}

fn opened(bytes: Vec<u8>) -> Result<Checkpoint> {
    OpenOptions::new().of_gguf(Arc::new(Gguf::from_bytes(bytes).unwrap()))
}

/// The models of the repository whose towers can be files, and these.
fn files() -> Vec<(String, PathBuf, File)> {
    let of = |(name, folder): (String, PathBuf)| {
        let sayable = |config: &mut Value| {
            let tower = &mut config["vision_config"];
            match &*name {
                "pixtral" => tower["rope_theta"] = json!(10_000.0),
                "qwen2.5-vl" => tower["window_size"] = json!(112),
                _ => {}
            }
        };
        let bytes = mmproj_bytes(&folder, "f32", sayable).ok()?;
        Some((name, folder, File::read(bytes)))
    };
    let all: Vec<_> = seeing().into_iter().filter_map(of).collect();
    assert!(all.len() >= 10, "{}", all.len());
    all
}

fn named(name: &str) -> File {
    files().into_iter().find(|(own, ..)| own == name).unwrap().2
}

fn tower(file: &Checkpoint) -> Result<Box<dyn Tower>> {
    ogive_models::registry().tower(&file.architecture, &file.config, &Loader::new(&*file.source, &Oracle))
}

/// What is made of the first image; none of a model's images is another's size.
fn sees(file: &File, image: &Image) -> Result<Vec<f32>> {
    let seen = tower(&file.open()?)?.see(&Oracle, &image.patches, image.grid)?;
    Ok(seen.values.iter().chain(seen.deeper.iter().flat_map(|d| d.iter())).copied().collect())
}

#[test]
fn what_is_missing_or_contradicts_itself_is_named() {
    let (gemma, windows, turned) = (named("gemma3"), named("qwen2.5-vl"), named("llava"));
    let long = |n: usize| vec![0.5_f32; n];
    let cases = [
        (gemma.with("clip.projector_type", "yodel"), "`yodel` is not known; known are gemma3, idefics3"),
        (gemma.without("clip.projector_type"), "clip.projector_type"),
        (gemma.without("clip.vision.embedding_length"), "clip.vision.embedding_length"),
        (gemma.without("clip.vision.block_count"), "clip.vision.block_count"),
        (gemma.without("clip.vision.attention.head_count"), "clip.vision.attention.head_count"),
        (gemma.without("clip.vision.image_size"), "clip.vision.image_size"),
        (gemma.without("clip.vision.patch_size"), "clip.vision.patch_size"),
        (gemma.with("clip.vision.patch_size", "four"), "clip.vision.patch_size"),
        (gemma.with("clip.vision.patch_size", 0_u32), "cuts an image"),
        (gemma.with("clip.use_silu", true), "clip.use_silu"),
        (gemma.with("clip.use_gelu", 3_u32), "should be a flag"),
        (gemma.with("clip.vision.image_mean", long(2)), "image_mean"),
        (gemma.with("clip.vision.image_std", 0.5_f32), "should be a list"),
        (gemma.with("clip.vision.image_std", vec![f32::NAN; 3]), "no finite number"),
        (gemma.with("clip.vision.projector.scale_factor", 100_u32), "projector.scale_factor"),
        (windows.without("clip.vision.n_wa_pattern"), "n_wa_pattern"),
        (named("idefics3").without("clip.vision.projector.scale_factor"), "projector.scale_factor"),
        (named("internvl").with("clip.vision.projector.scale_factor", 0_u32), "projector.scale_factor"),
        (turned.with("clip.vision.feature_layer", vec![1, 2]), "feature_layer"),
        (turned.with("clip.vision.image_grid_pinpoints", vec![1, 2]), "LLaVA 1.6"),
    ];
    for (file, why) in cases {
        let e = file.open().map(|_| ()).unwrap_err().to_string();
        assert!(e.contains(why) && !e.contains('\n'), "{why}: {e}");
    }
    // A second projector, where there is one for what is heard too.
    let both = gemma.without("clip.projector_type").with("clip.vision.projector_type", "gemma3");
    assert_eq!(both.open().unwrap().architecture, "Gemma3ForConditionalGeneration");
    let own = Translation::mmproj("yodel", "YodelForConditionalGeneration");
    let other = gemma.with("clip.projector_type", "yodel").bytes();
    let options = OpenOptions::new().translation(own);
    let other = options.of_gguf(Arc::new(Gguf::from_bytes(other).unwrap())).unwrap();
    assert_eq!(other.architecture, "YodelForConditionalGeneration");
    assert_eq!(other.config.at("vision_config").usize("hidden_size").unwrap(), 36);
}

/// Every number of the header in turn as 0, as another and as one beyond counting.
#[test]
fn false_numbers_are_errors_and_no_panics() {
    for (name, folder, file) in files() {
        let image = images(&folder).remove(0);
        let keys: Vec<String> = file.metadata.iter().map(|(key, _)| key.to_owned()).collect();
        let (mut refused, mut tried) = (0, 0);
        for key in keys.iter().filter(|key| file.metadata.get(key).is_some_and(|v| v.as_int().is_some())) {
            for value in [0, 1, 3, 1 << 20, u64::MAX >> 1, u64::MAX] {
                (tried, refused) =
                    (tried + 1, refused + usize::from(sees(&file.with(key, value), &image).is_err()));
            }
        }
        println!("{name}: {refused} of {tried} refused");
        assert!(refused > 15, "{name}: {refused} of {tried}");
    }
}

/// Every tensor in turn left out, with a row fewer, and with none.
#[test]
fn tensors_that_are_missing_or_of_another_shape_are_errors_and_no_panics() {
    for (name, folder, file) in files() {
        let image = images(&folder).remove(0);
        let whole = sees(&file, &image).unwrap();
        for i in 0..file.tensors.len() {
            let mut fewer = file.clone();
            let (tensor, ..) = fewer.tensors.remove(i);
            // What other programs want, and the block behind the last that is read.
            if tensor == "v.token_embd.img_break" || name == "llava" && tensor.starts_with("v.blk.2.") {
                assert_eq!(sees(&fewer, &image).unwrap(), whole, "{name} without {tensor}");
                continue;
            }
            let optional = tensor.ends_with(".bias") || tensor.contains("_norm.");
            match sees(&fewer, &image) {
                // Something is left out without which a tower is whole too; what it sees is another thing then.
                Ok(seen) => assert!(optional && seen != whole, "{name} sees without {tensor}"),
                Err(e) => assert!(!e.to_string().contains('\n'), "{e}"),
            }
            for n in [0, 1] {
                let mut cut = file.clone();
                let (_, dims, _, bytes) = &mut cut.tensors[i];
                let last = dims.len() - 1;
                dims[last] = if n == 0 { 0 } else { dims[last] - 1 };
                bytes.truncate(4 * dims.iter().product::<u64>() as usize);
                let seen = sees(&cut, &image);
                assert!(seen.is_err() || tensor.starts_with("mm."), "{name}: {tensor} with {n}");
            }
        }
    }
}

#[test]
fn files_that_end_early_or_have_other_bytes_are_errors_and_no_panics() {
    for (name, folder, file) in
        files().into_iter().filter(|(name, ..)| name.starts_with("qwen3") || name == "gemma3")
    {
        let (bytes, image) = (file.bytes(), images(&folder).remove(0));
        for end in (0..bytes.len()).step_by(bytes.len() / 97) {
            assert!(Gguf::from_bytes(bytes[..end].to_vec()).is_err(), "{name}: {end} bytes");
        }
        // In the header, where each byte counts.
        for at in (8..4096).step_by(29) {
            let mut other = bytes.clone();
            other[at] ^= 0x55;
            let Ok(gguf) = Gguf::from_bytes(other) else { continue };
            let Ok(file) = OpenOptions::new().of_gguf(Arc::new(gguf)) else { continue };
            let _ = tower(&file).and_then(|tower| tower.see(&Oracle, &image.patches, image.grid));
        }
    }
}

/// As the first converters called the matrices of an MLP, and as those that kept queries, keys and values in one matrix.
#[test]
fn first_names_of_matrices_are_known_by_their_shapes() {
    for (name, folder, file) in files() {
        if !["gemma3", "idefics3", "llava", "qwen2-vl"].contains(&&*name) {
            continue;
        }
        let (image, mut swapped) = (images(&folder).remove(0), file.clone());
        for (tensor, ..) in &mut swapped.tensors {
            *tensor = match (tensor.replace("ffn_up", "ffn_down"), tensor.replace("ffn_down", "ffn_up")) {
                (down, same) if same == *tensor => down,
                (_, up) => up,
            };
        }
        assert!(swapped.tensors.iter().zip(&file.tensors).any(|(a, b)| a.0 != b.0));
        assert_eq!(sees(&swapped, &image).unwrap(), sees(&file, &image).unwrap(), "{name}");
    }
}

#[test]
fn halves_of_two_kinds_are_put_together() {
    let (_, folder, file) = files().into_iter().find(|(name, ..)| name == "qwen2-vl").unwrap();
    let (image, mut mixed) = (images(&folder).remove(0), file.clone());
    let second = mixed.tensors.iter_mut().find(|(name, ..)| name == "v.patch_embd.weight.1").unwrap();
    let values = second.3.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes));
    // Of numbers that are bf16's.
    (second.2, second.3) = (GgmlType::BF16, values.flat_map(|v| v.to_le_bytes()[2..].to_vec()).collect());
    assert_eq!(sees(&mixed, &image).unwrap(), sees(&file, &image).unwrap());
}
