#!/usr/bin/env python3
"""Checks a question-and-answer data set with held-out phrasings, such as examples/tidewater.

usage: check_dataset.py FOLDER [--phrasings N] [--facts N] [--heldout N]

FOLDER holds train.jsonl ({"messages": [user, assistant]}) and heldout.jsonl ({"prompt", "key", "answer"}). A fact is one answer
sentence, given word for word to each of its N (default 3) questions. Checked: the counts where given; no question twice, in or
across the files; each held-out answer is a fact, with one held-out question; its key is in that answer, in no other fact, and in
none of the fact's questions (so that a hit cannot come from the question or from a neighbour). Prints every finding; exits 1 if
there is one. Python 3.9 or newer, standard library only.
"""
import argparse
import collections
import os
import sys

from score_answers import contains, read_jsonl


def plain(text):
    return " ".join("".join(c.lower() if c.isalnum() else " " for c in text).split())


def findings(train, heldout, phrasings):
    questions = collections.defaultdict(list)  # answer -> its training questions
    for number, line in enumerate(train, 1):
        messages = line["messages"]
        if [m["role"] for m in messages] != ["user", "assistant"] or not all(m["content"].strip() for m in messages):
            yield f"train.jsonl:{number}: expected one user and one assistant message with text"
            continue
        questions[messages[1]["content"]].append(messages[0]["content"])
    for answer, asked in questions.items():
        if len(asked) != phrasings:
            yield f"{len(asked)} phrasings instead of {phrasings} lead to: {answer}"
    seen = collections.Counter(plain(q) for asked in questions.values() for q in asked)
    seen.update(plain(line["prompt"]) for line in heldout)
    for question, count in seen.items():
        if count > 1:
            yield f"question asked {count} times: {question}"
    for answer, count in collections.Counter(line["answer"] for line in heldout).items():
        if count > 1:
            yield f"{count} held-out questions for: {answer}"
    for number, line in enumerate(heldout, 1):
        where, key, answer = f"heldout.jsonl:{number}", line["key"], line["answer"]
        if answer not in questions:
            yield f"{where}: the answer is none of the training answers"
        if not contains(answer, key):
            yield f"{where}: key {key!r} is not in its answer"
        for other in questions:
            if other != answer and contains(other, key):
                yield f"{where}: key {key!r} is also in: {other}"
        for question in [line["prompt"]] + questions.get(answer, []):
            if contains(question, key):
                yield f"{where}: key {key!r} is in the question: {question}"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("--phrasings", type=int, default=3)
    parser.add_argument("--facts", type=int)
    parser.add_argument("--heldout", type=int)
    args = parser.parse_args()
    train = read_jsonl(os.path.join(args.folder, "train.jsonl"))
    heldout = read_jsonl(os.path.join(args.folder, "heldout.jsonl"))
    found = list(findings(train, heldout, args.phrasings))
    facts = len({line["messages"][-1]["content"] for line in train})
    for name, expected, got in (("facts", args.facts, facts), ("held-out questions", args.heldout, len(heldout))):
        if expected is not None and expected != got:
            found.append(f"{got} {name} instead of {expected}")
    print(*found, f"{facts} facts, {len(train)} training lines, {len(heldout)} held-out questions: {len(found)} findings", sep="\n")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
