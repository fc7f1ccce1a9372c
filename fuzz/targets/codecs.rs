//! Any bytes as a stored block of any codec, and any bytes through each and back.
#![no_main]

use fiche::codec::{Codec, Scratch};
use fiche::{Segments, SegmentsMut};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let [choice, size, rest @ ..] = bytes else { return };
    let codec = Codec::ALL[usize::from(*choice) % Codec::ALL.len()];
    let mut scratch = Scratch::default();
    let mut out = vec![0; usize::from(*size) * 40];
    let done = codec.decompress(rest.into(), out.as_mut_slice().into(), &mut scratch);
    // In segments it is the same, or as wrong.
    let len = usize::from(*choice) + 1;
    let segments = Segments::new(rest.chunks(len));
    let mut others = vec![0xAA; out.len()];
    let mut room = SegmentsMut::new(others.chunks_mut(len + 3));
    let again = codec.decompress((&segments).into(), (&mut room).into(), &mut scratch);
    assert_eq!(done.is_ok(), again.is_ok());
    assert!(done.is_err() || out == others);
    let levels = codec.levels();
    let level = levels.start() + i32::from(*size) % (levels.end() - levels.start() + 1);
    let mut stored = vec![0; rest.len() * 2 + 1000];
    if let Some(len_of) = codec
        .compress(level.min(6), rest.into(), stored.as_mut_slice().into(), &mut scratch)
        .expect("a level that it has")
    {
        let mut decoded = vec![0xAA; rest.len()];
        codec
            .decompress(stored[..len_of].into(), decoded.as_mut_slice().into(), &mut scratch)
            .expect("what was compressed");
        assert!(decoded == rest);
        let mut again = vec![0; stored.len()];
        let mut room = SegmentsMut::new(again.chunks_mut(len + 5));
        let done = codec.compress(level.min(6), (&segments).into(), (&mut room).into(), &mut scratch);
        assert!(done.expect("a level that it has") == Some(len_of) && again[..len_of] == stored[..len_of]);
    }
    // Frames say how long they are, and are not believed.
    let _ = Codec::from_frame(bytes, 1 << 20, &mut scratch);
    let frame = codec.to_frame(level.min(6), rest, &mut scratch).expect("a level that it has");
    let limit = rest.len() as u64;
    assert!(Codec::from_frame(&frame, limit, &mut scratch).expect("a frame") == rest);
});
