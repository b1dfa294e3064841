#!/usr/bin/env python3
"""LuaJIT: traces, side exits, errors, coroutines."""
from languages import check, finish, need, source

need("luajit")
check("lua", ["luajit", source("traces.lua")])
finish()
