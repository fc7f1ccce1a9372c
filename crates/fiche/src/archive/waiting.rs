//! What is finished before it can be written: a dictionary takes longer to compress than the first blocks
//! that refer to it, and lies before them in the file.

use std::sync::Arc;

use crate::archive::compress::Compressed;
use crate::rlz::Dictionary;

/// Bytes of finished blocks, and of record pages behind them, that may wait.
const MOST: usize = 64 << 20;

/// What blocks share and is not in the file yet.
#[derive(Default)]
pub(super) struct Unwritten {
    /// The dictionary, and the name of its file if it is in another.
    pub dictionary: Option<(Arc<Dictionary>, Option<String>)>,
    /// The payload of the model's section.
    pub model: Option<Vec<u8>>,
    /// How many threads may compress the dictionary.
    pub threads: usize,
}

impl Unwritten {
    /// Starts to compress the dictionary beside all else; false where there is nothing to wait for.
    pub fn begin(&self) -> bool {
        match &self.dictionary {
            Some((dictionary, None)) if self.threads > 1 => dictionary.begin_packing(self.threads),
            _ => false,
        }
    }

    fn is_ready(&self) -> bool {
        self.dictionary.as_ref().is_none_or(|(dictionary, _)| dictionary.is_packed())
    }
}

/// Finished blocks behind it, in order.
pub(super) struct Waiting {
    pub unwritten: Unwritten,
    pub blocks: Vec<Compressed>,
    len: usize,
    most: usize,
}

impl Waiting {
    pub fn new(unwritten: Unwritten) -> Waiting {
        Waiting { unwritten, blocks: Vec::new(), len: 0, most: MOST }
    }

    /// True while more should wait.
    pub fn goes_on(&self) -> bool {
        self.len < self.most && !self.unwritten.is_ready()
    }

    /// Keeps what will be written of these blocks, and nothing else.
    pub fn push(&mut self, mut done: Compressed) {
        let batch = &mut done.batch;
        batch.data = Vec::new();
        batch.stored.truncate(batch.stored_len);
        batch.stored.shrink_to_fit();
        let pages: usize = batch.pages.iter().map(|(page, _)| page.weight()).sum();
        let tables = (batch.ends.len() + done.stored_lens.len()) * size_of::<usize>();
        self.len += batch.stored_len + pages + tables + size_of::<Compressed>();
        self.blocks.push(done);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::mpsc;
    use std::time::Duration;

    use super::*;
    use crate::archive::compress::Batch;
    use crate::archive::{Options, Writer};
    use crate::envelope::{HEADER_LEN, Kind as Section};
    use crate::records::{Entry, Kind, Page};
    use crate::rlz::{Coding, Training};
    use crate::testing::Random;

    #[test]
    fn blocks_wait_until_the_dictionary_is_compressed_and_then_all_is_where_it_belongs() {
        let text = Random(7).text(3 << 20);
        let pack = |threads| {
            let training = Training::new(Coding::Hybrid).threads(1).dictionary_len(64 << 10);
            let coder = Arc::new(training.run(&text).unwrap());
            // Another compresses it, and takes its time.
            let (begun, begins) = mpsc::channel();
            let (go, waits) = mpsc::channel::<()>();
            let dictionary = coder.dictionary().clone();
            let slow = std::thread::spawn(move || {
                dictionary.pack_after(|| {
                    begun.send(()).unwrap();
                    // A writer that waits for it fails the test, and does not hang it.
                    waits.recv_timeout(Duration::from_secs(20)).unwrap_err();
                });
            });
            begins.recv().unwrap();
            // Alone, a writer waits for it before all else.
            let go = Some(go).filter(|_| threads > 1);
            let options = Options::default().coder(coder).threads(threads);
            let mut writer = Writer::new(Vec::new(), options).unwrap();
            writer.write_all(&text).unwrap();
            assert_eq!(writer.stored() == HEADER_LEN, go.is_some());
            drop(go);
            slow.join().unwrap();
            writer.finish().unwrap()
        };
        let one = pack(1);
        for threads in [2, 5] {
            assert!(pack(threads) == one, "{threads} threads");
        }
    }

    #[test]
    fn no_more_blocks_wait_than_there_is_room_for() {
        let dictionary = Arc::new(Dictionary::new(vec![1; 100]).unwrap());
        let unwritten =
            Unwritten { dictionary: Some((dictionary.clone(), None)), ..Unwritten::default() };
        let mut waiting = Waiting { most: 3000, ..Waiting::new(unwritten) };
        let mut count = 0;
        while waiting.goes_on() {
            let (data, stored) = (vec![0; 5000], vec![0; 5000]);
            let batch = Batch { data, stored, stored_len: 1000, ..Batch::default() };
            waiting.push(Compressed { batch, stored_lens: vec![1000], content: 0, result: Ok(()) });
            count += 1;
        }
        assert_eq!(count, 3);
        let held = |done: &Compressed| done.batch.data.capacity() + done.batch.stored.capacity();
        assert!(waiting.blocks.iter().map(held).sum::<usize>() < 4000);
        // Names and links have no blocks, and take room all the same.
        waiting.len = 0;
        let entry = Entry::new("name".repeat(1000), Kind::Symlink(b"there".to_vec()));
        let page = Page::of(vec![entry], 0, 0);
        let batch = Batch { pages: vec![(page, Section::RecordPage)], ..Batch::default() };
        waiting.push(Compressed { batch, stored_lens: Vec::new(), content: 0, result: Ok(()) });
        assert!(!waiting.goes_on());
        // Nothing waits for what is there.
        waiting.len = 0;
        assert!(waiting.goes_on());
        dictionary.packed(1);
        assert!(!waiting.goes_on());
    }
}
