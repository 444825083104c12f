#!/bin/sh
# Sees that all that carries a version follows the policy of README.md, "Versions":
# check_version.sh LIBDIR INCLUDE CMAKE NAME ...
set -eu
libdir=$1 include=$2 cmake=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

complain() {
    echo "$1"
    status=1
}

number() { sed -n "s/^#define DCP_VERSION_$1 *\"*\([0-9.]*\)\"*$/\1/p" "$include/dcp/version.h"; }
major=$(number MAJOR) minor=$(number MINOR) patch=$(number PATCH)
[ "$(number STRING)" = "$major.$minor.$patch" ] || complain "DCP_VERSION_STRING is not $major.$minor.$patch"

# Before 1.0 programs fit the releases of one minor version, from 1.0 on those of one major version.
if [ "$major" -eq 0 ]; then
    interface=$major.$minor
    fits="$major.$minor $major.$minor.0"
    others="$major.$((minor + 1)) $major.$((minor + 9)) $((major + 1)).0 $major.$minor.$((patch + 1))"
    [ "$minor" -eq 0 ] || others="$others $major.$((minor - 1))"
else
    interface=$major
    fits="$major $major.0 $major.$minor"
    others="$major.$((minor + 1)) $((major + 1)).0 $((major - 1)).0 $major.$minor.$((patch + 1))"
fi

for name; do
    soname=$(readelf -d "$libdir/lib$name.so" | sed -n 's/.*(SONAME).*\[\(.*\)\]/\1/p')
    [ "$soname" = "lib$name.so.$interface" ] || complain "SONAME is $soname, not lib$name.so.$interface"
    [ -e "$libdir/lib$name.so.$major.$minor.$patch" ] || complain "there is no lib$name.so.$major.$minor.$patch"
    # A node of symbols for each release that has added some, none of them later than this one.
    newest=$(nm -D --defined-only "$libdir/lib$name.so" | sed -n 's/.*@@*DCP_[A-Z_]*//p' | sort -uV | tail -n 1)
    [ "$(printf '%s\n' "$newest" "$major.$minor" | sort -V | tail -n 1)" = "$major.$minor" ] ||
        complain "lib$name.so has symbols of DCP_$newest, and is of version $major.$minor"
    file=$libdir/pkgconfig/$(echo "$name" | tr _ -).pc
    grep -qx "Version: $major.$minor.$patch" "$file" || complain "$file is not of version $major.$minor.$patch"
done

# finds VERSION: whether a project that asks for it gets the installed one.
finds() {
    rm -rf "$work/project"
    mkdir "$work/project"
    printf 'cmake_minimum_required(VERSION 3.22)\nproject(consumer LANGUAGES NONE)\nfind_package(dcp %s REQUIRED)\n' \
        "$1" >"$work/project/CMakeLists.txt"
    "$cmake" -S "$work/project" -B "$work/project/build" -Ddcp_DIR="$libdir/cmake/dcp" >"$work/printed" 2>&1
}
for version in $fits; do
    finds "$version" || complain "who asks for $version is refused: $(cat "$work/printed")"
done
for version in $others; do
    if finds "$version"; then
        complain "who asks for $version gets $major.$minor.$patch"
    elif ! grep -q 'considered but not accepted' "$work/printed"; then
        complain "who asks for $version is refused for another reason: $(cat "$work/printed")"
    fi
done
exit $status
