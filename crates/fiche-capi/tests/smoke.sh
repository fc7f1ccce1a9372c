#!/bin/sh
# The C interface as people use it: installed, found by pkg-config, compiled with every warning an error, under Valgrind.
# `smoke.sh FOLDER FICHE`, with the folder that Cargo built in, and the command.
set -eu
built=$1
fiche=$2
here=$(cd "$(dirname "$0")/.." && pwd)
for program in cc c++ pkg-config; do
    command -v "$program" >/dev/null 2>&1 || { echo "SKIP: the C interface: no $program"; exit 0; }
done
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

"$here/install.sh" "$dir/prefix" "$built"
export PKG_CONFIG_PATH="$dir/prefix/lib/pkgconfig" LD_LIBRARY_PATH="$dir/prefix/lib"
flags="-std=c11 -D_DEFAULT_SOURCE -Wall -Wextra -Werror -O1 -g"
for source in "$here"/tests/smoke.c "$here"/examples/*.c; do
    # shellcheck disable=SC2046
    cc $flags "$source" $(pkg-config --cflags --libs fiche) -lpthread -o "$dir/$(basename "$source" .c)"
done
readelf -d "$dir/smoke" 2>/dev/null | grep -q 'libfiche.so.0' || { echo "smoke is not linked with libfiche.so.0"; exit 1; }
# The library that is linked into a program, and the header as C++ reads it.
# shellcheck disable=SC2046
cc $flags "$here/examples/record.c" $(pkg-config --cflags fiche) "$dir/prefix/lib/libfiche.a" \
    $(pkg-config --static --libs-only-l fiche | sed 's/-lfiche//') -o "$dir/record-static"
printf '#include <fiche.h>\nint main() { return fiche_version()[0] == 0; }\n' >"$dir/plus.cc"
# shellcheck disable=SC2046
c++ -Wall -Wextra -Werror "$dir/plus.cc" $(pkg-config --cflags --libs fiche) -o "$dir/plus" && "$dir/plus"

# Records of several blocks, and many small ones.
mkdir "$dir/files"
i=0
while [ $i -lt 30 ]; do
    echo "record $i" >"$dir/files/$i"
    i=$((i + 1))
done
cat "$here"/src/*.rs "$here"/include/fiche.h "$here"/../fiche/src/codec/*.rs >"$dir/files/source"
name=files/source
for method in hybrid lz4; do
    "$fiche" pack -q "$dir/files" -o "$dir/$method.fiche" --method $method
    if command -v valgrind >/dev/null 2>&1; then
        valgrind -q --error-exitcode=9 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite \
            "$dir/smoke" "$dir/$method.fiche" "$name" "$dir/files/source"
    else
        echo "SKIP: Valgrind on the C interface"
        "$dir/smoke" "$dir/$method.fiche" "$name" "$dir/files/source"
    fi
    for record in record record-static; do
        "$dir/$record" "$dir/$method.fiche" "$name" | cmp - "$dir/files/source"
    done
done
if "$dir/record" "$dir/lz4.fiche" nothing 2>"$dir/said"; then echo "a record that is not there was read"; exit 1; fi
grep -q 'there is no "nothing"' "$dir/said"
"$dir/pages" <"$dir/files/source" | grep 'came back'
