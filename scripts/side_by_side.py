#!/usr/bin/env python3
"""Prints questions with several models' answers side by side.

usage: side_by_side.py HELDOUT.jsonl TITLE=ANSWERS.jsonl...

HELDOUT has {"prompt", "key"} a line, ANSWERS {"prompt", "text"}. A right answer, in which the key stands, is marked with "*"; long
answers are cut. As wide as the terminal, 120 columns where there is none.
"""
import pathlib
import shutil
import sys
import textwrap

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tools"))
from score_answers import contains, read_jsonl

MAX_LINES = 3


def cell(text, width):
    lines = textwrap.wrap(" ".join(text.split()), width, max_lines=MAX_LINES, placeholder=" ...")
    return lines or ["(nothing)"]


def print_row(cells, width):
    for i in range(max(len(lines) for lines in cells)):
        print(" | ".join((lines[i] if i < len(lines) else "").ljust(width) for lines in cells).rstrip())


def main():
    if len(sys.argv) < 3 or sys.argv[1].startswith("-") or not all("=" in argument for argument in sys.argv[2:]):
        sys.exit(__doc__)
    questions = read_jsonl(sys.argv[1])
    titles, files = zip(*(argument.split("=", 1) for argument in sys.argv[2:]))
    answers = [{line["prompt"]: line["text"] for line in read_jsonl(file)} for file in files]
    width = (shutil.get_terminal_size((120, 24)).columns - 3 * len(titles)) // (len(titles) + 1)
    rule = "-+-".join("-" * width for _ in range(len(titles) + 1))
    print_row([[title] for title in ("question", *titles)], width)
    for question in questions:
        print(rule)
        cells = [cell(question["prompt"], width)]
        for given in answers:
            text = given.get(question["prompt"], "")
            cells.append(cell(("* " if contains(text, question["key"]) else "") + text, width))
        print_row(cells, width)


if __name__ == "__main__":
    main()
