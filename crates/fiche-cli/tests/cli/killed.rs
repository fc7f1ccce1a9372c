//! What is on a volume when its server was killed: file systems and databases.

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::place::Place;
use crate::volume::{Served, runs};

/// A volume as a disk of the kernel's that has ext4 on it and is mounted at `at`.
struct Disk<'a> {
    place: &'a Place,
    server: Option<Served>,
    device: String,
}

impl<'a> Disk<'a> {
    /// `None`, and said so, where there can be none.
    fn new(place: &'a Place) -> Option<Disk<'a>> {
        if !std::path::Path::new("/dev/fuse").exists() {
            println!("SKIP: mounting: no /dev/fuse");
            return None;
        }
        for name in ["fuse", "at"] {
            std::fs::create_dir(place.path(name)).unwrap();
        }
        place.ok(&["volume", "create", "disk", "--size", "512M"]);
        let mut disk = Disk { place, server: None, device: String::new() };
        disk.serve();
        if disk.device.is_empty() {
            println!("SKIP: losetup cannot make a disk here");
            return None;
        }
        if !runs("mkfs.ext4", &["-q", &disk.device]) {
            println!("SKIP: mkfs.ext4 is not there");
            return None;
        }
        disk.mount();
        Some(disk)
    }

    fn path(&self, name: &str) -> String {
        self.place.path(name).to_str().unwrap().to_owned()
    }

    fn serve(&mut self) {
        let args = ["volume", "serve", "disk", "--fuse", "fuse", "--loop"];
        let mut command = self.place.command(&args);
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (mut device, out) = (String::new(), child.stdout.take().unwrap());
        BufReader::new(out).read_line(&mut device).unwrap();
        (self.server, self.device) = (Some(Served(child)), device.trim().to_owned());
    }

    fn mount(&self) {
        assert!(runs("mount", &[&self.device, &self.path("at")]));
    }

    /// Ends the server without a word while the file system is mounted.
    fn kill(&mut self) {
        self.server.take().unwrap().end("-KILL");
    }

    /// Takes away what is left of it.
    fn take_away(&self) {
        let _ = runs("umount", &["-l", &self.path("at")]);
        let _ = runs("losetup", &["-d", &self.device]);
        assert!(runs("umount", &["-l", &self.path("fuse")]));
    }

    /// After that: what the volume says of itself, and what e2fsck says of the file system, which is mounted again.
    fn recover(&mut self) {
        self.take_away();
        self.place.ok(&["volume", "check", "disk"]);
        self.serve();
        // 1: the journal was played back.
        let checked = Command::new("e2fsck").args(["-p", &self.device]).output().unwrap();
        assert!(matches!(checked.status.code(), Some(0 | 1)), "{checked:?}");
        self.mount();
    }
}

impl Drop for Disk<'_> {
    fn drop(&mut self) {
        if self.server.is_some() {
            self.kill();
            self.take_away();
        }
    }
}

/// How often a server is killed: `FICHE_KILLS` asks for others.
fn kills(few: usize) -> usize {
    std::env::var("FICHE_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(few)
}

#[test]
fn a_file_system_is_whole_when_its_server_was_killed() {
    let place = Place::new();
    let Some(mut disk) = Disk::new(&place) else { return };
    let at = disk.path("at");
    let text: String = (0..100_000).map(|i| format!("line {i} of a file\n")).collect();
    for round in 0..kills(3) {
        // Eight of them: the disk is not to become full.
        for i in round.saturating_sub(8)..round {
            let kept = std::fs::read_to_string(format!("{at}/kept{i}")).unwrap();
            assert!(kept == text, "round {round}: kept{i}");
        }
        let kept = format!("{at}/kept{round}");
        std::fs::write(&kept, &text).unwrap();
        std::fs::File::open(&kept).unwrap().sync_all().unwrap();
        let _ = std::fs::remove_file(format!("{at}/kept{}", round.wrapping_sub(9)));
        std::fs::File::open(&at).unwrap().sync_all().unwrap();
        std::fs::write(format!("{at}/lost"), &text).unwrap();
        disk.kill();
        disk.recover();
    }
}

#[test]
fn what_sqlite_committed_is_there_when_the_server_was_killed() {
    let place = Place::new();
    if Command::new("sqlite3").arg("--version").output().is_err() {
        println!("SKIP: sqlite3 is not there");
        return;
    }
    let Some(mut disk) = Disk::new(&place) else { return };
    let file = format!("{}/db", disk.path("at"));
    let ask = |sql: &str| {
        let output = Command::new("sqlite3").args([&file, sql]).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    ask("PRAGMA journal_mode = WAL; CREATE TABLE t (n INTEGER PRIMARY KEY, x BLOB);");
    let mut committed = 0;
    for round in 0..kills(3) {
        let mut child = Command::new("sqlite3")
            .arg(&file)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let asking = std::thread::spawn(move || {
            let _ = writeln!(input, "PRAGMA synchronous = FULL;");
            for n in committed + 1..committed + 100_000 {
                // Each is a transaction of its own, and said when it is committed.
                let insert = format!("INSERT INTO t VALUES ({n}, randomblob({}));", n * 37 % 9000);
                if writeln!(input, "{insert} SELECT {n};").is_err() {
                    return;
                }
            }
        });
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
        let enough = committed + 40 + round as u64 * 7 % 60;
        while committed < enough {
            committed = told.next().expect("sqlite3 ended").unwrap().parse().unwrap();
        }
        disk.kill();
        // What it said until it noticed.
        committed =
            told.map_while(Result::ok).filter_map(|n| n.parse().ok()).fold(committed, u64::max);
        let _ = child.kill();
        let _ = child.wait();
        asking.join().unwrap();
        disk.recover();
        assert_eq!(ask("PRAGMA integrity_check;"), "ok", "round {round}");
        let found = ask("SELECT count(*), max(n) FROM t;");
        let (count, last) = found.split_once('|').unwrap();
        assert_eq!(count, last, "round {round}: rows are missing");
        let last: u64 = last.parse().unwrap();
        assert!(last >= committed, "round {round}: {committed} were committed, {last} are there");
        committed = last;
    }
}

#[test]
fn what_postgresql_committed_is_there_when_the_server_was_killed() {
    let place = Place::new();
    let folders = std::fs::read_dir("/usr/lib/postgresql").ok();
    let bin = folders.and_then(|mut f| f.next()?.ok()).map(|version| version.path().join("bin"));
    let Some(bin) = bin.filter(|bin| bin.join("initdb").exists()) else {
        println!("SKIP: PostgreSQL is not there");
        return;
    };
    let Some(mut disk) = Disk::new(&place) else { return };
    let (data, sockets) = (format!("{}/data", disk.path("at")), disk.path("sockets"));
    // It does not run as root.
    let user = ["--reuid=65534", "--regid=65534", "--clear-groups"];
    let run = |program: &str, args: &[&str]| {
        let mut command = Command::new("setpriv");
        command.args(user).arg(bin.join(program)).args(args).env("PGHOST", &sockets);
        command.env("LC_ALL", "C").current_dir("/");
        command
    };
    let chown = |path: &str| assert!(runs("chown", &["65534:65534", path]));
    // Whoever runs as somebody else has to come by.
    assert!(runs("chmod", &["a+x", place.path(".").to_str().unwrap()]));
    for folder in [&data, &sockets] {
        std::fs::create_dir(folder).unwrap();
        chown(folder);
    }
    let made = run("initdb", &["-D", &data, "-A", "trust", "-U", "postgres"]).output().unwrap();
    assert!(made.status.success(), "{made:?}");
    let options = format!("-k {sockets} -c listen_addresses=''");
    let start = || {
        let log = format!("{sockets}/log");
        let args = ["-D", &data, "-o", &options, "-l", &log, "-w", "-t", "60", "start"];
        let started = run("pg_ctl", &args).output().unwrap();
        let log = || std::fs::read_to_string(&log).unwrap_or_default();
        if started.status.success() { Ok(()) } else { Err(format!("{started:?} {}", log())) }
    };
    let ask = |sql: &str| {
        let args = ["-U", "postgres", "-Atq", "-v", "ON_ERROR_STOP=1", "-c", sql];
        let output = run("psql", &args).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    start().unwrap();
    ask("CREATE TABLE t (n bigint PRIMARY KEY, x text)");
    let mut committed = 0;
    for round in 0..kills(2).min(50) {
        let mut child = run("psql", &["-U", "postgres", "-Atq"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let asking = std::thread::spawn(move || {
            for n in committed + 1..committed + 100_000 {
                let text = format!("repeat(md5('{n}'), {})", n * 37 % 200);
                let insert = format!("INSERT INTO t VALUES ({n}, {text}) RETURNING n;");
                if writeln!(input, "{insert}").is_err() {
                    return;
                }
            }
        });
        let mut told = BufReader::new(child.stdout.take().unwrap()).lines();
        let enough = committed + 100 + round as u64 * 7 % 60;
        while committed < enough {
            committed = told.next().expect("psql ended").unwrap().parse().unwrap();
        }
        let pid = std::fs::read_to_string(format!("{data}/postmaster.pid")).unwrap();
        disk.kill();
        let _ = runs("kill", &["-KILL", pid.lines().next().unwrap()]);
        committed =
            told.map_while(Result::ok).filter_map(|n| n.parse().ok()).fold(committed, u64::max);
        let _ = child.kill();
        let _ = child.wait();
        asking.join().unwrap();
        disk.recover();
        for old in [format!("{data}/postmaster.pid"), format!("{sockets}/.s.PGSQL.5432.lock")] {
            let _ = std::fs::remove_file(old);
        }
        // Its other processes notice that their head is gone, and take a moment to end.
        let mut started = start();
        for _ in 0..20 {
            if started.is_err() {
                std::thread::sleep(Duration::from_millis(300));
                started = start();
            }
        }
        started.unwrap_or_else(|why| panic!("round {round}: {why}"));
        let found = ask(
            "SELECT count(*), max(n), sum((x = repeat(md5(n::text), (n * 37 % 200)::int))::int) FROM t",
        );
        let numbers: Vec<u64> = found.split('|').map(|n| n.parse().unwrap()).collect();
        assert!(numbers.iter().all(|&n| n == numbers[0]), "round {round}: {found}");
        assert!(numbers[0] >= committed, "round {round}: {committed} were committed: {found}");
        committed = numbers[0];
        for sql in ["REINDEX TABLE t", "VACUUM t", "CHECKPOINT"] {
            ask(sql);
        }
    }
    let _ = run("pg_ctl", &["-D", &data, "-m", "immediate", "stop"]).output();
}
