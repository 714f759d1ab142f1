#!/usr/bin/env python3
"""Writes tests/data/goldens/tokenizer_<name>.json: token ids that llama.cpp gives for a set of strings, with a vocabulary cut
down to what could take part in them.

    tools/make_tokenizer_goldens.py smollm2=MODEL.gguf gpt-2=VOCAB.gguf ...

Needs llama-cpp-python (the goldens here are from 0.3.36) and gguf. The ids are those of the full vocabulary: the file holds
[id, text] pairs, and the test leaves the other ids empty. A token is kept where its bytes occur in a test string, is one byte,
or is special; a merge where both halves and their join are kept. No other token or merge can ever be formed.
"""
import json
import os
import sys

from gguf import GGUFReader
from llama_cpp import Llama

STRINGS = [
    "", " ", "  ", "   \t", "\n", "\n\n\n", "\r\n\r\n", "\t\t\tx", " \n \n  a", "trailing   ", "   leading",
    "Hello, world!", "hello", " hello", "Hello  two   three    four", "The quick brown fox jumps over the lazy dog.",
    "0", "7 8", "12", "123", "1234", "1234567890123", "3.14159e-10", "x1y22z333", "in 2024,  10%", "a  1", "\t1", "½ ² Ⅷ ٣٤ ४५",
    "I'm you're he's it'll we've I'd don't", "I'M YOU'RE HE'S IT'LL WE'VE I'D DON'T", "'s't'x ''s", "o’clock ‘s",
    "😀", "👩‍👩‍👧‍👦 family", "👍🏽🇩🇪 flags", "a\u200db\u200cc\u200bd", "\ufeffbom", "\u00a0nbsp\u00a0\u00a0x", "\u2003em\u3000wide \u2028ls",
    "\u180emvs \u0085nel",
    "你好，世界。今天天气很好！", "日本語のテキスト、カタカナ", "한국어 문장입니다", "Привет, как дела?", "Καλημέρα κόσμε",
    "مرحبا بالعالم ١٢٣", "שלום עולם", "नमस्ते दुनिया क्षत्रिय", "สวัสดีชาวโลก", "e\u0301a\u0308 n\u0303 Z\u0335\u0321a\u0337lgo", "naïve café Ünïcödé ß",
    "def f(x):\n    if x > 0:\n        return x**2  # square\n\treturn None\n", "for(int i=0;i<10;++i){a[i]+=b[i]*2;}//x",
    '{"key": [1, 2.5, null], "s": "a\\nb"}', "https://example.com/a?b=c&d=%20#e", "<div class='x'>&amp;</div>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", "=" * 70, "-" * 33 + ">", " " * 40 + "x", "\n" * 20,
    "ha" * 30, "!?!?...,,,;;;:::", "$100 €200 £300 ¥400", "∀x∈ℝ: x²≥0 ⇒ √x", "CamelCaseAndSnake_case_word", "antidisestablishmentarianism",
    "<|im_start|>user\nhi<|im_end|>\n", "<|endoftext|>", "a<|endoftext|> b", "<|begin_of_text|><|start_header_id|>user<|end_header_id|>\n\nhi<|eot_id|>",
    "<s>[INST] hi [/INST] ok</s>", "<|im_start|", "<unk> <0x41> <pad>", "[PAD151646]x", "\u2581under \u2581\u2581", "tab\there\tand\rthere\x0b\x0c",
    "\U000e0041\U0001f9d1\u200d\U0001f680 \U0001d54f", "xＦｕｌｌ　ｗｉｄｔｈ１２",
]
INVALID = [b"\xff", b"abc\x80def", b"\xe2\x82 x", b"\xf0\x9f\x98", b"ok \xc3\x28 ok", b"\xed\xa0\x80"]


def byte_alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def field(reader, key, default):
    entry = reader.fields.get("tokenizer.ggml." + key)
    return entry.contents() if entry else default


def main():
    folder = os.path.join(os.path.dirname(__file__), "..", "tests", "data", "goldens")
    for argument in sys.argv[1:]:
        name, path = argument.split("=", 1)
        reader = GGUFReader(path)
        tokens, types = field(reader, "tokens", []), field(reader, "token_type", [])
        scores, merges = field(reader, "scores", []), field(reader, "merges", [])
        model = field(reader, "model", "")
        alphabet = byte_alphabet()
        if model == "gpt2":
            written = ["".join(alphabet[b] for b in s.encode()) for s in STRINGS]
            single = set(alphabet.values())
        else:
            texts = STRINGS + [s.decode(errors="replace") for s in INVALID]
            for special in ("<s>", "</s>", "<unk>"):  # what follows a special token gets a space prefix
                texts = texts + [s.replace(special, " ") for s in texts if special in s]
            written = ["\u2581" + s.replace(" ", "\u2581") for s in texts]
            single = set()
        text = "\x00".join(written)
        keep = [i for i, t in enumerate(tokens)
                if t in text or t in single or types[i] in (2, 3, 6) or (types[i] == 4 and i < 151700)]
        kept = {tokens[i] for i in keep}
        pairs = [m.split(" ") for m in merges]
        llama = Llama(path, vocab_only=True, verbose=False)
        ids = lambda data, special: llama.tokenize(data, add_bos=False, special=special)
        case = lambda data: [ids(data, False), ids(data, True)]
        golden = {
            "source": "llama.cpp by llama-cpp-python 0.3.36",
            "model": model, "pre": field(reader, "pre", ""), "size": len(tokens),
            "bos": field(reader, "bos_token_id", -1), "eos": field(reader, "eos_token_id", -1),
            "unknown": field(reader, "unknown_token_id", -1), "add_space_prefix": field(reader, "add_space_prefix", model == "llama"),
            "tokens": [[i, tokens[i], types[i]] + ([scores[i]] if scores else []) for i in keep],
            "merges": [" ".join(p) for p in pairs if p[0] in kept and p[1] in kept and p[0] + p[1] in kept],
            "cases": [[s, *case(s.encode())] for s in STRINGS],
            "invalid": [[s.hex(), *case(s)] for s in INVALID],
        }
        out = os.path.join(folder, f"tokenizer_{name}.json")
        with open(out, "w", encoding="utf-8") as file:
            rows = [f" {json.dumps(k)}: " + json.dumps(v, ensure_ascii=False, separators=(",", ":")) for k, v in golden.items()]
            file.write("{\n" + ",\n".join(rows) + "\n}\n")
        print(out, os.path.getsize(out), len(golden["tokens"]), len(golden["merges"]), len(STRINGS))


if __name__ == "__main__":
    main()
