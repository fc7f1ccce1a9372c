//! The applications of Makatos, Klonatos, Marazakis, Flouris and Bilas, *ZBD: Using Transparent Compression at the Block Level to
//! Increase Storage Space Efficiency* (2010), on file systems whose disks are volumes, plain files by the same export, and on others
//! that compress: a mail server, a file server, transactions, and a warehouse.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use crate::database::{Postgres, QUERIES, make_warehouse};
use crate::engine::Result;
use crate::lines::{Line, Shown, bars, over};
use crate::mail::{self, Mail};
use crate::report::machine;
use crate::stand::{Below, Stand, now};
use crate::volume::{busy, limit, middle, run};

#[derive(clap::Args)]
pub struct Args {
    /// Where the tables go
    #[arg(long, short, value_name = "DIR")]
    output: PathBuf,
    /// Where disks are kept meanwhile
    #[arg(long, value_name = "DIR", default_value = "target/bench/applications")]
    work: PathBuf,
    /// Mail, as files: what messages are made of
    #[arg(long, value_name = "DIR", default_value = "target/data/mbox")]
    mail: PathBuf,
    /// GiB of each disk
    #[arg(long, default_value_t = 12)]
    size: u64,
    #[arg(long, default_value_t = 2)]
    rounds: usize,
    /// For loads that are measured by time
    #[arg(long, default_value_t = 20)]
    seconds: u32,
    /// Messages of the mail server, and transactions with them
    #[arg(long, default_value_t = 6000)]
    messages: usize,
    /// Hundred thousands of accounts of pgbench
    #[arg(long, default_value_t = 100)]
    accounts: u32,
    /// TPC-H's scale: 1 is a gigabyte before indexes
    #[arg(long, default_value_t = 1.0)]
    warehouse: f64,
    /// MiB of memory, page cache included, of all that is measured; 0 for as much as there is
    #[arg(long, default_value_t = 1024)]
    memory: u64,
    /// A Python with duckdb
    #[arg(long, value_name = "FILE", default_value = "target/venv/bin/python")]
    python: PathBuf,
    /// These disks alone
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// These parts alone
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "mail,files,transactions,warehouse,slow,extents,cores,cleaner,trace"
    )]
    parts: Vec<String>,
}

/// Disks: below, file system, options of mounting.
const DISKS: [(&str, &str, &str, &str); 7] = [
    ("raw", "raw", "ext4", "defaults"),
    ("fiche none", "none", "ext4", "defaults"),
    ("fiche lz4", "lz4", "ext4", "defaults"),
    ("fiche zstd", "zstd", "ext4", "defaults"),
    ("fiche zlib", "zlib", "ext4", "defaults"),
    ("ext4 on a file", "file", "ext4", "defaults"),
    ("btrfs zstd:1", "file", "btrfs", "compress-force=zstd:1"),
];

fn below(what: &'static str, more: &[&str]) -> Below {
    let more = more.iter().map(|&option| option.to_owned()).collect();
    match what {
        "raw" => Below::Raw(more),
        "file" => Below::File,
        codec => Below::Volume(codec, more),
    }
}

/// One measurement: how much a second, whatever is counted, seconds in all, processors busy, and bytes of the disk afterwards.
#[derive(Clone, Copy, Default)]
struct Measured {
    rate: f64,
    seconds: f64,
    cores: f64,
    stored: u64,
}

/// Runs something and counts what the processors did.
fn timed<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, f64, f64)> {
    let (cpu, start) = (busy(), Instant::now());
    let done = work()?;
    let seconds = start.elapsed().as_secs_f64();
    Ok((done, seconds, (busy() - cpu) / seconds))
}

/// Seconds for which a volume may go on with what is due when all was written.
const SETTLES: u64 = 600;

/// When the system writes out what is dirty, until this is dropped: as a machine with so many MiB of memory has it, else all of it may
/// be dirty.
struct Dirty(Vec<(&'static str, String)>);

impl Dirty {
    fn new(mib: u64) -> Result<Dirty> {
        // What is in bytes makes the percents zero, and the other way round.
        let files =
            ["dirty_background_bytes", "dirty_bytes", "dirty_background_ratio", "dirty_ratio"];
        let read = |file| Ok((file, std::fs::read_to_string(Dirty::path(file))?));
        let before = Dirty(files.into_iter().map(read).collect::<Result<_>>()?);
        for (file, part) in [(files[0], 16), (files[1], 4)] {
            std::fs::write(Dirty::path(file), ((mib << 20) / part).to_string())?;
        }
        Ok(before)
    }

    fn path(file: &str) -> PathBuf {
        Path::new("/proc/sys/vm").join(file)
    }
}

impl Drop for Dirty {
    fn drop(&mut self) {
        for (file, value) in self.0.iter().filter(|(_, value)| value.trim() != "0") {
            let _ = std::fs::write(Dirty::path(file), value);
        }
    }
}

/// All that the parts need.
struct Bench<'a> {
    args: &'a Args,
    text: Vec<u8>,
    rows: BTreeMap<(String, usize), Vec<Measured>>,
    csv: String,
    seed: u64,
}

impl Bench<'_> {
    fn note(&mut self, load: &str, disk: usize, name: &str, m: Measured) -> Result<()> {
        eprintln!(
            "{load:24} {name:16} {:9.1}/s {:7.1} s {:5.2} cores {:6} MB",
            m.rate,
            m.seconds,
            m.cores,
            m.stored / 1_000_000
        );
        writeln!(
            self.csv,
            "{name},\"{load}\",{:.3},{:.3},{:.3},{}",
            m.rate, m.seconds, m.cores, m.stored
        )?;
        self.rows.entry((load.into(), disk)).or_default().push(m);
        Ok(())
    }

    fn stand(&self, disk: usize, more: &[&str]) -> Result<Stand> {
        self.stand_of(disk, more, self.args.size << 30)
    }

    fn stand_of(&self, disk: usize, more: &[&str], len: u64) -> Result<Stand> {
        let (name, what, system, options) = DISKS[disk];
        let memory = self.args.memory;
        // What is served has half as much again for who serves it; others may have that themselves.
        let more_memory = if what == "file" { memory / 2 } else { 0 };
        if memory > 0 {
            limit(memory + more_memory)?;
        }
        let below = below(what, more);
        Stand::new(name, &below, (system, options), len, memory / 2, &self.args.work)
    }

    fn mail(&self) -> Mail {
        let messages = self.args.messages;
        Mail { messages, transactions: messages, ..mail::PAPER }
    }

    /// A mail server on a disk: what came of it, and of its transactions; and what that takes after so many seconds at most.
    fn serve_mail(
        &self,
        stand: &mut Stand,
        mail: Mail,
        settles: u64,
    ) -> Result<(mail::Done, Measured)> {
        let folder = stand.at.join("mail");
        let cpu = std::cell::Cell::new(0.0);
        let before = || {
            stand.cool()?;
            cpu.set(busy());
            Ok(())
        };
        let done = mail::postmark(&folder, mail, &self.text, self.seed, before, || stand.sync())?;
        let seconds = done.seconds[1];
        let cores = (busy() - cpu.get()) / seconds;
        let rate = done.transactions as f64 / seconds;
        Ok((done, Measured { rate, seconds, cores, stored: stand.stored(settles)? }))
    }

    fn mail_part(&mut self, disk: usize) -> Result<()> {
        let mut stand = self.stand(disk, &[])?;
        let (done, m) = self.serve_mail(&mut stand, self.mail(), SETTLES)?;
        let stored = m.stored;
        self.note("mail: transactions", disk, &stand.name, m)?;
        let made = Measured {
            rate: self.args.messages as f64 / done.seconds[0],
            seconds: done.seconds[0],
            cores: 0.0,
            stored,
        };
        self.note("mail: messages made", disk, &stand.name, made)
    }

    fn files_part(&mut self, disk: usize) -> Result<()> {
        let stand = self.stand(disk, &[])?;
        let (told, seconds, cores) = timed(|| {
            run(Command::new("dbench")
                .args(["-c", "/usr/share/dbench/client.txt", "-D"])
                .arg(&stand.at)
                .args(["-t", &self.args.seconds.to_string(), "8"]))
        })?;
        let rate = told
            .lines()
            .find_map(|line| line.strip_prefix("Throughput "))
            .and_then(|rest| rest.split(' ').next()?.parse().ok())
            .ok_or("dbench says nothing of its throughput")?;
        self.note("files: MB", disk, &stand.name, Measured { rate, seconds, cores, stored: 0 })
    }

    /// A copy of the data of a server on a disk, and that server.
    fn database(&self, stand: &Stand, template: &str) -> Result<Postgres> {
        let data = stand.at.join("data");
        let from = self.args.work.join(template);
        run(Command::new("cp").arg("-a").arg(&from).arg(&data))?;
        stand.cool()?;
        let sockets = std::path::absolute(self.args.work.join("sockets"))?;
        Postgres::open(&data, &sockets)
    }

    fn transactions_part(&mut self, disk: usize) -> Result<()> {
        let mut stand = self.stand(disk, &[])?;
        let server = self.database(&stand, "accounts")?;
        let seconds = self.args.seconds;
        let (rate, _, cores) = timed(|| server.pgbench("select-only", 8, seconds))?;
        let read = Measured { rate, seconds: seconds.into(), cores, stored: 0 };
        let (rate, _, cores) = timed(|| server.pgbench("tpcb-like", 8, seconds))?;
        let mut write = Measured { rate, seconds: seconds.into(), cores, stored: 0 };
        server.stop()?;
        drop(server);
        write.stored = stand.stored(SETTLES)?;
        self.note("transactions: that read", disk, &stand.name, read)?;
        self.note("transactions: that write", disk, &stand.name, write)
    }

    fn warehouse_part(&mut self, disk: usize) -> Result<()> {
        let mut stand = self.stand(disk, &[])?;
        let server = self.database(&stand, "warehouse")?;
        let folder = self.args.work.join("warehouse-csv");
        let (each, seconds, cores) = timed(|| {
            let query = |n: &u32| server.query(&folder.join(format!("{n}.sql")));
            QUERIES.iter().map(query).collect::<Result<Vec<f64>>>()
        })?;
        server.stop()?;
        for (n, seconds) in QUERIES.iter().zip(each) {
            let m = Measured { rate: 1.0 / seconds, seconds, ..Measured::default() };
            self.note(&format!("warehouse: query {n}"), disk, &stand.name, m)?;
        }
        let rate = QUERIES.len() as f64 / seconds;
        let m = Measured { rate, seconds, cores, stored: stand.stored(SETTLES)? };
        self.note("warehouse: queries", disk, &stand.name, m)
    }

    fn has(&self, part: &str) -> bool {
        self.args.parts.iter().any(|wanted| wanted == part)
    }

    /// Databases that are copied to each disk.
    fn templates(&self) -> Result<()> {
        let work = std::path::absolute(&self.args.work)?;
        let sockets = work.join("sockets");
        let stop = |server: Postgres| {
            server.ask("CHECKPOINT")?;
            server.stop()
        };
        if (self.has("transactions") || self.has("slow")) && !work.join("accounts/done").exists() {
            let server = Postgres::new(&work.join("accounts"), &sockets)?;
            server.fill_accounts(self.args.accounts)?;
            stop(server)?;
            std::fs::write(work.join("accounts/done"), "")?;
        }
        let is_wanted = self.has("warehouse") || self.has("trace");
        if is_wanted && !work.join("warehouse/done").exists() {
            let csv = work.join("warehouse-csv");
            make_warehouse(&self.args.python, self.args.warehouse, &csv)?;
            let server = Postgres::new(&work.join("warehouse"), &sockets)?;
            server.fill_warehouse(&csv)?;
            stop(server)?;
            std::fs::write(work.join("warehouse/done"), "")?;
        }
        Ok(())
    }

    /// A table of a load: rates, and how they are to the plain file by the same export.
    fn table(&self, text: &mut String, load: &str, what: &str) -> Result<()> {
        let of = |disk: usize| self.rows.get(&(load.to_owned(), disk));
        if !(0..DISKS.len()).any(|disk| of(disk).is_some()) {
            return Ok(());
        }
        writeln!(
            text,
            "| disk | {what} | to raw | seconds | cores busy | stored MB | raw's to it |\n|---|---|---|---|---|---|---|"
        )?;
        let middle = |all: &[Measured], field: fn(&Measured) -> f64| middle(all.iter().map(field));
        let raw = |field| of(0).map_or(0.0, |all| middle(all, field));
        for (disk, (name, ..)) in DISKS.iter().enumerate() {
            let Some(all) = of(disk) else { continue };
            let (rate, stored) = (middle(all, |m| m.rate), middle(all, |m| m.stored as f64));
            let (seconds, cores) = (middle(all, |m| m.seconds), middle(all, |m| m.cores));
            let ratio = |to: f64, of: f64| match to > 0.0 && of > 0.0 {
                true => format!("{:.2}", to / of),
                false => "-".into(),
            };
            let some = |value: f64, shown: String| if value > 0.0 { shown } else { "-".into() };
            writeln!(
                text,
                "| {name} | {rate:.1} | {} | {seconds:.1} | {} | {} | {} |",
                ratio(rate, raw(|m| m.rate)),
                some(cores, format!("{cores:.2}")),
                some(stored, format!("{:.0}", stored / 1e6)),
                ratio(raw(|m| m.stored as f64), stored),
            )?;
        }
        writeln!(text)?;
        Ok(())
    }

    /// Rates to those of the plain file, and processors, of the disks that are served alike.
    fn plots(&self, text: &mut String) -> Result<()> {
        let loads = [
            ("mail", "mail: transactions"),
            ("files", "files: MB"),
            ("selects", "transactions: that read"),
            ("transactions", "transactions: that write"),
            ("warehouse", "warehouse: queries"),
        ];
        let names: Vec<&str> = DISKS[..5].iter().map(|disk| disk.0).collect();
        let of = |load: &str, disk: usize, field: fn(&Measured) -> f64| {
            let all = self.rows.get(&(load.to_owned(), disk));
            all.map_or(0.0, |all| middle(all.iter().map(field)))
        };
        let (mut rates, mut cores) = (Vec::new(), Vec::new());
        for (name, load) in loads {
            let raw = of(load, 0, |m| m.rate);
            if raw > 0.0 {
                let each = |field| (0..5).map(|disk| of(load, disk, field)).collect::<Vec<f64>>();
                let rate = each(|m| m.rate).into_iter().map(|rate| rate / raw).collect();
                rates.push((name.to_owned(), rate));
                cores.push((name.to_owned(), each(|m| m.cores)));
            }
        }
        if rates.is_empty() {
            return Ok(());
        }
        let output = &self.args.output;
        let svg = bars("Applications on disks", "rate, to that of a plain file", &names, &rates);
        std::fs::write(output.join("performance.svg"), svg)?;
        let svg = bars("Processors meanwhile", "processors busy", &names, &cores);
        std::fs::write(output.join("processors.svg"), svg)?;
        writeln!(
            text,
            "## Together\n\n![performance](performance.svg)\n\n![processors](processors.svg)\n"
        )?;
        Ok(())
    }

    /// The mail server with other lengths of extents.
    fn extents(&mut self, text: &mut String) -> Result<()> {
        writeln!(
            text,
            "## Lengths of extents\n\nThe mail server on a volume with lz4, by the most bytes of an extent.\n\n| extent | transactions/s | cores busy | stored MB |\n|---|---|---|---|"
        )?;
        for kib in [8, 16, 32, 64, 128, 256] {
            let extent = (kib << 10).to_string();
            let mut stand = self.stand(2, &["--extent", &extent, "--segment-bits", "23"])?;
            let (_, m) = self.serve_mail(&mut stand, self.mail(), SETTLES)?;
            let load = format!("mail: extents of {kib} KiB");
            self.note(&load, 2, &stand.name, m)?;
            let stored = m.stored as f64 / 1e6;
            writeln!(text, "| {kib} KiB | {:.1} | {:.2} | {stored:.0} |", m.rate, m.cores)?;
        }
        writeln!(text)?;
        Ok(())
    }

    /// The mail server, and what serves its disk, with one processor and with two.
    fn cores(&mut self, text: &mut String) -> Result<()> {
        writeln!(
            text,
            "## Processors\n\nThe mail server and what serves its disk on one processor, and on two (kernel threads run where they like).\n\n| disk | one: transactions/s | two: transactions/s | ratio |\n|---|---|---|---|"
        )?;
        for (disk, (name, ..)) in DISKS.iter().enumerate().take(5) {
            let mut rates = Vec::new();
            for cpus in ["0", "0-1"] {
                let id = std::process::id().to_string();
                run(Command::new("taskset").args(["-a", "-c", "-p", cpus, &id]))?;
                let mut stand = self.stand(disk, &[])?;
                let (_, m) = self.serve_mail(&mut stand, self.mail(), 0)?;
                self.note(&format!("mail: processors {cpus}"), disk, &stand.name, m)?;
                rates.push(m.rate);
            }
            let ratio = rates[1] / rates[0];
            writeln!(text, "| {name} | {:.1} | {:.1} | {ratio:.2} |", rates[0], rates[1])?;
        }
        writeln!(text)?;
        Ok(())
    }

    /// The mail server on a disk that it fills, on a volume that has as much room as its length needs, and on one that has plenty. Neither
    /// compresses, so that what is stored tells how long the disk has to be.
    fn cleaner(&mut self, text: &mut String) -> Result<()> {
        let mut long = self.stand(1, &[])?;
        let (_, m) = self.serve_mail(&mut long, self.mail(), SETTLES)?;
        drop(long);
        let len = (m.stored * 10 / 9).next_multiple_of(1 << 20);
        let plenty = (len * 4).to_string();
        let mut lines = Vec::new();
        writeln!(
            text,
            "## The cleaner over time\n\nThe mail server on a file system that it fills to nine tenths, on a volume without compression: with room for four times as much, so that nothing \
             is cleaned while it runs, and with as much as it has by itself.\n\n| room | transactions/s | slowest second | cores busy |\n|---|---|---|---|"
        )?;
        for (name, more) in [("plenty", &["--capacity", plenty.as_str()][..]), ("tight", &[])] {
            let mut stand = self.stand_of(1, more, len)?;
            let (done, m) = self.serve_mail(&mut stand, self.mail(), 0)?;
            self.note(&format!("mail: {name} room"), 1, &stand.name, m)?;
            // The last second is not a whole one.
            let all = &done.over_time[..done.over_time.len().saturating_sub(1).max(1)];
            let least = all.iter().min().copied().unwrap_or(0);
            writeln!(text, "| {name} | {:.1} | {least} | {:.2} |", m.rate, m.cores)?;
            let points = all.iter().enumerate().map(|(i, &n)| (i as f64, f64::from(n))).collect();
            lines.push(Line { name: name.into(), points });
        }
        let svg = over(
            "Transactions of the mail server",
            "seconds",
            "in each second",
            Shown::Line,
            &lines,
        );
        std::fs::write(self.args.output.join("cleaner.svg"), svg)?;
        writeln!(text, "\n![over time](cleaner.svg)\n")?;
        Ok(())
    }

    /// The mail server, and transactions, on a disk as the paper had them.
    fn slow(&mut self, text: &mut String) -> Result<()> {
        const RATE: &str = "100";
        const SEEK: &str = "8";
        writeln!(
            text,
            "## A disk with a head\n\nThe mail server with an eighth of the messages, and pgbench's transactions, where what holds the disk takes {SEEK} ms to be somewhere else and moves {RATE} MB a second (one spindle of the \
             paper's): simulated below the server, so that what it asks for costs that whether the system has it in memory or not.\n\n\
             | disk | mail: transactions/s | to raw | pgbench: transactions/s | to raw |\n|---|---|---|---|---|"
        )?;
        let mut raw = None;
        for (disk, (name, ..)) in DISKS.iter().enumerate().take(5) {
            let more = ["--rate", RATE, "--seek", SEEK];
            let mut stand = self.stand(disk, &more)?;
            let few = Mail { messages: self.args.messages / 8, ..self.mail() };
            let few = Mail { transactions: few.messages, ..few };
            let (_, mail) = self.serve_mail(&mut stand, few, 0)?;
            self.note("mail: on a disk with a head", disk, name, mail)?;
            drop(stand);
            let stand = self.stand(disk, &more)?;
            let server = self.database(&stand, "accounts")?;
            let rate = server.pgbench("tpcb-like", 8, self.args.seconds)?;
            server.stop()?;
            drop(server);
            let m = Measured { rate, seconds: self.args.seconds.into(), ..Measured::default() };
            self.note("transactions: on a disk with a head", disk, name, m)?;
            let (first, second) = *raw.get_or_insert((mail.rate, rate));
            writeln!(
                text,
                "| {name} | {:.1} | {:.2} | {rate:.1} | {:.2} |",
                mail.rate,
                mail.rate / first,
                rate / second
            )?;
        }
        writeln!(text)?;
        Ok(())
    }

    /// Where one query reads.
    fn trace(&mut self, text: &mut String) -> Result<()> {
        writeln!(
            text,
            "## Where a query reads\n\nQuery 3 of TPC-H from a cold start: what was read of the file that holds the disk.\n\n| disk | reads | MB read | from the first to the last place, MB | seconds |\n|---|---|---|---|---|"
        )?;
        let folder = self.args.work.join("warehouse-csv");
        let mut lines = Vec::new();
        for disk in [0, 2] {
            let path = self.args.work.join("trace.csv");
            let at = path.display().to_string();
            let stand = self.stand(disk, &["--trace", &at])?;
            let server = self.database(&stand, "warehouse")?;
            let began = now();
            let seconds = server.query(&folder.join("3.sql"))?;
            let query = began..now();
            server.stop()?;
            drop(server);
            drop(stand);
            // Seconds, places and lengths.
            let rows: Vec<(f64, f64, f64)> = std::fs::read_to_string(&path)?
                .lines()
                .skip(1)
                .filter_map(|line| {
                    let mut numbers = line.split(',').map(str::parse::<f64>);
                    Some((numbers.next()?.ok()?, numbers.next()?.ok()?, numbers.next()?.ok()?))
                })
                .filter(|row| query.contains(&row.0))
                .collect();
            let low = rows.iter().map(|row| row.1).fold(f64::MAX, f64::min);
            let high = rows.iter().map(|row| row.1 + row.2).fold(0.0, f64::max);
            let read: f64 = rows.iter().map(|row| row.2).sum();
            let name = DISKS[disk].0;
            writeln!(
                text,
                "| {name} | {} | {:.0} | {:.0} | {seconds:.2} |",
                rows.len(),
                read / 1e6,
                (high - low).max(0.0) / 1e6
            )?;
            let points = rows.iter().step_by((rows.len() / 4000).max(1));
            let points = points.map(|row| (row.0 - began, row.1 / 1e6)).collect();
            lines.push(Line { name: name.into(), points });
        }
        let svg = over(
            "Query 3 of TPC-H",
            "seconds",
            "MB into the file that holds the disk",
            Shown::Dots,
            &lines,
        );
        std::fs::write(self.args.output.join("trace.svg"), svg)?;
        writeln!(text, "\n![where it reads](trace.svg)\n")?;
        Ok(())
    }
}

fn read_all(folder: &Path) -> Result<Vec<u8>> {
    let mut names: Vec<PathBuf> =
        std::fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    names.sort();
    let mut all = Vec::new();
    for name in names {
        all.extend(std::fs::read(name)?);
    }
    Ok(all)
}

pub fn bench(args: &Args) -> Result<()> {
    std::fs::create_dir_all(&args.work)?;
    std::fs::create_dir_all(&args.output)?;
    let text = read_all(&args.mail).map_err(|error| format!("{}: {error}", args.mail.display()))?;
    let csv = String::from("disk,load,per_second,seconds,cores,stored_bytes\n");
    let mut bench = Bench { args, text, rows: BTreeMap::new(), csv, seed: 1 };
    bench.templates()?;
    let (memory, _dirty) = match args.memory {
        0 => ("as much memory as there is".to_owned(), None),
        mib => {
            let dirty = Dirty::new(mib)?;
            limit(mib)?;
            let half = mib / 2;
            let told = format!(
                "{mib} MiB of memory, page cache included, and {half} MiB for who serves a disk, or for those of a disk that is not served"
            );
            (told, Some(dirty))
        }
    };
    let wanted = |name: &str| {
        args.only.is_empty() || args.only.iter().any(|only| name.starts_with(only.as_str()))
    };
    let has = |part: &str| args.parts.iter().any(|wanted| wanted == part);
    let mut missing = String::new();
    type Part<'a, 'b> = (&'a str, fn(&mut Bench<'b>, usize) -> Result<()>);
    let parts: [Part; 4] = [
        ("mail", Bench::mail_part),
        ("files", Bench::files_part),
        ("transactions", Bench::transactions_part),
        ("warehouse", Bench::warehouse_part),
    ];
    for round in 0..args.rounds {
        bench.seed = round as u64 + 1;
        for (name, part) in parts.into_iter().filter(|(name, _)| has(name)) {
            for (disk, _) in DISKS.iter().enumerate().filter(|(_, disk)| wanted(disk.0)) {
                if let Err(error) = part(&mut bench, disk) {
                    eprintln!("{name}, {}: {error}", DISKS[disk].0);
                    writeln!(
                        missing,
                        "{name} on {} could not be measured: {error}\n",
                        DISKS[disk].0
                    )?;
                }
            }
        }
    }
    let mut text = format!(
        "# Applications on disks\n\n{} {memory}; disks of {} GiB; medians of {} interleaved rounds. *raw* is a plain file served as volumes are, as one file \
         by FUSE of which the loop device makes a disk, with ext4 on it; *ext4 on a file* and btrfs lie on the loop device alone. Stored is what the file \
         that holds the disk takes after `fstrim`, when a volume has nothing to do any more (of btrfs, what it says it uses).\n\n{missing}",
        machine(),
        args.size,
        args.rounds
    );
    let (low, high) = mail::PAPER.sizes;
    for (part, about, loads) in [
        (
            "mail",
            format!(
                "A mail server, as PostMark is: {} messages of {} KiB to {} KiB in {} folders, and as many transactions, each of which makes or deletes a message \
                 and reads one ({} %) or adds to it, {} KiB at once, until all is on the disk. The text is mail.",
                args.messages,
                low >> 10,
                high >> 10,
                mail::PAPER.folders,
                mail::PAPER.reads,
                mail::PAPER.piece >> 10
            ),
            &[("mail: transactions", "transactions/s"), ("mail: messages made", "made/s")][..],
        ),
        (
            "files",
            format!(
                "A file server: dbench with 8 clients, {} seconds. What it writes are zeros, so it tells of operations and not of compression.",
                args.seconds
            ),
            &[("files: MB", "MB/s")][..],
        ),
        (
            "transactions",
            format!(
                "PostgreSQL with pgbench's tables of {} hundred thousand accounts, 8 clients, {} seconds each: first selects alone, then its transactions like \
                 TPC-B, each of which ends with a flush.",
                args.accounts, args.seconds
            ),
            &[
                ("transactions: that read", "selects/s"),
                ("transactions: that write", "transactions/s"),
            ][..],
        ),
        (
            "warehouse",
            format!(
                "PostgreSQL with the tables of TPC-H at scale {}, and its queries {QUERIES:?} back to back from a cold start.",
                args.warehouse
            ),
            &[("warehouse: queries", "queries/s")][..],
        ),
    ] {
        if !has(part) {
            continue;
        }
        let mut name = part.to_owned();
        name[..1].make_ascii_uppercase();
        writeln!(text, "## {name}\n\n{about}\n")?;
        for (load, what) in loads {
            bench.table(&mut text, load, what)?;
        }
    }
    bench.plots(&mut text)?;
    type More<'b> = fn(&mut Bench<'b>, &mut String) -> Result<()>;
    let more: [(&str, More); 5] = [
        ("slow", Bench::slow),
        ("extents", Bench::extents),
        ("cleaner", Bench::cleaner),
        ("trace", Bench::trace),
        // The last: whoever was on two processors stays there.
        ("cores", Bench::cores),
    ];
    for (name, part) in more {
        if has(name)
            && let Err(error) = part(&mut bench, &mut text)
        {
            eprintln!("{name}: {error}");
            writeln!(text, "\n{name} could not be measured: {error}\n")?;
        }
    }
    std::fs::write(args.output.join("applications.csv"), &bench.csv)?;
    std::fs::write(args.output.join("applications.md"), text)?;
    Ok(())
}
