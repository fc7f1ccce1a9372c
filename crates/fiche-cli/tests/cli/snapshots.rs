//! `fiche volume snapshot` and `fiche volume clone` as people use them.

use crate::place::Place;
use crate::volume::{Served, fails, io, io_of, ok};

#[test]
fn snapshots_are_taken_read_and_deleted_while_a_volume_is_written() {
    let place = Place::new();
    place.ok(&["volume", "create", "disk", "--size", "64M", "--codec", "lz4"]);
    place.ok(&["volume", "snapshot", "take", "disk", "empty"]);
    let server = Served::new(&place, "disk");
    if !io(&place, &["write -P 1 1M 3M", "write -P 2 8M 64K"]) {
        return;
    }
    // Whoever serves it takes it.
    place.ok(&["volume", "snapshot", "take", "disk", "before the change"]);
    io(&place, &["write -P 3 1M 3M", "flush"]);
    fails(
        &place,
        2,
        &["volume", "snapshot", "take", "disk", "empty"],
        "there is a snapshot empty already",
    );
    let list = ok(&place, &["volume", "snapshot", "list", "disk"]);
    let names: Vec<&str> = list.lines().map(|line| line.split("held  ").nth(1).unwrap()).collect();
    assert_eq!(names, ["empty", "before the change"], "{list}");
    // Clients see it as it was, and the volume as it is.
    let old = ["read -P 1 1M 3M", "read -P 2 8M 64K", "read -P 0 0 1M"];
    io_of(&place, "before%20the%20change", &old);
    io_of(&place, "empty", &["read -P 0 0 64M"]);
    io(&place, &["read -P 3 1M 3M"]);
    let export = ["volume", "export", "disk", "old.img", "--snapshot", "before the change"];
    place.ok(&export);
    let image = std::fs::read(place.path("old.img")).unwrap();
    assert!(image.len() == 64 << 20 && image[1 << 20..4 << 20].iter().all(|&byte| byte == 1));
    let printed = place.ok(&["volume", "export", "disk", "-", "--snapshot", "before the change"]);
    assert!(printed == image);
    fails(&place, 2, &["volume", "export", "disk", "x", "--snapshot", "none"], "no snapshot none");
    assert!(!place.path("x").exists());
    fails(&place, 5, &["volume", "snapshot", "restore", "disk", "empty"], "in use");
    let info = ok(&place, &["volume", "info", "--live", "disk", "--json"]);
    assert!(info.contains("\"snapshots\": 2"), "{info}");
    place.ok(&["volume", "snapshot", "delete", "disk", "empty"]);
    fails(&place, 2, &["volume", "snapshot", "delete", "disk", "empty"], "no snapshot empty");
    server.end("-KILL");
    let info = ok(&place, &["volume", "info", "disk"]);
    assert!(info.contains("snapshots before the change\n"), "{info}");
    let checked = ok(&place, &["volume", "check", "disk", "--json"]);
    assert!(checked.contains("\"name\": \"before the change\""), "{checked}");
    place.ok(&["volume", "snapshot", "restore", "disk", "before the change"]);
    place.ok(&["volume", "export", "disk", "now.img"]);
    assert!(std::fs::read(place.path("now.img")).unwrap() == image);
    place.ok(&["volume", "snapshot", "delete", "disk", "before the change"]);
    assert_eq!(ok(&place, &["volume", "snapshot", "list", "disk"]), "");
    place.ok(&["volume", "check", "disk"]);
}

#[test]
fn clones_are_made_written_and_deleted_while_a_volume_is_served() {
    let place = Place::new();
    place.ok(&["volume", "create", "disk.fiche", "--size", "64M"]);
    let clone = |verb: &'static str| vec!["volume", "clone", verb, "disk.fiche"];
    let with = |verb: &'static str, more: &[&'static str]| [&clone(verb)[..], more].concat();
    fails(&place, 2, &with("make", &["none", "trial"]), "there is no snapshot none");
    let served = Served::new(&place, "disk.fiche");
    if !io(&place, &["write -P 1 0 8M", "flush"]) {
        return;
    }
    place.ok(&["volume", "snapshot", "take", "disk.fiche", "monday"]);
    place.ok(&with("make", &["monday", "trial"]));
    fails(&place, 2, &with("make", &["monday", "trial"]), "there is a clone trial already");
    io(&place, &["write -P 2 0 1M"]);
    io_of(&place, "trial", &["write -P 3 1M 1M", "discard 2M 1M", "flush"]);
    io_of(&place, "trial", &["read -P 1 0 1M", "read -P 3 1M 1M", "read -P 0 2M 1M"]);
    io(&place, &["read -P 2 0 1M", "read -P 1 1M 7M"]);
    io_of(&place, "monday", &["read -P 1 0 8M"]);
    fails(
        &place,
        2,
        &["volume", "snapshot", "delete", "disk.fiche", "monday"],
        "the clone trial was made from the snapshot monday",
    );
    let of_clone = ["volume", "snapshot", "take", "disk.fiche", "tried", "--clone", "trial"];
    place.ok(&of_clone);
    place.ok(&with("make", &["tried", "again"]));
    io_of(&place, "again", &["write -P 4 0 1M", "read -P 3 1M 1M", "read -P 4 0 1M", "flush"]);
    io_of(&place, "trial", &["read -P 1 0 1M"]);
    let list = ok(&place, &clone("list"));
    assert!(list.contains("of monday  trial") && list.contains("of tried  again"), "{list}");
    assert!(ok(&place, &["volume", "info", "--live", "disk.fiche"]).contains("clones  2"));
    place.ok(&with("delete", &["trial"]));
    assert!(!ok(&place, &clone("list")).contains("trial"));
    assert_eq!(served.end("-KILL"), None);
    // It is gone, and the other one is there, whole.
    let list = ok(&place, &with("list", &["--json"]));
    assert!(list.contains("\"again\"") && !list.contains("\"trial\""), "{list}");
    place.ok(&["volume", "check", "disk.fiche"]);
    place.ok(&["volume", "export", "-q", "disk.fiche", "again.img", "--clone", "again"]);
    let image = std::fs::read(place.path("again.img")).unwrap();
    let parts = [(0, 4), (1, 3), (2, 0), (3, 1), (8, 0)].map(|(at, byte)| (at << 20, byte));
    assert!(image.len() == 64 << 20);
    assert!(parts.iter().all(|&(at, byte)| image[at..at + (1 << 20)].iter().all(|&b| b == byte)));
    // In the place of the volume itself.
    let serve = ["volume", "serve", "disk.fiche", "--nbd", "./socket", "--clone", "again"];
    let served = Served::with(&place, &serve);
    io(&place, &["read -P 4 0 1M", "write -P 5 0 1M", "flush"]);
    fails(&place, 2, &with("delete", &["again"]), "the clone again is in use");
    assert_eq!(served.end("-TERM"), Some(0));
    place.ok(&with("delete", &["again"]));
    for name in ["monday", "tried"] {
        place.ok(&["volume", "snapshot", "delete", "disk.fiche", name]);
    }
    place.ok(&["volume", "check", "disk.fiche"]);
    place.ok(&["volume", "resize", "disk.fiche", "--size", "80M"]);
}
