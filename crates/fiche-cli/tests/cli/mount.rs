//! `fiche mount` as people use it.

use std::fs;
use std::ops::Deref;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::place::Place;

/// A folder with an archive of two files, and one to mount it at; unmounted at the end.
struct Mounted(Place);

impl Deref for Mounted {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.0
    }
}

impl Mounted {
    /// `None`, and said so, where nothing can be mounted.
    fn new() -> Option<Mounted> {
        if !Path::new("/dev/fuse").exists() {
            println!("SKIP: mounting: no /dev/fuse");
            return None;
        }
        let place = Mounted(Place::new());
        fs::create_dir(place.path("at")).unwrap();
        fs::create_dir(place.path("in")).unwrap();
        let text: String = (0..20_000).map(|i| format!("line {i}\n")).collect();
        fs::write(place.path("in/lines"), text).unwrap();
        fs::write(place.path("in/short"), "short\n").unwrap();
        place.ok(&["pack", "in", "-o", "a.fiche", "--method", "lz4"]);
        Some(place)
    }

    fn names(&self) -> Vec<String> {
        let list = fs::read_dir(self.path("at")).unwrap();
        list.map(|item| item.unwrap().file_name().to_string_lossy().into_owned()).collect()
    }

    fn unmount(&self) {
        assert!(Command::new("umount").arg(self.path("at")).status().unwrap().success());
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.path("at")).stderr(Stdio::null()).status();
    }
}

fn until(what: &str, done: impl Fn() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn signal(child: &Child, name: &str) {
    let id = child.id().to_string();
    assert!(Command::new("kill").args([name, &id]).status().unwrap().success());
}

#[test]
fn files_are_there_when_the_command_returns_and_until_they_are_unmounted() {
    let Some(place) = Mounted::new() else { return };
    let done = place.run(&["mount", "a.fiche", "at"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert!(done.stdout.is_empty() && done.stderr.is_empty());
    assert_eq!(place.names(), ["in"]);
    let grep = Command::new("grep").args(["-rh", "line 19999"]).arg(place.path("at")).output();
    assert_eq!(grep.unwrap().stdout, b"line 19999\n");
    place.unmount();
    assert!(place.names().is_empty());
    let done = place.run(&["mount", "--plain", "--threads", "1", "a.fiche", "at"]);
    assert!(done.status.success());
    assert_eq!(place.names(), ["a"]);
    let all = [fs::read(place.path("in/lines")).unwrap(), b"short\n".to_vec()].concat();
    assert!(fs::read(place.path("at/a")).unwrap() == all);
}

#[test]
fn a_gzip_file_is_mounted_as_what_it_holds() {
    let Some(place) = Mounted::new() else { return };
    place.ok(&["gzip", "in/lines", "-o", "lines.gz"]);
    let done = place.run(&["mount", "lines.gz", "at"]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    assert_eq!(place.names(), ["lines"]);
    let all = fs::read(place.path("in/lines")).unwrap();
    assert!(fs::read(place.path("at/lines")).unwrap() == all);
    let tail = Command::new("tail").args(["-c", "100"]).arg(place.path("at/lines")).output();
    assert_eq!(tail.unwrap().stdout, all[all.len() - 100..]);
}

#[test]
fn in_the_foreground_a_signal_unmounts_it() {
    let Some(place) = Mounted::new() else { return };
    for name in ["-INT", "-TERM"] {
        let mut child = place.command(&["mount", "--foreground", "a.fiche", "at"]).spawn().unwrap();
        until("it is not mounted", || place.names() == ["in"]);
        signal(&child, name);
        assert!(child.wait().unwrap().success());
        assert!(place.names().is_empty());
    }
    // Somebody else unmounts it.
    let mut child = place.command(&["mount", "--foreground", "a.fiche", "at"]).spawn().unwrap();
    until("it is not mounted", || place.names() == ["in"]);
    place.unmount();
    assert!(child.wait().unwrap().success());
}

#[test]
fn damage_is_in_the_log() {
    let Some(place) = Mounted::new() else { return };
    let mut archive = fs::read(place.path("a.fiche")).unwrap();
    archive[5000] ^= 1;
    fs::write(place.path("a.fiche"), archive).unwrap();
    assert!(place.run(&["mount", "--log", "log", "a.fiche", "at"]).status.success());
    assert_eq!(fs::read(place.path("at/in/lines")).unwrap_err().raw_os_error(), Some(5));
    let log = fs::read_to_string(place.path("log")).unwrap();
    assert!(log.contains("record #1") && log.contains("damaged: stored block"), "{log}");
    assert_eq!(fs::read(place.path("at/in/short")).unwrap(), b"short\n");
}

#[test]
fn what_cannot_be_mounted_is_said() {
    let Some(place) = Mounted::new() else { return };
    fs::write(place.path("none.fiche"), "no archive").unwrap();
    for (code, args, what) in [
        (5, ["mount", "missing.fiche", "at"], "missing.fiche"),
        (2, ["mount", "none.fiche", "at"], "none.fiche"),
        (5, ["mount", "a.fiche", "missing"], "missing"),
        (5, ["mount", "a.fiche", "a.fiche"], "a.fiche"),
    ] {
        let done = place.run(&args);
        let error = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(code), "{args:?}: {error}");
        assert!(error.contains(what) && error.lines().count() == 1, "{args:?}: {error}");
    }
    assert!(place.names().is_empty());
}
