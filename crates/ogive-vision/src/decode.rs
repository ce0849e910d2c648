//! Image files: PNG, JPEG and WebP, as strangers send them.
//!
//! The decoders are the crate `image`'s, in safe Rust. What is done with what they give follows Pillow, which the reference's processors
//! are fed by: alpha is dropped and not laid over a background, 16 bits lose the lower eight, and what a camera noted of how
//! it was held is heeded. One thing is not followed: Pillow clips grey of 16 bits to white, and here it is scaled as colours are.
//!
//! PNG and WebP give Pillow's pixels to the bit. JPEG leaves it to a decoder how it rounds and interpolates colours: pixels differ from Pillow's by
//! 0.4 levels in the mean and 8 at most in noise whose colours are kept at a quarter of the pixels, and by 2 in smooth pictures.

use crate::Image;
use crate::image::{MAX_PIXELS, check_size};
use ::image::{DynamicImage, ImageDecoder, ImageFormat, ImageReader, Limits};
use ogive_tensor::{Error, ErrorKind, Result};
use std::fs::File;
use std::io::{Cursor, Read};
use std::path::Path;

/// Most bytes of a file, 128 MiB: more than [`MAX_PIXELS`] take as a photograph, and a bound on what is read before anything is known.
pub const MAX_FILE_BYTES: usize = 128 << 20;

impl Image {
    /// Reads an image file: PNG, JPEG or WebP (of a moving one the first picture), whatever it is called.
    ///
    /// # Errors
    /// If the file cannot be read or has more than [`MAX_FILE_BYTES`], and as [`decode`](Self::decode).
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let what = format!("image {}", path.display());
        let io = |e| Error::new(what.clone(), ErrorKind::Io(e));
        let file = File::open(path).map_err(io)?;
        let mut bytes = Vec::new();
        file.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes).map_err(io)?;
        Self::decode(&bytes).map_err(|e| e.within(&what))
    }

    /// Reads an image from the bytes of a file; what kind of file it is, they say.
    ///
    /// # Errors
    /// If there are more than [`MAX_FILE_BYTES`] of them, if they are no PNG, JPEG or WebP file, are damaged, or are an image larger than an image
    /// [may be](Self::new).
    pub fn decode(bytes: &[u8]) -> Result<Self> {
        if bytes.len() > MAX_FILE_BYTES {
            let why = format!("the file has more than {MAX_FILE_BYTES} bytes; make it smaller");
            return Err(Error::invalid("image", why));
        }
        let format = ::image::guess_format(bytes).ok();
        let format = format.ok_or_else(|| unreadable("the file is of no kind that is known here"))?;
        if !matches!(format, ImageFormat::Png | ImageFormat::Jpeg | ImageFormat::WebP) {
            return Err(unreadable(&format!("this is a {format:?} file")));
        }
        let mut reader = ImageReader::with_format(Cursor::new(bytes), format);
        // For what decoders allocate besides pixels, whose number is looked at below.
        let mut limits = Limits::no_limits();
        limits.max_alloc = Some(MAX_PIXELS as u64 * 8);
        reader.limits(limits);
        let mut decoder = reader.into_decoder().map_err(|e| damaged(format, &e))?;
        let (width, height) = decoder.dimensions();
        check_size(width as usize, height as usize)?;
        let held = decoder.orientation().map_err(|e| damaged(format, &e))?;
        let mut decoded = DynamicImage::from_decoder(decoder).map_err(|e| damaged(format, &e))?;
        // This decoder makes grey of what is not there.
        if format == ImageFormat::Jpeg && !jpeg_ends(bytes) {
            return Err(damaged(format, &"it ends before its picture does"));
        }
        decoded.apply_orientation(held);
        of_pixels(decoded)
    }
}

fn unreadable(what: &str) -> Error {
    Error::unsupported("image", format!("{what}, and PNG, JPEG and WebP are read; convert it to one of them"))
}

fn damaged(format: ImageFormat, e: &dyn std::fmt::Display) -> Error {
    let why = format!(
        "the {format:?} file cannot be decoded: {e}; is it complete? Another program may be able to save it anew"
    );
    Error::invalid("image", why)
}

/// Whether a JPEG file has an end: segments, each with its length, and behind some of them coded pixels, in which a marker cannot stand, up to
/// the marker that ends all. (A smaller picture in a segment has one, too.)
fn jpeg_ends(bytes: &[u8]) -> bool {
    const END: u8 = 0xd9;
    let mut rest = bytes.get(2..).unwrap_or_default();
    loop {
        // The next marker: 0xff and neither 0, which makes it a byte of pixels, nor another 0xff, which fills up.
        let Some(at) = rest.windows(2).position(|pair| pair[0] == 0xff && !matches!(pair[1], 0 | 0xff))
        else {
            return false;
        };
        let marker = rest[at + 1];
        rest = &rest[at + 2..];
        match marker {
            END => return true,
            // Those that stand alone: restarts among pixels, and a beginning.
            0x01 | 0xd0..=0xd8 => {}
            _ => {
                let Some([high, low]) = rest.first_chunk() else { return false };
                let Some(behind) = rest.get(usize::from(u16::from_be_bytes([*high, *low]))..) else {
                    return false;
                };
                rest = behind;
            }
        }
    }
}

/// Red, green and blue in 8 bits.
fn of_pixels(decoded: DynamicImage) -> Result<Image> {
    let (width, height) = (decoded.width() as usize, decoded.height() as usize);
    let high = |v: u16| (v >> 8) as u8;
    let rgb: Vec<u8> = match decoded {
        DynamicImage::ImageRgb8(image) => image.into_raw(),
        DynamicImage::ImageRgba8(image) => image.pixels().flat_map(|p| [p.0[0], p.0[1], p.0[2]]).collect(),
        DynamicImage::ImageLuma8(image) => image.pixels().flat_map(|p| [p.0[0]; 3]).collect(),
        DynamicImage::ImageLumaA8(image) => image.pixels().flat_map(|p| [p.0[0]; 3]).collect(),
        DynamicImage::ImageRgb16(image) => image.pixels().flat_map(|p| p.0.map(high)).collect(),
        DynamicImage::ImageRgba16(image) => {
            image.pixels().flat_map(|p| [p.0[0], p.0[1], p.0[2]].map(high)).collect()
        }
        DynamicImage::ImageLuma16(image) => image.pixels().flat_map(|p| [high(p.0[0]); 3]).collect(),
        DynamicImage::ImageLumaA16(image) => image.pixels().flat_map(|p| [high(p.0[0]); 3]).collect(),
        // The formats that are read have no other.
        other => other.into_rgb8().into_raw(),
    };
    Image::new(width, height, rgb)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ::image::ImageBuffer;

    #[test]
    fn every_kind_of_pixel() {
        // Red, green, blue and alpha, and of grey the first and the last.
        let (eight, sixteen) = (vec![1u8, 2, 3, 4], vec![0x01fe_u16, 0x02ff, 0x0300, 0xffff]);
        let some = |values: &[usize]| values.iter().map(|i| (eight[*i], sixteen[*i])).unzip();
        let [(rgb, rgb16), (rgba, rgba16)] = [some(&[0, 1, 2]), some(&[0, 1, 2, 3])];
        let [(grey, grey16), (both, both16)] = [some(&[0]), some(&[0, 3])];
        let one = |image: DynamicImage| of_pixels(image).unwrap().pixels().to_vec();
        assert_eq!(one(DynamicImage::ImageRgb8(ImageBuffer::from_raw(1, 1, rgb).unwrap())), [1, 2, 3]);
        assert_eq!(one(DynamicImage::ImageRgba8(ImageBuffer::from_raw(1, 1, rgba).unwrap())), [1, 2, 3]);
        assert_eq!(one(DynamicImage::ImageLuma8(ImageBuffer::from_raw(1, 1, grey).unwrap())), [1, 1, 1]);
        assert_eq!(one(DynamicImage::ImageLumaA8(ImageBuffer::from_raw(1, 1, both).unwrap())), [1, 1, 1]);
        assert_eq!(one(DynamicImage::ImageRgb16(ImageBuffer::from_raw(1, 1, rgb16).unwrap())), [1, 2, 3]);
        assert_eq!(one(DynamicImage::ImageRgba16(ImageBuffer::from_raw(1, 1, rgba16).unwrap())), [1, 2, 3]);
        assert_eq!(one(DynamicImage::ImageLuma16(ImageBuffer::from_raw(1, 1, grey16).unwrap())), [1, 1, 1]);
        assert_eq!(one(DynamicImage::ImageLumaA16(ImageBuffer::from_raw(1, 1, both16).unwrap())), [1, 1, 1]);
    }

    #[test]
    fn where_a_jpeg_file_ends() {
        let begin = [0xff, 0xd8];
        let thumbnail = [0xff, 0xe1, 0, 6, 0xff, 0xd8, 0xff, 0xd9];
        let pixels = [0xff, 0xda, 0, 3, 7, 1, 0xff, 0, 2, 0xff, 0xd0, 3, 0xff];
        let unfinished = [&begin[..], &thumbnail, &pixels].concat();
        assert!(!jpeg_ends(&unfinished));
        assert!(jpeg_ends(&[&unfinished[..], &[0xff, 0xd9]].concat()));
        // A segment that is longer than what is left.
        assert!(!jpeg_ends(&[0xff, 0xd8, 0xff, 0xe1, 0, 9, 0xff, 0xd9]));
        assert!(!jpeg_ends(&[]) && !jpeg_ends(&[0xff, 0xd8, 0xff, 0xe1, 0]));
    }
}
