#!/usr/bin/env python3
"""OCaml: exceptions that cut the stack without unwinding, garbage collection."""
import shutil

from languages import build, check, finish, need, path, source

need("ocamlopt")
shutil.copy(source("raises.ml"), path("raises.ml"))
build("ocamlopt", "-o", path("raises"), path("raises.ml"))
check("ocaml", [path("raises")], fib=(path("raises"), "camlRaises__fib"))
finish()
