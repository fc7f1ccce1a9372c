//! docs/format.md is made of the module comments that stand beside the code.

use std::path::Path;

/// The files that define bytes, in the order of the document.
const SOURCES: [&str; 34] = [
    "wire.rs",
    "envelope.rs",
    "archive/format.rs",
    "blocks.rs",
    "elias_fano.rs",
    "codec/mod.rs",
    "codec/filtered.rs",
    "codec/bewalgo/mod.rs",
    "codec/lzo.rs",
    "codec/frame.rs",
    "model/huffman.rs",
    "rlz/store.rs",
    "archive/shared.rs",
    "archive/spare.rs",
    "rlz/coder/mod.rs",
    "rlz/coder/plain.rs",
    "rlz/coder/streams.rs",
    "rlz/coder/zlib_primed.rs",
    "rlz/coder/zstd_dict.rs",
    "rlz/hybrid/mod.rs",
    "rlz/hybrid/tokens.rs",
    "rlz/hybrid/fast.rs",
    "records/mod.rs",
    "streams/format.rs",
    "phrases/layout.rs",
    "phrases/index.rs",
    "events/format.rs",
    "events/schema.rs",
    "events/model.rs",
    "events/words/mod.rs",
    "events/column/mod.rs",
    "events/packet.rs",
    "events/keys.rs",
    "volume/format.rs",
];

const HEAD: &str = "\
The format of fiche's files
===========================

Version 1. Made from the comments in `crates/fiche/src`, which stand beside the code
that reads and writes these bytes; a test keeps them equal. All that a reader needs is
here: `crates/fiche/tests/second_reader.py` was written from this page alone.

Positions (*pos*) are bytes of the file, offsets are bytes of the content it decodes to.
Tables list fields in the order in which they stand. A field that says \"reserved\", and every
bit that is not named, is zero, and a reader refuses a file where it is not.
";

/// From each file: what its module comment says from the first heading on.
fn document() -> String {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut document = HEAD.to_owned();
    for source in SOURCES {
        let text = std::fs::read_to_string(src.join(source)).unwrap();
        let comment = text.lines().map_while(|line| line.strip_prefix("//!"));
        let lines = comment.map(|line| line.strip_prefix(' ').unwrap_or(line));
        let section: Vec<&str> = lines.skip_while(|line| !line.starts_with("# ")).collect();
        assert!(!section.is_empty(), "{source} says nothing of its bytes");
        document.push('\n');
        for line in section {
            // Headings go down a level: the document has a title of its own.
            document.push_str(if line.starts_with('#') { "#" } else { "" });
            document.push_str(line);
            document.push('\n');
        }
    }
    document
}

#[test]
fn the_document_says_what_the_code_says() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/format.md");
    if std::env::var_os("FICHE_BLESS").is_some() {
        std::fs::write(&path, document()).unwrap();
    }
    let written = std::fs::read_to_string(&path).unwrap();
    assert!(written == document(), "run `make bless` to write docs/format.md anew");
}
