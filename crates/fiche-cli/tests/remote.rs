//! The command with archives by their URLs.
#![cfg(feature = "remote")]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use fiche_remote::testing::{Fault, Server};

const TAG: Option<&str> = Some("\"one\"");

/// A folder with an archive of some hundred files, which a server has, too.
struct Place {
    folder: tempfile::TempDir,
    server: Server,
    url: String,
}

impl Place {
    fn new() -> Place {
        let (folder, server) = (tempfile::tempdir().unwrap(), Server::start());
        let mut place = Place { folder, server, url: String::new() };
        fs::create_dir(place.path("in")).unwrap();
        for i in 0..300 {
            let lines: String = (0..i * 5).map(|n| format!("file {i}, line {n}\n")).collect();
            fs::write(place.path(&format!("in/{i:03}")), lines).unwrap();
        }
        assert!(place.run(&["pack", "in", "-o", "a.fiche"]).status.success());
        place.url = place.server.put("a.fiche", fs::read(place.path("a.fiche")).unwrap(), TAG);
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_fiche"));
        command.args(args).current_dir(self.folder.path()).stdin(Stdio::null());
        command.env_remove("FICHE_CACHE");
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn ok(&self, args: &[&str]) -> Vec<u8> {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        output.stdout
    }

    fn fails(&self, code: i32, args: &[&str]) -> String {
        let output = self.run(args);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {error}");
        assert!(!error.contains("panicked"), "{error}");
        error
    }
}

#[test]
fn what_reads_a_file_reads_a_url() {
    let place = Place::new();
    let url = place.url.as_str();
    let same = |args: &[&str]| {
        let local: Vec<&str> =
            args.iter().map(|arg| if *arg == url { "a.fiche" } else { arg }).collect();
        let (far, near) = (place.ok(args), place.ok(&local));
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().replace(url, "a.fiche");
        assert_eq!(text(far), text(near), "{args:?}");
    };
    same(&["cat", url]);
    same(&["cat", url, "--record", "in/100", "--record", "#7", "--range", "10+20"]);
    // What the first request brought is not fetched again.
    let plan =
        |file| String::from_utf8(place.ok(&["cat", file, "--record", "in/200", "--plan"])).unwrap();
    let (far, near) = (plan(url), plan("a.fiche"));
    assert!(
        !far.is_empty() && far.len() < near.len() && far.lines().all(|line| near.contains(line))
    );
    same(&["info", url, "--json"]);
    same(&["ls", url, "--long"]);
    same(&["verify", url]);
    place.ok(&["unpack", url, "-o", "out"]);
    assert!(
        Command::new("diff")
            .args(["-r", "in", "out/in"])
            .current_dir(place.folder.path())
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn a_record_costs_few_requests_and_on_the_second_day_one() {
    let place = Place::new();
    let cat = ["cat", &place.url, "--record", "in/299"];
    let expected = fs::read(place.path("in/299")).unwrap();
    assert_eq!(place.ok(&cat), expected);
    let asked = place.server.asked();
    assert!(asked.len() <= 4 && asked.iter().all(|(_, range)| range.is_some()), "{asked:?}");
    for requests in [4, 1, 1] {
        let output = place.command(&cat).env("FICHE_CACHE", "kept").output().unwrap();
        assert_eq!(output.stdout, expected);
        assert!(place.server.asked().len() <= requests);
    }
}

#[test]
fn what_is_wrong_is_said_in_a_line() {
    let place = Place::new();
    let url = &place.url;
    let error = place.fails(5, &["cat", &format!("{url}-not?token=secret")]);
    assert_eq!(error, format!("fiche: {url}-not: there is no such object\n"));
    let error = place.fails(2, &["cat", url, "--record", "in/none"]);
    assert_eq!(error.lines().count(), 1, "{error}");
    let error = place.fails(2, &["ls", "gopher://example.org/a"]);
    assert!(error.contains("neither as a web server nor as S3"), "{error}");
    assert!(place.fails(2, &["append", url, "in"]).contains("an object is never changed"));
    let bytes = fs::read(place.path("a.fiche")).unwrap();
    let cut = place.server.put("cut.fiche", bytes[..bytes.len() - 10].to_vec(), TAG);
    place.fails(3, &["info", &cut]);
    place.server.fault(Fault::IgnoresRange);
    let error = place.fails(2, &["cat", url]);
    assert!(error.contains("does not give out parts of files; download it first"), "{error}");
}

#[test]
fn who_waits_for_a_server_can_stop() {
    let place = Place::new();
    place.server.delay(Duration::from_secs(60));
    let mut child = place.command(&["cat", &place.url]).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(500));
    let begun = Instant::now();
    assert!(
        Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success()
    );
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(begun.elapsed() < Duration::from_secs(10));
}
