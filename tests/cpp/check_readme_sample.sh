#!/bin/sh
# Builds the sample in C++ of README.md, with a main() around it, and runs it:
#     check_readme_sample.sh README CXX INCLUDE LIBDIR DIRECTORY [FLAG ...]
set -eu
readme=$1 cxx=$2 include=$3 libdir=$4 directory=$5
shift 5
rm -rf "$directory"
mkdir -p "$directory"
cd "$directory"
sed -n '/^```cpp$/,/^```$/p' "$readme" | sed '/^```/d' >sample.txt
lines=$(wc -l <sample.txt)
[ "$lines" -gt 5 ] && [ "$lines" -le 15 ] || { echo "the sample has $lines lines"; exit 1; }
{
    printf '#include <cstdio>\n'
    grep '^#include' sample.txt
    printf 'int main()\n{\n'
    grep -v '^#include' sample.txt
    printf 'return rows.size() == 512 && state["step"].as<int>() == 1000 ? 0 : 1;\n}\n'
} >sample.cpp
"$cxx" -std=c++17 -Wall -Wextra -Wpedantic -Werror -I"$include" "$@" -o sample sample.cpp -L"$libdir" -ldcp \
    -Wl,-rpath,"$libdir"
./sample
