//! Archives as folders of the real system: what programs read there is what was packed.

use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fiche::archive::{Entry, Folder, Options, Reader, Split, Writer};
use fiche::codec::Codec;
use fiche_serve::{Mount, Mounted};

/// A program that one test starts (to mount) holds for a moment what another has open, whose folder is busy then:
/// one at a time.
static ALONE: Mutex<()> = Mutex::new(());

/// False, and said so, where nothing can be mounted.
fn can_mount() -> bool {
    let can = Path::new("/dev/fuse").exists();
    if !can {
        println!("SKIP: mounting: no /dev/fuse");
    }
    can
}

struct Place {
    dir: tempfile::TempDir,
    log: Arc<Mutex<Vec<String>>>,
    _alone: MutexGuard<'static, ()>,
}

impl Place {
    fn new() -> Place {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("in")).unwrap();
        fs::create_dir(dir.path().join("at")).unwrap();
        Place {
            dir,
            log: Arc::default(),
            _alone: ALONE.lock().unwrap_or_else(PoisonError::into_inner),
        }
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.dir.path().join(name)
    }

    fn mount(&self, archive: Vec<u8>, with: impl FnOnce(Mount) -> Mount) -> Mounted {
        let reader = Reader::open(Arc::new(archive)).unwrap();
        let log = self.log.clone();
        let mount = Mount::new(reader).threads(4).log(move |line| log.lock().unwrap().push(line));
        with(mount).at(self.path("at")).unwrap()
    }
}

fn pack(folder: &Path, split: Option<Split>) -> Vec<u8> {
    let options = Options::default().codec(Codec::Lz4).level(1);
    let mut writer = Writer::new(Vec::new(), options).unwrap();
    let mut packed = Folder::new(&[""; 0]).unwrap();
    packed.add(folder).unwrap();
    if let Some(split) = split {
        packed = packed.split(split);
    }
    packed.write_to(&mut writer, &mut |_| Ok(())).unwrap();
    writer.finish().unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let read = fs::read_dir(folder).unwrap();
    let mut names: Vec<String> =
        read.map(|item| item.unwrap().file_name().to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

/// Everything below both is the same: names, kinds, content, permissions, times, links.
fn same(ours: &Path, theirs: &Path) -> usize {
    let mut count = 1;
    let (a, b) = (fs::symlink_metadata(ours).unwrap(), fs::symlink_metadata(theirs).unwrap());
    let at = ours.display();
    assert_eq!(a.file_type(), b.file_type(), "{at}");
    assert_eq!((a.mode(), a.uid(), a.gid()), (b.mode(), b.uid(), b.gid()), "{at}");
    assert_eq!((a.mtime(), a.mtime_nsec()), (b.mtime(), b.mtime_nsec()), "{at}");
    assert_eq!((a.nlink(), a.rdev()), (b.nlink(), b.rdev()), "{at}");
    if a.is_dir() {
        assert_eq!(names(ours), names(theirs), "{at}");
        for name in names(ours) {
            count += same(&ours.join(&name), &theirs.join(&name));
        }
    } else if a.is_symlink() {
        assert_eq!(fs::read_link(ours).unwrap(), fs::read_link(theirs).unwrap());
    } else if a.is_file() {
        assert_eq!(a.len(), b.len(), "{at}");
        assert!(fs::read(ours).unwrap() == fs::read(theirs).unwrap(), "{at}");
    }
    count
}

/// Text that no block is alike.
fn text(len: usize) -> Vec<u8> {
    (0..len / 8 + 1)
        .flat_map(|i| format!("{:07} ", i * 7919 % 999_983).into_bytes())
        .take(len)
        .collect()
}

#[test]
fn a_folder_is_what_it_was() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let dir = place.path("in");
    fs::create_dir_all(dir.join("deep/er")).unwrap();
    fs::write(dir.join("deep/er/file"), text(300_000)).unwrap();
    fs::write(dir.join("empty"), "").unwrap();
    fs::write(dir.join("run"), "#!/bin/sh\necho ran\n").unwrap();
    fs::set_permissions(dir.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::hard_link(dir.join("run"), dir.join("run too")).unwrap();
    std::os::unix::fs::symlink("deep/er/file", dir.join("link")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.join("dangling")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        dir.join("fifo"),
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::from_raw_mode(0o600),
        0,
    )
    .unwrap();
    let mut sparse = fs::File::create(dir.join("sparse")).unwrap();
    sparse.seek(SeekFrom::Start(5_000_000)).unwrap();
    sparse.write_all(b"behind a hole").unwrap();
    drop(sparse);
    for i in 0..3000 {
        fs::write(dir.join("deep").join(format!("{i}.txt")), format!("file {i}")).unwrap();
    }
    let mounted = place.mount(pack(&dir, None), |mount| mount.name("test"));
    let at = place.path("at/in");
    assert_eq!(same(&at, &dir), 3011);
    let ino = |name: &str| fs::metadata(at.join(name)).unwrap().ino();
    assert_eq!(ino("run"), ino("run too"));
    let run = std::process::Command::new(at.join("run")).output().unwrap();
    assert_eq!(run.stdout, b"ran\n");
    // Anywhere in a file, from many threads.
    let (file, bytes) = (fs::File::open(at.join("link")).unwrap(), text(300_000));
    std::thread::scope(|scope| {
        for t in 0..4 {
            let (file, bytes) = (&file, &bytes);
            scope.spawn(move || {
                for i in 0..500 {
                    let (start, mut buf) = ((i * 7907 + t * 31) % 299_000, [0; 1000]);
                    file.read_exact_at(&mut buf, start as u64).unwrap();
                    assert!(buf[..] == bytes[start..start + 1000]);
                }
            });
        }
    });
    assert_eq!(file.read_at(&mut [0; 10], 300_000).unwrap(), 0);
    // Nothing can be changed.
    let refused = |result: std::io::Result<()>| result.unwrap_err().raw_os_error();
    assert_eq!(refused(fs::write(at.join("new"), "")), Some(30));
    assert_eq!(refused(fs::remove_file(at.join("empty"))), Some(30));
    assert_eq!(refused(fs::write(at.join("empty"), "x")), Some(30));
    assert_eq!(refused(fs::read(at.join("none")).map(drop)), Some(2));
    let statfs = rustix::fs::statvfs(&at).unwrap();
    assert_eq!((statfs.f_bfree, statfs.f_files), (0, 3012));
    drop(file);
    mounted.unmount().unwrap();
    assert_eq!(names(&place.path("at")), [""; 0]);
    assert!(place.log.lock().unwrap().is_empty());
}

#[test]
fn items_lie_in_folders_of_a_thousand() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut lines: Vec<String> = (0..2500).map(|i| format!("line {i}\n")).collect();
    let mut writer = Writer::new(Vec::new(), Options::default()).unwrap();
    let stream = lines.concat();
    writer.add_records(&Split::Lines, &mut stream.as_bytes(), &mut |_| Ok(())).unwrap();
    let mounted = place.mount(writer.finish().unwrap(), |mount| mount);
    let at = place.path("at");
    assert_eq!(names(&at), ["content", "records"]);
    assert_eq!(fs::read(at.join("content")).unwrap(), stream.as_bytes());
    assert_eq!(names(&at.join("records")), ["000", "001", "002"]);
    assert_eq!(names(&at.join("records/002")).len(), 500);
    for (i, line) in lines.iter().enumerate() {
        let path = at.join(format!("records/{:03}/{i:06}", i / 1000));
        assert_eq!(fs::read_to_string(path).unwrap(), *line);
    }
    for none in ["003", "2", "000/001000", "002/002500", "000/1", "000/x", "abc"] {
        assert!(!at.join("records").join(none).exists(), "{none}");
    }
    let up = fs::metadata(at.join("records/001/..")).unwrap().ino();
    assert_eq!(up, fs::metadata(at.join("records")).unwrap().ino());
    mounted.unmount().unwrap();
    // Those of files lie beside them; few lie in one folder.
    lines.truncate(20);
    fs::write(place.path("in/a.log"), lines[..10].concat()).unwrap();
    fs::write(place.path("in/b.log"), lines[10..].concat()).unwrap();
    let mounted = place.mount(pack(&place.path("in"), Some(Split::Lines)), |mount| mount);
    assert_eq!(names(&at), ["in", "records"]);
    assert_eq!(fs::read_to_string(at.join("in/b.log")).unwrap(), lines[10..].concat());
    let all = names(&at.join("records"));
    // The lines; not the files, which are found by their names, and not found twice.
    let some = all.iter().map(|name| fs::read_to_string(at.join("records").join(name)).unwrap());
    assert_eq!(some.collect::<Vec<_>>(), lines);
    assert!((0..22).any(|i| !at.join(format!("records/{i:03}")).exists()));
    mounted.unmount().unwrap();
}

#[test]
fn any_archive_is_one_file_where_that_is_asked_for() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut writer = Writer::new(Vec::new(), Options::default()).unwrap();
    let bytes = text(1_000_000);
    writer.add(Entry::data("a"), &mut &bytes[..600_000]).unwrap();
    writer.add(Entry::data("b"), &mut &bytes[600_000..]).unwrap();
    let archive = writer.finish().unwrap();
    let mounted = place.mount(archive.clone(), |mount| mount.plain("all"));
    assert_eq!(names(&place.path("at")), ["all"]);
    assert!(fs::read(place.path("at/all")).unwrap() == bytes);
    mounted.unmount().unwrap();
    let mounted = place.mount(archive, |mount| mount);
    assert_eq!(names(&place.path("at")), ["a", "b"]);
    assert!(fs::read(place.path("at/b")).unwrap() == bytes[600_000..]);
    // Somebody else unmounts it: who waits is told.
    let status = std::process::Command::new("umount").arg(place.path("at")).status().unwrap();
    assert!(status.success());
    mounted.wait().unwrap();
    // Another that is mounted in its place at once stays, whether the first is waited for, unmounted or dropped.
    let archive = pack(&place.path("in"), None);
    type Leave = fn(Mounted);
    let ways: [Leave; 3] = [|m| m.wait().unwrap(), |m| m.unmount().unwrap(), drop];
    for leave in ways {
        let first = place.mount(archive.clone(), |mount| mount);
        let status = std::process::Command::new("umount").arg(place.path("at")).status().unwrap();
        assert!(status.success());
        let other = place.mount(archive.clone(), |mount| mount);
        while !first.is_gone() {
            std::thread::yield_now();
        }
        leave(first);
        assert!(!other.is_gone());
        assert_eq!(names(&place.path("at")), ["in"]);
        other.unmount().unwrap();
    }
    let empty = Writer::new(Vec::new(), Options::default()).unwrap().finish().unwrap();
    let mounted = place.mount(empty, |mount| mount);
    assert_eq!(names(&place.path("at")), [""; 0]);
    mounted.unmount().unwrap();
}

#[test]
fn damage_costs_what_is_damaged_and_is_told() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    fs::write(place.path("in/file"), text(200_000)).unwrap();
    fs::write(place.path("in/other"), text(50_000)).unwrap();
    let mut archive = pack(&place.path("in"), None);
    // A byte of the second block.
    archive[12_000] ^= 1;
    let mounted = place.mount(archive, |mount| mount);
    let mut file = fs::File::open(place.path("at/in/file")).unwrap();
    let error = file.read_to_end(&mut Vec::new()).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(5));
    let lines = place.log.lock().unwrap().clone();
    assert!(
        lines
            .iter()
            .any(|line| line.contains("record #") && line.contains("damaged: stored block"))
    );
    // Behind it, and in other files, all is well.
    let mut buf = vec![0; 1000];
    file.read_exact_at(&mut buf, 190_000).unwrap();
    assert!(buf == text(200_000)[190_000..191_000]);
    assert!(fs::read(place.path("at/in/other")).unwrap() == text(50_000));
    drop(file);
    mounted.unmount().unwrap();
}

#[test]
fn names_that_are_no_paths_are_left_out_and_told() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let mut writer = Writer::new(Vec::new(), Options::default()).unwrap();
    for name in ["../up", "/root", "a//b", "good/../bad", "good/file", ".", "x/.."] {
        writer.add(Entry::data(name), &mut name.as_bytes()).unwrap();
    }
    // What is a file cannot be a folder.
    writer.add(Entry::data("good/file/below"), &mut &b"below"[..]).unwrap();
    writer.add(Entry::data(vec![b'n'; 300]), &mut &b"long"[..]).unwrap();
    let mounted = place.mount(writer.finish().unwrap(), |mount| mount);
    assert_eq!(names(&place.path("at")), ["good"]);
    assert_eq!(fs::read(place.path("at/good/file")).unwrap(), b"good/file");
    assert_eq!(place.log.lock().unwrap().len(), 8);
    mounted.unmount().unwrap();
}

#[test]
fn a_place_where_nothing_can_be_mounted_is_named() {
    if !can_mount() {
        return;
    }
    let place = Place::new();
    let reader = Reader::open(Arc::new(pack(&place.path("in"), None))).unwrap();
    let error = Mount::new(reader).at(place.path("none")).err().unwrap().to_string();
    assert!(error.contains("none"), "{error}");
}
