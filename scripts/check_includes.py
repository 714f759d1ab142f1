#!/usr/bin/env python3
"""Proves the shape of the source tree: includes among the rooms of src/ point only down, and no file is too long.

The rooms and their order are read from PATINA_ROOMS in src/CMakeLists.txt; cli stands on top of them. Prints one line for
each fault, "file:line: what is wrong", and exits 1 where there is any. --self-test plants each fault and sees it found.
"""

import argparse
import pathlib
import re
import sys
import tempfile

MAX_LINES = 800
SOURCE_SUFFIXES = {".h", ".cc", ".cu", ".cuh", ".py"}
# Directories whose files are counted; only src/ has an order of rooms, everything else may include what it likes.
COUNTED_DIRECTORIES = ("src", "tests", "bench", "tools", "scripts", "integrations", "examples")
INCLUDE = re.compile(r'^\s*#\s*include\s*([<"])([^>"]+)[>"]')


def read_rooms(root):
    """The rooms, lowest first."""
    text = (root / "src/CMakeLists.txt").read_text()
    found = re.search(r"set\(PATINA_ROOMS\s+([^)]*)\)", text)
    if not found:
        sys.exit("src/CMakeLists.txt: no set(PATINA_ROOMS ...); the order of the rooms is read from there")
    return found.group(1).split() + ["cli"]


def source_files(directory):
    return sorted(path for path in directory.rglob("*") if path.is_file() and path.suffix in SOURCE_SUFFIXES)


def include_fault(rooms, room, opening, target):
    """What is wrong with an include in a file of `room`, or None."""
    included = target.split("/")[0]
    if included not in rooms or "/" not in target:
        return None if opening == "<" else f'"{target}" is in no room: write "room/file.h" for ours and <...> for others'
    if rooms.index(included) > rooms.index(room):
        return f"{room} may not include {target}: {included} is above it in PATINA_ROOMS"
    return None


def faults(root):
    rooms = read_rooms(root)
    for directory in COUNTED_DIRECTORIES:
        for path in source_files(root / directory):
            lines = path.read_text(errors="replace").splitlines()
            name = path.relative_to(root)
            if len(lines) > MAX_LINES:
                yield f"{name}:{len(lines)}: more than {MAX_LINES} lines: split the file"
            if directory != "src":
                continue
            room = name.parts[1]
            if room not in rooms:
                yield f"{name}:1: {room} is no room: add it to PATINA_ROOMS in src/CMakeLists.txt or move the file"
                continue
            for number, line in enumerate(lines, 1):
                match = INCLUDE.match(line)
                fault = match and include_fault(rooms, room, *match.groups())
                if fault:
                    yield f"{name}:{number}: {fault}"


def self_test():
    cases = [  # file, content, the start of the expected fault (None: no fault)
        ("src/low/a.h", '#include "low/b.h"\n#include <vector>\n', None),
        ("src/high/a.h", '#include "low/a.h"\n#include "high/b.h"\n', None),
        ("src/cli/a.cc", '#include "high/a.h"\n', None),
        ("src/low/a.cc", '#include <vector>\n#include "high/a.h"\n', "src/low/a.cc:2: low may not include high/a.h"),
        ("src/low/a.cc", "#  include <high/a.h>\n", "src/low/a.cc:1: low may not include high/a.h"),
        ("src/high/deep/a.cc", '#include "cli/a.h"\n', "src/high/deep/a.cc:1: high may not include cli/a.h"),
        ("src/high/a.cc", '#include "../low/a.h"\n', "src/high/a.cc:1: "),
        ("src/high/a.cc", '#include "support/a.h"\n', "src/high/a.cc:1: "),
        ("src/attic/a.cc", "", "src/attic/a.cc:1: attic is no room"),
        ("src/low/a.cc", "\n" * (MAX_LINES + 1), f"src/low/a.cc:{MAX_LINES + 1}: more than"),
        ("src/low/a.cc", "\n" * MAX_LINES, None),
        ("tests/low/a_test.cc", '#include "high/a.h"\n#include "support/a.h"\n', None),
        ("tests/low/a_test.cc", "\n" * (MAX_LINES + 1), "tests/low/a_test.cc:"),
    ]
    for file, content, expected in cases:
        with tempfile.TemporaryDirectory() as directory:
            root = pathlib.Path(directory)
            (root / file).parent.mkdir(parents=True)
            (root / "src").mkdir(exist_ok=True)
            (root / "src/CMakeLists.txt").write_text("set(PATINA_ROOMS low\n  high)\n")
            (root / file).write_text(content)
            found = list(faults(root))
        right = not found if expected is None else len(found) == 1 and found[0].startswith(expected)
        if not right:
            sys.exit(f"self-test: {file} with {content[:40]!r}: expected {expected!r}, found {found}")
    print(f"self-test: {len(cases)} cases hold")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path(__file__).resolve().parent.parent)
    parser.add_argument("--self-test", action="store_true")
    arguments = parser.parse_args()
    if arguments.self_test:
        return self_test()
    found = list(faults(arguments.root))
    print("\n".join(found), end="\n" if found else "")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
