//! The floors of the library: a module uses only what lies below it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// From the ground up. Modules of one floor do not use one another.
const FLOORS: [&[&str]; 10] = [
    &["wire", "error", "processor"],
    &["elias_fano", "pages", "parallel", "random", "cache", "io", "lock", "memory", "new_file"],
    &["codec", "model"],
    &["envelope"],
    &["blocks", "in_place", "phrases", "records", "rlz"],
    &["archive", "events", "streams", "volume"],
    &["advise"],
    &["testing"],
    &["format"],
    &["lib"],
];

/// Two that must know each other: an error names a digest, and reading integers fails.
const TOGETHER: [(&str, &str); 2] = [("wire", "error"), ("error", "wire")];

fn files(folder: &Path, found: &mut Vec<PathBuf>) {
    for item in std::fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        if path.is_dir() {
            files(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

/// Every module that a line leads to by `crate::NAME`.
fn mentioned(line: &str) -> Vec<String> {
    let name = |rest: &str| rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
    line.split("crate::").skip(1).map(name).collect()
}

fn arrows() -> Vec<(String, String, String)> {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&src, &mut found);
    let mut arrows = Vec::new();
    for path in found {
        let inside = path.strip_prefix(&src).unwrap().with_extension("");
        let module = inside.components().next().unwrap().as_os_str().to_string_lossy().into_owned();
        let mut in_tests = false;
        for (i, line) in std::fs::read_to_string(&path).unwrap().lines().enumerate() {
            in_tests |= line == "#[cfg(test)]";
            if line.trim_start().starts_with("//") {
                continue;
            }
            for target in mentioned(line) {
                // Tests may take their input from there.
                if in_tests && target == "testing" {
                    continue;
                }
                arrows.push((module.clone(), target, format!("{}:{}", inside.display(), i + 1)));
            }
        }
    }
    arrows
}

#[test]
fn no_module_uses_one_of_its_own_floor_or_above() {
    let floor: BTreeMap<&str, usize> = FLOORS
        .iter()
        .enumerate()
        .flat_map(|(i, names)| names.iter().map(move |n| (*n, i)))
        .collect();
    let arrows = arrows();
    assert!(arrows.len() > 50, "only {} uses were found: is this test blind?", arrows.len());
    for (from, to, at) in arrows {
        // Types re-exported at the crate's root.
        if from == to || to.chars().next().is_some_and(char::is_uppercase) {
            continue;
        }
        let level =
            |name: &str| *floor.get(name).unwrap_or_else(|| panic!("{at}: {name} has no floor"));
        let together = TOGETHER.contains(&(from.as_str(), to.as_str()));
        // io is used by the floor it stands on only for `into_io` and `within`.
        assert!(together || level(&to) < level(&from), "{at}: {from} must not use {to}");
    }
}

#[test]
fn integers_become_bytes_in_one_file_only() {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    files(&src, &mut found);
    for path in found {
        let text = std::fs::read_to_string(&path).unwrap();
        let inside = path.strip_prefix(&src).unwrap().to_string_lossy().into_owned();
        for bad in ["from_le_bytes", "from_be_bytes", "from_ne_bytes", "to_be_bytes", "to_ne_bytes"]
        {
            assert!(inside == "wire.rs" || !text.contains(bad), "{inside} uses {bad}");
        }
    }
}
