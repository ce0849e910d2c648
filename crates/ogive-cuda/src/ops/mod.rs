//! The operators that are neither the cache's nor a step's, a file for each family.

pub(crate) mod attend;
mod attend_tiles;
pub(crate) mod best;
pub(crate) mod codes;
pub(crate) mod deferred;
pub(crate) mod elementwise;
pub(crate) mod grouped;
pub(crate) mod int8;
pub(crate) mod linear;
pub(crate) mod matrix;
pub(crate) mod moe;
pub(crate) mod moves;
pub(crate) mod norm;
mod one;
pub(crate) mod order;
pub(crate) mod recurrent;
pub(crate) mod rope;
pub(crate) mod slabs;
pub(crate) mod split;

#[cfg(test)]
mod few_tests;
