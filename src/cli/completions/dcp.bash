# Completion of dcp for bash; dcp completion bash prints it.
_dcp_words() { COMPREPLY=($(compgen -W "$1" -- "$word")); }
_dcp_files() {
    local IFS=$'\n'
    compopt -o default 2>/dev/null || COMPREPLY=($(compgen -f -- "$word"))
}
_dcp() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command= at
    local options=" --help -h --storage --version -V" words= only=
    COMPREPLY=()
    [ "$word" != = ] || word=
    [ "$before" != = ] || before=${COMP_WORDS[COMP_CWORD-2]}
    for ((at = 1; at < COMP_CWORD; at++)); do
        case ${COMP_WORDS[at]} in
        --) only=1 ;;
        --storage) [ "${COMP_WORDS[at+1]}" = = ] && ((at += 2)) || ((at += 1)) ;;
        -*) ;;
        *) command=${COMP_WORDS[at]}; break ;;
        esac
    done
    for ((; at < COMP_CWORD; at++)); do [ "${COMP_WORDS[at]}" != -- ] || only=1; done
    case $command in
    "") case $before in --storage) _dcp_files; return ;; esac
        words="ls cat stat diff convert verify repair list latest prune pin mirror watch report bench help completion" ;;
    ls)
        options=" --help -h --storage --version -V --include -i --exclude -x --sort -s --reverse -r --tree -t --totals -T --depth -d --files -f --json -j --take"
        case $before in
        --storage) _dcp_files; return ;;
        --include | -i) return ;;
        --exclude | -x) return ;;
        --sort | -s) _dcp_words "stored name size dtype"; return ;;
        --depth | -d) return ;;
        --take) _dcp_words "model masters all"; return ;;
        esac
        ;;
    cat)
        options=" --help -h --storage --version -V --slice -s --format -f --json -j --take"
        case $before in
        --storage) _dcp_files; return ;;
        --slice | -s) return ;;
        --format | -f) _dcp_words "raw text npy"; return ;;
        --take) _dcp_words "model masters all"; return ;;
        esac
        ;;
    stat)
        options=" --help -h --storage --version -V --exclude -x --depth -d --threads --json -j --take"
        case $before in
        --storage) _dcp_files; return ;;
        --exclude | -x) return ;;
        --depth | -d) return ;;
        --threads) return ;;
        --take) _dcp_words "model masters all"; return ;;
        esac
        ;;
    diff)
        options=" --help -h --storage --version -V --atol -a --rtol -r --any-dtype -d --names-only -n --include -i --exclude -x --prefix-a --prefix-b --threads --quiet -q --json -j"
        case $before in
        --storage) _dcp_files; return ;;
        --atol | -a) return ;;
        --rtol | -r) return ;;
        --include | -i) return ;;
        --exclude | -x) return ;;
        --prefix-a) return ;;
        --prefix-b) return ;;
        --threads) return ;;
        esac
        ;;
    convert)
        options=" --help -h --storage --version -V --to -t --include -i --exclude -x --rename --model-only -m --masters --all -a --unstack --dtype --dequantize --transform --inverse --config --tied --shard-size --gguf-type --ranks --zstd --no-sync --dry-run -n --resume --threads --quiet -q --json -j"
        case $before in
        --storage) _dcp_files; return ;;
        --to | -t) _dcp_words "dcp pt safetensors hf gguf"; return ;;
        --include | -i) return ;;
        --exclude | -x) return ;;
        --rename) return ;;
        --dtype) return ;;
        --dequantize) return ;;
        --transform) _dcp_files; return ;;
        --config) _dcp_files; return ;;
        --tied) _dcp_words "keep drop"; return ;;
        --shard-size) return ;;
        --gguf-type) _dcp_words "f32 f16 bf16 q8_0"; return ;;
        --ranks) return ;;
        --threads) return ;;
        esac
        ;;
    verify)
        options=" --help -h --storage --version -V --repair --like --quiet -q --json -j --take"
        case $before in
        --storage) _dcp_files; return ;;
        --like) return ;;
        --take) _dcp_words "model masters all"; return ;;
        esac
        ;;
    repair)
        options=" --help -h --storage --version -V --like --save --allow-gaps --dry-run -n --json -j"
        case $before in
        --storage) _dcp_files; return ;;
        --like) return ;;
        --save) return ;;
        esac
        ;;
    list)
        options=" --help -h --storage --version -V --best --higher --json -j"
        case $before in
        --storage) _dcp_files; return ;;
        --best) return ;;
        esac
        ;;
    latest)
        options=" --help -h --storage --version -V --json -j"
        case $before in
        --storage) _dcp_files; return ;;
        esac
        ;;
    prune)
        options=" --help -h --storage --version -V --last --every --best --metric --higher --younger --identity --layout --dry-run -n --json -j"
        case $before in
        --storage) _dcp_files; return ;;
        --last) return ;;
        --every) return ;;
        --best) return ;;
        --metric) return ;;
        --younger) return ;;
        --identity) return ;;
        --layout) return ;;
        esac
        ;;
    pin)
        options=" --help -h --storage --version -V --remove --json -j"
        case $before in
        --storage) _dcp_files; return ;;
        esac
        ;;
    mirror)
        options=" --help -h --storage --version -V --dry-run -n --rate --identity --quiet -q --json -j"
        case $before in
        --storage) _dcp_files; return ;;
        --rate) return ;;
        --identity) return ;;
        esac
        ;;
    watch)
        options=" --help -h --storage --version -V --once -1 --json -j"
        case $before in
        --storage) _dcp_files; return ;;
        esac
        ;;
    report)
        options=" --help -h --storage --version -V --json -j"
        case $before in
        --storage) _dcp_files; return ;;
        esac
        ;;
    bench)
        options=" --help -h --storage --version -V --bytes -b --tensors --ranks --threads --repeat --io --compression --no-sync --write-rate --io-threads --io-priority --memory-limit --page-cache --check-replicas --plan -p --mtbf --json -j"
        case $before in
        --storage) _dcp_files; return ;;
        --bytes | -b) return ;;
        --tensors) return ;;
        --ranks) return ;;
        --threads) return ;;
        --repeat) return ;;
        --io) return ;;
        --compression) return ;;
        --write-rate) return ;;
        --io-threads) return ;;
        --io-priority) _dcp_words "kept low idle"; return ;;
        --memory-limit) return ;;
        --page-cache) _dcp_words "any kept dropped auto"; return ;;
        --check-replicas) _dcp_words "off sampled all"; return ;;
        --plan | -p) return ;;
        --mtbf) return ;;
        esac
        ;;
    help)
        options=" --help -h --storage --version -V --man" words="ls cat stat diff convert verify repair list latest prune pin mirror watch report bench help completion"
        case $before in
        --storage) _dcp_files; return ;;
        esac
        ;;
    completion)
        options=" --help -h --storage --version -V" words="bash zsh fish"
        case $before in
        --storage) _dcp_files; return ;;
        esac
        ;;
    esac
    case $only$word in
    -*) _dcp_words "$options" ;;
    *) if [ "$words" ]; then _dcp_words "$words"; else _dcp_files; fi ;;
    esac
}
complete -F _dcp dcp
