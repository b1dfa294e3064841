#!/usr/bin/env python3
"""gawk: arrays, regular expressions, numbers; every instruction as often as callgrind says."""
import os

import against_callgrind as against

text = os.path.join(os.environ["WORK"], "text")
against.make_text(text, 300)
program = """
{ n[$2 " " $3]++; sum += $1; if ($0 ~ /flow.*(tree|edge)+ [a-c]/) hits++ }
END { for (k in n) if (n[k] > 1) print k, n[k]; print sum, hits, length(n), sqrt(sum) }
"""
against.check([against.need("gawk"), program, text])
