#compdef dcp
# Completion of dcp for zsh; dcp completion zsh prints it.
_dcp() {
    local -a commands
    commands=(
        'ls:list what is in a checkpoint'
        'cat:write a tensor'\''s bytes, an object as JSON, or an extra file'
        'stat:find out what the numbers of tensors are like'
        'diff:compare two checkpoints'
        'convert:write a checkpoint in another form\: DCP, .pt, safetensors, Hugging Face, GGUF'
        'verify:check every file, checksum and chunk'
        'repair:rebuild a lost .metadata'
        'list:list the checkpoints of a training run'
        'latest:find the latest whole checkpoint of a run'
        'prune:remove old checkpoints of a run'
        'pin:keep a checkpoint of a run from being pruned'
        'mirror:copy the checkpoints of a run that another place lacks'
        'watch:see what a training run is saving, and when it will again'
        'report:draw how a run'\''s saves went, as a page for a browser'
        'bench:measure saving and loading in a directory'
        'help:print the commands, or the options of one'
        'completion:print what completes command lines in a shell'
    )
    local line state
    _arguments -S \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '1: :->command' '*:: :->rest'
    [[ $state != command ]] || _describe command commands
    [[ $state = rest ]] || return
    case $line[1] in
    ls)
        _arguments -s -S \
            '*--include=[Only such names, and what is below them\: * is any run of characters, ? one, \[a-z\] one of a set. May be given several times.]:GLOB: ' \
            '*-i+[Only such names, and what is below them\: * is any run of characters, ? one, \[a-z\] one of a set. May be given several times.]:GLOB: ' \
            '*--exclude=[Not such names. May be given several times.]:GLOB: ' \
            '*-x+[Not such names. May be given several times.]:GLOB: ' \
            '*--sort=[In which order\: stored, name, size (the largest first) or dtype.]:ORDER:(stored name size dtype)' \
            '*-s+[In which order\: stored, name, size (the largest first) or dtype.]:ORDER:(stored name size dtype)' \
            '*--reverse[The other way round.]' \
            '*-r[The other way round.]' \
            '*--tree[As a tree of the parts of names, with the bytes below each.]' \
            '*-t[As a tree of the parts of names, with the bytes below each.]' \
            '*--totals[Totals by the first parts of names, and by dtype, instead of names.]' \
            '*-T[Totals by the first parts of names, and by dtype, instead of names.]' \
            '*--depth=[How many parts of names\: of --tree all by default, of --totals 1.]:N: ' \
            '*-d+[How many parts of names\: of --tree all by default, of --totals 1.]:N: ' \
            '*--files[Which file holds what, and where in it.]' \
            '*-f[Which file holds what, and where in it.]' \
            '*--json[Everything as JSON\: paths, chunks, files and whole values too.]' \
            '*-j[Everything as JSON\: paths, chunks, files and whole values too.]' \
            '*--take=[Of a training checkpoint of DeepSpeed, Megatron-Core or torch_checkpointing\: model, the weights as trained, under the model'\''s names; masters, the optimizer'\''s fp32 weights under the same names; or all.]:WHAT:(model masters all)' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    cat)
        _arguments -s -S \
            '*--slice=[Only a part of a tensor, as in Python\: 0\:4,\:,2 are the first four of the first dimension, all of the second, and index 2 of the third. Dimensions that are not named are whole.]:RANGES: ' \
            '*-s+[Only a part of a tensor, as in Python\: 0\:4,\:,2 are the first four of the first dimension, all of the second, and index 2 of the third. Dimensions that are not named are whole.]:RANGES: ' \
            '*--format=[How a tensor is written\: raw, which is the default\: its bytes, row-major and little-endian; text\: numbers, a row of the last dimension on a line; npy\: a file of NumPy, where bfloat16 and floats of 8 bits become float32.]:FORMAT:(raw text npy)' \
            '*-f+[How a tensor is written\: raw, which is the default\: its bytes, row-major and little-endian; text\: numbers, a row of the last dimension on a line; npy\: a file of NumPy, where bfloat16 and floats of 8 bits become float32.]:FORMAT:(raw text npy)' \
            '*--json[What it is and its value, as JSON.]' \
            '*-j[What it is and its value, as JSON.]' \
            '*--take=[Of a training checkpoint of DeepSpeed, Megatron-Core or torch_checkpointing\: model, the weights as trained, under the model'\''s names; masters, the optimizer'\''s fp32 weights under the same names; or all.]:WHAT:(model masters all)' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    stat)
        _arguments -s -S \
            '*--exclude=[Not such names. May be given several times.]:GLOB: ' \
            '*-x+[Not such names. May be given several times.]:GLOB: ' \
            '*--depth=[A line for all that have the first N parts of their names in common, instead of one for each tensor.]:N: ' \
            '*-d+[A line for all that have the first N parts of their names in common, instead of one for each tensor.]:N: ' \
            '*--threads=[That read; as many as there are processors, up to 8, by default. The result is the same.]:N: ' \
            '*--json[All of it, as JSON.]' \
            '*-j[All of it, as JSON.]' \
            '*--take=[Of a training checkpoint of DeepSpeed, Megatron-Core or torch_checkpointing\: model, the weights as trained, under the model'\''s names; masters, the optimizer'\''s fp32 weights under the same names; or all.]:WHAT:(model masters all)' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    diff)
        _arguments -s -S \
            '*--atol=[Numbers are equal if they differ by no more than this, and by --rtol. NaN is equal to NaN.]:NUMBER: ' \
            '*-a+[Numbers are equal if they differ by no more than this, and by --rtol. NaN is equal to NaN.]:NUMBER: ' \
            '*--rtol=[This, times the absolute value in B, is added to --atol.]:NUMBER: ' \
            '*-r+[This, times the absolute value in B, is added to --atol.]:NUMBER: ' \
            '*--any-dtype[Compare the values of tensors of different dtypes, too, instead of saying that these differ.]' \
            '*-d[Compare the values of tensors of different dtypes, too, instead of saying that these differ.]' \
            '*--names-only[Compare names, kinds, dtypes and shapes, and read no data.]' \
            '*-n[Compare names, kinds, dtypes and shapes, and read no data.]' \
            '*--include=[Only such names, and what is below them. May be given several times.]:GLOB: ' \
            '*-i+[Only such names, and what is below them. May be given several times.]:GLOB: ' \
            '*--exclude=[Not such names. May be given several times.]:GLOB: ' \
            '*-x+[Not such names. May be given several times.]:GLOB: ' \
            '*--prefix-a=[Of A only what is below PREFIX, without it\: --prefix-a model compares the model of a training checkpoint with one that was exported.]:PREFIX: ' \
            '*--prefix-b=[The same of B.]:PREFIX: ' \
            '*--threads=[That read; as many as there are processors, up to 8, by default.]:N: ' \
            '*--quiet[Print nothing but errors; the exit status says it.]' \
            '*-q[Print nothing but errors; the exit status says it.]' \
            '*--json[The differences, as JSON.]' \
            '*-j[The differences, as JSON.]' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    convert)
        _arguments -s -S \
            '*--to=[dcp, pt, safetensors, hf (a Hugging Face directory) or gguf. Without it the suffix of DST decides\: .pt, .pth, .bin, .ckpt, .safetensors or .gguf.]:FORM:(dcp pt safetensors hf gguf)' \
            '*-t+[dcp, pt, safetensors, hf (a Hugging Face directory) or gguf. Without it the suffix of DST decides\: .pt, .pth, .bin, .ckpt, .safetensors or .gguf.]:FORM:(dcp pt safetensors hf gguf)' \
            '*--include=[Take only such names, and what is below them. May be given several times.]:GLOB: ' \
            '*-i+[Take only such names, and what is below them. May be given several times.]:GLOB: ' \
            '*--exclude=[Leave such names out, and what is below them. May be given several times.]:GLOB: ' \
            '*-x+[Leave such names out, and what is below them. May be given several times.]:GLOB: ' \
            '*--rename=[Give a name, or all names below it, another one. With stars FROM is a pattern, and the stars of TO stand for what those matched. May be given several times; the first that matches counts.]:FROM=TO: ' \
            '*--model-only[Take what is below model, module, state_dict, model_state_dict or network, without that key, and leave out objects where the form has no place for them.]' \
            '*-m[Take what is below model, module, state_dict, model_state_dict or network, without that key, and leave out objects where the form has no place for them.]' \
            '*--masters[Take the optimizer'\''s fp32 weights of a training checkpoint, under the names of the model'\''s.]' \
            '*--all[Take all of a training checkpoint\: the model below "model", the optimizer'\''s state, and the rest.]' \
            '*-a[Take all of a training checkpoint\: the model below "model", the optimizer'\''s state, and the rest.]' \
            '*--unstack[Give each layer of the model a tensor of its own, where Megatron-Core stacks them in one.]' \
            '*--dtype=[Convert floating-point tensors to float64, float32, float16 or bfloat16, as PyTorch does.]:DTYPE: ' \
            '*--dequantize=[Compute quantized weights as bf16 or fp32, bit for bit as their reference does. Without it they are copied as they are stored.]:DTYPE: ' \
            '*--transform=[Rename, join, split, stack, transpose, cast, drop and tie tensors by the rules in FILE.]:FILE:_files' \
            '*--inverse[Apply the inverse of the rules.]' \
            '*--config=[The config.json whose numbers the rules name, and by which a GGUF file is written. Without it, that of a Hugging Face directory which is converted.]:FILE:_files' \
            '*--tied=[What becomes of lm_head.weight where it equals the embedding bit for bit\: keep or drop. Without it, a Hugging Face directory is written without it if config.json says that both are tied.]:WHAT:(keep drop)' \
            '*--shard-size=[Most bytes in a file of a Hugging Face directory, as 5GB; 50GB by default.]:SIZE: ' \
            '*--gguf-type=[Of the matrices of a GGUF file\: f32, f16, bf16 or q8_0. Without it, that of the first one.]:TYPE:(f32 f16 bf16 q8_0)' \
            '*--ranks=[Write a DCP directory as N ranks do.]:N: ' \
            '*--zstd[Compress a DCP directory; takes some 5 MiB more for each thread.]' \
            '*--no-sync[Do not wait until the data is durable.]' \
            '*--dry-run[Write nothing, and print the names, dtypes and shapes that would be written.]' \
            '*-n[Write nothing, and print the names, dtypes and shapes that would be written.]' \
            '*--resume[If it is interrupted or fails, keep what is done in DST.partial; and continue what an earlier call with the same arguments has left there. DCP directories need several ranks\: the files of finished ranks are kept.]' \
            '*--threads=[Threads that read and write.]:N: ' \
            '*--quiet[Print nothing but errors.]' \
            '*-q[Print nothing but errors.]' \
            '*--json[What was done, as JSON.]' \
            '*-j[What was done, as JSON.]' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    verify)
        _arguments -s -S \
            '*--repair[First rebuild a .metadata that is lost or damaged from the shard files, as dcp repair does. What could not be recovered is printed. Data is not changed.]' \
            '*--like=[With --repair. For files that PyTorch wrote, which say no names\: another checkpoint of the same job, saved by as many ranks. Streams that agree with it in place, length, dtype and shape get its names; what does not is listed and left out, and the exit status is 1.]:OTHER: ' \
            '*--quiet[Show no progress.]' \
            '*-q[Show no progress.]' \
            '*--json[What was found, as JSON.]' \
            '*-j[What was found, as JSON.]' \
            '*--take=[Of a training checkpoint of DeepSpeed, Megatron-Core or torch_checkpointing\: model, the weights as trained, under the model'\''s names; masters, the optimizer'\''s fp32 weights under the same names; or all.]:WHAT:(model masters all)' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    repair)
        _arguments -s -S \
            '*--like=[For files that PyTorch wrote, which say no names\: another checkpoint of the same job, saved by as many ranks. Streams that agree with it in place, length, dtype and shape get its names; what does not is listed and left out, and the exit status is 1.]:OTHER: ' \
            '*--save=[The save that is wanted, if the directory holds files of several.]:ID: ' \
            '*--allow-gaps[File numbers may be missing, as where ranks had nothing to write.]' \
            '*--dry-run[Publish nothing, and print what would be.]' \
            '*-n[Publish nothing, and print what would be.]' \
            '*--json[What was found and done, as JSON.]' \
            '*-j[What was found and done, as JSON.]' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    list)
        _arguments -s -S \
            '*--best=[Mark the checkpoint with the least of this number, which is among the info in metadata.json.]:METRIC: ' \
            '*--higher[Mark the one with the most of it.]' \
            '*--json[What is found, as JSON.]' \
            '*-j[What is found, as JSON.]' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    latest)
        _arguments -s -S \
            '*--json[What is found, as JSON.]' \
            '*-j[What is found, as JSON.]' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    prune)
        _arguments -s -S \
            '*--last=[Keep the newest N.]:N: ' \
            '*--every=[Keep those whose step is a multiple of N.]:N: ' \
            '*--best=[Keep the best N by --metric.]:N: ' \
            '*--metric=[A number among the caller'\''s fields in metadata.json. Less of it is better.]:NAME: ' \
            '*--higher[More of the metric is better.]' \
            '*--younger=[Keep those that were saved less long ago.]:SECONDS: ' \
            '*--identity=[Of the run, if the directory holds several.]:NAME: ' \
            '*--layout=[Prune a run that another framework keeps, as dcp list --json names it.]:NAME: ' \
            '*--dry-run[Remove nothing, and print what would go.]' \
            '*-n[Remove nothing, and print what would go.]' \
            '*--json[What was done, as JSON.]' \
            '*-j[What was done, as JSON.]' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    pin)
        _arguments -s -S \
            '*--remove[It may be pruned again.]' \
            '*--json[What was done, as JSON.]' \
            '*-j[What was done, as JSON.]' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    mirror)
        _arguments -s -S \
            '*--dry-run[Write nothing, and print what would be copied.]' \
            '*-n[Write nothing, and print what would be copied.]' \
            '*--rate=[Move at most N bytes a second, as in 64M, those that are read back among them.]:N: ' \
            '*--identity=[The run that is meant, if several share the directory.]:NAME: ' \
            '*--quiet[Show no progress.]' \
            '*-q[Show no progress.]' \
            '*--json[What was done, as JSON.]' \
            '*-j[What was done, as JSON.]' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    watch)
        _arguments -s -S \
            '*--once[Print one line, and end.]' \
            '*-1[Print one line, and end.]' \
            '*--json[An object on each line.]' \
            '*-j[An object on each line.]' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    report)
        _arguments -s -S \
            '*--json[The figures, as JSON, instead of a page.]' \
            '*-j[The figures, as JSON, instead of a page.]' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    bench)
        _arguments -s -S \
            '*--bytes=[Of all tensors together; 1G by default. SIZE is a number of bytes, such as 64K, 64M or 64G.]:SIZE: ' \
            '*-b+[Of all tensors together; 1G by default. SIZE is a number of bytes, such as 64K, 64M or 64G.]:SIZE: ' \
            '*--tensors=[How many tensors; 100 by default.]:N: ' \
            '*--ranks=[Ranks, each of which is a thread; 1 by default.]:N: ' \
            '*--threads=[Threads of each rank.]:N: ' \
            '*--repeat=[Saves and loads; medians are shown. 3 by default.]:N: ' \
            '*--io=[How files are read and written\: auto, ring or pool, direct or buffered; or two of them, as ring,direct.]:WAY: ' \
            '*--compression=[none, zstd or zstd\:LEVEL.]:KIND: ' \
            '*--no-sync[Do not wait for the disk.]' \
            '*--write-rate=[Most bytes a second that each rank writes.]:SIZE: ' \
            '*--io-threads=[Threads that write a file.]:N: ' \
            '*--io-priority=[Of reads and writes\: kept, low or idle.]:PRIORITY:(kept low idle)' \
            '*--memory-limit=[Most extra memory of each rank.]:SIZE: ' \
            '*--page-cache=[What stays of saved files in the page cache\: any, kept, dropped, or auto, which is kept if memory is plenty.]:WHAT:(any kept dropped auto)' \
            '*--check-replicas=[Every rank has all tensors, and they are compared\: off, sampled or all.]:HOW:(off sampled all)' \
            '*--plan=[Estimate what a save of so many bytes costs by the same ranks, and how often to save (Daly'\''s formula) at several mean times between failures.]:SIZE: ' \
            '*-p+[Estimate what a save of so many bytes costs by the same ranks, and how often to save (Daly'\''s formula) at several mean times between failures.]:SIZE: ' \
            '*--mtbf=[The mean time between failures of the whole job, for --plan; without --plan for a save of --bytes.]:HOURS: ' \
            '*--json[All figures, as JSON.]' \
            '*-j[All figures, as JSON.]' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:_files'
        ;;
    help)
        _arguments -s -S \
            '*--man[The manual page, as roff.]' \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:(ls cat stat diff convert verify repair list latest prune pin mirror watch report bench help completion)'
        ;;
    completion)
        _arguments -s -S \
            '*--help[Print this help.]' \
            '*-h[Print this help.]' \
            '*--storage=[Work in the storage that MODULE, a shared object, brings\: it exports the function dcp_storage_module of dcp/storage.h, which is given ARGUMENT. Only the file of a trusted author is safe to load\: its code is run.]:MODULE\[,ARGUMENT\]:_files' \
            '*--version[Print the version.]' \
            '*-V[Print the version.]' \
            '*:argument:(bash zsh fish)'
        ;;
    esac
}
_dcp "$@"
