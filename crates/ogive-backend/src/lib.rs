//! The seam between language models and the machines that run them.
