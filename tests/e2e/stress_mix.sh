#!/bin/sh
# A mix of forks, threads, signals and dlopen, counted in closed form.
exec python3 "$(dirname "$0")/../../bench/stress.py" --tally="$TALLY" --work="$WORK" --rounds=3
