//! The `crowfly` command.
fn main() {}
