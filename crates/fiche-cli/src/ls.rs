//! `fiche ls`

use std::ffi::OsString;
use std::io::{BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use fiche::archive::{Entry, Kind};
use serde_json::{Value, json};

use crate::input;
use crate::ui::{Failed, one_line};

/// List the records of an archive, with their sizes
///
/// Names are printed on one line each: what is no plain text in them is escaped.
#[derive(clap::Args)]
pub struct Args {
    /// The archive
    file: PathBuf,
    /// Only these records, and what is below those that are folders
    path: Vec<OsString>,
    /// Only records of which a name starts with this: goes straight to them, and gives them in the
    /// order of their names
    #[arg(long, value_name = "TEXT", conflicts_with = "path")]
    prefix: Option<OsString>,
    /// Print number, permissions, owner, size, time and name
    #[arg(long, short)]
    long: bool,
    /// Print only names, each as it is and with a zero byte behind it
    #[arg(long, short = '0', conflicts_with_all = ["long", "json"])]
    null: bool,
    /// Print a JSON object for each record, on a line of its own
    #[arg(long)]
    json: bool,
}

pub fn run(args: Args) -> Result<(), Failed> {
    let reader = input::open(&args.file)?;
    // Which of the paths that were asked for there is something of.
    let mut found = vec![false; args.path.len()];
    let mut wanted = |name: &[u8]| {
        let mut any = args.path.is_empty();
        for (path, found) in args.path.iter().zip(&mut found) {
            let path = path.as_bytes();
            let path = path.strip_suffix(b"/").unwrap_or(path);
            if name.strip_prefix(path).is_some_and(|rest| rest.is_empty() || rest[0] == b'/') {
                (any, *found) = (true, true);
            }
        }
        any
    };
    let mut out = BufWriter::new(std::io::stdout().lock());
    let to_stdout = |e| Failed::io(Path::new("standard output"), e);
    let records: Box<dyn Iterator<Item = _>> = match &args.prefix {
        Some(prefix) => Box::new(reader.prefix(prefix.as_bytes())),
        None => Box::new(reader.entries(0)),
    };
    for item in records {
        let (number, entry) = item.map_err(|e| Failed::at(&args.file, e))?;
        if !wanted(&entry.name) {
            continue;
        }
        let line = if args.null {
            [entry.name.as_slice(), b"\0"].concat()
        } else if args.json {
            format!("{}\n", to_json(number, &entry)).into_bytes()
        } else if args.long {
            long_line(number, &entry).into_bytes()
        } else {
            let name = match entry.name.is_empty() {
                true => format!("#{number}"),
                false => one_line(&entry.name),
            };
            format!("{:>12}  {name}\n", entry.len()).into_bytes()
        };
        out.write_all(&line).map_err(to_stdout)?;
    }
    out.flush().map_err(to_stdout)?;
    for (path, _) in args.path.iter().zip(&found).filter(|(_, found)| !**found) {
        // Says which name is nearest.
        reader.entry_of(path.as_bytes()).map_err(|e| Failed::at(&args.file, e))?;
    }
    Ok(())
}

fn to_json(number: u64, entry: &Entry) -> Value {
    let mut value = json!({
        "number": number,
        "name": entry.display_name(),
        "kind": entry.kind.name(),
        "bytes": entry.len(),
        "offset": entry.range.start,
        "stored_range": [entry.range.start, entry.range.end],
    });
    if std::str::from_utf8(&entry.name).is_err() {
        value["name_hex"] =
            entry.name.iter().map(|b| format!("{b:02x}")).collect::<String>().into();
    }
    if let Some(meta) = &entry.meta {
        value["mode"] = format!("{:04o}", meta.mode).into();
        value["modified"] = json!([meta.modified.0, meta.modified.1]);
        value["user"] = meta.user.into();
        value["group"] = meta.group.into();
        let names = meta.attributes.iter().map(|(name, _)| String::from_utf8_lossy(name));
        value["attributes"] = names.collect();
    }
    if !entry.key.is_empty() {
        value["key"] = String::from_utf8_lossy(&entry.key).into();
    }
    match &entry.kind {
        Kind::Symlink(target) => value["target"] = String::from_utf8_lossy(target).into(),
        Kind::Hardlink(to) => value["target"] = (*to).into(),
        _ => {}
    }
    value
}

fn long_line(number: u64, entry: &Entry) -> String {
    let letter = match entry.kind {
        Kind::Directory => 'd',
        Kind::Symlink(_) => 'l',
        Kind::Fifo => 'p',
        Kind::CharDevice(..) => 'c',
        Kind::BlockDevice(..) => 'b',
        Kind::Hardlink(_) => 'h',
        Kind::Item => '.',
        _ => '-',
    };
    let meta = entry.meta.clone().unwrap_or_default();
    let bit = |i: u32, c: char| if meta.mode >> i & 1 == 1 { c } else { '-' };
    let bits: String = (0..9).rev().zip("rwxrwxrwx".chars()).map(|(i, c)| bit(i, c)).collect();
    let target = match &entry.kind {
        Kind::Symlink(target) => format!(" -> {}", one_line(target)),
        Kind::Hardlink(to) => format!(" = #{to}"),
        _ => String::new(),
    };
    // What came from no file system has no owner and no time.
    let of = |value: String| if entry.meta.is_some() { value } else { "-".to_owned() };
    format!(
        "#{number:<7} {letter}{bits} {:>5} {:>5} {:>12} {:>16} {}{target}\n",
        of(meta.user.to_string()),
        of(meta.group.to_string()),
        entry.len(),
        of(date(meta.modified.0)),
        one_line(&entry.name),
    )
}

/// Seconds since 1970 as a date and time in UTC (proleptic Gregorian).
pub fn date(seconds: i64) -> String {
    let (days, time) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    // Days since 0000-03-01, in eras of 400 years.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * from_march + 2) / 5 + 1;
    let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    let (hour, minute) = (time / 3600, time / 60 % 60);
    format!("{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}")
}

#[cfg(test)]
mod tests {
    use super::date;

    #[test]
    fn dates_are_right_around_leap_days_and_before_1970() {
        assert_eq!(date(0), "1970-01-01 00:00");
        assert_eq!(date(-60), "1969-12-31 23:59");
        assert_eq!(date(951_782_400), "2000-02-29 00:00");
        assert_eq!(date(1_709_251_199), "2024-02-29 23:59");
        assert_eq!(date(4_107_542_400), "2100-03-01 00:00");
    }
}
