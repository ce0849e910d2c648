//! Images for models that see: files are decoded, resized and cut into patches as a model's vision tower reads them, and the text is made
//! that stands for an image in a prompt.
//!
//! Nothing here computes with a model or knows of one: [`Processor::load`] reads a checkpoint's settings, and what it gives are numbers and a text.
//!
//! ```
//! use ogive_tensor::{Config, serde_json::json};
//! use ogive_vision::{Image, Processor};
//!
//! # fn main() -> ogive_tensor::Result<()> {
//! let config = Config(json!({"model_type": "qwen2_5_vl", "vision_config": {"patch_size": 14, "spatial_merge_size": 2}}));
//! let processor = Processor::load(&config, None, None)?.expect("a model that sees");
//!
//! let image = Image::new(200, 100, vec![128; 200 * 100 * 3])?; // or Image::open("photo.jpg")
//! let picture = processor.prepare(&image)?;
//! assert_eq!(picture.tiles[0].grid, [8, 14]); // 112 x 196 pixels, in patches of 14 x 14
//! assert_eq!(picture.text, "<|image_pad|>".repeat(8 * 14 / 4)); // the tower makes one row of four patches
//!
//! let prompt = "<|vision_start|><|image_pad|><|vision_end|>What is this?";
//! let prompt = prompt.replacen(processor.marker(), &picture.text, 1);
//! # assert!(prompt.len() > 300);
//! # Ok(())
//! # }
//! ```
//!
//! # Families
//!
//! | family | `model_type` | tiles of an image |
//! |---|---|---|
//! | Gemma 3 | `gemma3` | the whole in a square, with crops of it where the settings ask for pan and scan |
//! | Qwen-VL | `qwen2_vl`, `qwen2_5_vl`, `qwen3_vl`, `qwen3_vl_moe`, `qwen3_5`, `qwen3_5_moe` | one, in its own proportions |
//! | Pixtral | `mistral3`, and `llava` with a `pixtral` tower | one, in its own proportions |
//! | Idefics 3 | `idefics3`, `smolvlm` | squares of it, then the whole in a square |
//! | InternVL | `internvl` | squares of it, then the whole in a square |
//! | LFM2-VL | `lfm2_vl` | one, or squares of it and then the whole in its own proportions |
//! | LLaVA 1.5 | `llava` with a `clip_vision_model` or `siglip_vision_model` tower | its middle, in a square |
//!
//! What is done is what the processors of transformers 4.57.6 do that stand on torchvision ("fast"), which is what towers are compared with. Levels
//! of pixels are the same to the bit, but for Idefics 3, whose processor resizes in single precision (there they are one apart at most), and where decoders
//! of JPEG differ ([`Image::decode`]); `tests/golden.rs` compares all of them. Where a processor asks for Lanczos' filter, torchvision has none for
//! tensors and that version takes the cubic one, and so does this crate.
//!
//! A family of one's own is a [`Family`], made of the same parts: [`Image::resized`], [`Normalize`], [`Cut`].

mod decode;
mod family;
mod image;
mod normalize;
mod patches;
mod processor;
mod resize;
mod settings;

pub use decode::MAX_FILE_BYTES;
pub use image::{Image, MAX_PIXELS, MAX_SIDE};
pub use normalize::Normalize;
pub use patches::{Cut, MAX_VALUES, Tile};
pub use processor::{Family, MAX_ROWS, Picture, Processor};
pub use resize::Filter;
