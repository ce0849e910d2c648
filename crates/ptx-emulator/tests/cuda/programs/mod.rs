//! Host programs: streams, events, graphs, dependent launches, cuBLAS, devices, errors.

mod blas;
mod compiler;
mod devices;
mod graphs;
mod streams;
