#!/bin/sh
# Builds a program in another language over libdcp, and runs it: build_and_run.sh rust|go INCLUDE LIBDIR DIRECTORY
# Exits with 77 where there is no compiler for it.
set -eu
language=$1 include=$2 libdir=$3 directory=$4
source=$(cd "$(dirname "$0")" && pwd)

need() {
    for tool in "$@"; do
        command -v "$tool" >/dev/null || { echo "skipped: there is no $tool"; exit 77; }
    done
}

build_rust() {
    need bindgen rustc
    bindgen "$include/dcp.h" -o dcp.rs --no-rustfmt-bindings --allowlist-function 'dcp_.*' --allowlist-type 'dcp_.*' --allowlist-var 'DCP_.*' \
        -- -I"$include"
    # What bindgen has made of each struct is compared with what the C compiler would make of it.
    rustc --test --crate-name layouts -A warnings -L "$libdir" -l dcp -o layouts dcp.rs
    LD_LIBRARY_PATH="$libdir" ./layouts --quiet >layouts.log || { cat layouts.log; exit 1; }
    cp "$source/bindings.rs" .
    rustc --edition 2021 -D warnings -L "$libdir" -l dcp -o bindings bindings.rs
}

build_go() {
    need go gcc
    cp "$source/bindings.go" .
    CGO_CFLAGS="-I$include" CGO_LDFLAGS="-L$libdir -ldcp" GOCACHE="$PWD/cache" GOFLAGS=-modcacherw GO111MODULE=off \
        CGO_ENABLED=1 go build -o bindings bindings.go
}

rm -rf "$directory"
mkdir -p "$directory"
cd "$directory"
"build_$language"
LD_LIBRARY_PATH="$libdir" ./bindings checkpoints >found.txt
diff "$source/expected.txt" found.txt
ls checkpoints/whole/.metadata checkpoints/rows/.metadata
