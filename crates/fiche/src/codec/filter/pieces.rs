//! Filters on pages and segments: some elements at a time, where they lie if that is one piece.
//!
//! Some elements, filtered by themselves, are a row of each plane. So what is said of bytes in one piece is enough: rows go to their places, one for each of as many planes.

use super::Filter;
use crate::pages::{Pieces, Room};

/// Bytes of elements that are filtered at once: a page, where elements are of a power of two.
const SOME: usize = 4096;

type Bytes = [u8; SOME];

/// Where rows lie of elements from one on, and how long they are.
struct Rows {
    count: usize,
    len: usize,
    /// The first, and how far each is from the one before.
    at: usize,
    apart: usize,
}

impl Filter {
    fn width(self) -> usize {
        match self {
            Filter::Shuffle(width) | Filter::Bitshuffle(width) | Filter::Delta(width) => {
                width.into()
            }
        }
    }

    /// Of so many elements from the first on, of so many in all.
    fn rows(self, first: usize, count: usize, all: usize) -> Rows {
        match self {
            Filter::Shuffle(width) => {
                Rows { count: width.into(), len: count, at: first, apart: all }
            }
            Filter::Bitshuffle(width) => {
                let [len, at, apart] = [count, first, all].map(|elements| elements / 8);
                Rows { count: 8 * usize::from(width), len, at, apart }
            }
            Filter::Delta(width) => {
                let width = usize::from(width);
                Rows { count: 1, len: count * width, at: first * width, apart: 0 }
            }
        }
    }

    /// Calls a function with elements, as the first and how many they are, until there are no more.
    fn each(self, moved: usize, mut act: impl FnMut(usize, Rows)) {
        let all = moved / self.width();
        let some = SOME / self.width() / 8 * 8;
        for first in (0..all).step_by(some) {
            let count = some.min(all - first);
            act(first * self.width(), self.rows(first, count, all));
        }
    }

    /// [`Filter::apply`] to pieces, of which so many bytes do not stay as they are.
    pub(super) fn apply_pieces(self, moved: usize, src: &impl Pieces, dst: &mut impl Room) {
        let (mut elements, mut rows_of): (Bytes, Bytes) = ([0; SOME], [0; SOME]);
        let mut before = 0;
        self.each(moved, |at, rows| {
            let len = rows.count * rows.len;
            let elements = lying(src, at, &mut elements[..len]);
            self.apply_behind(&mut before, elements, &mut rows_of[..len]);
            for (k, row) in rows_of[..len].chunks_exact(rows.len).enumerate() {
                dst.copy_long(rows.at + k * rows.apart, &row, 0, row.len());
            }
        });
        dst.copy_long(moved, src, moved, src.len() - moved);
    }

    /// [`Filter::undo`] of pieces.
    pub(super) fn undo_pieces(self, moved: usize, src: &impl Pieces, dst: &mut impl Room) {
        let (mut elements, mut rows_of): (Bytes, Bytes) = ([0; SOME], [0; SOME]);
        let mut before = 0;
        self.each(moved, |at, rows| {
            let len = rows.count * rows.len;
            for (k, row) in rows_of[..len].chunks_exact_mut(rows.len).enumerate() {
                gather(src, rows.at + k * rows.apart, row);
            }
            match dst.rest(at).get_mut(..len) {
                Some(room) => self.undo_behind(&mut before, &rows_of[..len], room),
                None => {
                    self.undo_behind(&mut before, &rows_of[..len], &mut elements[..len]);
                    dst.copy_long(at, &&elements[..len], 0, len);
                }
            }
        });
        dst.copy_long(moved, src, moved, src.len() - moved);
    }
}

/// As many bytes as there is room for: where they lie, if that is one piece.
fn lying<'a>(src: &'a impl Pieces, at: usize, room: &'a mut [u8]) -> &'a [u8] {
    match src.at(at).get(..room.len()) {
        Some(bytes) => bytes,
        None => {
            gather(src, at, room);
            room
        }
    }
}

/// Fills room with what is there from a position on.
fn gather(src: &impl Pieces, mut at: usize, mut room: &mut [u8]) {
    while !room.is_empty() {
        let piece = src.at(at);
        let len = piece.len().min(room.len());
        let (here, rest) = room.split_at_mut(len);
        here.copy_from_slice(&piece[..len]);
        (at, room) = (at + len, rest);
    }
}
