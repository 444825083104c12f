# ls, cat and verify of several directories, and of stages: check_union.sh DCP FIXTURES SCRATCH
set -eu
dcp=$1 fixtures=$2 scratch=$3
rm -rf "$scratch" && mkdir -p "$scratch/run"
cp -r "$fixtures/shapes/ckpt" "$scratch/run/pp0"
cp -r "$fixtures/objects/ckpt" "$scratch/run/pp1"

fail() { echo "check_union.sh: $1" >&2; exit 1; }

"$dcp" ls "$scratch/run" >"$scratch/stages"
"$dcp" ls "$scratch/run/pp0" "$scratch/run/pp1" >"$scratch/named"
cmp "$scratch/stages" "$scratch/named" || fail "stages and named directories list alike"
tail -n 1 "$scratch/stages" | grep -q "^15 tensors, 5.6 KiB (5736 bytes), 61 objects$" || fail "both directories are listed"
"$dcp" ls --json "$scratch/run" | grep -q '"file": "pp1/__0_0.distcp"' || fail "files are named with their directory"
"$dcp" cat "$scratch/run/pp0" t02 >"$scratch/alone"
"$dcp" cat "$scratch/run" t02 | cmp - "$scratch/alone" || fail "a tensor of the first directory"
"$dcp" cat "$scratch/run/pp1" "$scratch/run/pp0" t02 | cmp - "$scratch/alone" || fail "a tensor of the second directory"
"$dcp" stat "$scratch/run" t02 >"$scratch/stat"
"$dcp" stat "$scratch/run/pp0" t02 | cmp - "$scratch/stat" || fail "numbers of a tensor of a stage"
"$dcp" stat "$scratch/run" | tail -n 1 | grep -q "^several  *5180 .*all of them$" || fail "numbers of all stages"
mkdir -p "$scratch/other" && cp -r "$scratch/run/pp0" "$scratch/other/pp1" && cp -r "$scratch/run/pp1" "$scratch/other/pp0"
"$dcp" diff "$scratch/run" "$scratch/other" >"$scratch/diff" || fail "stages in another order differ: $(cat "$scratch/diff")"
if "$dcp" diff "$scratch/run" "$scratch/run/pp0" >"$scratch/diff"; then fail "a stage is not the whole"; fi
tail -n 1 "$scratch/diff" | grep -q "^62 of 76 names differ$" || fail "what the stage lacks: $(tail -n 1 "$scratch/diff")"
"$dcp" verify "$scratch/run" | grep -q "^0 faults$" || fail "stages verify"
"$dcp" verify "$fixtures/hf_single/ckpt" | grep -q "^note: .*safetensors files have no checksums: only lengths and names were checked$" ||
    fail "verify says what it cannot check"
"$dcp" verify "$scratch/run" | grep -q "^note: " && fail "verify can check all of ours"
"$dcp" verify "$scratch/run/pp1" "$scratch/run/pp0" | grep -q "^0 faults$" || fail "named directories verify"

# A stage of ours beside one of PyTorch, whose files have no footers, and whose metadata.json is not ours.
"$dcp" convert -q --no-sync "$fixtures/shapes/ckpt" "$scratch/mixed/pp0" --to dcp && cp -r "$scratch/run/pp1" "$scratch/mixed"
echo nonsense >"$scratch/mixed/pp1/metadata.json"
"$dcp" verify "$scratch/mixed" | grep -q "^0 faults$" || fail "stages of two libraries: $("$dcp" verify "$scratch/mixed")"
: >"$scratch/mixed/pp0/metadata.json"
"$dcp" verify "$scratch/mixed" >"$scratch/faults" && fail "an empty metadata.json is a fault"
grep -q "^pp0/metadata.json:0: -: metadata.json: ends at byte 0, " "$scratch/faults" || fail "$(cat "$scratch/faults")"
echo '{"save_id": "another"}' >"$scratch/mixed/pp0/metadata.json"
"$dcp" verify "$scratch/mixed" | grep -q "^note: pp0/metadata.json is of another save$" || fail "that of another save is told"

if "$dcp" ls "$fixtures/torch_2.7.1_single/ckpt" "$fixtures/torch_2.4.1_single/ckpt" 2>"$scratch/message"; then
    fail "other values of a name are refused"
fi
grep -q "one value in .*2.7.1.* and another in .*2.4.1" "$scratch/message" || fail "both directories are named"
rm "$scratch/run/pp0/.metadata"
if "$dcp" verify "$scratch/run" >"$scratch/faults"; then fail "a stage that was interrupted is a fault"; fi
grep -q "pp0" "$scratch/faults" || fail "the stage is named"
