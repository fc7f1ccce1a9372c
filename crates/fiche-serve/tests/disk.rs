//! Volumes as disks of the kernel's: file systems on a loop device on the file that FUSE shows.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};

use fiche::volume::{FileDevice, Options, Volume};
use fiche::{ReadAt, WriteAt};
use fiche_serve::{Disk, Mounted};

/// One at a time: a process that one test begins has, for a moment, what the other has open, and then that cannot be
/// unmounted.
static ALONE: Mutex<()> = Mutex::new(());

/// Runs a program that must succeed; gives what it prints.
#[track_caller]
fn run(program: &str, args: &[&str]) -> String {
    let output = Command::new(program).args(args).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said).into_owned();
    assert!(output.status.success(), "{program} {args:?}: {said}");
    said
}

fn is_there(program: &str) -> bool {
    let is_there = Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        println!("SKIP: {program} is not there");
    }
    is_there
}

/// A volume that is mounted as a file; unmounted at the end.
struct Place {
    folder: tempfile::TempDir,
    volume: Arc<Volume>,
    mounted: Option<Mounted>,
    device: Option<String>,
}

impl Place {
    /// `None`, and said so, where there can be none.
    fn new(len: u64) -> Option<Place> {
        if !Path::new("/dev/fuse").exists() {
            println!("SKIP: mounting: no /dev/fuse");
            return None;
        }
        let folder = tempfile::tempdir().unwrap();
        let device = FileDevice::create(folder.path().join("volume")).unwrap();
        let volume = Arc::new(Volume::create(device, Options::new(len)).unwrap());
        ["fuse", "at"]
            .iter()
            .for_each(|name| std::fs::create_dir(folder.path().join(name)).unwrap());
        let mounted = Disk::new(volume.clone()).at(folder.path().join("fuse")).unwrap();
        Some(Place { folder, volume, mounted: Some(mounted), device: None })
    }

    fn disk(&self) -> PathBuf {
        self.folder.path().join("fuse/disk")
    }

    fn at(&self) -> String {
        self.folder.path().join("at").display().to_string()
    }

    /// Lets the kernel make a disk of it; false, and said so, where it cannot.
    fn attach(&mut self, direct: bool) -> bool {
        let disk = self.disk();
        let direct = format!("--direct-io={}", if direct { "on" } else { "off" });
        let args = ["--find", "--show", &direct, disk.to_str().unwrap()];
        match Command::new("losetup").args(args).output() {
            Ok(output) if output.status.success() => {
                let name = String::from_utf8_lossy(&output.stdout).trim().to_owned();
                self.device = Some(name);
                true
            }
            _ => {
                println!("SKIP: losetup cannot make a disk here");
                false
            }
        }
    }

    fn detach(&mut self) {
        if let Some(device) = self.device.take() {
            run("losetup", &["-d", &device]);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.at()).output();
        if let Some(device) = self.device.take() {
            let _ = Command::new("losetup").args(["-d", &device]).output();
        }
        if let Some(mounted) = self.mounted.take() {
            let _ = mounted.unmount();
        }
    }
}

#[test]
fn the_file_is_written_flushed_and_punched_like_any_other() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut place) = Place::new(64 << 20) else { return };
    let disk = place.disk();
    let file = std::fs::File::options().read(true).write(true).open(&disk).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 64 << 20);
    let text: Vec<u8> = (0..300_000u32).flat_map(|i| i.to_le_bytes()).collect();
    std::os::unix::fs::FileExt::write_all_at(&file, &text, 12_345).unwrap();
    file.sync_data().unwrap();
    let mut piece = vec![0; text.len()];
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut piece, 12_345).unwrap();
    assert!(piece == text);
    place.volume.read_at(12_345, &mut piece).unwrap();
    assert!(piece == text);
    let flags = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, flags, 20_000, 100_000).unwrap();
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut piece, 12_345).unwrap();
    let hole = 20_000 - 12_345..120_000 - 12_345;
    assert!(piece[hole.clone()].iter().all(|&byte| byte == 0));
    assert!(piece[..hole.start] == text[..hole.start] && piece[hole.end..] == text[hole.end..]);
    // It is as long as it is.
    assert!(file.set_len(1 << 20).is_err());
    assert!(std::os::unix::fs::FileExt::write_all_at(&file, b"beyond", 64 << 20).is_err());
    assert!(std::fs::File::create(disk.with_file_name("other")).is_err());
    drop(file);
    place.mounted.take().unwrap().unmount().unwrap();
    assert!(place.volume.check().unwrap().is_whole());
}

#[test]
fn file_systems_keep_a_tree_give_back_what_is_deleted_and_are_whole() {
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let systems: [(&str, &[&str], &str, &[&str]); 3] = [
        ("mkfs.ext4", &["-q"], "e2fsck", &["-f", "-n"]),
        ("mkfs.xfs", &["-q"], "xfs_repair", &["-n"]),
        ("mkfs.btrfs", &["-q"], "btrfs", &["check"]),
    ];
    for (make, options, check, how) in systems {
        if !is_there(make) {
            continue;
        }
        for direct in [false, true] {
            let Some(mut place) = Place::new(512 << 20) else { return };
            if !place.attach(direct) {
                return;
            }
            let (device, at) = (place.device.clone().unwrap(), place.at());
            let made = Command::new(make).args(options).arg(&device).output().unwrap();
            let said = String::from_utf8_lossy(&made.stderr).trim().to_owned();
            // It looks at all that is mounted on this machine, and gives up where a server of others is gone.
            if said.contains("cannot check mount status") {
                println!("SKIP: {make}: {said}");
                continue;
            }
            assert!(made.status.success(), "{make}: {said}");
            let mounted = Command::new("mount").args([&device, &at]).output().unwrap();
            if !mounted.status.success() {
                println!("SKIP: {make}: {}", String::from_utf8_lossy(&mounted.stderr).trim());
                continue;
            }
            let tree = concat!(env!("CARGO_MANIFEST_DIR"), "/../fiche/src");
            run("cp", &["-a", tree, &format!("{at}/a")]);
            run("cp", &["-a", tree, &format!("{at}/b")]);
            let big = format!("{at}/big");
            let text: Vec<u8> = (0..8_000_000u32).flat_map(|i| (i / 3).to_le_bytes()).collect();
            std::fs::write(&big, &text).unwrap();
            run("sync", &["-f", &at]);
            run("umount", &[&at]);
            run("mount", &[&device, &at]);
            run("diff", &["-r", tree, &format!("{at}/a")]);
            run("diff", &["-r", tree, &format!("{at}/b")]);
            assert!(std::fs::read(&big).unwrap() == text);
            let before = place.volume.check().unwrap();
            std::fs::remove_file(&big).unwrap();
            // File systems give up what was deleted in their own time.
            let mut after = before.clone();
            for _ in 0..50 {
                run("sync", &["-f", &at]);
                run("fstrim", &[&at]);
                after = place.volume.check().unwrap();
                if after.blocks + 7000 < before.blocks {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(200));
            }
            assert!(before.is_whole() && after.is_whole(), "{before:?} {after:?}");
            assert!(after.blocks + 7000 < before.blocks, "{make}: {before:?} {after:?}");
            run("umount", &[&at]);
            run(check, &[how, &[&device]].concat());
            place.detach();
            place.mounted.take().unwrap().unmount().unwrap();
            place.volume.flush().unwrap();
        }
    }
}
