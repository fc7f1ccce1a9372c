//! The command with archives by their URLs.

use std::fs;
use std::ops::Deref;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use fiche_remote::testing::{Fault, Server};

use crate::place::Place;

const TAG: Option<&str> = Some("\"one\"");

/// A folder with an archive of some hundred files, which a server has, too.
struct Served {
    place: Place,
    server: Server,
    url: String,
}

impl Deref for Served {
    type Target = Place;

    fn deref(&self) -> &Place {
        &self.place
    }
}

impl Served {
    fn new() -> Served {
        let (place, server) = (Place::new(), Server::start());
        fs::create_dir(place.path("in")).unwrap();
        for i in 0..300 {
            let lines: String = (0..i * 5).map(|n| format!("file {i}, line {n}\n")).collect();
            fs::write(place.path(&format!("in/{i:03}")), lines).unwrap();
        }
        place.ok(&["pack", "in", "-o", "a.fiche"]);
        let url = server.put("a.fiche", fs::read(place.path("a.fiche")).unwrap(), TAG);
        Served { place, server, url }
    }
}

#[test]
fn what_reads_a_file_reads_a_url() {
    let place = Served::new();
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
            .current_dir(place.path(""))
            .status()
            .unwrap()
            .success()
    );
}

#[test]
fn gzip_files_by_their_urls() {
    let place = Served::new();
    let text: String = (0..200_000).map(|n| format!("line {n}\n")).collect();
    fs::write(place.path("log"), &text).unwrap();
    let put = |name: &str| place.server.put(name, fs::read(place.path(name)).unwrap(), TAG);
    // With its index inside: the end, and what is read.
    place.ok(&["gzip", "log", "-o", "inside.gz"]);
    let inside = put("inside.gz");
    let line = ["cat", &inside, "--record", "#150000"];
    assert_eq!(place.ok(&line), b"line 150000\n");
    let asked = place.server.asked();
    assert!(asked.len() <= 3 && asked.iter().all(|(_, range)| range.is_some()), "{asked:?}");
    // Beside it.
    place.ok(&["gzip", "log", "-o", "beside.gz", "--index", "beside"]);
    let beside = put("beside.gz");
    let range = ["cat", &beside, "--range", "1M+7"];
    let error = place.fails(2, &range);
    assert!(error.contains("fiche index"), "{error}");
    put("beside.gz.fidx");
    assert_eq!(place.ok(&range), text.as_bytes()[1 << 20..][..7]);
    assert!(place.ok(&["cat", &beside]) == text.as_bytes());
    assert!(String::from_utf8(place.ok(&["verify", &beside])).unwrap().contains("all right"));
}

#[test]
fn a_record_costs_few_requests_and_on_the_second_day_one() {
    let place = Served::new();
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
    let place = Served::new();
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
    let place = Served::new();
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
