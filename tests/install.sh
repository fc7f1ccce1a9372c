#!/bin/sh
# Installs what the tests need, as far as it may: `tests/install.sh PYTHON VENV`; with `peers` behind
# that, what fiche-bench compares with as well.
set -eu
python=$1
venv=$2

# Installs Debian packages when one of the programs is missing and we may.
need() {
    program=$1
    shift
    if command -v "$program" >/dev/null 2>&1; then
        return
    fi
    if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
        apt-get install -y -qq "$@" >/dev/null 2>&1 ||
            { apt-get update -qq >/dev/null 2>&1 && apt-get install -y -qq "$@" >/dev/null 2>&1; } || true
    fi
    command -v "$program" >/dev/null 2>&1 || echo "SKIP: $program could not be installed"
}

need cc gcc
need c++ g++
need mount mount
need fusermount3 fuse3
need kill procps
need nginx nginx
need pigz pigz
need lz4 lz4
need xz xz-utils
need zstd zstd
need bgzip tabix
need bsdcat libarchive-tools
need pkg-config pkg-config
need valgrind valgrind
need qemu-io qemu-utils
need nbdinfo libnbd-bin
need openssl openssl
need fio fio
need sqlite3 sqlite3
need losetup mount
need mkfs.ext4 e2fsprogs
need mkfs.xfs xfsprogs
need mkfs.btrfs btrfs-progs
need "$python" python3

if [ ! -x "$venv/bin/python" ] && command -v "$python" >/dev/null 2>&1; then
    mkdir -p "$(dirname "$venv")"
    "$python" -m venv "$venv" >/dev/null 2>&1 || {
        rm -rf "$venv"
        if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
            apt-get update -qq >/dev/null 2>&1 || true
            apt-get install -y -qq python3-venv >/dev/null 2>&1 || true
        fi
        "$python" -m venv "$venv" >/dev/null 2>&1 || rm -rf "$venv"
    }
fi
if [ "${3:-}" = soak ]; then
    # Its programs are not where others are.
    ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || { apt-get install -y -qq postgresql >/dev/null 2>&1 || true; }
fi
if [ "${3:-}" = peers ]; then
    need nbdkit nbdkit
    need dbench dbench
    ls /usr/lib/postgresql/*/bin/pgbench >/dev/null 2>&1 || { apt-get install -y -qq postgresql >/dev/null 2>&1 || true; }
    need bgzip tabix
    # htslib itself, which has no program.
    ldconfig -p 2>/dev/null | grep -q libhts.so.3 || { apt-get install -y -qq libhts3 >/dev/null 2>&1 || true; }
    need mksquashfs squashfs-tools
    need squashfuse squashfuse
    need mkfs.erofs erofs-utils
    # Modules, and the packages that have them where these have other names.
    for pair in aiohttp array_record blosc2 duckdb:duckdb==1.1.3 h5py indexed_gzip lance:pylance rapidgzip ratarmountcore vortex:vortex-data; do
        "$venv/bin/python" -c "import ${pair%%:*}" 2>/dev/null ||
            "$venv/bin/pip" install --quiet --disable-pip-version-check "${pair##*:}" ||
            echo "SKIP: the Python module ${pair%%:*} could not be installed"
    done
fi
if [ -x "$venv/bin/python" ]; then
    "$venv/bin/python" -c "import blake3, zstandard" 2>/dev/null ||
        "$venv/bin/pip" install --quiet --disable-pip-version-check blake3 zstandard ||
        { echo "SKIP: the Python modules blake3 and zstandard could not be installed"; rm -rf "$venv"; }
fi
if [ -x "$venv/bin/python" ]; then
    modules="awkward boto3 fsspec hypothesis indexed_gzip moto[server] mypy numcodecs pandas pyarrow pytest uproot xarray zarr"
    for module in $modules; do
        "$venv/bin/python" -c "import ${module%%[*}" 2>/dev/null ||
            "$venv/bin/pip" install --quiet --disable-pip-version-check "$module" ||
            echo "SKIP: the Python module $module could not be installed"
    done
fi
