//! Cuts out of a dictionary what the collection uses least: CARE, as Tong, Wirth and Zobel describe
//! it in *Principled dictionary pruning for low-memory corpus compression* (2014).
//!
//! A part of the collection is factored, and the uses of each byte of the dictionary are counted. Runs
//! of bytes of little use are candidates. What a run is worth is how many factors
//! it would take to write it with the rest of the dictionary, times how often it is used: what is
//! used rarely, and what is easily had from elsewhere, goes first.

use crate::error::Result;
use crate::io::ReadAt;
use crate::rlz::matcher::Matcher;
use crate::rlz::sample::pieces;

/// Pieces of the collection that are factored.
const PIECE: usize = 16 << 10;
/// How many of them: 64 MiB, which takes a second.
const PIECES: u64 = 4096;
/// The most uses that a byte of a candidate has, to begin with: doubled until there are enough.
const FEW: u32 = 10;
/// The shortest run that is worth cutting out.
const SHORTEST: usize = 20;

/// The bytes that stay: at most `budget`.
pub(super) fn prune(matcher: &Matcher, collection: &dyn ReadAt, budget: usize) -> Result<Vec<u8>> {
    let text = matcher.text();
    let uses = uses(matcher, &pieces(collection, PIECE, PIECES)?);
    let excess = text.len().saturating_sub(budget);
    let mut few = FEW;
    let mut runs = runs(&uses, few);
    while runs.iter().map(|run| run.len()).sum::<usize>() < excess && few < 1 << 30 {
        few *= 2;
        runs = self::runs(&uses, few);
    }
    let repeats = matcher.repeats();
    let mut worth: Vec<(f64, std::ops::Range<usize>)> = runs
        .into_iter()
        .map(|run| {
            let used: f64 = uses[run.clone()].iter().map(|&n| f64::from(n)).sum();
            let (mut at, mut factors) = (run.start, 0.0);
            while at < run.end {
                at += (repeats[at] as usize).max(1);
                factors += 1.0;
            }
            (factors * used / run.len() as f64, run)
        })
        .collect();
    worth.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.start.cmp(&b.1.start)));
    let mut stays = vec![true; text.len()];
    let mut left = excess;
    for (_, run) in worth {
        let now = run.len().min(left);
        stays[run.start..run.start + now].fill(false);
        left -= now;
        if left == 0 {
            break;
        }
    }
    let kept = text.iter().zip(stays).filter(|(_, stays)| *stays).map(|(&byte, _)| byte);
    Ok(kept.take(budget).collect())
}

/// How often each byte of the dictionary is copied when this text is factored.
fn uses(matcher: &Matcher, text: &[u8]) -> Vec<u32> {
    let mut changes = vec![0i32; matcher.text().len() + 1];
    let pieces: Vec<&[u8]> = text.chunks(PIECE).collect();
    let mut factors = vec![Vec::new(); 64];
    for pieces in pieces.chunks(64) {
        matcher.factor(pieces, &mut factors[..pieces.len()]);
        for factor in factors[..pieces.len()].iter().flatten().filter(|factor| factor.len > 0) {
            changes[factor.offset as usize] += 1;
            changes[(factor.offset + factor.len) as usize] -= 1;
        }
    }
    let mut sum = 0;
    changes.pop();
    changes.into_iter().map(|change| (sum += change, sum as u32).1).collect()
}

/// The longest runs of bytes that are used so often at most.
fn runs(uses: &[u32], few: u32) -> Vec<std::ops::Range<usize>> {
    let mut runs = Vec::new();
    let mut start = 0;
    for i in 0..=uses.len() {
        if uses.get(i).is_none_or(|&n| n > few) {
            if i - start >= SHORTEST {
                runs.push(start..i);
            }
            start = i + 1;
        }
    }
    runs
}
