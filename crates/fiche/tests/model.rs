//! Any content, options and reads against a plain `Vec<u8>`.

use std::io::Write;
use std::sync::{Arc, OnceLock};

use fiche::ReadAt;
use fiche::archive::{Entry, Options, Reader, Writer, append, merge};
use fiche::codec::Codec;
use fiche::rlz::{Coder, Coding, Dictionary};
use fiche::testing::Random;
use proptest::prelude::*;

/// A step of writing: a record with content, or content outside of any record.
#[derive(Clone, Debug)]
struct Step {
    name: Option<u8>,
    kind: u8,
    len: usize,
}

fn step() -> impl Strategy<Value = Step> {
    let len =
        prop_oneof![Just(0usize), 1usize..50, 50usize..5_000, Just(1024), 10_000usize..40_000];
    (proptest::option::of(any::<u8>()), 0u8..3, len).prop_map(|(name, kind, len)| Step {
        name,
        kind,
        len,
    })
}

fn options() -> impl Strategy<Value = Options> {
    let codec = prop_oneof![
        4 => Just(Codec::Zstd), 2 => Just(Codec::Lz4), 1 => Just(Codec::Copy),
        1 => Just(Codec::Deflate), 1 => Just(Codec::Bzip2), 1 => Just(Codec::Lzma),
    ];
    let block = prop_oneof![Just(1usize << 10), Just(4 << 10), 1024usize..20_000];
    let method = prop_oneof![
        2 => codec.prop_map(|codec| Options::default().codec(codec)),
        1 => (0..coders().len()).prop_map(|i| Options::default().coder(coders()[i].clone())),
    ];
    (method, block, any::<bool>(), 1usize..4).prop_map(|(options, block, align, threads)| {
        options.block_len(block).align_records(align).threads(threads)
    })
}

/// Every coding, some with one dictionary and some with another.
fn coders() -> &'static [Arc<Coder>] {
    static CODERS: OnceLock<Vec<Arc<Coder>>> = OnceLock::new();
    CODERS.get_or_init(|| {
        let dictionary = |seed| Arc::new(Dictionary::new(Random(seed).text(30_000)).unwrap());
        let dictionaries = [dictionary(1), dictionary(2)];
        let coder = |(i, coding): (usize, Coding)| {
            let coder = Coder::new(coding, dictionaries[i % 2].clone()).unwrap();
            Arc::new(coder.probe(&Random(3).text(5000)).collection(50_000))
        };
        let codings = Coding::ALL.into_iter().filter(|coding| coding.is_compiled_in());
        codings.enumerate().map(coder).collect()
    })
}

/// The plain twin: all content, and each record's name and range.
#[derive(Default)]
struct Model {
    content: Vec<u8>,
    records: Vec<(Vec<u8>, std::ops::Range<usize>)>,
}

impl Model {
    /// Does one step to both; says whether the writer took the name.
    fn step<W: Write>(&mut self, writer: &mut Writer<W>, step: &Step, seed: u64) {
        let mut random = Random(seed);
        let bytes = match step.kind {
            0 => random.text(step.len),
            1 => random.bytes(step.len),
            _ => vec![seed as u8; step.len],
        };
        let start = self.content.len();
        let name = match step.name {
            Some(name) => format!("{:03}", name).into_bytes(),
            None => {
                writer.write_all(&bytes).unwrap();
                self.content.extend(bytes);
                return;
            }
        };
        let twice = self.records.iter().any(|(n, _)| *n == name);
        match writer.begin(Entry::data(name.clone())) {
            Ok(number) => {
                assert!(!twice, "a name was taken twice");
                assert_eq!(number, self.records.len() as u64);
            }
            Err(_) => {
                assert!(twice, "a new name was refused");
                return;
            }
        }
        writer.write_all(&bytes).unwrap();
        writer.end().unwrap();
        self.content.extend(bytes);
        self.records.push((name, start..self.content.len()));
    }

    fn compare(&self, reader: &Reader, seed: u64) {
        assert_eq!(reader.len(), self.content.len() as u64);
        let mut all = vec![0; self.content.len()];
        reader.read_at(0, &mut all).unwrap();
        assert!(all == self.content);
        assert_eq!(reader.records(), self.records.len() as u64);
        let entries: Vec<_> = reader.entries(0).map(Result::unwrap).collect();
        for (i, (name, range)) in self.records.iter().enumerate() {
            let range = range.start as u64..range.end as u64;
            assert_eq!((entries[i].0, &entries[i].1.name), (i as u64, name));
            assert_eq!(entries[i].1.range, range);
            assert_eq!(reader.find(name).unwrap().as_ref(), Some(&entries[i]));
            assert_eq!(reader.entry(i as u64).unwrap(), entries[i].1);
        }
        assert!(reader.find("no such name").unwrap().is_none());
        let mut random = Random(seed);
        for _ in 0..20 {
            let len = random.below(self.content.len() as u64 + 1);
            let offset = random.below(self.content.len() as u64 - len + 1) as usize;
            let mut buf = vec![0; len as usize];
            reader.read_at(offset as u64, &mut buf).unwrap();
            assert!(buf == self.content[offset..offset + len as usize]);
        }
        let report = reader.verify(2, &mut |_| Ok(())).unwrap();
        assert!(report.damage.is_empty(), "{:?}", report.damage);
        assert_eq!(report.bytes, self.content.len() as u64);
    }
}

/// So many random cases, or as many as `PROPTEST_CASES` says.
fn cases(usual: u32) -> ProptestConfig {
    match std::env::var_os("PROPTEST_CASES") {
        Some(_) => ProptestConfig::default(),
        None => ProptestConfig { cases: usual, ..ProptestConfig::default() },
    }
}

proptest! {
    #![proptest_config(cases(150))]

    #[test]
    fn what_was_written_is_read(steps in proptest::collection::vec(step(), 0..30), options in options(), seed: u64) {
        let mut model = Model::default();
        let mut writer = Writer::new(Vec::new(), options.clone()).unwrap();
        for (i, step) in steps.iter().enumerate() {
            model.step(&mut writer, step, seed ^ i as u64);
        }
        let file = writer.finish().unwrap();
        model.compare(&Reader::open(Arc::new(file.clone())).unwrap(), seed);

        // The same steps on another number of threads give the same bytes.
        let mut again = Model::default();
        let mut writer = Writer::new(Vec::new(), options.threads(2)).unwrap();
        for (i, step) in steps.iter().enumerate() {
            again.step(&mut writer, step, seed ^ i as u64);
        }
        prop_assert!(writer.finish().unwrap() == file);
    }

    #[test]
    fn what_was_appended_and_merged_is_read(
        rounds in proptest::collection::vec((proptest::collection::vec(step(), 0..10), options()), 1..5),
        seed: u64,
    ) {
        let file = tempfile::NamedTempFile::new().unwrap();
        let empty = Writer::new(Vec::new(), Options::default()).unwrap().finish().unwrap();
        std::fs::write(file.path(), empty).unwrap();
        let mut model = Model::default();
        for (round, (steps, options)) in rounds.iter().enumerate() {
            append(file.path(), options, |writer| {
                for (i, step) in steps.iter().enumerate() {
                    model.step(writer, step, seed ^ (round * 1000 + i) as u64);
                }
                Ok(())
            }).unwrap();
        }
        let bytes = std::fs::read(file.path()).unwrap();
        let reader = Reader::open(Arc::new(bytes)).unwrap();
        model.compare(&reader, seed);

        // An archive of other names behind it.
        let mut writer = Writer::new(Vec::new(), rounds[0].1.clone()).unwrap();
        for i in (0..300u64).rev() {
            writer.add(Entry::data(format!("other {i}")), &mut i.to_string().as_bytes()).unwrap();
        }
        let other = Reader::open(Arc::new(writer.finish().unwrap())).unwrap();
        let both = merge(&[reader, other], Vec::new(), &mut |_| Ok(())).unwrap();
        for i in (0..300u64).rev() {
            let (start, text) = (model.content.len(), i.to_string());
            model.content.extend(text.bytes());
            model.records.push((format!("other {i}").into(), start..model.content.len()));
        }
        model.compare(&Reader::open(Arc::new(both)).unwrap(), seed);
    }
}

#[test]
fn many_records_are_found_through_several_levels() {
    for sorted in [true, false] {
        let mut writer = Writer::new(Vec::new(), Options::default()).unwrap();
        let count = 150_000u64;
        let name = |i: u64| match sorted {
            true => format!("{i:08}"),
            // A walk through all numbers that is not in their order.
            false => format!("{:08}", i * 77_777 % 150_001),
        };
        for i in 0..count {
            writer.add(Entry::data(name(i)), &mut [i as u8].as_slice()).unwrap();
        }
        let file = writer.finish().unwrap();
        let reader = Reader::open(Arc::new(file)).unwrap();
        for i in (0..count).step_by(997) {
            assert_eq!(reader.find(name(i)).unwrap().unwrap().0, i);
            assert_eq!(reader.entry(i).unwrap().name, name(i).into_bytes());
        }
        assert!(
            reader
                .entries(0)
                .map(|e| e.unwrap().1.name)
                .eq((0..count).map(|i| name(i).into_bytes()))
        );
        assert!(reader.entry(count).is_err());
        assert!(reader.verify(2, &mut |_| Ok(())).unwrap().damage.is_empty());
    }
}
