//! Any bytes as a stored block of any coding with any dictionary, and any text through each and back.
#![no_main]

use std::sync::Arc;

use fiche::rlz::{Coder, Coding, Dictionary};
use fiche::testing::{Coded, decode_both};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [choice, size, cut, rest @ ..] = bytes else { return };
    let coding = Coding::ALL[usize::from(*choice) % Coding::ALL.len()];
    let (dictionary, rest) = rest.split_at(rest.len() * usize::from(*cut) / 256);
    let dictionary = Arc::new(Dictionary::new(dictionary.to_vec()).expect("it is short"));
    let len = usize::from(*size) * 20 + 1;
    let start = usize::from(*cut).min(len);
    let piece = (len - start).min(100);
    let (whole, some) = decode_both(coding, &dictionary, rest, len, (start, piece));
    if let Some(whole) = whole {
        // What is a block as a whole is one in pieces.
        assert!(some.expect("a piece of it") == whole[start..start + piece]);
    }
    let blocks: Vec<&[u8]> = rest.chunks(len).collect();
    let coder = Coder::with_level(coding, *coding.levels().start(), dictionary).expect("a coder");
    let coder = coder.probe(&rest[..rest.len() / 2]).collection(rest.len() as u64);
    let mut coded = Coded::new(Arc::new(coder), &blocks);
    for (i, block) in blocks.iter().enumerate() {
        let mut decoded = vec![0xAA; block.len()];
        assert!(!coded.read(i, 0, &mut decoded) || decoded == *block);
        let from = block.len() / 3;
        assert!(!coded.read(i, from, &mut decoded[from..]) || decoded[from..] == block[from..]);
    }
});
