#!/usr/bin/env python3
"""Fortran: its library, STOP inside a call chain."""
from languages import build, check, finish, need, path, source

need("gfortran")
build("gfortran", "-O1", "-o", path("sums"), source("sums.f90"))
check("fortran", [path("sums")], fib=(path("sums"), "fib"))
finish()
