//! What all blocks share beside the dictionary, for the codings that have such a thing.

use std::sync::Arc;

use crate::error::{Error, Result};
use crate::rlz::coder::Coding;
use crate::rlz::matcher::Matcher;
use crate::rlz::{Dictionary, hybrid};
use crate::wire::{Put, Take};

/// Streams of factors that are known before a block is coded (section 5 of the paper).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Primes {
    pub(super) lens: Vec<u8>,
    pub(super) offsets: Vec<u8>,
}

impl Primes {
    /// So many factors: their offsets fill what deflate can refer back to.
    const FACTORS: usize = 8192;
    const MAX: u64 = 1 << 16;

    /// The factors of pieces of a text.
    pub(super) fn of(matcher: &Matcher, text: &[u8]) -> Primes {
        let pieces: Vec<&[u8]> = text.chunks(1 << 10).collect();
        let mut factors = vec![Vec::new(); pieces.len()];
        matcher.factor(&pieces, &mut factors);
        let all = factors.iter().flatten().take(Primes::FACTORS);
        let mut primes = Primes { lens: Vec::new(), offsets: Vec::new() };
        for factor in all {
            primes.lens.put_varint(u64::from(factor.len));
            primes.offsets.put_u32(factor.offset);
        }
        primes
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_string(&self.lens);
        out.put_string(&self.offsets);
    }

    pub fn take(take: &mut Take<'_>) -> Result<Primes> {
        let mut string = || -> Result<Vec<u8>> {
            let bytes = take.string()?;
            match bytes.len() as u64 {
                0..=Primes::MAX => Ok(bytes.to_vec()),
                _ => Err(take.corrupt()),
            }
        };
        Ok(Primes { lens: string()?, offsets: string()? })
    }
}

/// What all blocks share beside the dictionary.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Model {
    Primes(Primes),
    Hybrid(Arc<hybrid::Model>),
    Tokens(Arc<hybrid::Tokens>),
}

impl Model {
    /// The coding that it is for.
    pub fn coding(&self) -> Coding {
        match self {
            Model::Primes(_) => Coding::ZzPrimed,
            Model::Hybrid(_) => Coding::Hybrid,
            Model::Tokens(_) => Coding::Fast,
        }
    }

    /// The model of a coding that cannot do without one, where there was nothing to learn from.
    pub fn usual(coding: Coding, dictionary: &Dictionary) -> Option<Model> {
        Some(match coding {
            Coding::Hybrid => Model::Hybrid(Arc::new(hybrid::default_model(dictionary.as_bytes()))),
            Coding::Fast => Model::Tokens(Arc::new(hybrid::Tokens::usual())),
            _ => return None,
        })
    }

    pub fn put(&self, out: &mut Vec<u8>) {
        out.put_u8(self.coding() as u8);
        match self {
            Model::Primes(primes) => primes.put(out),
            Model::Hybrid(model) => model.put(out),
            Model::Tokens(tokens) => tokens.put(out),
        }
    }

    pub fn take(take: &mut Take<'_>) -> Result<Model> {
        let number = take.u8()?;
        Ok(match Coding::from_number(number) {
            Some(Coding::ZzPrimed) => Model::Primes(Primes::take(take)?),
            Some(Coding::Hybrid) => Model::Hybrid(Arc::new(hybrid::Model::take(take)?)),
            Some(Coding::Fast) => Model::Tokens(Arc::new(hybrid::Tokens::take(take)?)),
            _ => return Err(Error::Unsupported { what: "model", found: u64::from(number) }),
        })
    }

    pub(super) fn primes(&self) -> Option<&Primes> {
        if let Model::Primes(primes) = self { Some(primes) } else { None }
    }

    pub(super) fn hybrid(&self) -> Option<&Arc<hybrid::Model>> {
        if let Model::Hybrid(model) = self { Some(model) } else { None }
    }

    pub(super) fn tokens(&self) -> Option<&Arc<hybrid::Tokens>> {
        if let Model::Tokens(tokens) = self { Some(tokens) } else { None }
    }
}
