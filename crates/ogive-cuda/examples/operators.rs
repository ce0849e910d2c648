//! Operators one by one, without a model: a packed weight, a product, its best elements.
//!
//! ```text
//! cargo run -p ogive-cuda --example operators
//! ```
#![allow(clippy::print_stdout)]

use ogive_cuda::CudaBackend;
use ogive_cuda::backend::{Activation, Backend};
use ogive_cuda::tensor::{HostWeight, Q8_0, Result};

fn main() -> Result<()> {
    for device in CudaBackend::devices().unwrap_or_default() {
        println!("cuda:{}: {device}", device.number);
    }
    let cuda = match CudaBackend::new() {
        Ok(cuda) => cuda,
        Err(why) => {
            println!("CUDA not used: {why}\n{}", ogive_cuda::report());
            return Ok(());
        }
    };
    println!("using {}", cuda.facts().description);

    // A weight of 1000 rows of 256, packed to 8 bits; it stays packed on the device.
    let values: Vec<f32> = (0..1000 * 256).map(|i| ((i * 7919) % 2003) as f32 / 1001.5 - 1.0).collect();
    let mut packed = vec![0; 1000 * Q8_0.row_bytes(256)];
    Q8_0.encode_row(&values, &mut packed)?;
    let w = cuda.upload_weight(&HostWeight::new("w", [1, 1000, 256], &Q8_0, packed.into())?)?;

    let x: Vec<f32> = (0..3 * 256).map(|i| (i as f32 * 0.1).sin()).collect();
    let x = cuda.upload(&x, [3, 256].into())?;
    let y = cuda.activate(cuda.linear(&x, &w)?, Activation::Silu)?; // [3, 1000]
    for (row, best) in cuda.best(&y, 3)?.iter().enumerate() {
        println!("row {row}: {best:.3?}");
    }
    let (used, most) = cuda.memory_used();
    println!("{used} bytes of device memory in use, {most} at most");
    Ok(())
}
