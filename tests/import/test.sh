#!/usr/bin/env bash
# The importer against recordings whose truth is known, and on input that is none.
# WARPMETER=PROGRAM replays with that one; otherwise it is built.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
export PYTHONDONTWRITEBYTECODE=1
if [ -z "${WARPMETER:-}" ]; then
  cargo build --quiet -p warpmeter
  WARPMETER=${CARGO_TARGET_DIR:-target}/debug/warpmeter
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failed=0
complain() { echo "import: $*" >&2; failed=1; }
import() { python3 "$here/import.py" "$@"; }

python3 "$here/test_parts.py" --quiet || complain "a part is wrong"

python3 "$here/fixtures/generate.py" "$work"
timeout 300 python3 "$here/odd.py" "$work" || complain "a recording with an odd field is not taken as it should be"
for kept in "$here"/fixtures/loader.*; do
  cmp "$kept" "$work/${kept##*/}" || complain "$kept is not what fixtures/generate.py makes; run it again"
done

# In the log's clock the wall clock is this much ahead, as the generator has it.
ahead=$((1790000000000000000 - 5000000000000))
scenario() {
  local name=$1
  shift
  import "$@" -o "$work/$name.jsonl" && "$WARPMETER" replay "$work/$name.jsonl" >"$work/$name.prom" \
    && python3 "$here/check.py" "$work/$name.prom" "$work/$name.truth.json" || complain "$name does not come to the truth"
}
scenario loader "$work/loader.perf.txt" "$work/loader.json" --pod trainer=1000 --wall-minus-log "$ahead"
scenario ahead "$work/ahead.ftrace.txt" "$work/ahead.json"
scenario shared - "$work/shared-3000.json" "$work/shared-3001.json"
scenario launch "$work/launch.sqlite" "$work/launch.sqlite"

# Each must be refused, with words that help.
refused() {
  local what=$1 words=$2 said
  shift 2
  if said=$(import "$@" -o "$work/refused.jsonl" 2>&1); then
    complain "$what was taken"
  elif ! grep -q -- "$words" <<<"$said" || grep -q Traceback <<<"$said"; then
    complain "$what was refused with: $said"
  fi
  [ ! -e "$work/refused.jsonl" ] || complain "$what left a recording"
}
log=$work/loader.perf.txt trace=$work/loader.json
head -c 5000 "$trace" >"$work/cut.json"
head -c 20000 "$work/launch.sqlite" >"$work/cut.sqlite"
gzip -c "$trace" | head -c 300 >"$work/cut.json.gz"
echo '{"traceEvents": []}' >"$work/empty.json"
grep -v sched_switch "$log" >"$work/no-switch.txt"
refused "a trace that was cut" "export it again" "$log" "$work/cut.json"
refused "a compressed trace that was cut" "export it again" "$log" "$work/cut.json.gz"
refused "a database that was cut" "nsys export" - "$work/cut.sqlite"
refused "a trace without calls" "ProfilerActivity" "$log" "$work/empty.json"
refused "a log of something else" "perf script" "$work/ahead.json" "$trace" --wall-minus-log "$ahead"
refused "a log without switches" "no sched_switch" "$work/no-switch.txt" "$trace" --wall-minus-log "$ahead"
refused "a file that is not there" "No such file" "$work/none" "$trace"
refused "a wall clock whose offset is not said" "--wall-minus-log" "$log" "$trace"
refused "clocks that do not overlap" "do not overlap" "$log" "$work/ahead.json" --offset 1000000000000
refused "another run's trace" "--same" "$log" "$work/ahead.json"
refused "a shifted clock" "clocks are shifted" "$log" "$trace" --offset $((50000000 - ahead))
refused "a trace that is given twice" "given twice" - "$work/shared-3000.json" "$work/shared-3000.json"
refused "a GPU that cannot be" "no device" "$log" "$trace" --wall-minus-log "$ahead" --gpu 1000:0=-1
refused "a process in no pod" "--pod NAME=1000" "$log" "$trace" --wall-minus-log "$ahead" --pod other=7

if said=$(import "$log" "$trace" -o "$work/none/run.jsonl" --wall-minus-log "$ahead" 2>&1) || grep -q Traceback <<<"$said"; then
  complain "a directory that is not there was answered with: $said"
fi

# A log that was cut is taken up to the cut, and said.
head -c 30001 "$log" >"$work/cut.txt"
said=$(import "$work/cut.txt" "$trace" -o "$work/cut.jsonl" --wall-minus-log "$ahead" 2>&1) || complain "a log that was cut: $said"
grep -q "line cut" <<<"$said" || complain "a cut line was not said: $said"
if import "$log" "$trace" -o "$work/cut.jsonl" --wall-minus-log "$ahead" 2>/dev/null; then complain "a recording was overwritten"; fi

[ "$failed" = 0 ] && echo "import: every recording comes to its truth, and what is none is refused"
exit "$failed"
