#!/bin/sh
# redis-server and nginx under their load generators (bench/servers.py), where they are installed.
bench="$(dirname "$0")/../../bench"
exec python3 "$bench/servers.py" --tally="$TALLY" --work="$WORK/servers" --scale=0.1 \
  --only=redis,nginx
