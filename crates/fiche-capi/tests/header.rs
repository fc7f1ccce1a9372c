//! The header that is there is the one that the source makes.

use std::path::Path;

#[test]
fn the_header_is_made_from_the_source() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(here.join("cbindgen.toml")).unwrap();
    let files = ["status", "archive", "codec", "filter", "pieces"];
    let builder =
        files.iter().fold(cbindgen::Builder::new().with_config(config), |builder, file| {
            builder.with_src(here.join(format!("src/{file}.rs")))
        });
    let mut made = Vec::new();
    builder.generate().unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = here.join("include/fiche.h");
    if std::env::var_os("FICHE_BLESS").is_some() {
        std::fs::write(&path, &made).unwrap();
    }
    let there = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(there == made, "include/fiche.h is not what the source makes: `make bless` writes it");
    // Every function that is exported is in it, whatever file it is in.
    let source: String = std::fs::read_dir(here.join("src"))
        .unwrap()
        .map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap())
        .collect();
    let exported = source.matches("#[unsafe(no_mangle)]").count();
    assert!(exported > 15);
    assert_eq!(
        made.lines()
            .filter(|line| line.contains(" fiche_") || line.contains("*fiche_"))
            .filter(|line| line.contains('(') && !line.starts_with(" *"))
            .count(),
        exported
    );
}
