//! An oracle backend and the cases every Ogive backend must pass.
