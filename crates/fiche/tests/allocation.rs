//! Reading allocates nothing once it runs, and packing no more than it says.

use std::io::Write;
use std::sync::Arc;

use fiche::ReadAt;
use fiche::archive::{OpenOptions, Options, Reader, Writer};
use fiche::codec::Codec;
use fiche::rlz::{Coder, Coding, Dictionary, Training};
use fiche::testing::{Behind, Random};

#[test]
fn random_reads_allocate_nothing_in_the_steady_state() {
    let content = Random(1).text(4 << 20);
    let codecs = [Codec::Copy, Codec::Lz4, Codec::Deflate, Codec::Zstd];
    let dictionary = Arc::new(Dictionary::new(content[..64 << 10].to_vec()).unwrap());
    let coder = |coding| Coder::new(coding, dictionary.clone()).unwrap().probe(&content[..9_000]);
    let with_coders = Coding::ALL.map(|coding| {
        (coding.name(), Options::default().coder(Arc::new(coder(coding))), coding.has_point_reads())
    });
    let plain = codecs.map(|codec| (codec.name(), Options::default().codec(codec), false));
    for (name, options, has_pieces) in plain.into_iter().chain(with_coders) {
        let mut writer = Writer::new(Vec::new(), options).unwrap();
        writer.write_all(&content).unwrap();
        let file = writer.finish().unwrap();
        // Without a cache, with one that always evicts, and with one that holds all.
        for cache in [0, 1 << 20, 64 << 20] {
            let source = Arc::new(Behind::new(file.clone()));
            let reader: Reader = OpenOptions::default().cache(cache).open(source.clone()).unwrap();
            let (mut random, mut buf) = (Random(2), vec![0; 40_000]);
            let mut read = |reads: usize| {
                for _ in 0..reads {
                    let len = random.below(40_000) as usize;
                    let offset = random.below((content.len() - len) as u64);
                    reader.read_at(offset, &mut buf[..len]).unwrap();
                    assert!(buf[..len] == content[offset as usize..][..len]);
                }
            };
            read(2_000);
            let before = source.reads();
            let counted = allocation_counter::measure(|| read(500));
            // What is kept as it is stored has room of its own: the first and the last block of a read.
            let kept = if has_pieces && cache > 0 { 4 * (source.reads() - before) } else { 0 };
            assert!(counted.count_total <= kept, "{name}, cache of {cache}");
        }
    }
}

#[test]
fn packing_takes_the_memory_that_it_states() {
    let content = Random(1).text(64 << 10);
    for (block, len) in [(16 << 10, 400), (1 << 20, 400)] {
        let counted = allocation_counter::measure(|| {
            let options = Options::default().block_len(block).threads(1).codec(Codec::Lz4);
            let mut writer = Writer::new(std::io::sink(), options).unwrap();
            for _ in 0..len {
                writer.write_all(&content).unwrap();
            }
            writer.finish().unwrap();
        });
        // As the documentation of Writer says, for one thread.
        let stated = 10 * block.max(128 << 10) as u64 + (4 << 20);
        assert!(counted.bytes_max <= stated, "{} of {stated}", counted.bytes_max);
    }
}

#[test]
fn learning_and_packing_take_the_memory_that_they_state() {
    let content = Random(1).text(1 << 20);
    let hybrid = [1, 3, 4, 5, 7, 9].map(|level| Training::new(Coding::Hybrid).level(level));
    let others = [Coding::Pv, Coding::ZzPrimed].map(Training::new);
    for training in hybrid.into_iter().chain(others) {
        let none = training.clone().dictionary_len(0);
        for training in [training.threads(1), none.threads(1)] {
            let counted = allocation_counter::measure(|| {
                let coder = training.run(&content).unwrap();
                let options = Options::default().block_len(16 << 10).threads(1);
                let options = options.coder(Arc::new(coder));
                let mut writer = Writer::new(std::io::sink(), options).unwrap();
                writer.write_all(&content).unwrap();
                writer.finish().unwrap();
            });
            // As much as the writer states is for blocks.
            let stated = training.memory_for(content.len() as u64) + 10 * (128 << 10) + (4 << 20);
            assert!(counted.bytes_max <= stated, "{training:?}: {} of {stated}", counted.bytes_max);
        }
    }
}
