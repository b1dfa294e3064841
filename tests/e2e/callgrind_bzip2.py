#!/usr/bin/env python3
"""bzip2 -9 and libbz2: every instruction as often as callgrind says."""
import os

import against_callgrind as against

text = os.path.join(os.environ["WORK"], "text")
against.make_text(text, 1500)
library = "/lib/x86_64-linux-gnu/libbz2.so.1.0"
against.check([against.need("bzip2"), "-9", "-c", text], [library])
