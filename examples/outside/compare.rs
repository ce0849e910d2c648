//! Compares a model with what `reference.py` wrote, block by block: the first line with a large number is where to look.
//!
//! `cargo run -p ogive-example-outside --example compare -- MODEL FOLDER`

#![allow(clippy::print_stdout)]

use ndarray_npy::read_npy;
use ogive::Options;
use ogive::backend::Backend;
use ogive::engine::{Evaluate, evaluate};
use ogive::ndarray::{Array1, Array2};
use ogive::tensor::Tensor;
use std::cell::RefCell;
use std::{env, error::Error, path::Path};

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let [model, folder] = &args[..] else { return Err("usage: compare MODEL FOLDER".into()) };
    let folder = Path::new(folder);
    let reference = |name: &str| read_npy::<_, Array2<f32>>(folder.join(format!("{name}.npy")));
    let ids: Array1<u32> = read_npy(folder.join("ids.npy"))?;

    let model = Options::new().registry(ogive_example_outside::registry()).exact(true).open(model)?;
    // What the model shows with `Step::observe` comes by here, in the order it is computed.
    let seen = RefCell::new(Vec::new());
    let look =
        |name: &str, x: &Tensor| seen.borrow_mut().push((name.to_owned(), values(&**model.backend(), x)));
    let mut how = Evaluate::new();
    how.observer = Some(&look);
    let logits = evaluate(&**model.backend(), &**model.layers(), &ids.to_vec(), &how)?;

    let mut compared = 0;
    for (name, found) in seen.take() {
        // The last block has no reference.
        if folder.join(format!("{name}.npy")).is_file() {
            println!("{name:8} {:.1e}", worst(&found?, &reference(&name)?)?);
            compared += 1;
        }
    }
    if compared == 0 {
        return Err(format!("{} has none of the blocks that the model shows", folder.display()).into());
    }
    println!("hidden   {:.1e}", worst(&model.hidden(&ids.to_vec())?, &reference("hidden")?)?);
    println!("logits   {:.1e}", worst(&logits, &reference("logits")?)?);
    Ok(())
}

/// A tensor's elements. `[n, dim]`
fn values(backend: &dyn Backend, x: &Tensor) -> Result<Array2<f32>, Box<dyn Error>> {
    Ok(Array2::from_shape_vec((x.shape().rows(), x.shape().cols()), backend.download(x)?)?)
}

/// The largest difference.
fn worst(a: &Array2<f32>, b: &Array2<f32>) -> Result<f32, Box<dyn Error>> {
    if a.dim() != b.dim() {
        return Err(format!("shapes {:?} and {:?} differ", a.dim(), b.dim()).into());
    }
    Ok(a.iter()
        .zip(b)
        .map(|(a, b)| (a - b).abs())
        .fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most }))
}
