#!/usr/bin/env python3
"""Places the change of block.c and statement.c in a ggml source tree, by structure: the block above the definition of
ggml_compute_backward, the statement first in the branch for the second input of its case GGML_OP_MUL_MAT. No line of
ggml is removed or changed.

  apply.py PATH                       places it; says so where it is there already
  apply.py --undo PATH                takes it out again, byte for byte
  apply.py --check PATH               PATH may also be a built library or program; exit status 0: has it, 1: has it not
  apply.py --emit-patch FILE PATH     writes a patch for `git apply` ("-": standard output) and leaves the tree as it is

PATH is ggml.c, or a folder that holds it as src/, ggml/src/ or vendor/llama.cpp/ggml/src/ggml.c.
Exit status 2: refused, or wrong usage.
"""

import argparse
import difflib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PLACES = ("ggml.c", "src/ggml.c", "ggml/src/ggml.c", "vendor/llama.cpp/ggml/src/ggml.c")
# A literal of block.c that every binary built from it holds, stripped or not.
TRACE = b"GGML_BACKWARD_MM_SCOPE"
# How the files begin that hold compiled code.
BINARIES = (b"\x7fELF", b"!<arch>", b"MZ", b"\xcf\xfa\xed\xfe", b"\xca\xfe\xba\xbe")
# The whole of the branch that the statement goes into.
BRANCH = "ggml_add_or_set(ctx,cgraph,isrc1,ggml_out_prod(ctx,src0,ggml_transpose(ctx,grad)));"


class Refused(Exception):
    pass


def require(condition, what):
    if not condition:
        raise Refused(what)


def mask(text):
    """The text with every comment and literal blanked, same length and lines, so that brackets and words can be counted."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'', re.DOTALL)
    return pattern.sub(lambda match: re.sub(r"[^\n]", " ", match.group()), text)


def closing(text, opening):
    """The position of the bracket that closes the one at `opening`."""
    pairs = {"(": ")", "{": "}"}
    opener, closer = text[opening], pairs[text[opening]]
    depth = 0
    for position in range(opening, len(text)):
        depth += (text[position] == opener) - (text[position] == closer)
        if depth == 0:
            return position
    raise Refused(f"a '{opener}' is never closed")


def only(pattern, text, start, end, what):
    found = list(re.compile(pattern).finditer(text, start, end))
    require(len(found) == 1, f"expected exactly one {what}, found {len(found)}")
    return found[0]


def next_line(text, position, what):
    """The start of the line after `position`, which must be the last thing on its line."""
    end = text.find("\n", position)
    require(end >= 0 and not text[position:end].strip(), f"something follows {what} on its line")
    return end + 1


def find_places(source):
    """Where the block and the statement go, as offsets into the source."""
    text = mask(source)
    definitions = []
    for match in re.finditer(r"\bggml_compute_backward\s*\(", text):
        bracket = closing(text, match.end() - 1)
        body = re.compile(r"\s*\{").match(text, bracket + 1)
        if body:
            definitions.append((match.start(), text[match.end() : bracket], body.end() - 1))
    require(len(definitions) == 1, f"expected one definition of ggml_compute_backward, found {len(definitions)}")
    name, parameters, body = definitions[0]
    for parameter in ("ggml_context", "ggml_cgraph"):
        short = {"ggml_context": "ctx", "ggml_cgraph": "cgraph"}[parameter]
        require(
            re.search(rf"\b{parameter}\s*\*\s*{short}\b", parameters),
            f"ggml_compute_backward has no parameter {parameter} * {short}",
        )

    head = text.rfind("\n", 0, name) + 1
    require(
        re.fullmatch(r"\s*static\s+void\s+", text[head:name]),
        "the line that defines ggml_compute_backward does not begin with 'static void'",
    )

    end = closing(text, body)
    for variable in ("grad", "src0", "src1", "isrc1", "src0_needs_grads", "src1_needs_grads"):
        require(re.search(rf"\b{variable}\s*=[^=]", text[body:end]), f"ggml_compute_backward defines no {variable}")
    case = only(
        r"\bcase\s+GGML_OP_MUL_MAT\s*:\s*\{", text, body, end, "'case GGML_OP_MUL_MAT: {' in ggml_compute_backward"
    )
    case_end = closing(text, case.end() - 1)
    require(
        re.compile(r"\s*break\s*;").match(text, case_end + 1),
        "case GGML_OP_MUL_MAT does not end in 'break;' after its block",
    )
    switch = only(
        r"\bswitch\s*\(\s*tensor->op\s*\)\s*\{",
        text,
        body,
        case.start(),
        "'switch (tensor->op) {' above case GGML_OP_MUL_MAT",
    )
    require(closing(text, switch.end() - 1) > case_end, "case GGML_OP_MUL_MAT is not in 'switch (tensor->op)'")

    branch = only(
        r"\bif\s*\(\s*src1_needs_grads\s*\)\s*\{",
        text,
        case.end(),
        case_end,
        "'if (src1_needs_grads) {' in case GGML_OP_MUL_MAT",
    )
    require(
        text.count("{", case.end(), branch.start()) == text.count("}", case.end(), branch.start()),
        "'if (src1_needs_grads)' is nested in another block of case GGML_OP_MUL_MAT",
    )
    branch_end = closing(text, branch.end() - 1)
    require(
        not text[branch_end + 1 : case_end].strip(),
        "something follows the branch for the second input in case GGML_OP_MUL_MAT",
    )
    found = "".join(text[branch.end() : branch_end].split())
    require(found == BRANCH, f"the branch for the second input reads '{found}', expected '{BRANCH}'")
    require("ggml_critical_section_start" in text, "ggml_critical_section_start is unknown in this file")
    return head, next_line(source, branch.end(), "'if (src1_needs_grads) {'")


def ours(name):
    return (HERE / name).read_text(encoding="utf-8")


def in_style_of(source, lines):
    return lines.replace("\n", "\r\n") if "\r\n" in source else lines


def is_changed(source):
    """Whether the source has the change; refused where it has a part of it."""
    marks = [
        source.count(f"// backward-mm {part} {edge}") for part in ("block", "statement") for edge in ("begin", "end")
    ]
    require(
        marks in ([0] * 4, [1] * 4),
        "a part of the change is there and a part is not; take ggml.c from its own source again",
    )
    return marks == [1] * 4


def with_change(source):
    block, statement = find_places(source)
    return (
        source[:block]
        + in_style_of(source, ours("block.c"))
        + source[block:statement]
        + in_style_of(source, ours("statement.c"))
        + source[statement:]
    )


def without_change(source):
    block = re.compile(
        r"^// backward-mm block begin\r?\n.*?^// backward-mm block end\r?\n\r?\n", re.DOTALL | re.MULTILINE
    )
    statement = re.compile(
        r"^ *// backward-mm statement begin\r?\n.*?^ *// backward-mm statement end\r?\n", re.DOTALL | re.MULTILINE
    )
    for pattern in (block, statement):
        source, count = pattern.subn("", source)
        require(count == 1, "the change was edited by hand; take ggml.c from its own source again")
    return source


def read(path):
    return path.read_bytes().decode("utf-8", errors="surrogateescape")


def write(path, source):
    """Whole or not at all: a temporary file beside it takes its name when it is on the disk."""
    with tempfile.NamedTemporaryFile(dir=path.parent, prefix=path.name, delete=False) as file:
        try:
            file.write(source.encode("utf-8", errors="surrogateescape"))
            file.flush()
            os.fsync(file.fileno())
            if path.exists():
                shutil.copymode(path, file.name)
            else:
                os.chmod(file.name, 0o644)
            os.replace(file.name, path)
        except BaseException:
            pathlib.Path(file.name).unlink(missing_ok=True)
            raise


def find_ggml_c(path):
    if path.is_file():
        return path
    for place in PLACES:
        if (path / place).is_file():
            return path / place
    raise Refused(f"holds none of {', '.join(PLACES)}")


def name_in_patch(file, given):
    """The file's name from the root of its git work tree, or else from the folder that was given."""
    try:
        shown = subprocess.run(
            ["git", "-C", str(file.parent), "ls-files", "--full-name", "--error-unmatch", file.name],
            capture_output=True,
            text=True,
        )
        if shown.returncode == 0:
            return shown.stdout.strip()
    except OSError:
        pass  # no git here
    return file.relative_to(given).as_posix() if given.is_dir() else file.name


def patch(file, given):
    source = read(file)
    before = without_change(source) if is_changed(source) else source
    name = name_in_patch(file, given)
    old, new = (
        re.findall(r"[^\n]*\n|[^\n]+", text) for text in (before, with_change(before))
    )  # carriage returns stay in their lines
    return f"diff --git a/{name} b/{name}\n" + "".join(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}"))


def run(arguments):
    given = pathlib.Path(arguments.path)
    require(given.exists(), "no such file or folder")
    if arguments.check and given.is_file() and given.suffix != ".c":
        content = given.read_bytes()
        require(content.startswith(BINARIES), "neither a source tree nor a library or program (ELF, Mach-O, PE, archive)")
        has = TRACE in content
        print(f"{given}: {'built with the change' if has else 'built without the change'}")
        return 0 if has else 1
    file = find_ggml_c(given)
    source = read(file)
    changed = is_changed(source)
    if arguments.check:
        print(f"{file}: {'has the change' if changed else 'has not the change'}")
        return 0 if changed else 1
    if arguments.emit_patch:
        text = patch(file, given).encode("utf-8", errors="surrogateescape")
        if arguments.emit_patch == "-":
            sys.stdout.buffer.write(text)
        else:
            write(pathlib.Path(arguments.emit_patch), text.decode("utf-8", errors="surrogateescape"))
        return 0
    if arguments.undo:
        if changed:
            write(file, without_change(source))
        print(f"{file}: {'took the change out' if changed else 'has not the change; left as it is'}")
        return 0
    if changed:
        require(with_change(without_change(source)) == source, "has another version of the change; --undo first")
        print(f"{file}: has the change already")
        return 0
    write(file, with_change(source))
    print(f"{file}: placed the change")
    return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group()
    mode.add_argument("--undo", action="store_true")
    mode.add_argument("--check", action="store_true")
    mode.add_argument("--emit-patch", metavar="FILE")
    parser.add_argument("path", metavar="PATH")
    arguments = parser.parse_args()
    try:
        return run(arguments)
    except Refused as refusal:
        print(f"apply.py: {arguments.path}: {refusal}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"apply.py: {error.filename or arguments.path}: {error.strerror}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
