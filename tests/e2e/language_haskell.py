#!/usr/bin/env python3
"""Haskell: code that calls by jumping, exceptions, lightweight threads."""
import shutil

from languages import build, check, finish, need, path, source

need("ghc")
shutil.copy(source("Raises.hs"), path("Raises.hs"))
build("ghc", "-v0", "-O", "-threaded", "-outputdir", path("."), "-o", path("raises"),
      path("Raises.hs"))
# Haskell code runs on a stack of its own and has no call frame information: what is active farther
# out is not found at the end, and named.
check("haskell", [path("raises")], named="back-trace")
finish()
