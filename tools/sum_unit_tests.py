#!/usr/bin/env python3
"""Sums up a ctest run, test case by test case: "N passed, N failed, N skipped".

ctest counts executables; GoogleTest writes one XML file for each with its cases.  An executable
that died half-way leaves no XML file (or none of its cases), so ctest's own verdict is taken for
it: it counts as one failure.

usage: sum_unit_tests.py CTEST_JUNIT.xml FOLDER_OF_GTEST_XML
"""

import pathlib
import sys
import xml.etree.ElementTree as ET


def main():
    junit, folder = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
    passed = failed = skipped = 0
    if not junit.exists():
        print("no ctest result at", junit)
        print("0 passed, 1 failed, 0 skipped")
        return 1
    for case in ET.parse(junit).getroot().iter("testcase"):
        name, status = case.get("name"), case.get("status")
        xml = folder / (name + ".xml")
        cases = []
        if xml.exists():
            try:
                cases = list(ET.parse(xml).getroot().iter("testcase"))
            except ET.ParseError:
                cases = []
        bad = [c for c in cases if c.find("failure") is not None]
        not_run = [c for c in cases if c.find("skipped") is not None or c.get("status") == "notrun"]
        passed += len(cases) - len(bad) - len(not_run)
        failed += len(bad)
        skipped += len(not_run)
        for c in bad:
            print(f"FAILED {name}: {c.get('classname')}.{c.get('name')}")
        for c in not_run:
            print(f"skipped {name}: {c.get('classname')}.{c.get('name')}")
        if status == "run" and not cases:
            passed += 1
        elif status != "run" and not bad:
            failed += 1
            print(f"FAILED {name}: the executable ended with status '{status}'")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
