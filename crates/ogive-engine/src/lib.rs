//! Many sequences on one model: paged cache, continuous batching, sessions.
