//! Our inflating held against zlib's.

use flate2::{Decompress, FlushDecompress, Status};

use crate::codec::deflate::{Fault, Inflate, Input, Pause};

/// What zlib makes of a stream: its bytes, and whether it is whole, cut or wrong.
fn by_zlib(stream: &[u8], room: usize) -> (Vec<u8>, Option<Pause>) {
    let (mut decompress, mut out) = (Decompress::new(false), vec![0; room]);
    let status = decompress.decompress(stream, &mut out, FlushDecompress::None);
    out.truncate(decompress.total_out() as usize);
    let verdict = match status {
        Err(_) => None,
        Ok(Status::StreamEnd) => Some(Pause::End),
        Ok(_) if out.len() == room => Some(Pause::Full),
        Ok(_) => Some(Pause::Hungry),
    };
    (out, verdict)
}

fn by_ours(stream: &[u8], room: usize) -> (Vec<u8>, Result<Pause, Fault>) {
    // What is behind the room is not ours.
    const BEHIND: [u8; 64] = [0xA5; 64];
    let (mut out, mut at) = (vec![0xA5; room + BEHIND.len()], 0);
    let mut input = Input::open(stream, 0);
    let pause = Inflate::new().run(&mut input, &mut out[..room], &mut at);
    assert_eq!(out[room..], BEHIND);
    out.truncate(at);
    // The kernel goes on where there are margins: the same without any.
    let (mut inflate, mut plain, mut at) = (Inflate::new(), vec![0; room], 0);
    let mut input = Input::open(stream, 0);
    let slow = loop {
        let end = (at + 250).min(room);
        match inflate.run(&mut input, &mut plain[..end], &mut at) {
            Ok(Pause::Full) if at < room => {}
            other => break other,
        }
    };
    assert_eq!((&out[..], pause), (&plain[..at], slow));
    (out, pause)
}

/// Inflates these bytes into so much room, at least one byte: by the kernel and without it, which must agree, and as
/// zlib judges them.
///
/// # Errors
/// What is wrong with them.
///
/// # Panics
/// Where they do not agree.
pub fn inflate_as_zlib(stream: &[u8], room: usize) -> Result<Pause, Fault> {
    let ((theirs, verdict), (out, pause)) = (by_zlib(stream, room), by_ours(stream, room));
    match verdict {
        // It looks ahead, and may say so before it has given all that is right.
        None => assert!(pause.is_err() || pause == Ok(Pause::Full), "{pause:?}"),
        // It looks at what follows the last byte that there is room for.
        Some(verdict) => {
            let same = pause == Ok(verdict) || pause == Ok(Pause::Full) && out.len() == room;
            assert!(same, "{pause:?} {verdict:?}");
            assert!(theirs == out);
        }
    }
    pause
}
