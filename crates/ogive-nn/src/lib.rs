//! The layers, loader and registry that model architectures are written in.
