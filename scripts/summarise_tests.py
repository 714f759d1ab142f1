#!/usr/bin/env python3
"""Sums up a ctest run: names the tests that did not run, then prints "N passed, N failed, N skipped".

usage: summarise_tests.py RESULTS.xml        (from ctest --output-junit)

A test that was skipped or is disabled proves nothing, so it counts as skipped and makes the exit status 1, as a failed one does,
and as no test at all does.
"""
import collections
import sys
import xml.etree.ElementTree

if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
    sys.exit(__doc__)
outcomes = collections.Counter()
for case in xml.etree.ElementTree.parse(sys.argv[1]).getroot().iter("testcase"):
    outcome = {"run": "passed", "fail": "failed"}.get(case.get("status"), "skipped")
    outcomes[outcome] += 1
    if outcome != "passed":
        print(f"{outcome}: {case.get('name')}")
print(f"{outcomes['passed']} passed, {outcomes['failed']} failed, {outcomes['skipped']} skipped")
sys.exit(0 if outcomes["passed"] and not outcomes["failed"] and not outcomes["skipped"] else 1)
