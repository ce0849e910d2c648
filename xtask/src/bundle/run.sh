#!/bin/sh
# Runs what this bundle holds on the GPU of this machine and writes one report. Needs the driver, NVRTC and a shell; nothing is built
# or fetched. A part that fails or hangs stops nothing: each step has a limit, each test a process of its own. How each ended stands in the
# report, and what it printed in the log. Where no GPU can be used the report says why, nothing else is run, and the script fails.
#
#   ./run.sh [--out FOLDER] [--work FOLDER] [--apart] [--seconds N] [--budget N] [--jobs N] [--patience N] [--smoke] [PART…]
#
# Parts, in this order unless some are named, so that what is known earliest is what is missed most:
#   devices      what is here: the driver, its devices, libraries, memory
#   cli          text of the built-in model, against the CPU's
#   conformance  the suite, in single precision and as programs open models
#   quick        the bench: ceilings, and prompts and tokens of three models
#   models       golden models
#   tests        the other tests
#   again        what failed, kernel by kernel, and under compute-sanitizer
#   bench        the bench, whole
#   sanitizer    compute-sanitizer over some of the suite
#
#   --out FOLDER   where report.md, report.json, log.txt, failures.txt and figures.jsonl go, written as they come (./report)
#   --work FOLDER  where models of random weights are made for the bench; up to 45 GB (a temporary folder)
#   --apart        programs are unpacked for this run alone, and this folder stays as small as it came
#   --seconds N    everything ends within so many; what there was no time for stands in the report (a day)
#   --budget N     the whole bench begins nothing new after so many seconds (1200)
#   --jobs N       so many tests at a time (as many as processors, 12 at most)
#   --patience N   steps may take N times as long as usual (1)
#   --smoke        the bench with tiny sizes: whether it runs
# BENCH_ARGS are more arguments of the bench ("--filter q4_k,q6_k"), BENCH_PARTS what it measures ("operators models start peers");
# LLAMA_BENCH and PYTHON name other programs; OGIVE_CUDA_PATH names folders with NVRTC and cuBLAS where they are not found.
set -u
here=$(cd "$(dirname "$0")" && pwd)
self=$here/run.sh

# within SECONDS: so many by the patience that was asked for, or what is left of all; status 1 where that is nothing.
within() {
    left=$((RUN_END - $(date +%s)))
    limit=$(($1 * RUN_PATIENCE))
    [ "$limit" -le "$left" ] || limit=$left
    [ "$limit" -ge 3 ] && echo "$limit"
}

# limited SECONDS COMMAND…: status 124 or 137 where it takes longer. In the foreground, so that who ends this script ends it.
limited() {
    seconds=$1
    shift
    if command -v timeout >/dev/null; then
        timeout --foreground -k 5 "$seconds" "$@" </dev/null
    else
        "$@" </dev/null
    fi
}

# plain: a text as a cell of a table and as a string of JSON.
plain() { tr '\n|"\\' '  ' | tr -d '\000-\037' | sed 's/ *$//'; }

# ran_some FILE: not so where a program found no test of that name, which ends well: here that is status 4.
ran_some() { ! grep -aq '^test result: ok\. 0 passed' "$1"; }

# one PROGRAM TEST SHARD: a test in a process of its own. The suite goes on behind the case after which the device is lost, or that never ended.
one() {
    name="$1 $2"
    [ "$3" = 0/1 ] || name="$name $3"
    after='' tries=0
    while [ $tries -lt 4 ]; do
        if ! limit=$(within "$RUN_LIMIT"); then
            echo "$name" >>"$RUN_TEMPORARY/$RUN_PART.late"
            return
        fi
        echo "== $name${after:+, behind $after}: begins" >>"$RUN_OUT/log.txt"
        said=$RUN_TEMPORARY/one.$$
        begin=$(date +%s)
        limited "$limit" env OGIVE_CUDA_SHARD="$3" OGIVE_CUDA_AFTER="$after" "$RUN_TESTS/test-$1" "$2" --exact --include-ignored \
            --nocapture --test-threads 1 >"$said" 2>&1
        status=$?
        ran_some "$said" || status=4
        ended="== $name: status $status, $(($(date +%s) - begin)) s"
        grep -aoE '[0-9]+ cases passed' "$said" >>"$RUN_TEMPORARY/$RUN_PART.cases"
        # What it did without a GPU is of no interest here.
        grep -aqE '^(test .* \.\.\. )?skipped: ' "$said" && ! grep -aq '^cuda: ' "$said" && echo "$name" >>"$RUN_TEMPORARY/$RUN_PART.skipped"
        { cat "$said"; echo "$ended"; } >>"$RUN_OUT/log.txt"
        if [ $status = 0 ]; then
            [ -n "$after" ] || echo "$name" >>"$RUN_TEMPORARY/$RUN_PART.passed"
            return
        fi
        [ -n "$after" ] || echo "$name" >>"$RUN_TEMPORARY/$RUN_PART.failed"
        echo "$1 $2 $3 ${after:--}" >>"$RUN_TEMPORARY/failed"
        { echo "$ended"; tail -n 60 "$said"; echo; } >>"$RUN_OUT/failures.txt"
        case $status in
            # Ended from outside, or by a signal: in the case that it named last.
            124 | 134 | 135 | 136 | 137 | 139) after=$(sed -n 's/^case \([^ ]*\): .*/\1/p' "$said" | tail -n 1) ;;
            *) after=$(sed -n 's/^cuda: lost after //p' "$said" | tail -n 1) ;;
        esac
        [ -n "$after" ] || return
        tries=$((tries + 1))
    done
}

# Greedy text of the built-in model in single precision, which both devices must draw alike.
same_text() {
    for device in cuda cpu; do
        "$RUN_BIN/ogive" run --quiet --device $device --exact --temp 0 --max-tokens 60 "Once upon a time" >"$RUN_TEMPORARY/$device.txt" || return 1
    done
    cat "$RUN_TEMPORARY/cuda.txt"
    cmp "$RUN_TEMPORARY/cuda.txt" "$RUN_TEMPORARY/cpu.txt"
}

# What is here, for whoever looks for a fault elsewhere.
machine() {
    for command in "uname -a" "nvidia-smi -q" "lscpu" "free -g" "df -h / /tmp /dev/shm" "ldd --version" \
        "which python3 nvcc ncu compute-sanitizer cuda-gdb" "ls /usr/local"; do
        echo "-- $command"
        # shellcheck disable=SC2086
        limited 10 $command 2>&1
    done
    env | grep -iE '^[^=]*(cuda|nvidia|virtual|^path|ld_library)' | sort
    "$RUN_BIN/ogive" devices --json
}

case ${1:-} in
    --one) shift; one "$@"; exit 0 ;;
    --same-text) same_text; exit $? ;;
    --machine) machine; exit 0 ;;
esac

out=report work='' apart='' total=86400 budget=1200 jobs='' smoke='' parts='' RUN_PATIENCE=1
while [ $# -gt 0 ]; do
    case $1 in
        --out) out=$2; shift ;;
        --work) work=$2; shift ;;
        --apart) apart=yes ;;
        --seconds) total=$2; shift ;;
        --budget) budget=$2; shift ;;
        --jobs) jobs=$2; shift ;;
        --patience) RUN_PATIENCE=$2; shift ;;
        --smoke) smoke=--smoke ;;
        -h | --help) sed -n '2,32s/^# \{0,1\}//p' "$0"; exit 0 ;;
        devices | cli | conformance | quick | models | tests | again | bench | sanitizer) parts="$parts $1" ;;
        *) echo "run.sh: unknown argument $1; --help tells" >&2; exit 2 ;;
    esac
    shift
done
[ -n "$parts" ] || parts="devices cli conformance quick models tests again bench sanitizer"
if [ -z "$jobs" ]; then
    jobs=$(nproc 2>/dev/null || echo 2)
    [ "$jobs" -le 12 ] || jobs=12
fi
RUN_END=$(($(date +%s) + total))
mkdir -p "$out" || exit 1
out=$(cd "$out" && pwd)
temporary=$(mktemp -d) || exit 1
trap 'rm -rf "$temporary"' EXIT
trap 'exit 143' INT TERM
[ -n "$work" ] || work=$temporary/work
RUN_OUT=$out RUN_TEMPORARY=$temporary RUN_BIN=$here/bin RUN_TESTS=$here/tests
export RUN_OUT RUN_TEMPORARY RUN_BIN RUN_TESTS RUN_END RUN_PATIENCE
log=$out/log.txt
: >"$log"
rm -f "$out/failures.txt" "$out/figures.jsonl"
: >"$temporary/rows"
: >"$temporary/json"
: >"$temporary/failed"

# Programs come packed. They are unpacked beside this script or, where nothing can or shall be written there, for this run.
if [ ! -d "$RUN_BIN" ]; then
    for to in "$here/unpacking.$$" "$temporary/unpacked"; do
        [ -z "$apart" ] || to=$temporary/unpacked
        mkdir "$to" 2>/dev/null || continue
        tar -xJf "$here/programs.tar.xz" -C "$to" 2>>"$log" || python3 -m tarfile -e "$here/programs.tar.xz" "$to" 2>>"$log" || {
            rm -rf "$to"
            continue
        }
        chmod +x "$to/bin/"* "$to/tests/"*
        if [ "$to" = "$temporary/unpacked" ]; then
            RUN_BIN=$to/bin RUN_TESTS=$to/tests
        else
            mv "$to/bin" "$to/tests" "$here" && rmdir "$to"
        fi
        break
    done
fi
[ -d "$RUN_BIN" ] || { echo "run.sh: programs.tar.xz cannot be unpacked; $log tells why" >&2; exit 1; }

# A test that finds no device fails here, and one that wants the emulator says so; golden models are those of the bundle; compiled kernels
# are shared by all parts.
export OGIVE_REQUIRE_CUDA=1 PTX_EMU_REQUIRED=0 OGIVE_GOLDEN="$(dirname "$self")/golden" OGIVE_CUDA_CACHE="${OGIVE_CUDA_CACHE:-$temporary/kernels}"
limited 60 "$RUN_BIN/ogive" devices >"$temporary/devices" 2>&1
no_gpu=$(sed -n 's/^cuda:0  *.*not available: //p' "$temporary/devices" | plain)

# row NAME STATUS SECONDS SAID: notes how a step ended. Reports are written anew: what is known is kept, whatever ends the run.
row() {
    echo "== $1: status $2, $3 s $4" | tee -a "$log"
    status=$2
    [ "$status" -eq "$status" ] 2>/dev/null || status=null
    echo "| $1 | $2 | $3 | $4 |" >>"$temporary/rows"
    echo "{\"name\": \"$1\", \"status\": $status, \"seconds\": $3, \"said\": \"$4\"}" >>"$temporary/json"
    report
}

report() {
    {
        echo "# Ogive's bundle on this machine"
        echo
        sed 's/^/- /' "$(dirname "$self")/about.txt"
        if [ -n "$no_gpu" ]; then
            printf '\n**No GPU can be used here: %s**\n\n```\n' "$no_gpu"
            cat "$temporary/devices"
            echo '```'
        fi
        printf '\n| part | status | seconds | what it counted |\n|---|---:|---:|---|\n'
        cat "$temporary/rows"
        echo
        for bench in "$temporary"/bench-*/report.md; do [ ! -f "$bench" ] || cat "$bench"; done
    } >"$out/report.md"
    {
        echo '{"parts": ['
        sed '$!s/$/,/' "$temporary/json"
        echo '], "bench": ['
        comma=''
        for bench in "$temporary"/bench-*/report.json; do
            [ -f "$bench" ] || continue
            [ -z "$comma" ] || echo ,
            cat "$bench"
            comma=yes
        done
        echo ']}'
    } >"$out/report.json"
}

# step NAME SECONDS COMMAND…: runs it, notes how it ended and how long it took.
step() {
    name=$1 most=$2
    shift 2
    if ! limit=$(within "$most"); then
        row "$name" "not run" 0 "no time was left"
        return
    fi
    echo "== $name begins" >>"$log"
    begin=$(date +%s)
    limited "$limit" "$@" >"$temporary/output" 2>&1
    status=$?
    ran_some "$temporary/output" || status=4
    cat "$temporary/output" >>"$log"
    if [ $status != 0 ]; then
        { echo "== $name: status $status"; tail -n 60 "$temporary/output"; echo; } >>"$out/failures.txt"
    fi
    row "$name" $status $(($(date +%s) - begin)) "$(grep -aE 'ERROR SUMMARY|cases passed' "$temporary/output" | tail -n 8 | plain)"
}

# tests_of PROGRAM [PATTERN]: its tests that are not ignored and do not have that in their names, as `each` wants them.
tests_of() {
    limited 60 "$RUN_TESTS/test-$1" --list --format terse 2>>"$log" | sed -n 's/: test$//p' >"$temporary/all"
    limited 60 "$RUN_TESTS/test-$1" --list --format terse --ignored 2>>"$log" | sed -n 's/: test$//p' >"$temporary/ignored"
    [ -s "$temporary/all" ] || echo "$1 none 0/1"
    grep -vxFf "$temporary/ignored" "$temporary/all" | grep -vE "${2:-^$}" | sed "s|.*|$1 & 0/1|"
}

# each NAME JOBS SECONDS: tests as lines of PROGRAM TEST SHARD, so many at a time, each with so many seconds. The row's status is how many failed.
each() {
    RUN_PART=$(echo "$1" | tr ' ' -) RUN_LIMIT=$3
    export RUN_PART RUN_LIMIT
    begin=$(date +%s)
    for kind in passed skipped failed late cases; do : >"$temporary/$RUN_PART.$kind"; done
    xargs -P "$2" -n 3 sh "$self" --one
    cases=$(awk '{n += $1} END {print n + 0}' "$temporary/$RUN_PART.cases")
    said="$(wc -l <"$temporary/$RUN_PART.passed") tests passed"
    [ "$cases" = 0 ] || said="$said, $cases cases passed"
    [ ! -s "$temporary/$RUN_PART.skipped" ] || said="$said; skipped: $(tr '\n' ',' <"$temporary/$RUN_PART.skipped" | plain)"
    [ ! -s "$temporary/$RUN_PART.failed" ] || said="$said; failed: $(tr '\n' ',' <"$temporary/$RUN_PART.failed" | plain)"
    [ ! -s "$temporary/$RUN_PART.late" ] || said="$said; no time was left for: $(tr '\n' ',' <"$temporary/$RUN_PART.late" | plain)"
    row "$1" "$(wc -l <"$temporary/$RUN_PART.failed")" $(($(date +%s) - begin)) "$said"
}

# Every test of the suite so often, with a part of the cases each: one NVRTC of three, as there is one here, and one device of each sixth.
suite() {
    tests_of conformance "$1" | while read -r program test _; do
        i=0
        while [ $i -lt "$2" ]; do
            echo "$program $test $i/$2"
            i=$((i + 1))
        done
    done
}

# bench NAME SECONDS ARGUMENTS… It begins nothing new for some seconds before it is ended, so that what it has begun is in its report.
bench() {
    name=$1 most=$2
    shift 2
    limit=$(within "$most" || echo 1)
    # shellcheck disable=SC2086
    step "$name" "$most" "$RUN_BIN/ogive-gpu-bench" --out "$temporary/$(echo "$name" | tr ' ' -)" --figures "$out/figures.jsonl" \
        --work "$work" --budget $((limit > 20 ? limit - 20 : 1)) "$@" $smoke ${BENCH_ARGS:-} \
        --llama-bench "${LLAMA_BENCH:-llama-bench}" --python "${PYTHON:-python3}"
    grep -ahE '^(figure|note): ' "$temporary/output" >"$temporary/said.$(echo "$name" | tr ' ' -)" 2>/dev/null
}

# Its models are made while tests run, where they will be wanted: not if it is told of others.
making=''
case "$no_gpu/$smoke/$parts ${BENCH_ARGS:-}" in
    *" --models"*) ;;
    //*" quick "*)
        mkdir -p "$work"
        (
            for model in "llama-3.1-8b q4_k_m" "llama-3.2-1b q4_k_m" "llama-3.2-1b f16"; do
                # shellcheck disable=SC2086
                set -- $model
                [ -f "$work/$1-$2.gguf" ] || "$RUN_BIN/ogive" synth --shape "$1" --format "$2" "$work/$1-$2.gguf" || exit
            done
        ) >"$temporary/making" 2>&1 &
        making=$!
        ;;
esac

for part in $parts; do
    if [ -n "$no_gpu" ] && [ "$part" != devices ]; then
        row "$part" "not run" 0 "no GPU can be used: $no_gpu"
        continue
    fi
    case $part in
        devices)
            step "nvidia-smi" 20 nvidia-smi
            step "ogive devices" 60 "$RUN_BIN/ogive" devices
            step "machine" 90 sh "$self" --machine
            ;;
        cli)
            # As programs get it, a draw that was close may differ from the CPU's: that is for reading.
            step "text" 90 "$RUN_BIN/ogive" run -vv --device cuda --temp 0 --max-tokens 60 "Once upon a time"
            step "the same text as the CPU" 90 sh "$self" --same-text
            ;;
        conformance)
            suite '^nvrtc_1[13]|as_opened|every_' 4 | each "conformance" "$jobs" 120
            suite '^nvrtc|sm_120|every_' 3 | each "conformance as opened" "$jobs" 120
            ;;
        quick)
            # What is not there by now is made by the bench; where it failed, that says why.
            [ -z "$making" ] || wait "$making" || cat "$temporary/making" >>"$log"
            bench "bench quick" 240 --quick --only models
            ;;
        models) tests_of models 'nvrtc_11|nvrtc_13' | each "golden models" "$jobs" 120 ;;
        tests)
            for name in units compute int8 prompts split moe order overlap replay trace pieces peers cublas; do tests_of "$name" 'nvrtc_1[13]|sm_61|sm_75'; done |
                each "tests" "$jobs" 120
            # These look at how much memory is free.
            for name in memory measure; do tests_of "$name"; done | each "tests of memory" 1 120
            ;;
        again)
            # A few, each test once: launches that wait name the kernel, the sanitizer names the access, and PTX tells the compiler's faults.
            awk '!seen[$1 $2]++' "$temporary/failed" | head -n 6 | while read -r program test shard after; do
                [ "$after" != - ] || after=''
                for how in "CUDA_LAUNCH_BLOCKING=1" "OGIVE_CUDA_CODE=ptx" "compute-sanitizer --tool memcheck --error-exitcode 9"; do
                    case $how in compute*) command -v compute-sanitizer >/dev/null || continue ;; esac
                    # shellcheck disable=SC2086
                    step "$program $test $shard again, ${how%% *}" 90 env OGIVE_CUDA_SHARD="$shard" OGIVE_CUDA_AFTER="$after" $how \
                        "$RUN_TESTS/test-$program" "$test" --exact --include-ignored --nocapture --test-threads 1
                done
            done
            ;;
        bench)
            end=$(($(date +%s) + budget))
            for measured in ${BENCH_PARTS:-operators models start peers}; do
                bench "bench $measured" $((end > $(date +%s) ? end - $(date +%s) : 1)) --only "$measured"
            done
            ;;
        sanitizer)
            if ! command -v compute-sanitizer >/dev/null; then
                row "compute-sanitizer" 127 0 "it is not on the PATH"
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
                    step "compute-sanitizer $tool $name" 300 compute-sanitizer --tool "$tool" --error-exitcode 9 \
                        "$RUN_TESTS/test-$name" "$@" --nocapture --test-threads 1
                done
            done
            ;;
    esac
done
[ -z "$making" ] || { pkill -P "$making"; kill "$making"; } 2>/dev/null
# What a reader of the end of this output must know: each step, how the first failures begin, and the quick figures.
cat "$temporary/rows"
[ ! -f "$out/failures.txt" ] || grep -aE '^== |^case |panicked|^error' "$out/failures.txt" | cut -c1-300 | head -n 30
cat "$temporary"/said.bench-quick 2>/dev/null
echo "$out/report.md"
[ -z "$no_gpu" ]
