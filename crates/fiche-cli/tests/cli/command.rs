//! The command as people use it: real files, pipes, wrong options, damage, signals.

use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::place::Place;

pub fn text(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    let mut text = Vec::new();
    while text.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        text.extend_from_slice(format!("word{} ", state >> 57).as_bytes());
    }
    text.truncate(len);
    text
}

/// Everything `fiche` keeps of a tree, as lines to compare.
fn describe(root: &Path) -> Vec<String> {
    let mut lines = Vec::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let name =
            path.strip_prefix(root).unwrap().as_os_str().as_bytes().escape_ascii().to_string();
        let content = if meta.is_file() {
            format!(
                "{:?}",
                fs::read(&path).unwrap().iter().fold(7u64, |h, b| h.wrapping_mul(31) + *b as u64)
            )
        } else if meta.is_symlink() {
            format!("{:?}", fs::read_link(&path).unwrap())
        } else {
            String::new()
        };
        let links = if meta.is_dir() { 0 } else { meta.nlink() };
        lines.push(format!(
            "{name} {:o} {} {} {}+{} {} {links} {content}",
            meta.mode(),
            meta.uid(),
            meta.gid(),
            meta.mtime(),
            meta.mtime_nsec(),
            if meta.is_dir() { 0 } else { meta.len() },
        ));
        if meta.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
    }
    lines.sort();
    lines
}

/// A tree of everything that must be kept.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("sub/empty folder")).unwrap();
    fs::write(root.join("a.txt"), text(100_000, 1)).unwrap();
    fs::write(root.join("sub/equal.txt"), text(100_000, 1)).unwrap();
    fs::write(root.join("nothing"), b"").unwrap();
    fs::write(root.join("new\nline"), b"odd name").unwrap();
    fs::write(root.join(std::ffi::OsStr::from_bytes(b"not\xFFutf8")), b"odder name").unwrap();
    fs::write(root.join("-o"), b"like an option").unwrap();
    symlink("../outside", root.join("sub/link")).unwrap();
    fs::hard_link(root.join("a.txt"), root.join("sub/hard")).unwrap();
    let sparse = fs::File::create(root.join("sparse")).unwrap();
    sparse.set_len(64 << 20).unwrap();
    sparse.write_all_at(b"an island", 20 << 20).unwrap();
    fs::write(root.join("tool"), b"#!/bin/sh\n").unwrap();
    fs::set_permissions(root.join("tool"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::set_permissions(root.join("nothing"), fs::Permissions::from_mode(0o400)).unwrap();
    let _ = rustix::fs::setxattr(
        root.join("a.txt"),
        "user.origin",
        b"a test",
        rustix::fs::XattrFlags::empty(),
    );
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("pipe"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR,
        0,
    )
    .unwrap();
    let time = fs::FileTimes::new().set_modified(std::time::UNIX_EPOCH + Duration::new(5, 678));
    for path in ["a.txt", "sub/empty folder", "sub"] {
        fs::File::open(root.join(path)).unwrap().set_times(time).unwrap();
    }
}

fn xattr(path: &Path) -> Option<Vec<u8>> {
    let mut value = vec![0; 100];
    let len = rustix::fs::getxattr(path, "user.origin", value.as_mut_slice()).ok()?;
    value.truncate(len);
    Some(value)
}

#[test]
fn a_folder_comes_back_as_it_was() {
    let place = Place::new();
    make_tree(&place.path("tree"));
    place.ok(&["pack", "tree", "-o", "tree.fiche", "--block", "4K"]);
    place.ok(&["verify", "tree.fiche"]);
    place.ok(&["unpack", "tree.fiche", "-o", "back"]);
    assert_eq!(describe(&place.path("back/tree")), describe(&place.path("tree")));
    assert_eq!(xattr(&place.path("back/tree/a.txt")), xattr(&place.path("tree/a.txt")));
    // Equal content once, holes not at all.
    let info: serde_json::Value =
        serde_json::from_slice(&place.ok(&["info", "tree.fiche", "--json"])).unwrap();
    let logical = info["logical_bytes"].as_u64().unwrap();
    assert!(logical < 130_000, "{logical}");
    let sparse = fs::metadata(place.path("back/tree/sparse")).unwrap();
    assert!(sparse.blocks() * 512 < 1 << 20, "the holes were filled");
}

#[test]
fn chosen_paths_are_unpacked_alone_and_links_without_their_files_are_files() {
    let place = Place::new();
    make_tree(&place.path("tree"));
    place.ok(&["pack", "tree", "-o", "t.fiche"]);
    place.ok(&["unpack", "t.fiche", "tree/sub", "tree/tool", "-o", "back"]);
    assert!(place.path("back/tree/sub/link").is_symlink());
    assert!(!place.path("back/tree/a.txt").exists());
    assert_eq!(fs::read(place.path("back/tree/sub/hard")).unwrap(), text(100_000, 1));
    let error = place.fails(2, &["unpack", "t.fiche", "tree/tol", "-o", "other"]);
    assert!(error.contains("tree/tool"), "{error}");
}

#[test]
fn files_that_are_there_are_not_replaced_unless_asked() {
    let place = Place::new();
    fs::write(place.path("a"), "new").unwrap();
    place.ok(&["pack", "a", "-o", "a.fiche"]);
    fs::write(place.path("a"), "old").unwrap();
    let error = place.fails(5, &["unpack", "a.fiche"]);
    assert!(error.contains("exists"), "{error}");
    assert_eq!(fs::read(place.path("a")).unwrap(), b"old");
    place.ok(&["unpack", "a.fiche", "--force"]);
    assert_eq!(fs::read(place.path("a")).unwrap(), b"new");
    place.fails(5, &["pack", "a", "-o", "a.fiche"]);
    place.ok(&["pack", "a", "-o", "a.fiche", "--force"]);
    // What is packed is never what is written.
    let before = fs::read(place.path("a")).unwrap();
    let error = place.fails(2, &["pack", "a", "-o", "a", "--force"]);
    assert!(error.contains("a is what is written"), "{error}");
    place.fails(2, &["pack", "a", "./a.fiche", "-o", "a.fiche", "--force"]);
    place.ok(&["pack", "a", "a.fiche", "-o", "a.fiche", "--force", "--exclude", "a.fiche"]);
    assert!(fs::read(place.path("a")).unwrap() == before);
}

#[test]
fn a_stream_of_unknown_length_goes_in_and_out_through_pipes() {
    let place = Place::new();
    let bytes = text(3_000_000, 4);
    let packed = place.pipe(&["pack", "-", "-o", "-", "--method", "lz4"], &bytes);
    assert!(packed.status.success());
    fs::write(place.path("s.fiche"), &packed.stdout).unwrap();
    assert!(place.ok(&["unpack", "s.fiche", "-o", "-"]) == bytes);
    assert!(place.ok(&["cat", "s.fiche"]) == bytes);
    place.ok(&["unpack", "s.fiche", "-o", "s"]);
    assert!(fs::read(place.path("s")).unwrap() == bytes);
    place.fails(2, &["unpack", "s.fiche"]);
    let ranges = ["cat", "s.fiche", "-r", "1M+16K", "--range", "5..10", "-r", "2999990.."];
    let expected =
        [&bytes[1 << 20..(1 << 20) + (16 << 10)], &bytes[5..10], &bytes[2_999_990..]].concat();
    assert!(place.ok(&ranges) == expected);
}

#[test]
fn a_reader_that_has_enough_is_no_error_worth_a_message() {
    let place = Place::new();
    fs::write(
        place.path("s.fiche"),
        place.pipe(&["pack", "-", "-o", "-"], &text(9_000_000, 1)).stdout,
    )
    .unwrap();
    let mut child = place
        .command(&["cat", "s.fiche"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(141));
    assert!(output.stderr.is_empty());
}

#[test]
fn records_are_read_by_name_and_number() {
    let place = Place::new();
    fs::create_dir(place.path("d")).unwrap();
    for name in ["#5", "one", "two"] {
        fs::write(place.path("d").join(name), format!("this is {name}")).unwrap();
    }
    place.ok(&["pack", "d", "-o", "d.fiche"]);
    assert_eq!(place.ok(&["cat", "d.fiche", "-R", "d/two"]), b"this is two");
    assert_eq!(place.ok(&["cat", "d.fiche", "-R", "#2", "-R", "d/two"]), b"this is onethis is two");
    assert_eq!(place.ok(&["cat", "d.fiche", "-R", "d/one", "-r", "5..7"]), b"is");
    let error = place.fails(2, &["cat", "d.fiche", "-R", "two"]);
    assert!(error.contains("did you mean \"d/two\"?"), "{error}");
    place.fails(2, &["cat", "d.fiche", "-R", "#77"]);
    place.fails(2, &["cat", "d.fiche", "-R", "d"]);
    place.fails(2, &["cat", "d.fiche", "-r", "0+1000"]);
    let list = String::from_utf8(place.ok(&["ls", "d.fiche"])).unwrap();
    assert_eq!(list.lines().count(), 4);
    let long = String::from_utf8(place.ok(&["ls", "-l", "d.fiche", "d/one"])).unwrap();
    assert!(long.starts_with("#2") && long.contains("-rw"), "{long}");
    assert_eq!(place.ok(&["ls", "-0", "d.fiche"]), b"d\0d/#5\0d/one\0d/two\0");
    for line in String::from_utf8(place.ok(&["ls", "--json", "d.fiche"])).unwrap().lines() {
        assert!(line.starts_with('{') && line.ends_with('}'));
    }
    place.fails(2, &["ls", "d.fiche", "nothing like it"]);
}

#[test]
fn what_is_excluded_is_left_out_with_all_below_it() {
    let place = Place::new();
    for path in ["d/a.o", "d/a.c", "d/out/deep/b.c", "d/src/out/c.c", "d/src/keep.o.txt"] {
        fs::create_dir_all(place.path(path).parent().unwrap()).unwrap();
        fs::write(place.path(path), path).unwrap();
    }
    place.ok(&["pack", "d", "-o", "d.fiche", "--exclude", "*.o", "--exclude", "d/out"]);
    let list = String::from_utf8(place.ok(&["ls", "-0", "d.fiche"])).unwrap();
    let names: Vec<&str> = list.trim_end_matches('\0').split('\0').collect();
    assert_eq!(names, ["d", "d/a.c", "d/src", "d/src/keep.o.txt", "d/src/out", "d/src/out/c.c"]);
    place.fails(2, &["pack", "d", "-o", "e.fiche", "--exclude", "[z"]);
}

#[test]
fn two_inputs_of_one_name_are_refused_and_nothing_is_written() {
    let place = Place::new();
    for dir in ["x", "y"] {
        fs::create_dir(place.path(dir)).unwrap();
        fs::write(place.path(dir).join("same"), dir).unwrap();
    }
    let error = place.fails(2, &["pack", "x/same", "y/same", "-o", "o.fiche"]);
    assert!(error.contains("x/same") && error.contains("y/same"), "{error}");
    assert_eq!(place.files(), ["x", "y"]);
    place.fails(5, &["pack", "not there", "-o", "o.fiche"]);
    place.fails(2, &["pack", "x", "-o", "o.fiche", "--method", "best"]);
    place.fails(2, &["pack", "x", "-o", "o.fiche", "--level", "99"]);
    place.fails(2, &["pack", "x", "-o", "o.fiche", "--block", "100"]);
    place.fails(2, &["pack", "x", "-o", "o.fiche", "--block", "1G"]);
    place.fails(2, &["pack", "x", "-o", "o.fiche", "--threads", "0"]);
    place.fails(5, &["pack", "x", "-o", "no/such/folder/o.fiche"]);
    place.fails(5, &["pack", "x", "-o", "y"]);
    place.fails(2, &["pack", "x", "-", "-o", "o.fiche"]);
    assert_eq!(place.files(), ["x", "y"]);
}

#[test]
fn the_archive_itself_is_not_packed_into_itself() {
    let place = Place::new();
    fs::write(place.path("a"), "a").unwrap();
    place.ok(&["pack", ".", "-o", "o.fiche"]);
    place.ok(&["pack", ".", "-o", "o.fiche", "--force"]);
    assert_eq!(place.ok(&["ls", "-0", "o.fiche"]), b"a\0");
}

#[test]
fn what_is_no_archive_is_told_from_a_damaged_one() {
    let place = Place::new();
    fs::write(place.path("text"), "no archive at all").unwrap();
    fs::write(place.path("nothing"), "").unwrap();
    fs::create_dir(place.path("folder")).unwrap();
    for verb in ["cat", "ls", "info", "verify", "unpack"] {
        assert!(place.fails(2, &[verb, "text"]).contains("text: this is not a fiche file"));
        assert!(place.fails(2, &[verb, "nothing"]).contains("nothing: this file is empty"));
        assert!(place.fails(2, &[verb, "folder"]).contains("directory"));
        assert!(place.fails(5, &[verb, "not there"]).contains("not there"));
    }
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../golden/bad");
    let newer = golden.join("newer-version.fiche");
    assert!(place.fails(4, &["ls", newer.to_str().unwrap()]).contains("version 2"));
    let unknown = golden.join("unknown-codec.fiche");
    assert!(place.fails(4, &["cat", unknown.to_str().unwrap()]).contains("codec 99"));
}

/// Checks that some, but not all, of 20 files in a damaged archive come back.
fn loses_some(place: &Place, to: &str) {
    let error = place.fails(3, &["verify", "d.fiche"]);
    assert!(error.contains("block") && error.contains("hit: #"), "{error}");
    place.fails(3, &["unpack", "d.fiche", "-o", &format!("{to}-strict")]);
    place.fails(3, &["cat", "d.fiche"]);
    let error = place.fails(3, &["unpack", "d.fiche", "-o", to, "--keep-going"]);
    assert!(error.contains("lost: bytes"), "{error}");
    let (mut whole, mut damaged) = (0, 0);
    for i in 0..20 {
        let path = place.path(&format!("{to}/d/{i:02}"));
        match fs::read(&path) {
            Ok(bytes) => whole += usize::from(bytes == text(9_000, i)),
            Err(_) => damaged += usize::from(path.with_extension("damaged").exists()),
        }
    }
    assert!((1..5).contains(&damaged) && whole + damaged == 20, "{whole} {damaged}");
}

#[test]
fn a_damaged_archive_gives_all_that_is_whole() {
    let place = Place::new();
    fs::create_dir(place.path("d")).unwrap();
    for i in 0..20 {
        fs::write(place.path(&format!("d/{i:02}")), text(9_000, i)).unwrap();
    }
    // What all blocks need is mended; a block is lost.
    place.ok(&["pack", "d", "-o", "d.fiche", "--block", "4K"]);
    let stored = fs::metadata(place.path("d.fiche")).unwrap().len();
    let file = fs::File::options().write(true).open(place.path("d.fiche")).unwrap();
    file.write_all_at(b"damage", 200).unwrap();
    place.fails(3, &["verify", "d.fiche"]);
    assert_eq!(place.ok(&["cat", "d.fiche"]).len(), 180_000);
    file.write_all_at(b"damage", stored / 4 * 3).unwrap();
    loses_some(&place, "learned");

    place.ok(&["pack", "d", "-o", "d.fiche", "-f", "--block", "4K", "--method", "zstd"]);
    let file = fs::File::options().write(true).open(place.path("d.fiche")).unwrap();
    file.write_all_at(b"damage", 10_000).unwrap();
    loses_some(&place, "kept");

    // Cut near its start: nothing is left, and nothing is written.
    let stump = |len| {
        let bytes = fs::read(place.path("d.fiche")).unwrap();
        fs::write(place.path("stump.fiche"), &bytes[..len]).unwrap();
        place.fails(3, &["unpack", "stump.fiche", "-o", "stump", "--keep-going"])
    };
    let error = stump(500);
    assert!(error.contains("nothing is left"), "{error}");
    assert!(!place.path("stump").exists() && !place.path("stump.damaged").exists());
    // A block of it is left, but no name.
    let error = stump(4_000);
    assert!(error.contains("was cut: what came behind byte"), "{error}");
    let left = fs::read(place.path("stump.damaged")).unwrap();
    let content = [text(9_000, 0), text(9_000, 1)].concat();
    assert!(left.len() >= 4096 && content.starts_with(&left));

    // Cut in the middle: the names of what is left are there.
    let bytes = fs::read(place.path("d.fiche")).unwrap();
    fs::write(place.path("cut.fiche"), &bytes[..bytes.len() - 40]).unwrap();
    let error = place.fails(3, &["verify", "cut.fiche"]);
    assert!(error.contains("--keep-going"), "{error}");
    place.fails(3, &["ls", "cut.fiche"]);
    place.fails(3, &["unpack", "cut.fiche", "-o", "rest", "--keep-going"]);
    assert_eq!(fs::read(place.path("rest/d/19")).unwrap(), text(9_000, 19));
}

#[test]
fn content_whose_names_are_lost_is_restored_without_them() {
    let place = Place::new();
    fs::create_dir(place.path("d")).unwrap();
    for i in 0..300 {
        fs::write(place.path(&format!("d/{i:03}")), text(9_000, i)).unwrap();
    }
    place.ok(&["pack", "d", "-o", "d.fiche"]);
    let bytes = fs::read(place.path("d.fiche")).unwrap();
    fs::write(place.path("cut.fiche"), &bytes[..bytes.len() * 2 / 3]).unwrap();
    let error = place.fails(3, &["unpack", "cut.fiche", "-o", "rest", "--keep-going"]);
    assert!(error.contains("belong to no file that is known"), "{error}");
    let (mut content, mut named) = (Vec::new(), 0);
    for i in 0..300 {
        content.extend(text(9_000, i));
        match fs::read(place.path(&format!("rest/d/{i:03}"))) {
            Ok(bytes) => named += u64::from(bytes == text(9_000, i)),
            Err(_) => assert!(i >= 100, "{i} is lost"),
        }
    }
    let nameless: Vec<PathBuf> = fs::read_dir(place.path("rest"))
        .unwrap()
        .map(|item| item.unwrap().path())
        .filter(|path| path.is_file())
        .collect();
    assert_eq!(nameless.len(), 1);
    let start = named * 9_000;
    let left = fs::read(&nameless[0]).unwrap();
    let end = start + left.len() as u64;
    assert!(nameless[0].ends_with(format!("content-{start}-{end}")));
    assert!(content[start as usize..].starts_with(&left));
    assert!(end > 300 * 9_000 / 2 && end - start < 2 << 20);
}

#[test]
fn nothing_is_written_outside_the_target() {
    let place = Place::new();
    let evil = |name: &[u8], link: Option<(&str, &str)>| {
        use fiche::archive::{Entry, Kind, Options, Writer};
        let mut writer = Writer::new(Vec::new(), Options::default()).unwrap();
        if let Some((name, target)) = link {
            let kind = Kind::Symlink(target.as_bytes().to_vec());
            writer.add_entry(Entry::new(name, kind)).unwrap();
        }
        writer.add(Entry::new(name, Kind::File), &mut b"evil".as_slice()).unwrap();
        fs::write(place.path("evil.fiche"), writer.finish().unwrap()).unwrap();
    };
    fs::create_dir(place.path("outside")).unwrap();
    let outside = place.path("outside");
    for name in ["../outside/x", "/tmp/fiche-evil", "a/../../outside/x", "..", "a//b", "./a", "a/"]
    {
        evil(name.as_bytes(), None);
        let error = place.fails(2, &["unpack", "evil.fiche", "-o", "target"]);
        assert!(error.contains("out of the target"), "{error}");
    }
    // Through a link that the archive itself makes, to a folder and to a file.
    evil(b"link/x", Some(("link", outside.to_str().unwrap())));
    let error = place.fails(5, &["unpack", "evil.fiche", "-o", "target"]);
    assert!(error.contains("not followed"), "{error}");
    fs::write(outside.join("file"), "precious").unwrap();
    symlink(outside.join("file"), place.path("target/here")).unwrap();
    evil(b"here", None);
    place.fails(5, &["unpack", "evil.fiche", "-o", "target"]);
    place.ok(&["unpack", "evil.fiche", "-o", "target", "--force"]);
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"precious");
    assert_eq!(fs::read_dir(outside).unwrap().count(), 1);
}

#[test]
fn appending_adds_and_leaves_what_was_there() {
    let place = Place::new();
    make_tree(&place.path("tree"));
    fs::create_dir_all(place.path("more/tree/sub")).unwrap();
    fs::write(place.path("more/tree/sub/added"), text(50_000, 9)).unwrap();
    place.ok(&["pack", "tree", "-o", "t.fiche"]);
    let before = fs::read(place.path("t.fiche")).unwrap();
    place.ok(&["append", "t.fiche", "more/tree", "--method", "lz4"]);
    let error = place.fails(2, &["append", "t.fiche", "more/tree"]);
    assert!(error.contains("tree/sub/added"), "{error}");
    let after = fs::read(place.path("t.fiche")).unwrap();
    assert!(after.starts_with(&before[..20]) && after[32..].starts_with(&before[32..]));
    place.ok(&["verify", "t.fiche"]);
    place.ok(&["unpack", "t.fiche", "-o", "back"]);
    assert_eq!(fs::read(place.path("back/tree/sub/added")).unwrap(), text(50_000, 9));
    assert_eq!(fs::read(place.path("back/tree/a.txt")).unwrap(), text(100_000, 1));
}

#[test]
fn numbers_are_filtered_before_their_method_and_what_is_appended_is_too() {
    let place = Place::new();
    let numbers = |from: u32| -> Vec<u8> {
        (from..from + 30_000).flat_map(|i| ((i * 7 / 5) as f32).to_le_bytes()).collect()
    };
    fs::write(place.path("a"), numbers(0)).unwrap();
    fs::write(place.path("b"), numbers(500_000)).unwrap();
    let len = |name: &str| fs::metadata(place.path(name)).unwrap().len();
    for method in ["bewalgo32", "bewalgo64", "lz4", "zstd"] {
        place.ok(&["pack", "a", "-o", "plain.fiche", "--force", "--method", method]);
        let filter = ["--method", method, "--filter", "delta:4,shuffle:4"];
        place.ok(&[["pack", "a", "-o", "f.fiche", "--force"].as_slice(), &filter].concat());
        assert!(len("f.fiche") < len("plain.fiche"), "{method}");
        place.ok(&["append", "f.fiche", "b"]);
        place.ok(&["verify", "f.fiche"]);
        let shown = String::from_utf8(place.ok(&["info", "f.fiche"])).unwrap();
        assert!(shown.contains(" behind delta:4, shuffle:4"), "{shown}");
        assert_eq!(place.ok(&["cat", "f.fiche", "--record", "b"]), numbers(500_000));
        let piece = place.ok(&["cat", "f.fiche", "--range", "50001+9"]);
        assert_eq!(piece, numbers(0)[50_001..50_010]);
    }
    // Without a method it is zstd.
    place.ok(&["pack", "a", "-o", "zstd.fiche", "--filter", "bitshuffle:4"]);
    let shown = String::from_utf8(place.ok(&["info", "zstd.fiche"])).unwrap();
    assert!(shown.contains("zstd 3 behind bitshuffle:4"), "{shown}");
    let error = place.fails(2, &["pack", "a", "-o", "no.fiche", "--filter", "shuffle:99"]);
    assert!(error.contains("filters are shuffle and bitshuffle"), "{error}");
    let with = ["--filter", "shuffle:4", "--method", "hybrid"];
    let error = place.fails(2, &[["pack", "a", "-o", "no.fiche"].as_slice(), &with].concat());
    assert!(error.contains("without a dictionary"), "{error}");
    let four = "delta:1,delta:1,delta:1,delta:1";
    let error = place.fails(2, &["pack", "a", "-o", "no.fiche", "--filter", four]);
    assert!(error.contains("three filters"), "{error}");
    assert!(!place.path("no.fiche").exists());
}

#[test]
fn an_append_that_is_cut_off_leaves_the_archive_as_it_was() {
    let place = Place::new();
    fs::write(place.path("a"), text(100_000, 1)).unwrap();
    place.ok(&["pack", "a", "-o", "a.fiche"]);
    let before = fs::read(place.path("a.fiche")).unwrap();
    // It waits for more input when it is killed.
    let mut child = place
        .command(&["append", "a.fiche", "-", "-m", "copy"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&text(20_000_000, 2)).unwrap();
    let during = place.fails(5, &["append", "a.fiche", "a"]);
    assert!(during.contains("in use"), "{during}");
    assert!(place.ok(&["cat", "a.fiche"]) == text(100_000, 1), "while it is appended to");
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(fs::metadata(place.path("a.fiche")).unwrap().len() > before.len() as u64 + 1_000_000);
    let verified = place.run(&["verify", "a.fiche"]);
    assert!(verified.status.success());
    assert!(String::from_utf8_lossy(&verified.stderr).contains("append that did not end"));
    assert!(place.ok(&["cat", "a.fiche"]) == text(100_000, 1));
    // The next append takes away what was left.
    fs::write(place.path("b"), "b").unwrap();
    place.ok(&["append", "a.fiche", "b"]);
    assert!(fs::metadata(place.path("a.fiche")).unwrap().len() < before.len() as u64 + 1_000);
    assert!(String::from_utf8_lossy(&place.run(&["verify", "a.fiche"]).stderr).is_empty());
    assert_eq!(place.ok(&["cat", "a.fiche", "-R", "b"]), b"b");
}

#[test]
fn merging_joins_content_and_records() {
    let place = Place::new();
    for name in ["a", "b", "c"] {
        fs::write(place.path(name), text(70_000, name.len() as u64)).unwrap();
        place.ok(&["pack", name, "-o", &format!("{name}.fiche")]);
    }
    place.ok(&["merge", "c.fiche", "a.fiche", "b.fiche", "-o", "all.fiche"]);
    place.ok(&["verify", "all.fiche"]);
    assert_eq!(place.ok(&["ls", "-0", "all.fiche"]), b"c\0a\0b\0");
    assert!(place.ok(&["cat", "all.fiche", "-R", "b"]) == text(70_000, 1));
    let error = place.fails(2, &["merge", "a.fiche", "a.fiche", "-o", "twice.fiche"]);
    assert!(error.contains("\"a\""), "{error}");
    assert!(!place.path("twice.fiche").exists());
}

#[test]
fn an_interrupted_pack_leaves_nothing_and_says_so() {
    for signal in ["-INT", "-TERM"] {
        let place = Place::new();
        let mut child = place
            .command(&["pack", "-", "-o", "o.fiche"])
            .stdin(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(&text(3_000_000, 2)).unwrap();
        while place.files().is_empty() {
            std::thread::sleep(Duration::from_millis(5));
        }
        let id = child.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(130));
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(error.contains("nothing was written"), "{error}");
        assert_eq!(place.files(), Vec::<String>::new());
    }
}

#[test]
fn a_full_disk_leaves_nothing_and_says_so() {
    let place = Place::new();
    let disk = place.path("disk");
    fs::create_dir(&disk).unwrap();
    let mounted = Command::new("mount")
        .args(["-t", "tmpfs", "-o", "size=1M", "tmpfs", disk.to_str().unwrap()])
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success());
    if !mounted {
        println!("SKIP: mount of a small tmpfs");
        return;
    }
    let noise: Vec<u8> = text(4_000_000, 3);
    fs::write(place.path("noise"), &noise).unwrap();
    let error = place.fails(5, &["pack", "noise", "-o", "disk/o.fiche", "-m", "copy"]);
    let left = fs::read_dir(&disk).unwrap().count();
    // An append that does not fit leaves the archive as it was.
    fs::write(place.path("small"), text(1000, 1)).unwrap();
    place.ok(&["pack", "small", "-o", "disk/small.fiche"]);
    let before = fs::read(disk.join("small.fiche")).unwrap();
    let appended = place.run(&["append", "disk/small.fiche", "noise", "-m", "copy"]);
    let after = fs::read(disk.join("small.fiche")).unwrap();
    place.ok(&["pack", "noise", "-o", "noise.fiche"]);
    let unpacked = place.run(&["unpack", "noise.fiche", "-o", "disk"]);
    let names = fs::read_dir(&disk).unwrap().count();
    assert!(Command::new("umount").arg(&disk).status().unwrap().success());
    assert!(error.contains("o.fiche") && error.contains("space"), "{error}");
    assert_eq!(left, 0);
    assert_eq!(appended.status.code(), Some(5));
    assert!(before == after, "the archive changed");
    assert_eq!(unpacked.status.code(), Some(5));
    assert_eq!(names, 1, "a file that is not whole stayed");
}

#[test]
fn a_file_that_changes_while_it_is_packed_is_an_error() {
    let place = Place::new();
    let path = place.path("big");
    fs::write(&path, text(20_000_000, 1)).unwrap();
    let child = place
        .command(&["pack", "big", "-o", "o.fiche", "-m", "lzma", "-T", "1"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Its output is there when it has begun.
    while place.files().len() < 2 {
        std::thread::sleep(Duration::from_millis(5));
    }
    std::thread::sleep(Duration::from_millis(200));
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1000).unwrap();
    let output = child.wait_with_output();
    let output = output.unwrap();
    assert_eq!(output.status.code(), Some(5));
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(error.contains("big: changed while it was being packed"), "{error}");
    assert_eq!(place.files(), ["big"]);
}

#[test]
fn packing_keeps_going_after_what_cannot_be_read_only_when_asked() {
    let place = Place::new();
    fs::create_dir(place.path("d")).unwrap();
    fs::write(place.path("d/a"), "a").unwrap();
    // Nobody, root included, can read a file of /proc/self/mem at 0.
    symlink("/proc/self/mem", place.path("mem")).unwrap();
    fs::write(place.path("d/b"), "b").unwrap();
    let fails = place.fails(5, &["pack", "d", "mem", "-o", "o.fiche"]);
    assert!(fails.contains("mem"), "{fails}");
    assert!(!place.path("o.fiche").exists());

    // A log that grows all the while is kept as it was when it was met.
    let log = place.path("d/log");
    fs::write(&log, text(8_000_000, 1)).unwrap();
    let mut child = place
        .command(&["pack", "d", "-o", "l.fiche", "-m", "lzma", "-T", "1", "--keep-going"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut grow = fs::OpenOptions::new().append(true).open(&log).unwrap();
    while child.try_wait().unwrap().is_none() {
        grow.write_all(b"one more line\n").unwrap();
        std::thread::sleep(Duration::from_millis(2));
    }
    let output = child.wait_with_output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{error}");
    assert!(error.contains("d/log: changed while it was being packed"), "{error}");
    place.ok(&["verify", "l.fiche"]);
    let kept = place.ok(&["cat", "l.fiche", "-R", "d/log"]);
    assert!(kept.len() >= 8_000_000 && fs::read(&log).unwrap().starts_with(&kept));
}

#[test]
fn keep_going_goes_on_after_what_the_system_refuses() {
    let place = Place::new();
    fs::create_dir_all(place.path("d/b")).unwrap();
    for name in ["d/a", "d/b/inside", "d/c"] {
        fs::write(place.path(name), name).unwrap();
    }
    place.ok(&["pack", "d", "-o", "d.fiche"]);
    fs::create_dir_all(place.path("back/d")).unwrap();
    fs::write(place.path("back/d/b"), "a file where a folder belongs").unwrap();
    place.fails(5, &["unpack", "d.fiche", "-o", "back"]);
    let error = place.fails(5, &["unpack", "d.fiche", "-o", "back", "--keep-going", "--force"]);
    assert!(error.contains("d/b/inside"), "{error}");
    assert_eq!(fs::read(place.path("back/d/c")).unwrap(), b"d/c");
    assert_eq!(fs::read(place.path("back/d/b")).unwrap(), b"a file where a folder belongs");
}

#[test]
fn content_without_a_record_is_not_passed_over_in_silence() {
    let place = Place::new();
    let stream = place.pipe(&["pack", "-", "-o", "s.fiche"], b"precious");
    assert!(stream.status.success());
    fs::write(place.path("a"), "a").unwrap();
    place.ok(&["append", "s.fiche", "a"]);
    let error = place.fails(5, &["unpack", "s.fiche", "-o", "back"]);
    assert!(error.contains("bytes 0 to 8 of the content belong to no file"), "{error}");
    assert_eq!(fs::read(place.path("back/a")).unwrap(), b"a");
    assert_eq!(place.ok(&["cat", "s.fiche", "-r", "0+8"]), b"precious");
    place.fails(5, &["unpack", "s.fiche", "-o", "all", "--keep-going"]);
    assert_eq!(fs::read(place.path("all/content-0-8")).unwrap(), b"precious");
}

#[test]
fn verify_looks_at_all_files_whatever_the_first_is() {
    let place = Place::new();
    fs::write(place.path("a"), text(50_000, 1)).unwrap();
    place.ok(&["pack", "a", "-o", "good.fiche"]);
    let mut bytes = fs::read(place.path("good.fiche")).unwrap();
    bytes[1000] ^= 1;
    fs::write(place.path("bad.fiche"), bytes).unwrap();
    let error = place.fails(3, &["verify", "missing.fiche", "bad.fiche", "good.fiche"]);
    assert!(
        error.contains("missing.fiche: No such") && error.contains("bad.fiche: damaged"),
        "{error}"
    );
    let error = place.fails(5, &["verify", "good.fiche", "missing.fiche"]);
    assert!(error.contains("missing.fiche"), "{error}");
}

#[test]
fn output_that_nobody_takes_is_no_crash() {
    let place = Place::new();
    fs::write(place.path("a"), "a").unwrap();
    place.ok(&["pack", "a", "-o", "a.fiche"]);
    for args in [&["verify", "a.fiche"][..], &["ls", "a.fiche"], &["info", "a.fiche"]] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let status = place.command(args).stdout(full).stderr(Stdio::null()).status().unwrap();
        assert_eq!(status.code(), Some(5), "{args:?}");
    }
    let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let status = place.command(&["pack", "a", "-o", "b.fiche"]).stderr(full).status().unwrap();
    assert!(status.success());
}

#[test]
fn messages_do_not_move_the_terminal() {
    let place = Place::new();
    let name = "a\x1b[2Jb";
    fs::write(place.path(name), "a").unwrap();
    place.ok(&["pack", name, "-o", "a.fiche"]);
    for error in [
        place.fails(5, &["unpack", "a.fiche"]),
        place.fails(2, &["ls", "a.fiche", name, "x\x1b[2J"]),
    ] {
        assert!(!error.contains('\x1b'), "{error:?}");
    }
}

#[test]
fn a_signal_ends_what_only_writes() {
    let place = Place::new();
    let packed = place.pipe(&["pack", "-", "-o", "s.fiche"], &text(30_000_000, 1));
    assert!(packed.status.success());
    // Nobody reads what it writes: it waits.
    let mut child = place.command(&["cat", "s.fiche"]).stdout(Stdio::piped()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    let id = child.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &id]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_replaced_archive_keeps_its_permissions_and_a_link_its_place() {
    let place = Place::new();
    fs::write(place.path("a"), "a").unwrap();
    place.ok(&["pack", "a", "-o", "real.fiche"]);
    fs::set_permissions(place.path("real.fiche"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("real.fiche", place.path("link.fiche")).unwrap();
    place.ok(&["pack", "a", "-o", "link.fiche", "--force"]);
    assert!(place.path("link.fiche").is_symlink());
    assert_eq!(fs::metadata(place.path("real.fiche")).unwrap().mode() & 0o777, 0o600);
    symlink("nowhere/at/all", place.path("dangling")).unwrap();
    place.fails(5, &["pack", "a", "-o", "dangling"]);
}

#[test]
fn another_user_gets_attributes_on_read_only_files_too() {
    let place = Place::new();
    fs::create_dir(place.path("d")).unwrap();
    fs::write(place.path("d/a"), "a").unwrap();
    let flags = rustix::fs::XattrFlags::empty();
    if rustix::fs::setxattr(place.path("d/a"), "user.origin", b"x", flags).is_err() {
        println!("SKIP: extended attributes here");
        return;
    }
    fs::set_permissions(place.path("d/a"), fs::Permissions::from_mode(0o444)).unwrap();
    place.ok(&["pack", "d", "-o", "d.fiche"]);
    fs::set_permissions(place.path(""), fs::Permissions::from_mode(0o777)).unwrap();
    // As nobody, where root may become that.
    let fiche = env!("CARGO_BIN_EXE_fiche");
    let copy = place.path("fiche-copy");
    fs::copy(fiche, &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    let run = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(&copy)
        .args(["unpack", "d.fiche", "-o", "back"])
        .current_dir(place.path(""))
        .output();
    let Ok(output) = run else {
        println!("SKIP: setpriv");
        return;
    };
    let error = String::from_utf8_lossy(&output.stderr);
    if error.contains("setpriv:") {
        println!("SKIP: setpriv may not change the user here");
        return;
    }
    assert!(output.status.success(), "{error}");
    assert_eq!(xattr(&place.path("back/d/a")).as_deref(), Some(&b"x"[..]));
    assert_eq!(fs::metadata(place.path("back/d/a")).unwrap().mode() & 0o777, 0o444);
}

#[test]
fn the_same_bytes_come_out_for_any_number_of_threads() {
    let place = Place::new();
    make_tree(&place.path("tree"));
    let pack = |threads: &str| {
        place.ok(&["pack", "tree", "-o", "t.fiche", "-f", "-T", threads, "-b", "1K"]);
        fs::read(place.path("t.fiche")).unwrap()
    };
    let one = pack("1");
    assert!(one == pack("2") && one == pack("9"));
}

#[test]
fn completions_and_manual_pages_are_made() {
    let place = Place::new();
    for shell in ["bash", "zsh", "fish"] {
        assert!(String::from_utf8(place.ok(&["completions", shell])).unwrap().contains("unpack"));
    }
    place.ok(&["man", "."]);
    for page in ["fiche.1", "fiche-pack.1", "fiche-cat.1", "fiche-verify.1"] {
        assert!(place.files().contains(&page.to_owned()), "{page}");
    }
    for verb in ["pack", "unpack", "cat", "ls", "info", "verify", "append", "merge"] {
        place.ok(&[verb, "--help"]);
    }
    place.fails(2, &["no-such-verb"]);
    place.fails(2, &[]);
}

#[test]
fn records_within_files_are_read_by_number_and_name() {
    let place = Place::new();
    let line = |i: u64| format!("{{\"id\":\"k{:03}\",\"n\":{i}}}\n", i * 37 % 1000);
    let log: String = (0..1000).map(line).collect();
    fs::write(place.path("a.json"), &log).unwrap();
    fs::write(place.path("b.json"), "{\"id\":\"last\"}\n").unwrap();
    let records = ["--records", "json:id", "--align", "records", "--block", "1K"];
    place.ok(&[&["pack", "a.json", "b.json", "-o", "x.fiche"], records.as_slice()].concat());
    let cat = |record: &str| {
        String::from_utf8(place.ok(&["cat", "x.fiche", "--record", record])).unwrap()
    };
    assert_eq!(cat("#17"), line(17));
    assert_eq!(cat("k037"), line(1));
    assert_eq!(cat("#1000"), "{\"id\":\"last\"}\n");
    assert_eq!(cat("#100..#103"), [line(100), line(101), line(102)].concat());
    assert_eq!(cat("#998..#1001"), [&line(998), &line(999), "{\"id\":\"last\"}\n"].concat());
    assert_eq!(cat("a.json"), log);
    for bad in ["#5..#4", "#5..#2000"] {
        place.fails(2, &["cat", "x.fiche", "--record", bad]);
    }
    let listed = String::from_utf8(place.ok(&["ls", "x.fiche", "--prefix", "k10"])).unwrap();
    let names: Vec<&str> = listed.lines().map(|l| l.split_whitespace().nth(1).unwrap()).collect();
    assert_eq!(names, (100..110).map(|i| format!("k{i}")).collect::<Vec<_>>());
    assert!(place.ok(&["ls", "x.fiche", "--prefix", "z"]).is_empty());
    // Files come back whole, and no item as a file of its own.
    place.ok(&["unpack", "x.fiche", "-o", "back"]);
    assert_eq!(fs::read_to_string(place.path("back/a.json")).unwrap(), log);
    assert_eq!(fs::read_dir(place.path("back")).unwrap().count(), 2);
    place.fails(2, &["unpack", "x.fiche", "k001", "-o", "back"]);

    // A stream stays one.
    let done = place.pipe(&["pack", "-", "-o", "s.fiche", "--records", "lines"], log.as_bytes());
    assert!(done.status.success());
    assert_eq!(place.ok(&["unpack", "s.fiche", "-o", "-"]), log.as_bytes());
    let ninth = place.ok(&["cat", "s.fiche", "--record", "#9"]);
    assert_eq!(ninth, line(9).as_bytes());
    place.ok(&["append", "s.fiche", "b.json", "--records", "lines"]);
    assert_eq!(place.ok(&["cat", "s.fiche", "--record", "b.json"]), b"{\"id\":\"last\"}\n");

    assert!(
        place
            .fails(2, &["pack", "a.json", "-o", "n.fiche", "--records", "words"])
            .contains("lines")
    );
    let error = place.fails(2, &["pack", "a.json", "-o", "n.fiche", "--records", "warc"]);
    assert!(error.contains("a.json: there is no WARC record at byte 0"), "{error}");
    assert!(!place.path("n.fiche").exists());
}

#[test]
fn gzipped_warc_files_are_packed_as_what_they_hold() {
    let place = Place::new();
    let record = |i: usize| {
        let body = format!("page {i}");
        let len = body.len();
        format!(
            "WARC/1.0\r\nWARC-Type: response\r\nWARC-Target-URI: http://x/{i}\r\nWARC-Record-ID: \
             <urn:uuid:{i}>\r\nContent-Length: {len}\r\n\r\n{body}\r\n\r\n"
        )
    };
    let whole: String = (0..50).map(record).collect();
    let mut gzip = Vec::new();
    for i in 0..50 {
        let path = place.path("one");
        fs::write(&path, record(i)).unwrap();
        let done = Command::new("gzip").arg("-c").arg(&path).output().unwrap();
        assert!(done.status.success());
        gzip.extend(done.stdout);
    }
    fs::write(place.path("crawl.warc.gz"), &gzip).unwrap();
    place.ok(&["pack", "crawl.warc.gz", "-o", "x.fiche", "--records", "warc"]);
    for name in ["http://x/31", "urn:uuid:31", "#31"] {
        assert_eq!(place.ok(&["cat", "x.fiche", "--record", name]), record(31).as_bytes());
    }
    place.ok(&["unpack", "x.fiche", "-o", "back"]);
    assert_eq!(fs::read_to_string(place.path("back/crawl.warc")).unwrap(), whole);
    // Cut within a member: nothing passes for whole.
    fs::write(place.path("cut.warc.gz"), &gzip[..gzip.len() - 20]).unwrap();
    let error = place.fails(2, &["pack", "cut.warc.gz", "-o", "n.fiche", "--records", "warc"]);
    assert!(error.contains("cut.warc.gz: damaged: "), "{error}");
    let cut = &gzip[..gzip.len() - 20];
    let piped = place.pipe(&["pack", "-", "-o", "n.fiche", "--records", "warc"], cut);
    assert_eq!(piped.status.code(), Some(2), "{piped:?}");
    assert!(!place.files().contains(&"n.fiche".to_owned()));
}

#[test]
fn methods_with_a_dictionary_pack_and_read_like_any_other() {
    let place = Place::new();
    fs::create_dir(place.path("in")).unwrap();
    for i in 0..5 {
        fs::write(place.path(&format!("in/{i}")), text(60_000 + i, i as u64 % 3)).unwrap();
    }
    let all = [
        "rlz-uv",
        "rlz-pv",
        "rlz-zz",
        "rlz-zzz",
        "rlz-zz-primed",
        "zlib-primed",
        "zstd-dict",
        "hybrid",
        "hybrid-fast",
    ];
    for method in all {
        let file = format!("{method}.fiche");
        place.ok(&["pack", "in", "-o", &file, "--method", method, "--dict", "16K"]);
        place.ok(&["verify", &file]);
        let record = place.ok(&["cat", &file, "--record", "in/3"]);
        assert!(record == text(60_003, 0), "{method}");
        let piece = place.ok(&["cat", &file, "--record", "in/4", "--range", "50000+777"]);
        assert!(piece == text(60_004, 1)[50_000..50_777], "{method}");
        place.ok(&["unpack", &file, "-o", method]);
        assert_eq!(describe(&place.path(method).join("in")), describe(&place.path("in")));
        let info = String::from_utf8(place.ok(&["info", &file, "--json"])).unwrap();
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        assert_eq!(info["method"], method);
        assert_eq!(info["dictionaries"][0]["logical_bytes"], 16 << 10);
        assert!(info["dictionary_bytes"].as_u64().unwrap() > 100);
        let has_model = ["rlz-zz-primed", "hybrid", "hybrid-fast"].contains(&method);
        assert_eq!(info["model_bytes"].as_u64().unwrap() > 0, has_model, "{method}");
        // The same bytes for any number of threads.
        let again = ["pack", "in", "-o", "2.fiche", "--method", method, "--dict", "16K", "-fT1"];
        place.ok(&again);
        assert!(fs::read(place.path("2.fiche")).unwrap() == fs::read(place.path(&file)).unwrap());
    }
    // What is added takes the dictionary that is there.
    fs::write(place.path("more"), text(50_000, 2)).unwrap();
    place.ok(&["append", "rlz-pv.fiche", "more"]);
    let info = String::from_utf8(place.ok(&["info", "rlz-pv.fiche", "--json"])).unwrap();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!(info["dictionaries"].as_array().unwrap().len(), 1);
    assert!(place.ok(&["cat", "rlz-pv.fiche", "--record", "more"]) == text(50_000, 2));
    // Joined archives share what is equal, and keep what is not.
    fs::write(place.path("other"), text(90_000, 9)).unwrap();
    place.ok(&["pack", "other", "-o", "o.fiche", "--method", "rlz-zzz", "--min-literal", "6"]);
    place.ok(&["merge", "rlz-pv.fiche", "o.fiche", "-o", "m.fiche"]);
    place.ok(&["verify", "m.fiche"]);
    assert!(place.ok(&["cat", "m.fiche", "--record", "other"]) == text(90_000, 9));
    // A stream, which is sampled from a copy.
    let stream = text(300_000, 4);
    let done = place.pipe(&["pack", "-", "-o", "s.fiche", "--method", "rlz-zz"], &stream);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(place.ok(&["cat", "s.fiche"]) == stream);
    assert!(fs::metadata(place.path("s.fiche")).unwrap().len() < 150_000);
    // And odd ones.
    for (name, bytes) in [("empty", vec![]), ("one", vec![7]), ("short", b"abc".to_vec())] {
        fs::write(place.path(name), &bytes).unwrap();
        for method in all {
            place.ok(&["pack", name, "-o", "x.fiche", "-f", "--method", method]);
            assert_eq!(place.ok(&["cat", "x.fiche"]), bytes, "{method} {name}");
        }
    }
}

#[test]
fn dictionary_files_are_found_beside_the_archive_or_where_they_are_said_to_be() {
    let place = Place::new();
    fs::write(place.path("a"), text(200_000, 1)).unwrap();
    fs::write(place.path("b"), text(100_000, 2)).unwrap();
    fs::create_dir(place.path("dicts")).unwrap();
    place.ok(&["dict", "build", "a", "b", "-o", "dicts/words.dict", "--size", "32K"]);
    let info = String::from_utf8(place.ok(&["info", "dicts/words.dict"])).unwrap();
    assert!(info.contains("dictionary") && info.contains("32768 bytes"), "{info}");
    let method = ["--method", "rlz-pv", "--dict", "dicts/words.dict"];
    place.ok(&[&["pack", "a", "-o", "a.fiche"][..], &method].concat());
    let alone = ["pack", "a", "-o", "alone.fiche", "--method", "rlz-pv", "--dict", "32K"];
    place.ok(&alone);
    let len = |name: &str| fs::metadata(place.path(name)).unwrap().len();
    assert!(len("a.fiche") < len("alone.fiche"));
    // It is not beside the archive.
    let error = place.fails(5, &["cat", "a.fiche"]);
    assert!(error.contains("a.fiche: missing: dictionary with digest"), "{error}");
    assert!(place.ok(&["cat", "a.fiche", "--dict", "dicts/words.dict"]) == text(200_000, 1));
    place.ok(&["verify", "a.fiche", "--dict", "dicts/words.dict"]);
    place.ok(&["ls", "a.fiche"]);
    fs::copy(place.path("dicts/words.dict"), place.path("words.dict")).unwrap();
    assert!(place.ok(&["cat", "a.fiche"]) == text(200_000, 1));
    place.ok(&["unpack", "a.fiche", "-o", "back"]);
    // Another one under its name is refused.
    place.ok(&["dict", "build", "b", "-o", "words.dict", "--size", "32K", "--force"]);
    place.fails(5, &["cat", "a.fiche"]);
    // A damaged one, one that is none, and an archive for one.
    let mut damaged = fs::read(place.path("words.dict")).unwrap();
    damaged[100] ^= 1;
    fs::write(place.path("words.dict"), damaged).unwrap();
    let error = place.fails(3, &["cat", "a.fiche", "--dict", "words.dict"]);
    assert!(error.contains("words.dict: damaged: dictionary piece"), "{error}");
    place.fails(3, &["cat", "a.fiche"]);
    place.fails(2, &["cat", "a.fiche", "--dict", "a"]);
    place.fails(2, &["cat", "a.fiche", "--dict", "a.fiche"]);
    place.fails(2, &["cat", "dicts/words.dict"]);
    place.fails(5, &["pack", "a", "-o", "x.fiche", "--method", "rlz-uv", "--dict", "nowhere"]);
    assert!(!place.path("x.fiche").exists());
    // A dictionary inside an archive that is damaged is replaced by one from outside.
    place.ok(&["pack", "a", "b", "-o", "in.fiche", "--method", "rlz-uv", "--dict", "32K"]);
    let whole = [text(200_000, 1), text(100_000, 2)].concat();
    let mut file = fs::read(place.path("in.fiche")).unwrap();
    file[200] ^= 1;
    fs::write(place.path("in.fiche"), &file).unwrap();
    // A flip is mended, and told by verify. More is not.
    assert!(place.ok(&["cat", "in.fiche"]) == whole);
    let error = place.fails(3, &["verify", "in.fiche"]);
    assert!(error.contains("damaged: dictionary piece") && !error.contains("lost"), "{error}");
    file[300..2000].fill(7);
    fs::write(place.path("in.fiche"), &file).unwrap();
    place.fails(3, &["cat", "in.fiche"]);
    place.fails(3, &["verify", "in.fiche"]);
    assert!(place.ok(&["cat", "in.fiche", "--dict", "dicts/words.dict"]) == whole);
}

#[test]
fn wrong_options_of_dictionaries_are_refused() {
    let place = Place::new();
    fs::write(place.path("a"), text(100_000, 1)).unwrap();
    fn pack<'a>(more: &[&'a str]) -> Vec<&'a str> {
        [&["pack", "a", "-o", "x.fiche"][..], more].concat()
    }
    for (code, options) in [
        (2, &["--method", "rlz-xy"][..]),
        (2, &["--method", "rlz-uv", "--level", "3"]),
        (2, &["--method", "rlz-zz", "--level", "13"]),
        (2, &["--method", "zlib-primed", "--level", "10"]),
        (2, &["--method", "zstd-dict", "--level", "0"]),
        (2, &["--method", "hybrid", "--level", "0"]),
        (2, &["--method", "hybrid-fast", "--level", "5"]),
        (2, &["--method", "zstd", "--level", "23"]),
        (2, &["--method", "copy", "--level", "1"]),
        (2, &["--method", "rlz-zzz", "--min-literal", "0"]),
        (2, &["--method", "rlz-uv", "--dict", "0"]),
        (2, &["--method", "rlz-uv", "--sample", "0"]),
        (2, &["--method", "lz4", "--dict", "1M"]),
        (2, &["--level", "19"]),
        (6, &["--method", "rlz-uv", "--dict", "2G"]),
    ] {
        place.fails(code, &pack(options));
        assert!(!place.path("x.fiche").exists(), "{options:?}");
    }
    let error = place.fails(2, &pack(&["--method", "rlz-xy"]));
    assert!(error.contains("rlz-zz-primed"), "{error}");
    let error = place.fails(2, &pack(&["--method", "hybrid", "--level", "10"]));
    assert!(error.contains("hybrid has the levels 1 to 9, not 10"), "{error}");
}

#[test]
fn what_nobody_asked_for_is_learned_from_the_input() {
    let place = Place::new();
    let info = |file: &str| -> serde_json::Value {
        serde_json::from_slice(&place.ok(&["info", file, "--json"])).unwrap()
    };
    let bytes = text(3_000_000, 1);
    fs::write(place.path("a"), &bytes).unwrap();
    place.ok(&["pack", "a", "-o", "a.fiche"]);
    let learned = info("a.fiche");
    assert_eq!((&learned["method"], &learned["level"]), (&"hybrid".into(), &5.into()));
    assert!(learned["dictionary_bytes"].as_u64() > Some(1_000), "{learned}");
    assert_eq!(place.ok(&["cat", "a.fiche", "--record", "a"]), bytes);
    // A stream as well, and split: by its beginning, which is not lost.
    let stream = [&bytes[..], &text(14 << 20, 2)].concat();
    for (name, more) in [("s.fiche", &[][..]), ("l.fiche", &["--records", "lines"])] {
        place.pipe(&[&["pack", "-", "-o", name], more].concat(), &stream);
        assert_eq!(info(name)["method"], "hybrid");
        assert!(place.ok(&["cat", name]) == stream);
    }
    // A pipe that is given by its name is not looked at first.
    let (name, file) = ("pipe.fiche", place.path("pipe.fiche"));
    let script =
        format!("cat a | {} pack /dev/stdin -o {}", env!("CARGO_BIN_EXE_fiche"), file.display());
    let done =
        Command::new("sh").args(["-c", &script]).current_dir(place.path(".")).status().unwrap();
    assert!(done.success());
    assert_eq!(info(name)["method"], "zstd");
    assert!(place.ok(&["cat", name]) == bytes);
    // Without a folder for temporary files, what is in memory is learned from.
    fs::write(place.path("stream"), &stream).unwrap();
    let script = format!("{} pack - -o nowhere.fiche < stream", env!("CARGO_BIN_EXE_fiche"));
    let mut shell = Command::new("sh");
    shell.args(["-c", &script]).current_dir(place.path(".")).env("TMPDIR", place.path("no/where"));
    assert!(shell.status().unwrap().success());
    assert_eq!(info("nowhere.fiche")["method"], "hybrid");
    assert!(place.ok(&["cat", "nowhere.fiche"]) == stream);
    // Where nothing is in common, no dictionary is paid for, nor where nobody wants one.
    let mut state = 1u64;
    let noise = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    });
    let noise: Vec<u8> = noise.take(400_000).collect();
    fs::write(place.path("n"), &noise).unwrap();
    place.ok(&["pack", "n", "-o", "n.fiche"]);
    let plain = info("n.fiche");
    assert!(plain["dictionary_bytes"].as_u64() < Some(100), "{plain}");
    assert!(plain["stored_bytes"].as_u64() < Some(402_000), "{plain}");
    place.ok(&["pack", "a", "-o", "none.fiche", "--dict", "none"]);
    assert!(info("none.fiche")["dictionary_bytes"].as_u64() < Some(100));
    assert_eq!(place.ok(&["cat", "none.fiche"]), bytes);
    place.ok(&["pack", "a", "-o", "auto.fiche", "--dict", "auto"]);
    assert_eq!(
        fs::read(place.path("auto.fiche")).unwrap(),
        fs::read(place.path("a.fiche")).unwrap()
    );
    // What is appended shares the dictionary.
    place.ok(&["append", "a.fiche", "n"]);
    assert_eq!(info("a.fiche")["dictionaries"].as_array().unwrap().len(), 1);
    assert_eq!(place.ok(&["cat", "a.fiche"]), [&bytes[..], &noise].concat());
}

#[test]
fn the_lower_levels_of_hybrid_are_for_fast_reads() {
    let place = Place::new();
    fs::write(place.path("a"), text(100_000, 1)).unwrap();
    for (level, method) in [("1", "hybrid-fast"), ("4", "hybrid-fast"), ("5", "hybrid")] {
        let file = format!("{level}.fiche");
        place.ok(&["pack", "a", "-o", &file, "--method", "hybrid", "--level", level]);
        let info = String::from_utf8(place.ok(&["info", &file, "--json"])).unwrap();
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        assert_eq!(
            (&info["method"], &info["level"]),
            (&method.into(), &level.parse::<i32>().unwrap().into())
        );
        assert!(place.ok(&["cat", &file, "--record", "a"]) == text(100_000, 1));
    }
}
