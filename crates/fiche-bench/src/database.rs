//! PostgreSQL as an application: many small transactions by pgbench, and the queries of TPC-H that the paper on ZBD names.

use std::fs::File;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use crate::engine::Result;
use crate::volume::{run, shell};

/// Who it runs as: it refuses to be root.
const NOBODY: u32 = 65_534;

/// The paper's queries of TPC-H.
pub const QUERIES: [u32; 11] = [1, 3, 4, 6, 7, 10, 12, 14, 15, 19, 22];

/// Keys and indexes, behind the rows.
const INDEXES: &str = "
ALTER TABLE region ADD PRIMARY KEY (r_regionkey); ALTER TABLE nation ADD PRIMARY KEY (n_nationkey);
ALTER TABLE supplier ADD PRIMARY KEY (s_suppkey); ALTER TABLE part ADD PRIMARY KEY (p_partkey);
ALTER TABLE partsupp ADD PRIMARY KEY (ps_partkey, ps_suppkey); ALTER TABLE customer ADD PRIMARY KEY (c_custkey);
ALTER TABLE orders ADD PRIMARY KEY (o_orderkey); ALTER TABLE lineitem ADD PRIMARY KEY (l_orderkey, l_linenumber);
CREATE INDEX ON lineitem (l_partkey, l_suppkey); CREATE INDEX ON lineitem (l_shipdate); CREATE INDEX ON orders (o_custkey);
CREATE INDEX ON orders (o_orderdate); CREATE INDEX ON customer (c_nationkey); CREATE INDEX ON supplier (s_nationkey);";

/// The tables of TPC-H: names, and columns with their types.
const TABLES: [(&str, &str); 8] = [
    ("region", "r_regionkey int, r_name char(25), r_comment varchar(152)"),
    ("nation", "n_nationkey int, n_name char(25), n_regionkey int, n_comment varchar(152)"),
    (
        "supplier",
        "s_suppkey int, s_name char(25), s_address varchar(40), s_nationkey int, s_phone char(15), s_acctbal numeric(15,2), s_comment varchar(101)",
    ),
    (
        "part",
        "p_partkey int, p_name varchar(55), p_mfgr char(25), p_brand char(10), p_type varchar(25), p_size int, p_container char(10), p_retailprice numeric(15,2), p_comment varchar(23)",
    ),
    (
        "partsupp",
        "ps_partkey int, ps_suppkey int, ps_availqty int, ps_supplycost numeric(15,2), ps_comment varchar(199)",
    ),
    (
        "customer",
        "c_custkey int, c_name varchar(25), c_address varchar(40), c_nationkey int, c_phone char(15), c_acctbal numeric(15,2), c_mktsegment char(10), c_comment varchar(117)",
    ),
    (
        "orders",
        "o_orderkey int, o_custkey int, o_orderstatus char(1), o_totalprice numeric(15,2), o_orderdate date, o_orderpriority char(15), o_clerk char(15), o_shippriority int, o_comment varchar(79)",
    ),
    (
        "lineitem",
        "l_orderkey int, l_partkey int, l_suppkey int, l_linenumber int, l_quantity numeric(15,2), l_extendedprice numeric(15,2), l_discount numeric(15,2), l_tax numeric(15,2), l_returnflag char(1), l_linestatus char(1), l_shipdate date, l_commitdate date, l_receiptdate date, l_shipinstruct char(25), l_shipmode char(10), l_comment varchar(44)",
    ),
];

/// A server of PostgreSQL with its data in a folder.
pub struct Postgres {
    bin: PathBuf,
    data: PathBuf,
    sockets: PathBuf,
}

impl Postgres {
    /// Where its programs are.
    pub fn bin() -> Option<PathBuf> {
        let folders = std::fs::read_dir("/usr/lib/postgresql").ok()?;
        let mut all = folders.filter_map(|folder| Some(folder.ok()?.path().join("bin")));
        all.find(|bin| bin.join("pgbench").exists())
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new("setpriv");
        let user = [format!("--reuid={NOBODY}"), format!("--regid={NOBODY}")];
        command.args(user).arg("--clear-groups").arg(self.bin.join(program));
        command.env("PGHOST", &self.sockets).env("LC_ALL", "C").env("PGUSER", "postgres");
        command.current_dir("/");
        command
    }

    /// An empty one, started.
    pub fn new(data: &Path, sockets: &Path) -> Result<Postgres> {
        let bin = Postgres::bin().ok_or("PostgreSQL is not there")?;
        let server = Postgres { bin, data: data.into(), sockets: sockets.into() };
        for folder in [data, sockets] {
            let _ = std::fs::remove_dir_all(folder);
            std::fs::create_dir_all(folder)?;
            chown(folder, Some(NOBODY), Some(NOBODY))?;
        }
        run(server.command("initdb").arg("-D").arg(data).args(["-A", "trust", "-U", "postgres"]))?;
        server.start()?;
        Ok(server)
    }

    /// One whose data was copied here, started.
    pub fn open(data: &Path, sockets: &Path) -> Result<Postgres> {
        let bin = Postgres::bin().ok_or("PostgreSQL is not there")?;
        let server = Postgres { bin, data: data.into(), sockets: sockets.into() };
        server.start()?;
        Ok(server)
    }

    fn start(&self) -> Result<()> {
        let options = format!(
            "-k {} -c listen_addresses='' -c shared_buffers=128MB -c max_wal_size=1GB -c statement_timeout=300s",
            self.sockets.display()
        );
        let mut start = self.command("pg_ctl");
        start.arg("-D").arg(&self.data).args(["-o", &options, "-w", "-t", "60"]);
        start.arg("-l").arg(self.sockets.join("log")).arg("start");
        // Its pipes would stay open as long as the server runs.
        let status = start.stdout(Stdio::null()).stderr(Stdio::null()).status()?;
        if status.success() { Ok(()) } else { Err(format!("{start:?}: {status}").into()) }
    }

    pub fn stop(&self) -> Result<()> {
        run(self.command("pg_ctl").arg("-D").arg(&self.data).args(["-m", "fast", "-w", "stop"]))
            .map(|_| ())
    }

    pub fn ask(&self, sql: &str) -> Result<String> {
        run(self.command("psql").args(["-Atq", "-v", "ON_ERROR_STOP=1", "-c", sql]))
    }

    /// The tables of pgbench, of so many hundred thousand accounts.
    pub fn fill_accounts(&self, scale: u32) -> Result<()> {
        run(self.command("pgbench").args(["-i", "-q", "-s", &scale.to_string()])).map(|_| ())
    }

    /// Transactions a second of one of pgbench's scripts.
    pub fn pgbench(&self, script: &str, clients: u32, seconds: u32) -> Result<f64> {
        let mut command = self.command("pgbench");
        command.args(["-n", "-b", script, "-c", &clients.to_string(), "-j", "2"]);
        let told = run(command.args(["-T", &seconds.to_string()]))?;
        let tps = told.lines().find_map(|line| line.strip_prefix("tps = "));
        let tps = tps.and_then(|tps| tps.split(' ').next()).ok_or("no tps")?;
        Ok(tps.parse()?)
    }

    /// The tables of TPC-H from files of values with commas.
    pub fn fill_warehouse(&self, csv: &Path) -> Result<()> {
        for (table, columns) in TABLES {
            self.ask(&format!("CREATE TABLE {table} ({columns})"))?;
            let mut copy = self.command("psql");
            let sql = format!("COPY {table} FROM STDIN (FORMAT csv)");
            copy.args(["-q", "-v", "ON_ERROR_STOP=1", "-c", &sql]);
            run(copy.stdin(File::open(csv.join(format!("{table}.csv")))?))?;
        }
        self.ask(INDEXES)?;
        self.ask("VACUUM ANALYZE")?;
        Ok(())
    }

    /// Seconds of the query in this file.
    pub fn query(&self, file: &Path) -> Result<f64> {
        let start = Instant::now();
        let mut psql = self.command("psql");
        psql.args(["-q", "-v", "ON_ERROR_STOP=1", "-o", "/dev/null"]);
        run(psql.stdin(File::open(file)?))?;
        Ok(start.elapsed().as_secs_f64())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let mut stop = self.command("pg_ctl");
        stop.arg("-D").arg(&self.data).args(["-m", "immediate", "stop"]);
        let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Makes the tables of TPC-H by DuckDB, as files of values with commas, and its queries; 1 is a gigabyte.
pub fn make_warehouse(python: &Path, scale: f64, folder: &Path) -> Result<()> {
    std::fs::create_dir_all(folder)?;
    let at = folder.display();
    let program = format!(
        "import duckdb
c = duckdb.connect('{at}/duck')
c.execute('INSTALL tpch') if not c.execute(\"SELECT installed FROM duckdb_extensions() WHERE extension_name = 'tpch'\").fetchone()[0] else None
c.execute('LOAD tpch')
c.execute(\"SET memory_limit='600MB'\")
c.execute('CALL dbgen(sf={scale})')
for t, in c.execute('SHOW TABLES').fetchall():
    c.execute(f\"COPY {{t}} TO '{at}/{{t}}.csv' (HEADER false)\")
for n, q in c.execute('SELECT query_nr, query FROM tpch_queries()').fetchall():
    open(f'{at}/{{n}}.sql', 'w').write(q)
"
    );
    run(Command::new(python).args(["-c", &program]))?;
    shell(&format!("rm -f {at}/duck*; chmod -R a+rX {at}")).map(|_| ())
}
