#!/usr/bin/env python3
"""xz -5 and liblzma: every instruction as often as callgrind says."""
import os

import against_callgrind as against

text = os.path.join(os.environ["WORK"], "text")
against.make_text(text, 800)
library = "/lib/x86_64-linux-gnu/liblzma.so.5"
against.check([against.need("xz"), "-5", "-T1", "-c", text], [library])
