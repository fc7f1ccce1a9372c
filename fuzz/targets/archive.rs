//! Any bytes as a file: opened, recovered, verified, read; never a panic.
#![no_main]

#[path = "use_all.rs"]
mod use_all;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| use_all::use_all(bytes.to_vec()));
