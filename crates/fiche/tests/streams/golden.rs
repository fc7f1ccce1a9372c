//! Golden files stay readable.

use super::*;

/// Name, file, and its index where that lies beside it.
type GoldenFile = (&'static str, Vec<u8>, Option<Vec<u8>>);

fn golden_files() -> Vec<GoldenFile> {
    let content = golden_content();
    let members: Vec<u8> = content.chunks(70_000).flat_map(|piece| gzip(piece, 9)).collect();
    let other = |name, file: Vec<u8>| {
        let index = indexed(&file, 1 << 16);
        (name, file, Some(index))
    };
    let mut beside = Vec::new();
    let options = Options::default().partition(20_000).name("golden").mtime(1_000_000_000);
    let mut writer = Writer::new(Vec::new(), options.clone()).unwrap();
    writer.write_all(&content).unwrap();
    let bare = writer.finish_beside(&mut beside).unwrap();
    vec![
        ("partitions", partitioned(&content, options.align(Split::Lines)), None),
        (
            "many-partitions",
            partitioned(&content[..100_000], Options::default().partition(1 << 10)),
            None,
        ),
        ("nothing", partitioned(b"", Options::default()), None),
        ("beside", bare, Some(beside)),
        other("stream", gzip(&content, 6)),
        other("members", members),
        other("one-block", one_block(&content)),
    ]
}

#[test]
fn golden_files_stay_readable() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/v1/streams");
    if std::env::var_os("FICHE_BLESS").is_some() {
        std::fs::create_dir_all(&folder).unwrap();
        for (name, file, index) in golden_files() {
            let path = folder.join(format!("{name}.gz"));
            if !path.exists() {
                std::fs::write(&path, file).unwrap();
                if let Some(index) = index {
                    std::fs::write(folder.join(format!("{name}.gz.fidx")), index).unwrap();
                }
            }
        }
    }
    let content = golden_content();
    for (name, ..) in golden_files() {
        let file = std::fs::read(folder.join(format!("{name}.gz"))).unwrap();
        let reader = match std::fs::read(folder.join(format!("{name}.gz.fidx"))) {
            Ok(index) => open(&file, index),
            Err(_) => own(&file),
        };
        let len = match name {
            "nothing" => 0,
            "many-partitions" => 100_000,
            _ => content.len(),
        };
        conformance(&reader, &content[..len], 15);
        let feeds = content[..len].iter().filter(|&&byte| byte == b'\n').count() as u64;
        assert_eq!(reader.line_feeds(), Some(feeds), "{name}");
    }
}

/// Files that say of themselves where they can be begun, as zstd, xz and lz4 write them.
#[cfg(feature = "lzma")]
#[test]
fn golden_frames_stay_readable() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/v1/streams");
    let content = &golden_content()[60_000..160_000];
    if std::env::var_os("FICHE_BLESS").is_some() {
        let options = Options::default().format(Format::Zstd).partition(30_000);
        let made = folder.join("frames.zst");
        if !made.exists() {
            std::fs::write(made, partitioned(content, options)).unwrap();
        }
        for (level, name) in [(1, "inside.lz4"), (9, "inside-high.lz4")] {
            let options = Options::default().format(Format::Lz4).partition(30_000).level(level);
            let (made, options) = (folder.join(name), options.content_len(content.len() as u64));
            if !made.exists() {
                std::fs::write(made, partitioned(content, options)).unwrap();
            }
        }
        for (program, args, name) in [
            ("xz", &["-c", "--block-size=30000", "-T2"][..], "blocks.xz"),
            ("lz4", &["-c", "-B4"], "blocks.lz4"),
        ] {
            let (plain, made) = (folder.join("plain"), folder.join(name));
            if !made.exists() {
                std::fs::write(&plain, content).unwrap();
                let output =
                    std::process::Command::new(program).args(args).arg(&plain).output().unwrap();
                std::fs::write(made, output.stdout).unwrap();
                std::fs::remove_file(plain).unwrap();
            }
        }
    }
    let files = [("frames.zst", 4), ("blocks.xz", 4), ("blocks.lz4", 2)];
    for (name, units) in files.into_iter().chain([("inside.lz4", 4), ("inside-high.lz4", 4)]) {
        check_units(&std::fs::read(folder.join(name)).unwrap(), content, units);
    }
}

#[test]
fn golden_zlib_and_deflate_streams_stay_readable() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/v1/streams");
    let content = &golden_content()[..60_000];
    for format in [Format::Zlib, Format::Deflate] {
        let path = folder.join(format!("stream.{}", format.name()));
        let beside = folder.join(format!("stream.{}.fidx", format.name()));
        if std::env::var_os("FICHE_BLESS").is_some() && !path.exists() {
            let mut index = Vec::new();
            let options = Options::default().format(format).partition(8 << 10);
            let mut writer = Writer::new(Vec::new(), options).unwrap();
            writer.write_all(content).unwrap();
            std::fs::write(&path, writer.finish_beside(&mut index).unwrap()).unwrap();
            std::fs::write(&beside, index).unwrap();
        }
        let reader = open(&std::fs::read(&path).unwrap(), std::fs::read(&beside).unwrap());
        conformance(&reader, content, 13);
        let line = reader.line(100).unwrap().unwrap();
        assert_eq!(
            line.start,
            content.iter().enumerate().filter(|b| *b.1 == b'\n').nth(99).unwrap().0 as u64 + 1
        );
    }
}
