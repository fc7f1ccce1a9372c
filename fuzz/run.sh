#!/bin/sh
# Runs each fuzz target for so many seconds, started from golden/, as many at a time as there are cores. Needs a C++ compiler
# for libFuzzer, but neither nightly Rust nor cargo-fuzz, with which the targets work too.
set -eu
cd "$(dirname "$0")"
target=$(rustc -vV | sed -n 's/^host: //p')
if [ "${1:-}" = --one ]; then
    name=$2 seconds=$3
    mkdir -p "../target/fuzz/corpus/$name"
    log=../target/fuzz/$name.log
    # What these take is no file, and short.
    more=
    case $name in volume | history | nbd) more='-len_control=0 -max_len=800' ;; esac
    # shellcheck disable=SC2086
    if "../target/fuzz/$target/release/$name" "../target/fuzz/corpus/$name" ../golden/v1 ../golden/v1/streams ../golden/v1/phrases ../golden/bad \
        -max_total_time="$seconds" -max_len=20000 $more -rss_limit_mb=2048 -timeout=20 \
        -print_final_stats=1 -artifact_prefix=../target/fuzz/ >"$log" 2>&1
    then
        runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
        echo "fuzz $name: $runs runs in $seconds seconds, nothing found"
        exit 0
    fi
    tail -n 40 "$log"
    echo "fuzz $name: found something, see $log"
    # With this xargs begins no other one.
    exit 255
fi
seconds=${1:-20}
if ! command -v c++ >/dev/null 2>&1; then
    echo "SKIP: fuzz targets: no C++ compiler"
    exit 0
fi
export CARGO_TARGET_DIR=../target/fuzz
# Coverage of our code is what guides the fuzzer. No address sanitizer, which needs nightly Rust: the loops that
# check once for many steps have safe twins, which unit tests hold them against, and the C codecs are
# fuzzed where they are made.
RUSTFLAGS="--cfg fuzzing -Ccodegen-units=4 -Cpasses=sancov-module
    -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
    -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares" \
    cargo build --quiet --release --target "$target"
printf '%s\n' archive sections codecs codings models split inflate streams phrases events volume history nbd |
    xargs -P "$(nproc)" -I '{}' ./run.sh --one '{}' "$seconds"
