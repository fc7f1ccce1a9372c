//! Events that are added to a file, and what a crash leaves of that.

use crate::*;

#[test]
fn events_are_added_to_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.fiche");
    let mut random = Random(15);
    let batches: Vec<Batch> = (0..6).map(|_| events(&mut random, 3000)).collect();
    let block = Options::default().access(Access::Block).packet(100);
    std::fs::write(&path, write(&tracks(), &batches[..1], block)).unwrap();
    let open = || Reader::open(Arc::new(FileSource::open(&path).unwrap())).unwrap();
    let first = open();
    for batch in &batches[1..] {
        let mut writer = Writer::append(&path, Options::default()).unwrap();
        assert_eq!(writer.schema(), &tracks());
        writer.extend(batch).unwrap();
        writer.finish().unwrap().finish().unwrap();
    }
    // Who opened it before sees what was there.
    assert_eq!(first.len(), 3000);
    assert!(columns(&first.read(0..3000, None).unwrap()) == columns(&batches[0]));
    let reader = open();
    assert_eq!(reader.len(), 18_000);
    for (i, batch) in batches.iter().enumerate() {
        let from = 3000 * i as u64;
        assert!(columns(&reader.read(from..from + 3000, None).unwrap()) == columns(batch));
    }
    // By models that were there, and not much more than all at once.
    let file = std::fs::read(&path).unwrap();
    assert!(models(&file) <= 2, "{} models", models(&file));
    let whole = write(&tracks(), &batches, Options::default().access(Access::Block).packet(100));
    assert!(file.len() < whole.len() + whole.len() / 50 + 4096, "{} {}", file.len(), whole.len());
    // Other schemas are refused, and what is no file of events, and nothing is changed by that.
    let mut writer = Writer::append(&path, Options::default()).unwrap();
    let other = Schema::new(vec![Field::new("run", Number::U64)]).unwrap();
    assert!(matches!(writer.extend(&Batch::new(&other).unwrap()), Err(Error::Invalid { .. })));
    assert!(matches!(Writer::append(&path, Options::default()).map(drop), Err(Error::Busy { .. })));
    drop(writer);
    assert_eq!(std::fs::read(&path).unwrap(), file);
    let text = folder.path().join("text");
    std::fs::write(&text, "a text").unwrap();
    assert!(Writer::append(&text, Options::default()).is_err());
    assert_eq!(std::fs::read(&text).unwrap(), b"a text");
}

#[test]
fn a_cut_off_append_leaves_what_was_there() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.fiche");
    let mut random = Random(16);
    let (old, new) = (events(&mut random, 300), events(&mut random, 200));
    let before = write(&tracks(), std::slice::from_ref(&old), Options::default());
    std::fs::write(&path, &before).unwrap();
    let mut writer = Writer::append(&path, Options::default()).unwrap();
    writer.extend(&new).unwrap();
    // What a crash leaves, with the guard that is set while it lasts.
    let guarded = std::fs::read(&path).unwrap();
    assert!(guarded.len() >= before.len() && guarded[..32] != before[..32]);
    writer.finish().unwrap().finish().unwrap();
    let whole = std::fs::read(&path).unwrap();
    assert_eq!(whole[..32], before[..32]);
    for cut in before.len()..whole.len() {
        let crashed = [&guarded[..32], &whole[32..cut]].concat();
        let reader = Reader::open(Arc::new(crashed)).unwrap();
        assert_eq!(reader.len(), 300, "{cut}");
    }
    // With its trailer it was not cut off: damage of the new footer is told.
    let mut bad = [&guarded[..32], &whole[32..]].concat();
    assert_eq!(Reader::open(Arc::new(bad.clone())).unwrap().len(), 500);
    let at = bad.len() - 40;
    bad[at] ^= 1;
    assert!(matches!(Reader::open(Arc::new(bad)).map(drop), Err(Error::Corrupt { .. })));
    // The next to append begins where the old file ends.
    let cut = before.len() + (whole.len() - before.len()) / 2;
    std::fs::write(&path, [&guarded[..32], &whole[32..cut]].concat()).unwrap();
    let mut writer = Writer::append(&path, Options::default()).unwrap();
    writer.extend(&new).unwrap();
    writer.finish().unwrap().finish().unwrap();
    assert!(std::fs::read(&path).unwrap() == whole);
    // And one that is given up leaves the file as it was.
    let mut writer = Writer::append(&path, Options::default()).unwrap();
    writer.extend(&new).unwrap();
    drop(writer.finish().unwrap());
    assert!(std::fs::read(&path).unwrap() == whole);
}

#[test]
fn texts_that_are_the_same_or_empty_are_added_to() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log.fiche");
    let names = ["one", "two", "none"];
    let schema =
        Schema::new(names.iter().map(|name| Field::new(*name, Type::Text)).collect()).unwrap();
    let mut random = Random(25);
    let mut lines = Vec::new();
    let mut batch = |count: usize| {
        let mut batch = Batch::new(&schema).unwrap();
        for _ in 0..count {
            let line = format!("user {} opened file {}", random.below(9), random.below(400));
            batch.put_texts(0, &[&line]).unwrap();
            batch.put_texts(2, &[&line]).unwrap();
            batch.put_texts(4, &[""]).unwrap();
            lines.push(line);
        }
        batch
    };
    std::fs::write(&path, write(&schema, &[batch(40_000)], Options::default())).unwrap();
    for _ in 0..3 {
        let mut writer = Writer::append(&path, Options::default()).unwrap();
        writer.extend(&batch(2000)).unwrap();
        writer.finish().unwrap().finish().unwrap();
    }
    let file = std::fs::read(&path).unwrap();
    // Both columns are told by the same words still.
    assert_eq!(models(&file), 1);
    let reader = Reader::open(Arc::new(file)).unwrap();
    for number in (0..46_000).step_by(777) {
        let event = reader.event(number).unwrap();
        for column in [1, 3] {
            assert!(event.values::<u8>(column).eq(lines[number as usize].bytes()));
        }
        assert_eq!(event.bits(5).len(), 0);
    }
}

#[test]
fn what_was_replaced_meanwhile_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("log.fiche"), folder.path().join("link.fiche"));
    let mut random = Random(26);
    let (old, new) = (events(&mut random, 300), events(&mut random, 200));
    let before = write(&tracks(), std::slice::from_ref(&old), Options::default());
    std::fs::write(&path, &before).unwrap();
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let add = |path: &std::path::Path| {
        let mut writer = Writer::append(path, Options::default()).unwrap();
        writer.extend(&new).unwrap();
        writer.finish().unwrap()
    };
    add(&link).finish().unwrap();
    let longer = std::fs::read(&path).unwrap();
    assert_eq!(Reader::open(Arc::new(longer.clone())).unwrap().len(), 500);
    let held = std::fs::File::open(&path).unwrap();
    for is_removed in [false, true] {
        let appending = add(&path);
        match is_removed {
            true => std::fs::remove_file(&path).unwrap(),
            false => {
                let other = folder.path().join("other.fiche");
                std::fs::write(&other, &before).unwrap();
                std::fs::rename(&other, &path).unwrap();
            }
        }
        let error = appending.finish().unwrap_err();
        assert!(matches!(error, Error::Invalid { .. } | Error::Io { .. }), "{error}");
        // Neither file has what was added.
        let mut was = vec![0; held.metadata().unwrap().len() as usize];
        std::os::unix::fs::FileExt::read_exact_at(&held, &mut was, 0).unwrap();
        assert!(was == longer);
        assert!(is_removed || std::fs::read(&path).unwrap() == before);
    }
}
