//! Language model architectures, a file each.
