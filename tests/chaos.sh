#!/usr/bin/env bash
# Pods that come and go twenty a second, kubelets and drivers that fail, and a scrape every second that must be right.
#
# usage: tests/chaos.sh [SECONDS] [SEED]      600 seconds and a seed by the clock by default
# CHAOS_FAULTS=0 leaves out the faults.
set -euo pipefail
cd "$(dirname "$0")/.."
export CHAOS_SECONDS=${1:-600} CHAOS_SEED=${2:-$(date +%s)}
cargo test --release --quiet -p warpmeter-tests --test integration -- --ignored --nocapture --exact \
  chaos::whatever_happens_every_scrape_is_valid_and_every_second_is_accounted_for
