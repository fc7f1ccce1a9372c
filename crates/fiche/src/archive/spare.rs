//! Mends what all blocks depend on.
//!
//! # Spare
//!
//! Section kind 10, never compressed; offset 0; number: its place among the footer's other sections. It
//! stands right behind the sections that were written together for blocks to share (a dictionary's
//! pieces and description, a model), and lets a reader mend them.
//!
//! | size | field | meaning |
//! |---|---|---|
//! | varint | back | length of the range that it mends, which ends where this section starts |
//! | varint | chunk | the range is cut into chunks of this length, at least 1; the last one may be shorter |
//! | chunk | even | exclusive or of the chunks 0, 2, 4, ...; a short one as if zeros followed |
//! | chunk | odd | likewise of 1, 3, 5, ... |
//!
//! Where bytes of one even chunk are wrong, or of one odd chunk, or of two neighbours, the sums show by what. Which
//! chunk it is, the checksum of the section tells that is to be mended.

use crate::archive::recover::read_sectors;
use crate::envelope::{Kind, Section, SectionRef};
use crate::error::Result;
use crate::io::ReadAt;
use crate::wire::Put;

/// A burst of damage may be as long as a chunk, and the spare is twice as long: a chunk is a
/// sector, unless that makes more than `MOST_CHUNKS` or fewer than `FEWEST_CHUNKS`.
const SECTOR: usize = 4096;
const MOST_CHUNKS: usize = 256;
const FEWEST_CHUNKS: usize = 32;

/// The payload of the spare for these bytes.
pub(super) fn payload(bytes: &[u8]) -> Vec<u8> {
    let in_at_most = |chunks: usize| bytes.len().div_ceil(chunks).max(1);
    let chunk = in_at_most(FEWEST_CHUNKS).min(SECTOR).max(in_at_most(MOST_CHUNKS));
    let mut payload = Vec::with_capacity(2 * chunk + 20);
    payload.put_varint(bytes.len() as u64);
    payload.put_varint(chunk as u64);
    let [even, odd] = sums(bytes, chunk);
    payload.put(&even);
    payload.put(&odd);
    payload
}

/// The sums of even and of odd chunks.
fn sums(bytes: &[u8], chunk: usize) -> [Vec<u8>; 2] {
    let mut sums = [vec![0; chunk], vec![0; chunk]];
    for (i, bytes) in bytes.chunks(chunk).enumerate() {
        add(&mut sums[i % 2], bytes);
    }
    sums
}

fn add(sum: &mut [u8], bytes: &[u8]) {
    sum.iter_mut().zip(bytes).for_each(|(sum, byte)| *sum ^= byte);
}

/// The range of the file that a spare mends, as far as it makes sense.
fn range_of(spare: &Section) -> Option<(u64, u64, usize, [&[u8]; 2])> {
    let mut take = spare.take("spare");
    let (back, chunk) = (take.varint().ok()?, take.varint().ok()?);
    let chunk = usize::try_from(chunk).ok().filter(|&chunk| chunk > 0)?;
    let start = spare.at.pos.checked_sub(back)?;
    let sums = [take.bytes(chunk).ok()?, take.bytes(chunk).ok()?];
    take.end().ok()?;
    // What it is good for is in proportion to what it takes.
    (back <= (chunk * MOST_CHUNKS) as u64).then_some((start, back, chunk, sums))
}

/// The damaged section at `at`, if this spare can mend it.
pub(super) fn mend(
    source: &dyn ReadAt,
    spare: &Section,
    at: SectionRef,
    kind: Kind,
) -> Result<Option<Section>> {
    let Some((start, len, chunk, wanted)) = range_of(spare) else { return Ok(None) };
    if at.pos < start || at.end() > start + len {
        return Ok(None);
    }
    let mut bytes = vec![0; len as usize];
    read_sectors(source, start, &mut bytes)?;
    let mut wrong = sums(&bytes, chunk);
    wrong.iter_mut().zip(wanted).for_each(|(wrong, wanted)| add(wrong, wanted));
    let own = (at.pos - start) as usize..(at.end() - start) as usize;
    let is_hit = |parity: usize| wrong[parity].iter().any(|&byte| byte != 0);
    // The section, with some chunks mended.
    let with = |chunks: &[usize]| -> Option<Section> {
        let mut mended = bytes.clone();
        for &i in chunks {
            let end = (chunk * (i + 1)).min(mended.len());
            add(&mut mended[chunk * i..end], &wrong[i % 2]);
        }
        let section = Section::parse(&mended[own.clone()], at.pos, "spare").ok()?;
        (section.kind == kind as u8 && section.at == at).then_some(section)
    };
    let count = (len as usize).div_ceil(chunk);
    let near = (own.start / chunk).saturating_sub(1)..(own.end.div_ceil(chunk) + 1).min(count);
    let mut tries: Vec<Vec<usize>> = Vec::new();
    match (is_hit(0), is_hit(1)) {
        (false, false) => {}
        (true, true) => tries.extend(near.map(|i| vec![i, i + 1]).filter(|pair| pair[1] < count)),
        (even, _) => {
            let parity = usize::from(!even);
            tries.extend(near.filter(|i| i % 2 == parity).map(|i| vec![i]));
        }
    }
    Ok(tries.iter().find_map(|chunks| with(chunks)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Random;

    #[test]
    fn a_burst_as_long_as_a_chunk_is_mended_wherever_it_is() {
        let mut random = Random(1);
        for payload_len in [1, 40, 1000] {
            let mut file = vec![0; 32];
            let mut sections = Vec::new();
            for kind in [Kind::DictionaryPiece, Kind::Dictionary, Kind::Model] {
                let (pos, before) = (file.len() as u64, file.len());
                let bytes = random.bytes(payload_len);
                Section::put(&mut file, pos, kind, (0, 0), &bytes, None);
                let at = SectionRef { pos, len: (file.len() - before) as u64 };
                sections.push((at, kind, bytes));
            }
            let pos = file.len() as u64;
            let spare = payload(&file[32..]);
            Section::put(&mut file, pos, Kind::Spare, (0, 0), &spare, None);
            let spare = Section::parse(&file[pos as usize..], pos, "spare").unwrap();
            let chunk = (pos as usize - 32).div_ceil(FEWEST_CHUNKS);
            for start in 32..pos as usize {
                let end = (start + 1 + random.below(chunk as u64) as usize).min(pos as usize);
                let mut bad = file.clone();
                bad[start..end].iter_mut().for_each(|byte| *byte ^= 1 + random.below(255) as u8);
                for (at, kind, bytes) in &sections {
                    if Section::load(&bad, *at, *kind).is_ok() {
                        continue;
                    }
                    let mended = mend(&bad, &spare, *at, *kind).unwrap();
                    assert_eq!(&mended.expect("it is mended").payload, bytes, "{start}..{end}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_mended_stays_damaged() {
        let mut file = vec![0; 32];
        let payload_of = Random(2).bytes(5000);
        Section::put(&mut file, 32, Kind::Model, (0, 0), &payload_of, None);
        let at = SectionRef { pos: 32, len: file.len() as u64 - 32 };
        let pos = file.len() as u64;
        let spare = payload(&file[32..]);
        Section::put(&mut file, pos, Kind::Spare, (0, 0), &spare, None);
        let spare = Section::parse(&file[pos as usize..], pos, "spare").unwrap();
        // Two places far apart; and a section that is elsewhere.
        for far in [500, 3000] {
            let mut bad = file.clone();
            bad[100] ^= 1;
            bad[100 + far] ^= 1;
            assert!(mend(&bad, &spare, at, Kind::Model).unwrap().is_none(), "{far}");
        }
        let elsewhere = SectionRef { pos: 40, len: pos };
        assert!(mend(&file, &spare, elsewhere, Kind::Model).unwrap().is_none());
    }
}
