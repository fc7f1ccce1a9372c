#!/bin/sh
# Puts header, libraries and a file for pkg-config where compilers find them: `install.sh PREFIX FOLDER`, with the
# folder that Cargo built in. DESTDIR goes before the prefix in the file system, as packagers want it.
set -eu
prefix=$1
built=$2
here=$(dirname "$0")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' "$here/../../Cargo.toml" | head -1)
to="${DESTDIR:-}$prefix"

mkdir -p "$to/include" "$to/lib/pkgconfig"
install -m 644 "$here/include/fiche.h" "$to/include/fiche.h"
install -m 755 "$built/libfiche_capi.so" "$to/lib/libfiche.so.$version"
ln -sf "libfiche.so.$version" "$to/lib/libfiche.so.0"
ln -sf libfiche.so.0 "$to/lib/libfiche.so"
install -m 644 "$built/libfiche_capi.a" "$to/lib/libfiche.a"
sed -e "s|@prefix@|$prefix|" -e "s|@version@|$version|" "$here/fiche.pc.in" >"$to/lib/pkgconfig/fiche.pc"
