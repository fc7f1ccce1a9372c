//! Any bytes as a model that blocks share, or a good one with some bytes changed, and any bytes as a block.
#![no_main]

use std::sync::{Arc, LazyLock};

use fiche::rlz::{Coder, Coding, Training};
use fiche::testing::{Random, decode_as_twins, decode_with_model, model_bytes, stored_bytes};

/// For each coding that has a model: a coder, its model, a block, and that stored.
static GOOD: LazyLock<Vec<(Arc<Coder>, Vec<u8>, Vec<u8>, Vec<u8>)>> = LazyLock::new(|| {
    let text = Random(1).text(60_000);
    let of = |(coding, level)| {
        let training = Training::new(coding).level(level).block_len(2_000).dictionary_len(8_000);
        let coder = Arc::new(training.run(&text).expect("a coder"));
        let block = text[30_000..32_000].to_vec();
        let stored = stored_bytes(&coder, &[&block]).remove(0);
        let model = model_bytes(&coder).expect("a model");
        assert!(
            decode_with_model(&model, coder.dictionary(), &stored, 2_000).as_ref() == Some(&block)
        );
        (coder, model, block, stored)
    };
    [(Coding::Fast, 1), (Coding::Hybrid, 5), (Coding::ZzPrimed, 9)].map(of).into()
});

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [choice, split, rest @ ..] = bytes else { return };
    let (coder, model, block, stored) = &GOOD[usize::from(*choice) % GOOD.len()];
    let (some, others) = rest.split_at(rest.len() * usize::from(*split) / 256);
    let changed = |bytes: &[u8], how: &[u8]| {
        let mut bytes = bytes.to_vec();
        for how in how.chunks_exact(3) {
            let at = usize::from(how[0]) << 8 | usize::from(how[1]);
            let at = at % bytes.len();
            bytes[at] = how[2];
        }
        bytes
    };
    let (model, stored) = match choice / 64 {
        0 => (some.to_vec(), others.to_vec()),
        1 => (changed(model, some), others.to_vec()),
        2 => (changed(model, some), changed(stored, others)),
        _ => (changed(model, some), stored.clone()),
    };
    let _ = decode_with_model(&model, coder.dictionary(), &stored, block.len());
    let start = usize::from(*split) * 7 % block.len();
    let end = (start + 1 + usize::from(*choice) * 11).min(block.len());
    decode_as_twins(&model, coder.dictionary(), &stored, block.len(), start..end);
});
