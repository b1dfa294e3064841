#!/usr/bin/env python3
"""compress (LZW): every instruction as often as callgrind says."""
import os

import against_callgrind as against

text = os.path.join(os.environ["WORK"], "text")
against.make_text(text, 1500)
real = os.path.exists("/usr/bin/compress.real")
against.check([against.need("compress.real" if real else "compress"), "-c", text])
