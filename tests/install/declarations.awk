# Lists what preprocessed headers declare, one name on each line: "struct NAME", "field STRUCT NAME", "enum NAME",
# "enumerator ENUM NAME", "typedef NAME" or "function NAME". Of the text, only what comes from files in the folder
# OURS counts, as line markers say. Attributes have been defined away.
/^# [0-9]+ "/ {
    ours = index($3, "\"" OURS) == 1
    next
}
ours { text = text " " $0 }

END {
    gsub(/[][(){};,=*]/, " & ", text)
    count = split(text, tokens, " ")
    for (at = 1; at <= count; at++)
        declaration()
}

function name_like(token) { return token ~ /^[A-Za-z_][A-Za-z_0-9]*$/ }

function fail(what) {
    print "declarations.awk cannot read " what > "/dev/stderr"
    failed = 1
    exit 1
}

# One declaration at the top of a file, from tokens[at] to its end.
function declaration(    kind, tag, last, function_name, is_typedef, parentheses) {
    for (; at <= count; at++) {
        if (tokens[at] == "{" && kind != "" && function_name == "") {
            print kind, tag
            body(kind, tag)
        } else if (tokens[at] == "{") {
            print "function", function_name
            skip_block()
            return
        } else if (tokens[at] == "(") {
            if (parentheses == 0 && function_name == "")
                function_name = tokens[at + 1] == "*" ? tokens[at + 2] : last
            parentheses++
        } else if (tokens[at] == ")")
            parentheses--
        else if (tokens[at] == ";")
            break
        else if (tokens[at] == "typedef")
            is_typedef = 1
        else if ((tokens[at] == "struct" || tokens[at] == "enum" || tokens[at] == "union") && parentheses == 0) {
            kind = tokens[at]
            tag = tokens[at + 1]
        } else if (name_like(tokens[at]))
            last = tokens[at]
    }
    if (is_typedef)
        print "typedef", function_name != "" ? function_name : last
    else if (function_name != "")
        print "function", function_name
    else if (kind == "")
        fail("the declaration before \"" last "\"")
}

function skip_block(    depth) {
    for (; at <= count; at++) {
        depth += (tokens[at] == "{") - (tokens[at] == "}")
        if (depth == 0)
            return
    }
}

# The fields of a struct, or the values of an enum; stops at the closing brace.
function body(kind, tag,    name, depth, brackets, taken) {
    for (at++; tokens[at] != "}"; at++) {
        if (at > count || tokens[at] == "{")
            fail("what is nested in " tag)
        if (tokens[at] == "(") {
            if (depth == 0 && tokens[at + 1] == "*" && !taken) {
                name = tokens[at + 2]
                taken = 1
            }
            depth++
        } else if (tokens[at] == ")")
            depth--
        else if (tokens[at] == "[" || tokens[at] == "=")
            taken = 1
        else if (depth == 0 && tokens[at] == "," && kind != "enum")
            fail("two fields of " tag " in one declaration")
        else if (depth == 0 && (tokens[at] == ";" || tokens[at] == ",")) {
            print kind == "enum" ? "enumerator" : "field", tag, name
            taken = 0
            name = ""
        } else if (!taken && name_like(tokens[at]))
            name = tokens[at]
    }
    if (name != "")
        print kind == "enum" ? "enumerator" : "field", tag, name
}
