#!/bin/sh
# The page of dcp report as a browser sees it: check_report_browser.sh DCP MAKE_RUN DIRECTORY
# Exits with 77 (skipped) where there is no Chromium.
set -u
dcp=$1 make_run=$2 directory=$3
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || {
    echo "no Chromium: skipped"
    exit 77
}
rm -rf "$directory"
mkdir -p "$directory"

fail() {
    echo "$*" >&2
    exit 1
}

"$make_run" "$directory/run" 10 20 30 || fail "no run"
"$dcp" report "$directory/run" >"$directory/report.html" || fail "no report"
# What the browser makes of the page, with the errors that it has found: none of ours has a script.
timeout 100 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$directory/profile" \
    --screenshot="$directory/report.png" --window-size=1050,1200 "file://$directory/report.html" >"$directory/said" 2>&1 ||
    fail "the browser fails: $(tail -5 "$directory/said")"
timeout 100 "$browser" --headless --no-sandbox --disable-gpu --disable-dev-shm-usage --user-data-dir="$directory/profile" \
    --dump-dom "file://$directory/report.html" >"$directory/page" 2>>"$directory/said" ||
    fail "the browser fails: $(tail -5 "$directory/said")"
[ "$(grep -o '<rect' "$directory/page" | wc -l)" -eq 12 ] || fail "not 3 bars in each drawing: $(cat "$directory/page")"
[ "$(grep -o '</svg>' "$directory/page" | wc -l)" -eq 4 ] || fail "not 4 drawings"
grep -q '<title>Saves of .*</title>' "$directory/page" || fail "no title"
# A picture of a blank page is far smaller.
[ "$(wc -c <"$directory/report.png")" -gt 15000 ] || fail "the picture is empty"
rm -rf "$directory/profile"
