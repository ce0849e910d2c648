#!/bin/sh
# Runs what this bundle holds on the GPU of this machine and writes one report. Needs the driver, NVRTC and a shell; nothing is built
# or fetched. A part that fails stops nothing: its status stands in the report, and what it printed in the log. Where no GPU can be used the
# report says why, nothing else is run, and the script fails.
#
#   ./run.sh [--out FOLDER] [--work FOLDER] [--budget SECONDS] [--smoke] [PART…]
#
# Parts, in this order unless some are named: devices conformance tests models cli bench sanitizer.
#   --out FOLDER      where report.md, report.json, log.txt and the bench's own report go (./report)
#   --work FOLDER     where models of random weights are made for the bench; up to 45 GB (a temporary folder)
#   --budget SECONDS  the bench begins nothing new after that (1200)
#   --smoke           the bench with tiny sizes: whether it runs
# BENCH_ARGS are more arguments of the bench ("--only operators --filter q4_k"); LLAMA_BENCH and PYTHON name other programs;
# OGIVE_CUDA_PATH names folders with NVRTC and cuBLAS where they are not found.
set -u
here=$(cd "$(dirname "$0")" && pwd)
out=report work= budget=1200 smoke= parts=
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=$2; shift ;;
        --work) work=$2; shift ;;
        --budget) budget=$2; shift ;;
        --smoke) smoke=--smoke ;;
        -h | --help) sed -n '2,16s/^# \{0,1\}//p' "$0"; exit 0 ;;
        devices | conformance | tests | models | cli | bench | sanitizer) parts="$parts $1" ;;
        *) echo "run.sh: unknown argument $1; --help tells" >&2; exit 2 ;;
    esac
    shift
done
[ -n "$parts" ] || parts="devices conformance tests models cli bench sanitizer"
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
temporary=$(mktemp -d) || exit 1
trap 'rm -rf "$temporary"' EXIT
[ -n "$work" ] || work=$temporary/work
# A test that finds no device fails here; golden models are those of the bundle; compiled kernels are shared by all parts.
export OGIVE_REQUIRE_CUDA=1 OGIVE_GOLDEN="$here/golden" OGIVE_CUDA_CACHE="${OGIVE_CUDA_CACHE:-$temporary/kernels}"
"$here/bin/ogive" devices >"$temporary/devices" 2>&1
no_gpu=$(sed -n 's/^cuda:0  *.*not available: //p' "$temporary/devices" | tr '|"\\' '  ' | tr -d '\000-\037')
log=$out/log.txt
: >"$log"
: >"$temporary/rows"
: >"$temporary/json"

# step NAME COMMAND…: runs it, notes how it ended and how long it took.
step() {
    name=$1
    shift
    echo "== $name" | tee -a "$log"
    begin=$(date +%s)
    "$@" >"$temporary/output" 2>&1
    status=$?
    seconds=$(($(date +%s) - begin))
    # A test program that finds no test of that name runs none and ends well: here that is status 4.
    if [ $status = 0 ] && grep -aq '^test result: ok\. 0 passed' "$temporary/output"; then status=4; fi
    cat "$temporary/output" >>"$log"
    # What a test program or a sanitizer counts at its end.
    said=$(grep -aE '^test result:|ERROR SUMMARY|cases passed' "$temporary/output" | tail -n 8 | tr '\n|"\\' '  ' | tr -d '\000-\037')
    echo "== $name: status $status, $seconds s $said" | tee -a "$log"
    echo "| $name | $status | $seconds | $said |" >>"$temporary/rows"
    echo "{\"name\": \"$name\", \"status\": $status, \"seconds\": $seconds, \"said\": \"$said\"}" >>"$temporary/json"
    report
}

# Test programs come packed. They are unpacked beside this script or, where nothing can be written there, for this run.
tests=$here/tests
unpack() {
    [ ! -d "$tests" ] || return 0
    for folder in "$here/unpacking.$$" "$temporary/unpacked"; do
        if mkdir "$folder" 2>/dev/null && tar -xzf "$here/tests.tar.gz" -C "$folder" && mv "$folder/tests" "$tests"; then
            rmdir "$folder"
            return 0
        fi
        rm -rf "$folder"
        tests=$temporary/tests
    done
    echo "run.sh: tests.tar.gz cannot be unpacked" >&2
}

# not_run NAME: notes that there is no GPU for it.
not_run() {
    echo "== $1: not run, as no GPU can be used: $no_gpu" | tee -a "$log"
    echo "| $1 | not run | 0 | no GPU can be used |" >>"$temporary/rows"
    echo "{\"name\": \"$1\", \"status\": null, \"seconds\": 0, \"said\": \"no GPU can be used: $no_gpu\"}" >>"$temporary/json"
    report
}

# Written anew after each step: what is known is kept, whatever ends the run.
report() {
    {
        echo "# Ogive's bundle on this machine"
        echo
        sed 's/^/- /' "$here/about.txt"
        if [ -n "$no_gpu" ]; then
            printf '\n**No GPU can be used here: %s**\n\n```\n' "$no_gpu"
            cat "$temporary/devices"
            echo '```'
        fi
        echo
        echo "| part | status | seconds | what it counted |"
        echo "|---|---:|---:|---|"
        cat "$temporary/rows"
        echo
        [ -f "$out/bench/report.md" ] && cat "$out/bench/report.md"
    } >"$out/report.md"
    {
        echo '{"parts": ['
        sed '$!s/$/,/' "$temporary/json"
        echo '], "bench":'
        if [ -f "$out/bench/report.json" ]; then cat "$out/bench/report.json"; else echo null; fi
        echo '}'
    } >"$out/report.json"
}

# In single precision both draw the same tokens; as a program gets it, a draw that was close may differ, so that is for reading.
same_text() {
    "$here/bin/ogive" run --quiet --device cuda --temp 0 --max-tokens 60 "Once upon a time" || return 1
    echo
    "$here/bin/ogive" run --quiet --device cuda --exact --temp 0 --max-tokens 60 "Once upon a time" >"$temporary/cuda.txt" || return 1
    "$here/bin/ogive" run --quiet --device cpu --exact --temp 0 --max-tokens 60 "Once upon a time" >"$temporary/cpu.txt" || return 1
    cat "$temporary/cuda.txt"
    cmp "$temporary/cuda.txt" "$temporary/cpu.txt"
}

for part in $parts; do
    if [ -n "$no_gpu" ] && [ "$part" != devices ]; then
        not_run "$part"
        continue
    fi
    case $part in conformance | tests | models | sanitizer) unpack ;; esac
    case $part in
        devices)
            step "nvidia-smi" nvidia-smi
            step "ogive devices" "$here/bin/ogive" devices
            ;;
        # The suite and the models are there once for each NVRTC; on a device there is one, so one set is run.
        conformance)
            step "conformance" "$tests/test-conformance" nvrtc_12 --nocapture
            # What programs have: products as weights are kept, few rows in integers.
            step "conformance as opened" "$tests/test-conformance" every_device --include-ignored --nocapture
            ;;
        tests)
            for name in units compute int8 prompts split moe order overlap replay memory measure; do
                step "test $name" "$tests/test-$name" --nocapture --test-threads 1
            done
            ;;
        models) step "golden models" "$tests/test-models" --skip nvrtc_11 --skip nvrtc_13 --nocapture --test-threads 1 ;;
        cli) step "the same text as the CPU" same_text ;;
        bench)
            # shellcheck disable=SC2086
            step "bench" "$here/bin/ogive-gpu-bench" --out "$out/bench" --work "$work" --budget "$budget" $smoke ${BENCH_ARGS:-} \
                --llama-bench "${LLAMA_BENCH:-llama-bench}" --python "${PYTHON:-python3}"
            ;;
        sanitizer)
            if ! command -v compute-sanitizer >/dev/null; then
                step "compute-sanitizer" sh -c 'echo "compute-sanitizer is not on the PATH"; exit 127'
                continue
            fi
            # Each slows the device by far more than ten times, so a few cases of each kind.
            export OGIVE_CUDA_FILTER="${OGIVE_CUDA_FILTER:-linear/q4_k,linear/f16,attend/window,attend_cache,rms_norm,rope/,moe,best,store}"
            # What models are opened with rounds, and has kernels of its own for that.
            for tool in memcheck racecheck initcheck synccheck; do
                for program in "conformance nvrtc_12" "compute every_format_in_bf16" "prompts caches" "int8" "moe mixtures"; do
                    # shellcheck disable=SC2086
                    set -- $program
                    name=$1
                    shift
                    step "compute-sanitizer $tool $name" compute-sanitizer --tool "$tool" --error-exitcode 9 \
                        "$tests/test-$name" "$@" --nocapture --test-threads 1
                done
            done
            ;;
    esac
done
echo "$out/report.md"
[ -z "$no_gpu" ]
