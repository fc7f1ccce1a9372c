//! fiche for C: archives, and codecs and filters on bytes however they lie.
//!
//! `include/fiche.h` is made of these files, and says what there is; `make install-c` puts it, the libraries and a file for pkg-config where compilers find them.
//! Every function returns a [`Status`](status::Status), and never unwinds; what went wrong is told by [`fiche_message`](status::fiche_message).

// What comes from C is pointers; each function says what they have to be.
#![allow(unsafe_code)]
// C has no slices.
#![allow(clippy::too_many_arguments)]

pub mod archive;
pub mod codec;
pub mod filter;
pub mod pieces;
pub mod status;
