#!/usr/bin/env python3
"""gzip -9: every instruction of its own text as often as callgrind says."""
import os

import against_callgrind as against

text = os.path.join(os.environ["WORK"], "text")
against.make_text(text, 2000)
against.check([against.need("gzip"), "-9", "-c", text])
