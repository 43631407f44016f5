//! The `strand` binary. STARTING VERSION.
fn main() {}
