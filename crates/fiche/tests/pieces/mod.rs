//! Bytes in pieces, for tests of codecs.

/// Some bytes with cells between them, each filled with canaries that have to stay.
pub struct Cells {
    bytes: Vec<u8>,
    /// Where each piece is.
    pieces: Vec<std::ops::Range<usize>>,
}

pub const CANARY: u8 = 0xC3;
pub const BETWEEN: usize = 40;

impl Cells {
    pub fn new(lens: &[usize], fill: u8) -> Cells {
        let (mut bytes, mut pieces) = (vec![CANARY; BETWEEN], Vec::new());
        for &len in lens {
            let start = bytes.len();
            bytes.resize(start + len, fill);
            pieces.push(start..start + len);
            bytes.resize(start + len + BETWEEN, CANARY);
        }
        Cells { bytes, pieces }
    }

    pub fn of(data: &[u8], lens: &[usize]) -> Cells {
        let mut cells = Cells::new(lens, 0);
        let mut at = 0;
        for piece in &cells.pieces {
            cells.bytes[piece.clone()].copy_from_slice(&data[at..at + piece.len()]);
            at += piece.len();
        }
        assert_eq!(at, data.len());
        cells
    }

    pub fn read(&self) -> Vec<&[u8]> {
        self.pieces.iter().map(|piece| &self.bytes[piece.clone()]).collect()
    }

    pub fn write(&mut self) -> Vec<&mut [u8]> {
        let (mut rest, mut at, mut all) = (&mut self.bytes[..], 0, Vec::new());
        for piece in &self.pieces {
            let (before, behind) = rest.split_at_mut(piece.end - at);
            all.push(&mut before[piece.start - at..]);
            (rest, at) = (behind, piece.end);
        }
        all
    }

    /// All that lies in the pieces; what lies between them has to be as it was.
    pub fn all(&self) -> Vec<u8> {
        let mut end = 0;
        for piece in self.pieces.iter().cloned().chain([self.bytes.len()..self.bytes.len()]) {
            assert!(self.bytes[end..piece.start].iter().all(|&byte| byte == CANARY));
            end = piece.end;
        }
        self.read().concat()
    }
}

/// Lengths of pieces, in turn, of so many bytes.
pub fn cut(len: usize, pieces: &[usize]) -> Vec<usize> {
    let (mut left, mut lens) = (len, Vec::new());
    for &piece in pieces.iter().cycle() {
        if left == 0 {
            break;
        }
        lens.push(piece.min(left));
        left -= piece.min(left);
    }
    lens
}

/// Numbers that look random.
pub struct Random(pub u64);

impl Random {
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        (self.0 >> 33) as usize % end
    }
}

/// Content of several pages: runs, copies from near and far, of all lengths and at all places of a unit, and what is new.
pub fn several_pages(random: &mut Random) -> Vec<u8> {
    let mut data = Vec::new();
    // An interpreter takes a thousand times as long.
    let len = random.below(if cfg!(miri) { 9_000 } else { 30_000 });
    while data.len() < len {
        let unit = [1, 4, 8, 8][random.below(4)];
        let most = [3, 20, 600][random.below(3)];
        let n = unit * (1 + random.below(most));
        match random.below(4) {
            0 => data.extend((0..n).map(|_| random.below(256) as u8)),
            1 => data.extend((0..n).map(|_| random.below(2) as u8)),
            _ if data.len() < 8 => {}
            kind => {
                let most = if kind == 2 { 40 } else { data.len() };
                let distance = (1 + random.below(most.min(data.len()))).next_multiple_of(unit);
                let from = data.len().saturating_sub(distance);
                (0..n).for_each(|i| data.push(data[from + i]));
            }
        }
    }
    data
}
