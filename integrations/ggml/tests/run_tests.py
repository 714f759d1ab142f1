#!/usr/bin/env python3
"""Proves the change on one ggml release, whose libraries and test programs scripts/test-ggml.sh has built.

run_tests.py build-ggml/VERSION [unittest's own arguments]
"""

import array
import ctypes
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
APPLY = HERE.parent / "apply.py"
ROOT = pathlib.Path()  # build-ggml/VERSION; set below
TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_K")
# Unit roundoff of the types that a product rounds its second input to.
ROUNDOFF = {"f16": 2.0**-11, "bf16": 2.0**-8}
# Products with a frozen weight on the longest way from a parameter of the first layer to the loss and back: q (or k, v),
# o, gate (or up), down in each of two layers, and the head, each forward and backward.
LLAMA_PRODUCTS = 18
TOLERANCE = 1e-5


class Run:
    """One run of a test program: its lines, its counters, its gradients by parameter."""

    def __init__(self, library, program, *arguments, **variables):
        environment = {name: value for name, value in os.environ.items() if not name.startswith("GGML_BACKWARD_MM")}
        # Without "passive" OpenMP's threads spin: on a busy machine each barrier then costs milliseconds.
        environment.update(
            variables, LD_LIBRARY_PATH=str(ROOT / library), GGML_NO_BACKTRACE="1", OMP_WAIT_POLICY="passive"
        )
        command = [str(ROOT / "build/bin" / program), *arguments]
        with tempfile.TemporaryDirectory() as folder:
            self.file = pathlib.Path(folder) / "gradients"
            if program == "cases":
                command.insert(2, str(self.file))
            done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
            self.bits = self.file.read_bytes() if self.file.exists() else b""
        self.status, self.output, self.errors = done.returncode, done.stdout, done.stderr
        self.lines = list(filter(str.strip, done.stdout.splitlines()))
        self.graph = [line for line in self.lines if line.startswith("node ")]
        self.stats = {words[1]: int(words[2]) for words in map(str.split, self.lines) if words[0] == "stat"}

    @property
    def aborted(self):
        return self.status == -signal.SIGABRT

    def gradients(self):
        values = array.array("f", self.bits)
        result, start = {}, 0
        for words in map(str.split, self.lines):
            if words[0] == "gradient":
                result[words[1]] = values[start : start + int(words[2])]
                start += int(words[2])
        assert start == len(values) > 0
        return result


def case(library, name, *arguments, **variables):
    return Run(library, "cases", name, *arguments, **variables)


def on(name, **variables):
    return case("changed", name, GGML_BACKWARD_MM="1", **variables)


def worst(found, expected):
    """max|err| / max|ref| of the worst parameter; infinite where anything is not finite or a reference is all zero."""
    result = 0.0
    assert found.keys() == expected.keys()
    for name, reference in expected.items():
        assert len(found[name]) == len(reference)
        size = max(map(abs, reference))
        error = max(abs(a - b) for a, b in zip(found[name], reference))
        if not (all(map(math.isfinite, found[name])) and all(map(math.isfinite, reference)) and size > 0):
            return math.inf
        result = max(result, error / size)
    return result


class Comparator(unittest.TestCase):
    def test_it_can_fail(self):
        reference = {"x": array.array("f", [1, -2, 3])}
        self.assertEqual(worst(reference, reference), 0)
        for fault in ([1, math.nan, 3], [math.nan] * 3, [math.inf, -2, 3], [0, 0, 0], [1, 2, 3], [1, -2, 3.0001]):
            self.assertFalse(worst({"x": array.array("f", fault)}, reference) <= TOLERANCE)
        self.assertFalse(worst({"x": array.array("f", [0, 0, 0])}, {"x": array.array("f", [0, 0, 0])}) <= TOLERANCE)
        self.assertFalse(worst(reference, {"x": array.array("f", [1, math.nan, 3])}) <= TOLERANCE)


class Apply(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = pathlib.Path(folder.name) / "tree"
        self.file = self.tree / "src/ggml.c"
        self.file.parent.mkdir(parents=True)
        shutil.copy(ROOT / "source/ggml/src/ggml.c", self.file)
        self.original = self.file.read_bytes()

    def run_tool(self, *arguments):
        return subprocess.run([sys.executable, str(APPLY), *map(str, arguments)], capture_output=True, text=True)

    def git(self, *arguments):
        return subprocess.run(
            [
                "git",
                "-C",
                str(self.tree),
                "-c",
                "user.name=t",
                "-c",
                "user.email=t@t",
                "-c",
                "core.autocrlf=false",
                *arguments,
            ],
            capture_output=True,
            text=True,
            check=True,
        ).stdout

    def test_places_once_and_takes_out(self):
        self.assertEqual(self.run_tool("--check", self.tree).returncode, 1)
        self.assertEqual(self.run_tool(self.tree).returncode, 0)
        placed = self.file.read_bytes()
        self.assertEqual(self.run_tool("--check", self.tree).returncode, 0)
        self.assertEqual(self.run_tool(self.file).returncode, 0)
        self.assertEqual(self.file.read_bytes(), placed)
        ours = {line for name in ("block.c", "statement.c") for line in (APPLY.parent / name).read_bytes().splitlines()}
        kept = placed.splitlines()
        for line in self.original.splitlines():
            while kept and kept[0] != line:
                self.assertIn(kept.pop(0), ours)
            self.assertEqual(kept.pop(0), line)
        self.assertEqual(self.run_tool("--undo", self.tree).returncode, 0)
        self.assertEqual(self.file.read_bytes(), self.original)
        self.assertEqual(self.run_tool("--undo", self.tree).returncode, 0)
        self.assertEqual(self.file.read_bytes(), self.original)

    def check_patch(self):
        self.git("init", "-q")
        self.git("add", ".")
        self.git("commit", "-q", "-m", "ggml")
        patch = self.tree / "change.patch"
        self.assertEqual(self.run_tool("--emit-patch", patch, self.tree).returncode, 0)
        before = self.file.read_bytes()
        self.git("apply", "--check", "change.patch")
        self.git("apply", "change.patch")
        added, deleted, name = self.git("diff", "--numstat").split()
        self.assertGreater(int(added), 0)
        self.assertEqual((deleted, name), ("0", "src/ggml.c"))
        by_patch = self.file.read_bytes()
        self.file.write_bytes(before)
        self.assertEqual(self.run_tool(self.tree).returncode, 0)
        self.assertEqual(self.file.read_bytes(), by_patch)
        self.assertEqual(
            self.run_tool("--emit-patch", "-", self.tree).stdout.encode(), patch.read_bytes().replace(b"\r\n", b"\n")
        )

    def test_patch(self):
        self.check_patch()

    def test_carriage_returns(self):
        self.file.write_bytes(self.original.replace(b"\n", b"\r\n"))
        self.check_patch()
        self.assertEqual(self.file.read_bytes().count(b"\n"), self.file.read_bytes().count(b"\r\n"))
        self.assertEqual(self.run_tool("--undo", self.tree).returncode, 0)
        self.assertEqual(self.file.read_bytes(), self.original.replace(b"\n", b"\r\n"))

    def test_refuses(self):
        # The start of the case, and in it the head, the body and the end of the branch for the second input.
        place = re.compile(
            rb"(case GGML_OP_MUL_MAT)(: \{(?:(?!\n        case ).)*?)"
            rb"( *if \(src1_needs_grads\) \{\n)((?:(?! {12}\}).)*?)( {12}\}\n)",
            re.DOTALL,
        )
        function = self.original.index(b"static void ggml_compute_backward(")
        case, between, head, body, end = place.search(self.original, function).groups()
        whole = case + between + head + body + end
        self.assertEqual(self.original.count(whole), 1)
        placed = self.placed()
        for what, edited in (
            ("another name", self.original.replace(b"ggml_compute_backward(", b"ggml_backward(")),
            ("another case", self.original.replace(whole, b"case GGML_OP_MUL_MAT_ID" + between + head + body + end)),
            (
                "another condition",
                self.original.replace(whole, whole.replace(b"(src1_needs_grads)", b"(src1_needs_grads && src0)")),
            ),
            (
                "another gradient",
                self.original.replace(
                    whole, case + between + head + body.replace(b"grad)", b"ggml_cont(ctx, grad))") + end
                ),
            ),
            ("more before it", self.original.replace(whole, case + between + head + b"(void) grad;\n" + body + end)),
            ("more after it", self.original.replace(whole, whole + b"(void) grad;\n")),
            ("more on its line", self.original.replace(whole, case + between + head[:-1] + b" int x;\n" + body + end)),
            ("half of it", placed.replace(b"// backward-mm statement end\n", b"\n")),
            ("another version of it", placed.replace(b"return value != NULL", b"return value")),
        ):
            with self.subTest(what):
                self.assertNotIn(edited, (self.original, placed))
                self.file.write_bytes(edited)
                done = self.run_tool(self.tree)
                self.assertEqual(done.returncode, 2, done.stdout)
                self.assertRegex(done.stderr, r"\Aapply\.py: [^\n]+\n\Z")
                self.assertEqual(self.file.read_bytes(), edited)
        self.assertEqual(self.run_tool(self.tree / "nowhere").returncode, 2)

    def placed(self):
        self.run_tool(self.tree)
        placed = self.file.read_bytes()
        self.assertNotEqual(placed, self.original)
        return placed

    def test_check_of_libraries(self):
        for library, status in (("changed", 0), ("untouched", 1)):
            self.assertEqual(self.run_tool("--check", ROOT / library / "libggml-base.so").returncode, status)


class Gate(unittest.TestCase):
    def test_table(self):
        for value, gate in (
            (None, 0),
            ("", 0),
            ("0", 0),
            ("1", 1),
            ("00", 1),
            ("false", 1),
            ("off", 1),
            (" 0", 1),
            ("0 ", 1),
            (" ", 1),
            ("no", 1),
            ("-0", 1),
        ):
            with self.subTest(value=value):
                run = case("changed", "product-f32", **({} if value is None else {"GGML_BACKWARD_MM": value}))
                self.assertEqual(
                    (run.status, run.stats["gate"], run.stats["converted"], run.stats["kept"]), (0, gate, gate, 0)
                )

    def test_read_once(self):
        # Three graphs in one process; the variable is changed after the first and after the second.
        for value, converted in (("0", [0, 0, 0]), ("1", [1, 2, 3])):
            run = case("changed", "product-f32", "change-gate", GGML_BACKWARD_MM=value)
            self.assertEqual(run.status, 0, run.errors)
            self.assertEqual(
                [int(line.split()[2]) for line in run.lines if line.startswith("stat converted")], converted
            )

    def test_scope(self):
        for scope, frozen in ((None, 0), ("", 0), ("frozen", 1), ("all", 0), ("Frozen", 0), ("frozen ", 0), ("1", 0)):
            with self.subTest(scope=scope):
                run = on("trainable", **({} if scope is None else {"GGML_BACKWARD_MM_SCOPE": scope}))
                self.assertEqual(
                    [run.stats[name] for name in ("frozen", "converted", "kept", "kept_scope")],
                    [frozen, 2 - frozen, frozen, frozen],
                )

    def test_scope_in_a_model(self):
        # 7 frozen products in each layer and the head; the gradient of the first layer's input is not wanted, which
        # spares q, k and v there.
        run = on("llama-folded-f32", GGML_BACKWARD_MM_SCOPE="frozen")
        self.assertEqual((run.stats["converted"], run.stats["kept_type"], run.stats["kept_grad"]), (12, 0, 0))
        self.assertGreater(run.stats["kept_scope"], 0)

    def test_library_without_it(self):
        self.assertEqual(set(case("untouched", "product-f32", GGML_BACKWARD_MM="1").stats.values()), {-3})

    def test_stat_from_another_language(self):
        library = ctypes.CDLL(str(ROOT / "changed/libggml-base.so"))
        library.ggml_backward_mm_stat.restype = ctypes.c_int64
        self.assertEqual(
            [library.ggml_backward_mm_stat(name) for name in (b"gate", b"frozen", b"converted", b"kept", b"nothing")],
            [-1, -1, 0, 0, -2],
        )
        self.assertFalse(hasattr(ctypes.CDLL(str(ROOT / "untouched/libggml-base.so")), "ggml_backward_mm_stat"))

    def test_log(self):
        run = on("rows", GGML_BACKWARD_MM_LOG="1")
        self.assertIn(
            "gate on, scope all: converted 0, kept 1 (gradient not contiguous 1, type 0, scope 0)", run.errors
        )
        self.assertIn("gate off", case("changed", "rows", GGML_BACKWARD_MM_LOG="1").errors)
        for value in ({}, {"GGML_BACKWARD_MM_LOG": ""}, {"GGML_BACKWARD_MM_LOG": "0"}):
            self.assertNotIn("ggml_backward_mm", on("rows", **value).errors)


class Off(unittest.TestCase):
    def test_graph_and_bits(self):
        names = Run("untouched", "bounds").status  # any run proves that the programs start
        self.assertEqual(names, 1)
        listed = subprocess.run(
            [str(ROOT / "build/bin/cases"), "list"],
            env={**os.environ, "LD_LIBRARY_PATH": str(ROOT / "untouched")},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
        self.assertGreater(len(listed), 20)
        for name in listed:
            with self.subTest(name):
                untouched = case("untouched", name)
                self.assertGreater(len(untouched.graph), 3)
                for variables in ({}, {"GGML_BACKWARD_MM": "0", "GGML_BACKWARD_MM_SCOPE": "frozen"}):
                    off = case("changed", name, **variables)
                    self.assertEqual(off.graph, untouched.graph)
                    self.assertEqual((off.status, off.bits), (untouched.status, untouched.bits))
                    if untouched.status == 0:
                        self.assertEqual(
                            (off.stats["gate"], off.stats["converted"], off.stats["kept"]),
                            (0 if name != "weight_only" else -1, 0, 0),
                        )


class On(unittest.TestCase):
    def check(self, found, expected, bound):
        self.assertEqual((found.status, expected.status), (0, 0), found.errors + expected.errors)
        error = worst(found.gradients(), expected.gradients())
        self.assertTrue(error <= bound, f"{error} > {bound}")
        return error

    def test_small_graphs(self):
        for name in ("product-f32", "accumulate", "trainable", "heads", "product-q8_0", "product-q4_0", "product-q4_K"):
            with self.subTest(name):
                found = on(name)
                untouched = case("untouched", name)
                self.check(found, untouched, TOLERANCE)
                self.assertNotEqual(found.graph, untouched.graph)
                self.assertEqual((found.stats["converted"] > 0, found.stats["kept"]), (True, 0))
                self.assertIn("MUL_MAT", "".join(found.graph))

    def test_accumulates(self):
        self.assertEqual(on("accumulate").stats["converted"], 3)

    def test_weight_gradient_is_untouched(self):
        untouched, found = case("untouched", "weight_only"), on("weight_only")
        self.assertEqual((found.graph, found.bits), (untouched.graph, untouched.bits))

    def test_untouched_aborts(self):
        for name in (
            "product-bf16",
            "llama-bf16",
            "llama-folded-bf16",
            "llama-f16",
            "llama-q8_0",
            "llama-q4_0",
            "llama-q4_K",
        ):
            with self.subTest(name):
                self.assertTrue(case("untouched", name).aborted)
                self.assertEqual(on(name).status, 0)

    def test_llama(self):
        for name in ("llama-f32", "llama-folded-f32"):
            found = on(name)
            self.check(found, case("untouched", name), TOLERANCE)
            self.assertGreater(found.stats["converted"], 20)
            self.assertGreater(found.stats["kept_grad"], 0)

    def test_llama_quantised(self):
        # With the batch folded into the rows the untouched library runs too, and the values are the same.
        for kind in ("q8_0", "q4_0", "q4_K"):
            with self.subTest(kind):
                untouched = case("untouched", f"llama-folded-{kind}")
                self.check(on(f"llama-folded-{kind}"), untouched, TOLERANCE)
                self.check(on(f"llama-{kind}"), untouched, TOLERANCE)

    def test_llama_of_16_bits(self):
        # Against F32 weights of the same values. Every product with a frozen weight may round its second input, forward
        # and backward.
        for kind, roundoff in ROUNDOFF.items():
            with self.subTest(kind):
                expected = case("untouched", f"llama-decoded-{kind}")
                error = self.check(on(f"llama-{kind}"), expected, LLAMA_PRODUCTS * roundoff)
                print(f"  llama-{kind}: max|err| / max|ref| {error:.1e}, bound {LLAMA_PRODUCTS * roundoff:.1e}")
                untouched = case("untouched", f"llama-folded-{kind}")
                if untouched.status == 0:  # F16 in newer releases
                    self.check(on(f"llama-folded-{kind}"), untouched, TOLERANCE)

    def test_every_element(self):
        for kind in TYPES:
            with self.subTest(kind):
                run = Run("changed", "bounds", kind, GGML_BACKWARD_MM="1")
                self.assertEqual((run.status, run.stats["converted"], run.stats["kept"]), (0, 16, 0), run.output)
                for fault in ("nan", "zero", "sign"):
                    self.assertEqual(Run("changed", "bounds", kind, fault, GGML_BACKWARD_MM="1").status, 1)


class BackendOps(unittest.TestCase):
    """The two cases in ggml's own gradient check. It lets what a backend does not support pass, so its words are read."""

    def verdict(self, name, *arguments, library="changed", gate="1"):
        run = Run(library, "backend_ops", name, *arguments, GGML_BACKWARD_MM=gate)
        found = next(word for word in ("FAIL", "not supported", "OK") if word in run.output)
        self.assertEqual(run.status, 1 if found == "FAIL" else 0)
        return found, run.stats["converted"], run.stats["kept"]

    def test_bf16(self):
        self.assertEqual(self.verdict("bf16"), ("OK", 1, 0))
        self.assertEqual(self.verdict("bf16", "nan"), ("FAIL", 1, 0))
        self.assertEqual(self.verdict("bf16", gate="0"), ("not supported", 0, 0))
        self.assertEqual(self.verdict("bf16", library="untouched"), ("not supported", -3, -3))

    def test_strided(self):
        self.assertEqual(self.verdict("strided"), ("OK", 0, 1))
        self.assertEqual(self.verdict("strided", "nan"), ("FAIL", 0, 1))
        self.assertEqual(self.verdict("strided", library="untouched"), ("OK", -3, -3))


class Guard(unittest.TestCase):
    def test_keeps_the_outer_product(self):
        for name in ("transposed", "rows"):
            with self.subTest(name):
                untouched, found = case("untouched", name), on(name)
                self.assertEqual(found.status, 0, found.errors)
                self.assertEqual((found.stats["kept"], found.stats["kept_grad"], found.stats["converted"]), (1, 1, 0))
                self.assertEqual((found.graph, found.bits), (untouched.graph, untouched.bits))

    def test_bf16_needs_a_reshape(self):
        self.assertTrue(on("transposed-bf16").aborted)
        found = on("reshaped-bf16")
        self.assertEqual((found.status, found.stats["converted"], found.stats["kept"]), (0, 1, 0), found.errors)

    def test_is_needed(self):
        # "unguarded" is the change without its test of contiguity.
        for name in ("transposed", "llama-f32"):
            with self.subTest(name):
                expected, found = case("untouched", name), case("unguarded", name, GGML_BACKWARD_MM="1")
                self.assertFalse(found.status == 0 and worst(found.gradients(), expected.gradients()) <= TOLERANCE)
                self.assertEqual(case("unguarded", "product-f32", GGML_BACKWARD_MM="1").status, 0)


if os.environ.get("GGML_CUDA") == "ON":

    class Gpu(unittest.TestCase):
        def test_every_element(self):
            for kind in ("f32", "f16", "bf16", "q8_0", "q4_0"):
                with self.subTest(kind):
                    run = Run("changed", "bounds", kind, "gpu", GGML_BACKWARD_MM="1")
                    self.assertEqual((run.status, run.stats["converted"], run.stats["kept"]), (0, 16, 0), run.output)


class Shapes(unittest.TestCase):
    def test_legal_and_illegal(self):
        run = Run("changed", "shapes")
        self.assertEqual(run.status, 0, run.output)
        print(f"  shapes: {run.output.strip()}")


class Parity(unittest.TestCase):
    def test_digits(self):
        run = Run("changed", "parity")
        print("  " + "\n  ".join(run.lines))
        found = {words[0]: (float(words[1]), float(words[2])) for words in map(str.split, run.lines)}
        # Cosines are the same for every seed; the largest error varies from seed to seed by about 15 %.
        for name, cosine, error in (
            ("bf16_result", 0.9999958, 3.59e-3),
            ("f32_result", 0.9999972, 2.28e-3),
            ("f32_gradient_and_result", 0.9999986, 1.80e-3),
            ("same_weight", 1.0, 2.11e-4),
        ):
            self.assertTrue(abs(found[name][0] - cosine) <= 1.5e-7, name)
            self.assertTrue(abs(found[name][1] / error - 1) <= 0.01, name)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    ROOT = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
