//! The API agent against a scripted server.

fn main() {}
