#!/usr/bin/env python3
"""JavaScript: built-ins without call frame information, optimized code that is given up again."""
from languages import check, finish, need, source

need("node")
check("javascript", ["node", source("tasks.js")])
finish()
