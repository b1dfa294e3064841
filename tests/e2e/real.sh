#!/bin/sh
# Those of the real programs of bench/real.py that take seconds, where they are installed.
bench="$(dirname "$0")/../../bench"
exec python3 "$bench/real.py" --tally="$TALLY" --work="$WORK/real" \
  --only="ffmpeg,stockfish,stockfish 2 threads,php jit,musl,musl static,busybox,go server,strace"
