//! An image in squares: which grid of them fits its proportions, and cutting it so. InternVL's and LFM2-VL's processors do it alike.

use crate::resize::Part;
use crate::{Filter, Image};
use ogive_tensor::Result;

/// Most tiles of an image that settings may ask for.
pub(super) const MOST_TILES: usize = 64;

/// Columns and rows of the grid of `least` to `most` tiles, each `tile` (height, width) pixels, whose proportions are nearest to the image's.
///
/// Where two are equally near, which only happens where one's sides are the other's times a number or the image lies just between
/// them, the later one is taken if the image has more than half of its pixels; they are ordered by their number of tiles. Among grids of one number, narrow
/// ones come first.
pub(super) fn grid(image: &Image, tile: [usize; 2], least: usize, most: usize) -> [usize; 2] {
    let mut grids: Vec<[usize; 2]> = (1..=most)
        .flat_map(|columns| (1..=most).map(move |rows| [columns, rows]))
        .filter(|[columns, rows]| (least..=most).contains(&(columns * rows)))
        .collect();
    grids.sort_by_key(|[columns, rows]| columns * rows);

    let ratio = image.width() as f64 / image.height() as f64;
    let area = (image.width() * image.height()) as f64;
    let mut best = ([1, 1], f64::INFINITY);
    for grid @ [columns, rows] in grids {
        let distance = (ratio - columns as f64 / rows as f64).abs();
        let large = || area > 0.5 * (tile[0] * tile[1] * columns * rows) as f64;
        if distance < best.1 || (distance == best.1 && large()) {
            best = (grid, distance);
        }
    }
    best.0
}

/// The tiles of an image, row by row: it is resized to fill `columns` x `rows` of them.
pub(super) fn split(
    image: &Image,
    [columns, rows]: [usize; 2],
    [height, width]: [usize; 2],
    filter: Filter,
) -> Result<Vec<Image>> {
    let whole = image.resized(columns * width, rows * height, filter)?;
    cut(&whole, [height, width])
}

/// The parts of `height` x `width` that an image consists of, row by row.
pub(super) fn cut(image: &Image, [height, width]: [usize; 2]) -> Result<Vec<Image>> {
    let (columns, rows) = (image.width() / width, image.height() / height);
    let parts = (0..rows).flat_map(|row| (0..columns).map(move |column| [row, column]));
    parts
        .map(|[row, column]| image.cropped(Part { left: column * width, top: row * height, width, height }))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grid_nearest_in_proportions() {
        let of = |width: usize, height: usize, least, most| {
            let image = Image::new(width, height, vec![0; width * height * 3]).unwrap();
            grid(&image, [448, 448], least, most)
        };
        assert_eq!(of(600, 600, 1, 12), [1, 1]);
        // Of four tiles more than half are filled, of nine not.
        assert_eq!(of(900, 900, 1, 12), [2, 2]);
        assert_eq!((of(1200, 600, 1, 12), of(600, 1200, 1, 12)), ([2, 1], [1, 2]));
        assert_eq!((of(4000, 100, 1, 12), of(100, 4000, 2, 10)), ([12, 1], [1, 10]));
    }
}
