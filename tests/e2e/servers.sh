#!/bin/sh
# redis-server and nginx under their load generators (bench/servers.py; installed by hand: see docs/hacking.md).
exec python3 "$(dirname "$0")/../../bench/servers.py" --tally="$TALLY" --work="$WORK/servers" --scale=0.1 --only=redis,nginx
