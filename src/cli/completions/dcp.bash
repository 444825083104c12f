# Completion of dcp for bash; dcp completion bash prints it.
_dcp() {
    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}
    local commands="ls cat stat diff convert verify repair list latest prune pin mirror watch report bench help completion" options=
    if [ "$COMP_CWORD" -eq 1 ]; then
        COMPREPLY=($(compgen -W "$commands --help --version" -- "$word"))
        return
    fi
    case $command in
    ls)
        options=" --help -h --storage --version -V --include -i --exclude -x --sort -s --reverse -r --tree -t --totals -T --depth -d --files -f --json -j --take"
        case $before in
        --sort) COMPREPLY=($(compgen -W "stored name size dtype" -- "$word")); return ;;
        --take) COMPREPLY=($(compgen -W "model masters all" -- "$word")); return ;;
        esac
        ;;
    cat)
        options=" --help -h --storage --version -V --slice -s --format -f --json -j --take"
        case $before in
        --format) COMPREPLY=($(compgen -W "raw text npy" -- "$word")); return ;;
        --take) COMPREPLY=($(compgen -W "model masters all" -- "$word")); return ;;
        esac
        ;;
    stat)
        options=" --help -h --storage --version -V --exclude -x --depth -d --threads --json -j --take"
        case $before in
        --take) COMPREPLY=($(compgen -W "model masters all" -- "$word")); return ;;
        esac
        ;;
    diff)
        options=" --help -h --storage --version -V --atol -a --rtol -r --any-dtype -d --names-only -n --include -i --exclude -x --prefix-a --prefix-b --threads --quiet -q --json -j"
        case $before in
        esac
        ;;
    convert)
        options=" --help -h --storage --version -V --to -t --include -i --exclude -x --rename --model-only -m --masters --all -a --unstack --dtype --dequantize --transform --inverse --config --tied --shard-size --gguf-type --ranks --zstd --no-sync --threads --quiet -q --json -j"
        case $before in
        --to) COMPREPLY=($(compgen -W "dcp pt safetensors hf gguf" -- "$word")); return ;;
        --tied) COMPREPLY=($(compgen -W "keep drop" -- "$word")); return ;;
        --gguf-type) COMPREPLY=($(compgen -W "f32 f16 bf16 q8_0" -- "$word")); return ;;
        esac
        ;;
    verify)
        options=" --help -h --storage --version -V --repair --quiet -q --json -j --take"
        case $before in
        --take) COMPREPLY=($(compgen -W "model masters all" -- "$word")); return ;;
        esac
        ;;
    repair)
        options=" --help -h --storage --version -V --save --allow-gaps --dry-run -n --json -j"
        case $before in
        esac
        ;;
    list)
        options=" --help -h --storage --version -V --best --higher --json -j"
        case $before in
        esac
        ;;
    latest)
        options=" --help -h --storage --version -V --json -j"
        case $before in
        esac
        ;;
    prune)
        options=" --help -h --storage --version -V --last --every --best --metric --higher --younger --identity --dry-run -n --json -j"
        case $before in
        esac
        ;;
    pin)
        options=" --help -h --storage --version -V --remove --json -j"
        case $before in
        esac
        ;;
    mirror)
        options=" --help -h --storage --version -V --dry-run -n --rate --identity --json -j"
        case $before in
        esac
        ;;
    watch)
        options=" --help -h --storage --version -V --once -1 --json -j"
        case $before in
        esac
        ;;
    report)
        options=" --help -h --storage --version -V --json -j"
        case $before in
        esac
        ;;
    bench)
        options=" --help -h --storage --version -V --bytes -b --tensors --ranks --threads --repeat --io --compression --no-sync --write-rate --io-threads --io-priority --memory-limit --page-cache --check-replicas --plan -p --mtbf --json -j"
        case $before in
        --io-priority) COMPREPLY=($(compgen -W "kept low idle" -- "$word")); return ;;
        --page-cache) COMPREPLY=($(compgen -W "any kept dropped auto" -- "$word")); return ;;
        --check-replicas) COMPREPLY=($(compgen -W "off sampled all" -- "$word")); return ;;
        esac
        ;;
    help)
        options=" --help -h --storage --version -V --man"
        case $before in
        esac
        ;;
    completion)
        options=" --help -h --storage --version -V"
        case $before in
        esac
        ;;
    esac
    case $word in
    -*) COMPREPLY=($(compgen -W "$options" -- "$word")) ;;
    *) compopt -o filenames 2>/dev/null; COMPREPLY=($(compgen -f -- "$word")) ;;
    esac
}
complete -F _dcp dcp
