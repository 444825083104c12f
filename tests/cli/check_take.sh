# ls, cat, stat, diff and verify of other frameworks' training checkpoints: check_take.sh DCP TRAINING SCRATCH
set -eu
dcp=$1 training=$2 scratch=$3
rm -rf "$scratch" && mkdir -p "$scratch"
run=$training/deepspeed_zero2_w2/checkpoint

fail() { echo "check_take.sh: $1" >&2; exit 1; }

for checkpoint in "$training"/*/checkpoint; do
    "$dcp" convert --quiet --no-sync "$checkpoint" "$scratch/model.safetensors"
    "$dcp" diff --any-dtype --rtol 0.01 "$checkpoint" "$scratch/model.safetensors" >"$scratch/diff" ||
        fail "$checkpoint is not what it is converted into: $(cat "$scratch/diff")"
    rm "$scratch/model.safetensors"
    "$dcp" verify "$checkpoint" >"$scratch/verify" || fail "$checkpoint has faults: $(cat "$scratch/verify")"
    grep -q "^note: .*: a .*checkpoint" "$scratch/verify" || fail "it is not said what $checkpoint is"
done

"$dcp" ls "$run" | head -n 1 | grep -q "^DeepSpeed checkpoint, ZeRO-1 or ZeRO-2, of 2 ranks$" || fail "what it is"
"$dcp" ls --json "$run" | head -n 1 | grep -q '^{"form": "deepspeed", ' || fail "what it is, as JSON"
inner=$training/megatron_distopt_w2/checkpoint/iter_0000002
"$dcp" ls "$inner" | head -n 2 | tail -n 1 | grep -q "^embedding" || fail "a metadata.json of Megatron-Core is taken for one of a save"
"$dcp" ls "$run" | tail -n 1 | grep -q "^18 tensors, 708 bytes, 0 objects$" || fail "the model"
"$dcp" ls --take masters "$run" | tail -n 1 | grep -q "^18 tensors, 1.3 KiB (1298 bytes), 0 objects$" || fail "fp32 weights"
"$dcp" ls --take all "$run" | tail -n 1 | grep -q "^74 tensors, 3.6 KiB (3644 bytes), 48 objects$" || fail "all of it"
[ "$("$dcp" cat --take all "$run" global_steps)" = 3 ] || fail "an object"
"$dcp" stat --take all "$run" optim.emb.weight.fp32 | grep -q "^float32  *55 " || fail "numbers of a parameter of the optimizer"
"$dcp" cat --take masters "$run" emb.weight >"$scratch/one"
"$dcp" cat --take all "$run" optim.emb.weight.fp32 | cmp - "$scratch/one" || fail "the same weights under two names"
if "$dcp" ls --take optimizer "$run" 2>"$scratch/error"; then fail "an unknown word is taken"; fi
grep -q "it can be model, masters, all" "$scratch/error" || fail "what the words are is not said"
if "$dcp" verify --take masters "$training/../basic/ckpt" 2>"$scratch/error"; then fail "there are no fp32 weights"; fi
grep -q "fp32 weights" "$scratch/error" || fail "why not is not said: $(cat "$scratch/error")"
