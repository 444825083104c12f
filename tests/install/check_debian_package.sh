#!/bin/sh
# Makes the Debian package of a build, unpacks it, and builds and runs the consumer and the command with what it has:
#     check_debian_package.sh BUILD DIRECTORY CC CXX
set -eu
build=$1 directory=$2 cc=$3 cxx=$4
source=$(cd "$(dirname "$0")" && pwd)/consumer
for tool in cpack dpkg-deb dpkg-shlibdeps file; do
    command -v $tool >/dev/null || { echo "skipped: there is no $tool"; exit 77; }
done
rm -rf "$directory"
mkdir -p "$directory"
cpack --config "$build/CPackConfig.cmake" -G DEB -D CPACK_DEBIAN_COMPRESSION_TYPE=none -B "$directory/made" >"$directory/log" 2>&1 || { cat "$directory/log"; exit 1; }
package=$(ls "$directory"/made/*.deb)

depends=$(dpkg-deb -f "$package" Depends)
for library in libc6 libdeflate libxxhash libcjson; do
    case $depends in
        *$library*) ;;
        *) echo "$library is not among the dependencies: $depends"; exit 1 ;;
    esac
done
[ "$(dpkg-deb -f "$package" Package)" = libdcp ] || { echo "name: $(dpkg-deb -f "$package" Package)"; exit 1; }

dpkg-deb -x "$package" "$directory/root"
"$directory/root/usr/bin/dcp" --version
cmake -S "$source" -B "$directory/consumer" -DCMAKE_PREFIX_PATH="$directory/root/usr" \
    -DCMAKE_C_COMPILER="$cc" -DCMAKE_CXX_COMPILER="$cxx" >"$directory/log" || { cat "$directory/log"; exit 1; }
cmake --build "$directory/consumer" >"$directory/log" 2>&1 || { cat "$directory/log"; exit 1; }
grep -q "^dcp_DIR:PATH=$directory/root/" "$directory/consumer/CMakeCache.txt" || { grep dcp_DIR "$directory/consumer/CMakeCache.txt"; exit 1; }
cd "$directory/consumer"
ctest --output-on-failure
