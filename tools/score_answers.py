#!/usr/bin/env python3
"""Counts how many held-out questions a set of answers gets right.

usage: score_answers.py HELDOUT.jsonl ANSWERS.jsonl [--min SHARE] [--max SHARE] [--show]

HELDOUT has {"prompt", "key", ...} a line, ANSWERS {"prompt", "text", ...}, in any order. An answer is right where the key stands
in it as whole words, whatever the case. Prints "right/total = share"; --show also prints each question with its answer. Exits 1
where the share is below --min or above --max (0.7 = 70 %), 2 where a question has no answer or a file cannot be read.
Python 3.9 or newer, standard library only.
"""
import argparse
import json
import re
import sys


def read_jsonl(path):
    try:
        with open(path, encoding="utf-8") as file:
            return [json.loads(line) for line in file if line.strip()]
    except (OSError, ValueError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        sys.exit(2)


def contains(text, key):
    words = r"\s+".join(re.escape(word) for word in key.split())
    return re.search(rf"(?<!\w){words}(?!\w)", text, re.IGNORECASE) is not None


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("heldout")
    parser.add_argument("answers")
    parser.add_argument("--min", type=float, default=0.0, help="least share that passes")
    parser.add_argument("--max", type=float, default=1.0, help="largest share that passes")
    parser.add_argument("--show", action="store_true", help="print each question and answer")
    args = parser.parse_args()
    heldout = read_jsonl(args.heldout)
    answers = {line["prompt"]: line["text"] for line in read_jsonl(args.answers)}
    missing = [line["prompt"] for line in heldout if line["prompt"] not in answers]
    if missing or not heldout:
        print(f"{args.answers}: no answer to: {missing[0]}" if missing else f"{args.heldout}: no questions", file=sys.stderr)
        sys.exit(2)
    right = 0
    for line in heldout:
        hit = contains(answers[line["prompt"]], line["key"])
        right += hit
        if args.show:
            print(f"{'right' if hit else 'WRONG'}  {line['prompt']}  [{line['key']}]  {answers[line['prompt']]!r}")
    share = right / len(heldout)
    print(f"{right}/{len(heldout)} = {share:.3f}")
    sys.exit(0 if args.min <= share <= args.max else 1)


if __name__ == "__main__":
    main()
