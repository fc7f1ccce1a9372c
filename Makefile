# The front door: `make demo` shows what fiche does, `make test` proves it.

PYTHON ?= python3
VENV = target/venv

.PHONY: demo test install lint unit features second-reader programs c install-c python wheel fuzz soak miri bench bench-deflate bench-rlz bench-archive bench-advise bench-remote bench-files bench-streams bench-extract bench-events bench-codec bench-pages bench-volume bench-cleaning bench-applications bench-space bench-counts bless clean

demo:
	cargo build --release -p fiche-cli
	cargo run --release --quiet -p fiche --example demo -- target/demo

test: install lint unit features second-reader c python
	fuzz/run.sh 10
	@echo "everything passed"

# What the tests need: with apt where it may, Python modules in a folder of their own.
install:
	@sh tests/install.sh $(PYTHON) $(VENV)

lint:
	cargo fmt --check
	cargo clippy --quiet --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" cargo doc --quiet --no-deps

unit:
	cargo test --quiet -- --show-output

# Each codec can be left out.
features:
	cargo test --quiet -p fiche --no-default-features --test conformance --test model
	cargo clippy --quiet -p fiche --no-default-features -- -D warnings
	cargo clippy --quiet -p fiche-cli --no-default-features -- -D warnings

# A reader written from docs/format.md alone, on the golden files.
second-reader:
	@if [ -x $(VENV)/bin/python ]; then \
	    $(VENV)/bin/python crates/fiche/tests/second_reader.py --check golden/v1 && \
	    $(VENV)/bin/python crates/fiche/tests/second_reader.py --refuse golden/bad; \
	else echo "SKIP: the second reader: no Python environment"; fi

# Programs and libraries, of the same parts as the tests: with one test named, Cargo takes the features that tests
# need, and what `unit` has built is not built once more with others.
programs:
	cargo build --quiet --workspace --lib --bins --test header

# The C interface as people install it.
c: programs
	crates/fiche-capi/tests/smoke.sh target/debug target/debug/fiche

# Header, libraries and a file for pkg-config, below PREFIX; DESTDIR goes before it.
PREFIX ?= /usr/local
install-c:
	cargo build --release --quiet -p fiche-capi
	crates/fiche-capi/install.sh $(PREFIX) target/release
	-strip --strip-debug $(DESTDIR)$(PREFIX)/lib/libfiche.a $(DESTDIR)$(PREFIX)/lib/libfiche.so

# The Python package as people install it, and its tests against what was installed: with the tests' profile, which
# is quicker to build, but the library as in a release without overflow checks and assertions.
UNCHECKED = --config profile.dev.package.fiche.debug-assertions=false --config profile.dev.package.fiche.overflow-checks=false
python: programs
	@if [ -x $(VENV)/bin/python ]; then \
	    MATURIN_PEP517_ARGS="--profile dev $(UNCHECKED)" \
	        $(VENV)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps . && \
	    PATH="$$PWD/target/debug:$$PATH" $(VENV)/bin/python -m pytest -q -rs crates/fiche-python/tests && \
	    $(VENV)/bin/python -m pytest -q --doctest-modules --pyargs fiche && \
	    PATH="$$PWD/target/debug:$$PATH" $(VENV)/bin/python -m pytest -q --doctest-glob='*.md' \
	        docs/guide/src/events.md docs/guide/src/python.md docs/guide/src/remote.md && \
	    $(VENV)/bin/python -m mypy.stubtest fiche --ignore-missing-stub --mypy-config-file pyproject.toml \
	        --allowlist crates/fiche-python/tests/stubtest-allowlist.txt; \
	else echo "SKIP: the Python package: no Python environment"; fi

# A wheel for every Linux with glibc 2.28 or newer, in target/wheels.
wheel:
	@sh tests/install.sh $(PYTHON) $(VENV)
	$(VENV)/bin/pip install --quiet --disable-pip-version-check maturin ziglang
	PATH="$$PWD/$(VENV)/bin:$$PATH" maturin build --release --zig --compatibility manylinux_2_28 -o target/wheels

fuzz:
	fuzz/run.sh $(or $(SECONDS),60)

# What takes long: hours of fuzzing, many more random cases, a million crashes of volumes, hundreds of servers killed.
soak:
	@sh tests/install.sh $(PYTHON) $(VENV) soak
	$(VENV)/bin/pip install --quiet --disable-pip-version-check torch
	$(VENV)/bin/python -m pytest -q -rs crates/fiche-python/tests/test_torch.py
	PROPTEST_CASES=20000 FICHE_CRASHES=1000000 cargo test --release -p fiche
	FICHE_KILLS=200 cargo test --release -p fiche-cli --test cli killed -- --nocapture
	fuzz/run.sh 3600

# Codecs that write by pointers, interpreted: needs nightly Rust with its component miri, and takes ten minutes.
miri:
	MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p fiche --no-default-features --test lz4 --test bewalgo -- \
	    borders_of damage_is what_is_wrong streams_made
	MIRIFLAGS=-Zmiri-disable-isolation cargo +nightly miri test -p fiche --no-default-features --lib -- a_small_block_stays

# DATA is a file or a folder. Add ARGS=--index for an archive of 2^26 blocks; for bench-rlz, --points for
# reads of a few bytes, --reads for reads of 16 KiB beside zstd and hybrid,
# --packing for how fast these pack, --dict=4,16,64 for the dictionary's size in MiB, --only=lz4,hybrid-4 for some methods.
bench:
	cargo bench --quiet -p fiche --bench archive -- $(ARGS) $(DATA)

bench-deflate:
	cargo bench --quiet -p fiche --bench deflate -- $(ARGS) $(DATA)

bench-rlz:
	cargo bench --quiet -p fiche --bench rlz -- $(ARGS) $(DATA)

# The papers' modes of retrieval, beside peers: DATA is a list of folders. ARGS=--cold measures from the
# device as well, which needs root, as mounting does; --lean measures less, within an hour.
bench-archive:
	@sh tests/install.sh $(PYTHON) $(VENV) peers
	cargo run --release --quiet -p fiche-bench -- archive $(ARGS) $(DATA) -o crates/fiche-bench/results

# What fiche advise foretells beside what comes of it, and instructions of reading (with Valgrind): DATA is a list
# of files.
bench-advise:
	cargo run --release --quiet -p fiche-bench -- advise $(DATA) -o crates/fiche-bench/results/advice

# Files of a folder, DATA, on a server that is 20 ms away: requests, bytes and time.
bench-remote:
	@sh tests/install.sh $(PYTHON) $(VENV) peers
	cargo build --release --quiet -p fiche-cli
	FICHE_PYTHON=$(VENV)/bin/python cargo run --release --quiet -p fiche-bench -- remote $(ARGS) $(DATA) \
	    -o crates/fiche-bench/results

# Files of a folder, DATA, by their names from Python.
bench-files:
	@sh tests/install.sh $(PYTHON) $(VENV) peers
	cargo build --release --quiet -p fiche-cli
	FICHE_PYTHON=$(VENV)/bin/python cargo run --release --quiet -p fiche-bench -- files $(ARGS) $(DATA) \
	    -o crates/fiche-bench/results

# Gzip files read anywhere, and what partitions cost: DATA is a list of folders.
bench-streams:
	@sh tests/install.sh $(PYTHON) $(VENV) peers
	cargo build --release --quiet -p fiche-bench
	FICHE_PYTHON=$(VENV)/bin/python target/release/fiche-bench streams $(ARGS) $(DATA) -o crates/fiche-bench/results
	target/release/fiche-bench partitions $(DATA) -o crates/fiche-bench/results/partitions.csv

# A few bytes out of units: DATA is a folder of them.
bench-extract:
	cargo run --release --quiet -p fiche-bench -- extract $(ARGS) $(DATA) -o crates/fiche-bench/results

# Events as the paper on ROOT's compression measures them, and trees of ROOT files beside uproot, Parquet, Lance, Vortex, ArrayRecord and
# HDF5: DATA is a list of folders with such files.
bench-events:
	@sh tests/install.sh $(PYTHON) $(VENV) peers
	cargo run --release --quiet -p fiche-bench -- events $(ARGS) -o crates/fiche-bench/results
	$(VENV)/bin/pip install --quiet --disable-pip-version-check --force-reinstall --no-deps .
	mkdir -p target/events
	for tree in HZZ-zlib.root:events Zmumu-zlib.root:events issue-85.root:Hyp3O2 issue412.root:test demo-double32.root:T hepdata-example.root:ntuple; do \
	    $(VENV)/bin/python -m fiche.events.root repack "$$(find $(DATA) -name "uproot-$${tree%:*}" | head -1):$${tree#*:}" -f -q \
	        -o "target/events/$$(basename $${tree%:*} .root).fiche" || exit 1; \
	done
	cargo run --release --quiet -p fiche-bench -- baskets target/events/*.fiche -o crates/fiche-bench/results
	$(VENV)/bin/python crates/fiche-bench/python/events.py $(DATA) --tiled 200 -o crates/fiche-bench/results \
	    --timed uproot-HZZ-zlib.root,uproot-Zmumu-zlib.root,uproot-issue-85.root,uproot-issue412.root,uproot-hepdata-example.root,uproot-demo-double32.root,uproot-issue243-new.root

# Codecs in one buffer, by acceleration and level, on chunks and on single pages, beside others; and lengths that LZ4 finds: DATA is a list of files and
# folders, each a data set.
bench-codec:
	@sh tests/install.sh $(PYTHON) $(VENV) peers
	cargo run --release --quiet -p fiche-bench -- codec $(DATA) --generated $(ARGS) -o crates/fiche-bench/results

# Codecs on pages, beside copies to one buffer and back, and by threads: DATA as above.
bench-pages:
	cargo run --release --quiet -p fiche-bench -- pages $(DATA) --generated $(ARGS) -o crates/fiche-bench/results

# Full volumes: what is written below, what writers notice, a day of use. Ten minutes.
bench-cleaning:
	cargo run --release --quiet -p fiche-bench -- cleaning $(ARGS) -o crates/fiche-bench/results/cleaning

# Disks by fio: volumes, files by QEMU's server, file systems that compress. Needs root, 40 GB and half an hour.
bench-volume:
	@sh tests/install.sh $(PYTHON) $(VENV) peers
	cargo build --release --quiet -p fiche-cli
	cargo run --release --quiet -p fiche-bench -- volume $(ARGS) -o crates/fiche-bench/results/volume

# What they take is below target/data: mbox, office-pdf, linux-6.1 and binaries (ARGS=--mail, --data say where else).
bench-applications bench-space:
	@sh tests/install.sh $(PYTHON) $(VENV) peers
	cargo run --release --quiet -p fiche-bench -- $(@:bench-%=%) $(ARGS) -o crates/fiche-bench/results/$(@:bench-%=%)

bench-counts:
	cargo run --release --quiet -p fiche-bench -- counts $(DATA) -o crates/fiche-bench/results/counts

# Writes what is made from the code: docs/format.md, and golden files that are missing.
bless:
	FICHE_BLESS=1 cargo test --quiet -p fiche --test format_doc
	FICHE_BLESS=1 cargo test --quiet -p fiche-capi
	FICHE_BLESS=1 cargo test --quiet -p fiche --test readme
	FICHE_BLESS=1 cargo test --quiet -p fiche --test golden good_files_read
	FICHE_BLESS=1 cargo test --quiet -p fiche --test volume golden::good
	FICHE_BLESS=1 cargo test --quiet -p fiche --test volume golden::bad
	FICHE_BLESS=1 cargo test --quiet -p fiche --test phrases --test events golden
	FICHE_BLESS=1 cargo test --quiet -p fiche --test golden bad_files

clean:
	cargo clean
