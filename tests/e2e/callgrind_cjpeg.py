#!/usr/bin/env python3
"""cjpeg on a small picture: every instruction as often as callgrind says."""
import os

import against_callgrind as against

picture = os.path.join(os.environ["WORK"], "picture.ppm")
with open(picture, "wb") as f:
    f.write(b"P6 96 64 255\n")
    for y in range(64):
        for x in range(96):
            f.write(bytes(((x * y) & 255, (x * 5 + y) & 255, (x ^ y) * 2 & 255)))
against.check([against.need("cjpeg"), "-quality", "85", picture], env={"JSIMD_FORCENONE": "1"})
