//! Any bytes as a file whose checksums are right: what a checksum would have caught
//! must be caught by what reads the section.
#![no_main]

#[path = "seal.rs"]
mod seal;
#[path = "use_all.rs"]
mod use_all;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if bytes.len() >= seal::LEAST {
        use_all::use_all(seal::sealed(bytes.to_vec()));
    }
});
