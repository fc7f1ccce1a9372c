//! Gzip files: ours and those of other programs.

use std::fs;
use std::process::{Command, Stdio};

use crate::command::text;
use crate::place::Place;

/// Log lines, some of them long.
fn log(lines: usize) -> Vec<u8> {
    let words = text(100 * lines, 4);
    let mut log = Vec::new();
    for (i, words) in words.chunks(100).enumerate() {
        let words = words.iter().map(|&byte| if byte == b'\n' { b' ' } else { byte });
        log.extend(format!("{i} ").bytes());
        log.extend(words.take(i * 7919 % 101));
        log.push(b'\n');
    }
    log
}

/// What a program makes of some input; `None` where there is no such program.
fn by(program: &str, args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let Ok(mut child) = child else {
        println!("SKIP: {program}");
        return None;
    };
    let mut stdin = child.stdin.take().unwrap();
    let output = std::thread::scope(|scope| {
        scope.spawn(move || std::io::Write::write_all(&mut stdin, input));
        child.wait_with_output().unwrap()
    });
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{program}: {error}");
    Some(output.stdout)
}

const PYTHON: &str =
    "import gzip, sys; sys.stdout.buffer.write(gzip.decompress(sys.stdin.buffer.read()))";
const ZLIB: &str = "import zlib, sys; sys.stdout.buffer.write(zlib.decompressobj(31).decompress(sys.stdin.buffer.read()))";

#[test]
fn everybody_reads_our_files() {
    let place = Place::new();
    let text = log(20_000);
    fs::write(place.path("log"), &text).unwrap();
    for args in [
        &["--partition", "8K"][..],
        &["--level", "1", "--partition", "1K"],
        &["--level", "12", "--partition", "64K", "--align", "lines"],
        &["--index", "beside", "--no-name"],
        &["--prime", "--partition", "8K"],
    ] {
        let _ = fs::remove_file(place.path("log.gz.fidx"));
        place.ok(&[&["gzip", "log", "-o", "log.gz", "--force"], args].concat());
        let file = fs::read(place.path("log.gz")).unwrap();
        for (program, args) in [
            ("gzip", &["-dc"][..]),
            ("gunzip", &["-c"]),
            ("zcat", &["-"]),
            ("pigz", &["-dc"]),
            ("bgzip", &["-dc"]),
            ("bsdcat", &[]),
            ("zstd", &["-dc", "--format=gzip"]),
            ("python3", &["-c", PYTHON]),
            ("python3", &["-c", ZLIB]),
        ] {
            if let Some(content) = by(program, args, &file) {
                assert!(content == text, "{program} {args:?}");
            }
        }
        // And we do, from anywhere.
        assert!(place.ok(&["cat", "log.gz"]) == text);
        let piece = place.ok(&["cat", "log.gz", "--range", "500K+100", "--range", "7..9"]);
        assert_eq!(piece, [&text[500 << 10..][..100], &text[7..9]].concat());
        let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
        assert_eq!(place.ok(&["cat", "log.gz", "--record", "#19999"]), lines[19_999]);
        let some = place.ok(&["cat", "log.gz", "-R", "#100..#103", "-R", "#0", "--range", "..2"]);
        let first = &lines[100..103].concat()[..2];
        assert_eq!(some, [first, &lines[0][..2]].concat());
        assert!(place.fails(2, &["cat", "log.gz", "-R", "#20000"]).contains("#20000"));
        assert!(place.fails(2, &["cat", "log.gz", "-R", "name"]).contains("lines"));
        assert!(place.fails(2, &["cat", "log.gz", "--range", "5G+1"]).contains("there are only"));
        let verified = String::from_utf8(place.ok(&["verify", "log.gz"])).unwrap();
        assert!(verified.contains("all right") && verified.contains("index of"), "{verified}");
        let info: serde_json::Value =
            serde_json::from_slice(&place.ok(&["info", "log.gz", "--json"])).unwrap();
        assert_eq!(info["logical_bytes"], text.len());
        assert_eq!(info["stored_bytes"], file.len());
        assert_eq!(info["lines"], 20_000);
    }
    // The name is that of the file, unless nobody wants it.
    fs::create_dir(place.path("there")).unwrap();
    for (args, name) in [(&[][..], "log"), (&["--no-name"], "other")] {
        place.ok(&[&["gzip", "log", "-o", "there/other.gz", "--force"], args].concat());
        let mut gzip = Command::new("gzip");
        match gzip.args(["-dN", "other.gz"]).current_dir(place.path("there")).status() {
            Ok(status) => assert!(status.success()),
            Err(_) => return println!("SKIP: gzip"),
        }
        assert!(fs::read(place.path("there").join(name)).unwrap() == text);
    }
}

#[test]
fn files_of_others_are_read_by_an_index() {
    let place = Place::new();
    let text = log(60_000);
    for (program, args) in
        [("gzip", &["-6c"][..]), ("gzip", &["-1c"]), ("pigz", &["-c"]), ("bgzip", &["-c"])]
    {
        let Some(file) = by(program, args, &text) else { continue };
        fs::write(place.path("x.gz"), &file).unwrap();
        // Without an index it is read all the same, and said what to do; but not where that needs none.
        let output = place.run(&["cat", "x.gz", "--range", "3M+10"]);
        assert_eq!(output.stdout, text[3 << 20..][..10]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(said.contains("fiche index x.gz"), program != "bgzip", "{program}: {said}");
        let report: serde_json::Value =
            serde_json::from_slice(&place.ok(&["index", "x.gz", "--json"])).unwrap();
        assert_eq!(report["logical_bytes"], text.len());
        assert_eq!(report["lines"], 60_000);
        assert!(place.fails(5, &["index", "x.gz"]).contains("is there already"));
        let output = place.run(&["cat", "x.gz", "--range", "3M+10"]);
        assert_eq!(output.stdout, text[3 << 20..][..10]);
        assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
        let some = place.ok(&["cat", "x.gz", "--record", "#59990.."]);
        assert!(some == lines[59_990..].concat());
        place.ok(&["verify", "x.gz"]);
        // The index by its name, and made of a stream.
        let index = fs::read(place.path("x.gz.fidx")).unwrap();
        fs::remove_file(place.path("x.gz.fidx")).unwrap();
        let output = place.pipe(&["index", "-", "-o", "other"], &file);
        assert!(output.status.success());
        assert!(fs::read(place.path("other")).unwrap() == index);
        let piece = place.ok(&["cat", "x.gz", "--index", "other", "--range", "1M+5"]);
        assert_eq!(piece, text[1 << 20..][..5]);
        // A file that is another one now.
        fs::rename(place.path("other"), place.path("x.gz.fidx")).unwrap();
        let mut changed = file.clone();
        let last = changed.len() - 1;
        changed[last] ^= 1;
        fs::write(place.path("x.gz"), &changed).unwrap();
        let error = place.fails(5, &["cat", "x.gz", "--range", "0+1"]);
        assert!(error.contains("x.gz.fidx") && error.contains("has changed"), "{error}");
        fs::remove_file(place.path("x.gz.fidx")).unwrap();
        assert!(place.fails(3, &["verify", "x.gz"]).contains("damaged"));
        assert!(place.fails(3, &["cat", "x.gz"]).contains("damaged"));
        if program != "bgzip" {
            assert!(place.fails(3, &["index", "x.gz"]).contains("damaged"));
            assert!(!place.path("x.gz.fidx").exists());
        }
        // Cut.
        fs::write(place.path("x.gz"), &file[..file.len() / 2]).unwrap();
        assert!(place.fails(3, &["index", "x.gz"]).contains("ends too soon"));
        assert!(place.fails(3, &["cat", "x.gz"]).contains("ends too soon"));
    }
}

#[test]
fn partitions_are_spliced() {
    let place = Place::new();
    let (one, two) = (log(3_000), log(5_000));
    fs::write(place.path("one"), &one).unwrap();
    fs::write(place.path("two:1..2"), &two).unwrap();
    place.ok(&["gzip", "one", "-o", "a.gz", "--partition", "16K"]);
    place.ok(&["gzip", "two:1..2", "-o", "b.gz:0..1", "--partition", "4K"]);
    let pieces = ["gzip", "--splice", "a.gz:3..7", "b.gz:0..1", "a.gz:..1", "-o", "c.gz"];
    place.ok(&pieces);
    let expected = [&one[3 << 14..7 << 14], &two, &one[..1 << 14]].concat();
    assert!(place.ok(&["cat", "c.gz"]) == expected);
    if let Some(content) = by("gzip", &["-dc"], &fs::read(place.path("c.gz")).unwrap()) {
        assert!(content == expected);
    }
    assert!(place.fails(2, &["gzip", "--splice", "a.gz:0..999", "-o", "d.gz"]).contains("999"));
    assert!(!place.path("d.gz").exists());
    if let Some(file) = by("gzip", &["-c"], &one) {
        fs::write(place.path("e.gz"), file).unwrap();
        let error = place.fails(2, &["gzip", "--splice", "e.gz", "-o", "d.gz"]);
        assert!(error.contains("fiche gzip"), "{error}");
    }
}

#[test]
fn what_cannot_be_compressed_is_said() {
    let place = Place::new();
    fs::create_dir(place.path("folder")).unwrap();
    fs::write(place.path("file"), b"text").unwrap();
    for (args, told) in [
        (&["gzip", "folder", "-o", "x.gz"][..], "directory"),
        (&["gzip", "file", "file", "-o", "x.gz"], "one file"),
        (&["gzip", "file", "-o", "x.gz", "--level", "13"], "level"),
        (&["gzip", "file", "-o", "x.gz", "--level", "12", "--prime"], "1 to 9"),
        (&["gzip", "file", "-o", "x.zst", "--prime"], "zstd"),
        (&["gzip", "file", "-o", "x.gz", "--partition", "1"], "partitions"),
        (&["gzip", "file", "-o", "-", "--index", "beside"], "beside"),
        (&["index", "file"], "neither gzip"),
        (&["index", "-"], "-o"),
        (&["unpack", "x.gz"], "No such file"),
    ] {
        let code = if told == "No such file" { 5 } else { 2 };
        let error = place.fails(code, args);
        assert!(error.contains(told), "{args:?}: {error}");
        assert!(!place.path("x.gz").exists());
    }
    assert!(place.fails(5, &["gzip", "nothing", "-o", "x.gz"]).contains("nothing"));
    place.ok(&["gzip", "file", "-o", "x.gz"]);
    assert!(place.fails(5, &["cat", "x.gz", "--index", "nothing"]).contains("nothing"));
    assert!(place.fails(5, &["gzip", "file", "-o", "x.gz"]).contains("is there already"));
    fs::write(place.path("y.gz.fidx"), b"").unwrap();
    let error = place.fails(5, &["gzip", "file", "-o", "y.gz", "--index", "beside"]);
    assert!(error.contains("y.gz.fidx") && !place.path("y.gz").exists(), "{error}");
    assert!(place.fails(2, &["unpack", "x.gz"]).contains("gzip file"));
    let output = place.pipe(&["gzip", "-", "-o", "-"], b"by a pipe");
    assert_eq!(by("gzip", &["-dc"], &output.stdout).unwrap_or(b"by a pipe".to_vec()), b"by a pipe");
}

#[test]
fn zstd_xz_and_lz4_files_are_read_anywhere() {
    let place = Place::new();
    let text = log(30_000);
    fs::write(place.path("log"), &text).unwrap();
    place.ok(&["gzip", "log", "-o", "own.zst", "--partition", "64K"]);
    let own = fs::read(place.path("own.zst")).unwrap();
    if let Some(content) = by("zstd", &["-dc"], &own) {
        assert!(content == text);
    }
    let mut files = vec!["own.zst"];
    for (program, args, name) in [
        ("zstd", &["-c", "-3"][..], "pipe.zst"),
        ("xz", &["-c", "-1", "--block-size=65536", "--threads=2"], "blocks.xz"),
        ("xz", &["-c", "-1"], "one.xz"),
        ("lz4", &["-c", "-4", "-B4"], "blocks.lz4"),
    ] {
        if let Some(file) = by(program, args, &text) {
            fs::write(place.path(name), file).unwrap();
            files.push(name);
        }
    }
    let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
    for name in files {
        assert!(place.ok(&["cat", name]) == text, "{name}");
        assert_eq!(place.ok(&["cat", name, "--range", "1M+50"]), text[1 << 20..][..50]);
        assert!(place.fails(2, &["cat", name, "-R", "#5"]).contains("fiche index"), "{name}");
        place.ok(&["verify", name]);
        place.ok(&["index", name]);
        assert_eq!(place.ok(&["cat", name, "-R", "#29000"]), lines[29_000]);
        place.ok(&["verify", name]);
        let info = String::from_utf8(place.ok(&["info", name])).unwrap();
        assert!(info.contains("line feeds  30000"), "{info}");
        let mut file = fs::read(place.path(name)).unwrap();
        let half = file.len() / 2;
        file[half] ^= 1;
        fs::write(place.path(name), file).unwrap();
        place.fails(3, &["verify", name]);
    }
}

#[test]
fn lz4_reads_our_lz4_files_and_they_are_read_anywhere() {
    let place = Place::new();
    let text = log(30_000);
    fs::write(place.path("log"), &text).unwrap();
    let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
    for level in ["-3", "1", "9"] {
        place.ok(&["gzip", "log", "-o", "own.lz4", "--partition", "64K", "-f", "--level", level]);
        let file = fs::read(place.path("own.lz4")).unwrap();
        if let Some(content) = by("lz4", &["-dc"], &file) {
            assert!(content == text);
        }
        assert!(place.ok(&["cat", "own.lz4"]) == text);
        assert_eq!(place.ok(&["cat", "own.lz4", "--range", "1M+50"]), text[1 << 20..][..50]);
        assert_eq!(place.ok(&["cat", "own.lz4", "-R", "#29000"]), lines[29_000]);
        place.ok(&["verify", "own.lz4"]);
    }
    // A pipe does not say how long it is, and a file of the system says nothing.
    let output = place.pipe(&["gzip", "-", "-o", "-", "--format", "lz4"], &text);
    if let Some(content) = by("lz4", &["-dc"], &output.stdout) {
        assert!(content == text);
    }
    place.ok(&["gzip", "/proc/version", "-o", "version.lz4"]);
    assert!(place.ok(&["cat", "version.lz4"]) == fs::read("/proc/version").unwrap());
    // This one says that it has 4,096 bytes.
    let online = "/sys/devices/system/cpu/online";
    place.ok(&["gzip", online, "-o", "online.lz4"]);
    assert!(place.ok(&["cat", "online.lz4"]) == fs::read(online).unwrap());
    let error = place.fails(2, &["gzip", "log", "-o", "x.lz4", "--partition", "8M"]);
    assert!(error.contains("4 MiB at most"), "{error}");
    assert!(place.fails(2, &["gzip", "log", "-o", "x.lz4", "--level", "13"]).contains("-64 to 12"));
    assert!(!place.path("x.lz4").exists());
}

#[test]
fn a_file_is_what_its_name_says_or_is_not_written() {
    let place = Place::new();
    fs::write(place.path("log"), log(100)).unwrap();
    for name in ["log.xz", "log.bz2", "log.fiche"] {
        let error = place.fails(2, &["gzip", "log", "-o", name]);
        assert!(error.contains(".gz, .zst or .lz4") && !place.path(name).exists(), "{error}");
    }
    place.ok(&["gzip", "log", "-o", "log.xz", "--format", "gzip"]);
    place.ok(&["gzip", "log", "-o", "log.warc.gz"]);
    place.ok(&["gzip", "log", "-o", "packed"]);
    for name in ["log.xz", "log.warc.gz", "packed"] {
        assert_eq!(fs::read(place.path(name)).unwrap()[..2], [0x1f, 0x8b], "{name}");
    }
}

#[test]
fn what_a_compressed_file_holds_is_packed() {
    let place = Place::new();
    let text = log(10_000);
    fs::write(place.path("log"), &text).unwrap();
    place.ok(&["gzip", "log", "-o", "log.gz"]);
    place.ok(&["gzip", "log", "-o", "log.zst"]);
    for name in ["log.gz", "log.zst"] {
        place.ok(&["pack", "--from", name, "-o", "a.fiche", "--force", "--records", "lines"]);
        assert!(place.ok(&["cat", "a.fiche"]) == text);
        let lines: Vec<&[u8]> = text.split_inclusive(|&byte| byte == b'\n').collect();
        assert_eq!(place.ok(&["cat", "a.fiche", "--record", "#9000"]), lines[9_000]);
    }
    let file = fs::read(place.path("log.gz")).unwrap();
    assert!(place.pipe(&["pack", "--from", "-", "-o", "b.fiche"], &file).status.success());
    assert!(place.ok(&["cat", "b.fiche"]) == text);
    fs::write(place.path("cut.gz"), &file[..file.len() / 2]).unwrap();
    let error = place.fails(3, &["pack", "--from", "cut.gz", "-o", "c.fiche"]);
    assert!(error.contains("cut.gz") && error.contains("ends too soon"), "{error}");
    assert!(!place.path("c.fiche").exists());
    assert!(place.fails(2, &["pack", "--from", "log", "-o", "c.fiche"]).contains("neither"));
    place.fails(2, &["pack", "--from", "log.gz", "log", "-o", "c.fiche"]);
}

#[test]
fn gzi_is_taken_and_given() {
    let place = Place::new();
    let text = log(30_000);
    let Some(file) = by("bgzip", &["-c"], &text) else { return };
    fs::write(place.path("x.gz"), file).unwrap();
    place.ok(&["index", "x.gz", "--export", "ours.gzi"]);
    let path = place.path("x.gz");
    let status = Command::new("bgzip").arg("-r").arg(&path).status().unwrap();
    assert!(status.success());
    let theirs = fs::read(place.path("x.gz.gzi")).unwrap();
    assert!(fs::read(place.path("ours.gzi")).unwrap() == theirs);
    place.ok(&["index", "x.gz", "--import", "x.gz.gzi"]);
    assert_eq!(place.ok(&["cat", "x.gz", "--range", "1M+9"]), text[1 << 20..][..9]);
    place.ok(&["verify", "x.gz"]);
    let error = place.fails(2, &["index", "x.gz", "--import", "a", "--export", "b"]);
    assert!(error.contains("cannot be used with"), "{error}");
}
