//! Any bytes, inflated: judged as zlib does, with the kernel and without; and from any bit with a window, all at
//! once and as they come.
#![no_main]

use fiche::codec::deflate::{Inflate, Input, Pause, WINDOW};
use fiche::testing::inflate_as_zlib;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((&first, stream)) = bytes.split_first() else { return };
    let first = usize::from(first);
    let room = 1 + 300 * first;
    let _ = inflate_as_zlib(stream, room);

    let bit = (first % 8).min(8 * stream.len());
    let (mut whole, mut end) = (vec![1; WINDOW + room], WINDOW);
    let verdict = Inflate::new().run(&mut Input::open(stream, bit), &mut whole, &mut end);

    let (mut pieces, mut at) = (vec![1; WINDOW + room], WINDOW);
    let (mut inflate, mut bit, mut here) = (Inflate::new(), bit, 0);
    let pause = loop {
        let mut input = Input::open(&stream[..here], bit);
        let pause = inflate.run(&mut input, &mut pieces, &mut at);
        bit = input.bit();
        if pause != Ok(Pause::Hungry) || here == stream.len() {
            break pause;
        }
        here = (here + 1 + first % 50).min(stream.len());
    };
    assert_eq!((pause, at), (verdict, end));
    assert!(pieces[..at] == whole[..end]);
});
