#!/bin/sh
# Holds src/ to the arrows of src/README.md: reads every #include "..." and fails on one that they do not have.
# usage: check_arrows.sh SOURCE_DIRECTORY
set -eu
cd "$1/src"
find . -name '*.[ch]' | sed 's|^\./||' | xargs grep -Hn '^#include "' | awk -F'[:"]' '
BEGIN {
    allowed["base"] = " base dcp "
    allowed["state"] = " base state dcp "
    allowed["format"] = " base state format dcp "
    allowed["plan"] = " base state plan dcp "
    allowed["group"] = " base state group dcp "
    allowed["device"] = " base state device dcp "
    allowed["storage"] = " base state format device storage dcp "
    allowed["checkpoint"] = " base state format plan group device storage checkpoint dcp "
    allowed["convert"] = " base state format plan convert dcp " # on public headers, and what makes other forms
    allowed["run"] = " base run dcp " # on public headers, and the conveniences of base
    # On public headers alone.
    allowed["cli"] = " dcp "; allowed["mpi"] = " dcp mpi "; allowed["cuda"] = " dcp cuda "
    allowed["nccl"] = " dcp nccl cuda " # visit is part of both
}
{
    slash = index($1, "/"); room = substr($1, 1, slash - 1)
    target = index($4, "/") ? substr($4, 1, index($4, "/") - 1) : "dcp"
    bad = !index(allowed[room], " " target " ")
    # A save by many ranks from one process, and reads of many tensors at once, which only a conversion needs.
    if (room == "convert" && $4 ~ "^checkpoint/(save/save_as_ranks|view/view_read)[.]h$") bad = 0
    # Implementations of the storage table are seen by nobody.
    if (match($4, "^storage/(files|memory)/") && index($1, substr($4, 1, RLENGTH)) != 1) bad = 1
    # What they stand on is the table, and what carries transfers for a queue.
    if (match($1, "^storage/(files|memory)/") && $4 ~ "^(storage|state|format|device)/" &&
        index($4, substr($1, 1, RLENGTH)) != 1 && $4 != "storage/transfer_pool.h") bad = 1
    # The options of a save or load belong to the top room; dcp/types.h has what others need of them.
    if (room ~ "^(base|state|format|plan|group|device|storage)$" &&
        $4 ~ "^dcp/(save|load|checkpoint|async|estimate|(load|save)_planner|storage_(reader|writer))[.]h$") bad = 1
    if (bad) { print "src/" $1 ":" $2 ": " room " must not include \"" $4 "\""; faults++ }
    count++
}
END {
    if (count < 500) { print "only " count + 0 " includes were found: wrong directory?"; exit 1 }
    exit faults > 0
}'
