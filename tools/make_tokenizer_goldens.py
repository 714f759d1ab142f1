#!/usr/bin/env python3
"""Writes tests/data/goldens/tokenizer_<name>.json: token ids that llama.cpp gives for a set of strings and rendered chats, with
a vocabulary cut down to what could take part in them.

    tools/make_tokenizer_goldens.py OUT_FOLDER smollm2=MODEL.gguf gpt-2=VOCAB.gguf ... [llama-3=VOCAB.gguf,TEMPLATE.jinja,...]

Needs llama-cpp-python (the goldens here are from 0.3.36), gguf and jinja2. The ids are those of the full vocabulary: the file
holds [id, text] pairs, and the test leaves the other ids empty. A token is kept where its bytes occur in a test string, is one
byte, or is a control token; a merge where both halves and their join are kept. No other token or merge can ever be formed.

Chats are rendered by Jinja from the file's own template, the short ones below, and template files named behind the vocabulary.
"""
import json
import os
import sys

import jinja2
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

# Short templates that write the formats as the models' own templates do, where the vocabulary file brings none.
LLAMA3_TURN = ("'<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' + message['content'] | trim + '<|eot_id|>'")
TEMPLATES = {
    "llama-3": {
        "llama3": "{{ bos_token }}{% for message in messages %}{{ " + LLAMA3_TURN + " }}{% endfor %}"
                  "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}",
        "llama3.1": "{{ bos_token }}{% set date_string = \"26 Jul 2024\" %}"
                    "{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] | trim %}"
                    "{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
                    "{{ '<|start_header_id|>system<|end_header_id|>\n\n' }}{{ \"Cutting Knowledge Date: December 2023\\n\" }}"
                    "{{ \"Today Date: \" + date_string + \"\\n\\n\" }}{{ system }}{{ '<|eot_id|>' }}"
                    "{% for message in messages %}{{ " + LLAMA3_TURN + " }}{% endfor %}"
                    "{% if add_generation_prompt %}{{ \"<|start_header_id|>assistant<|end_header_id|>\\n\\n\" }}{% endif %}",
    },
    "spm": {
        f"mistral{number}": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\n\n' %}"
                            "{% set messages = messages[1:] %}{% else %}{% set system = '' %}{% endif %}"
                            "{% for message in messages %}{% if message['role'] == 'user' %}"
                            "{{ '" + opens + "' + (system if loop.first else '') + message['content'] + '" + closes + "' }}"
                            "{% else %}{{ " + answer + "message['content'] + eos_token }}{% endif %}{% endfor %}"
        for number, opens, closes, answer in ((1, "[INST] ", " [/INST]", ""), (2, " [INST] ", " [/INST]", "' ' + "),
                                              (3, "[INST]", "[/INST]", ""))
    },
}
CHATS = [
    [["user", "What is 2+2?"]],
    [["system", "Answer briefly."], ["user", "Hi"], ["assistant", "Hello! How can I help?"], ["user", "Tell me a joke."]],
    [["user", "你好"], ["assistant", "你好！"], ["user", "def f(x):\n    return x"], ["assistant", "A function.\n\nIt returns x."]],
    [["user", "  padded\n"], ["assistant", "line one\nline two \n"]],
    [["system", "Be kind."], ["user", "1 2 3"]],
]
UNKNOWN, CONTROL, BYTE = 2, 3, 6  # values of tokenizer.ggml.token_type


def refuse(message):
    raise ValueError(message)


def render(template, messages, bos, eos):
    environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True)
    environment.globals["raise_exception"] = refuse
    messages = [{"role": role, "content": content} for role, content in messages]
    return environment.from_string(template).render(messages=messages, bos_token=bos, eos_token=eos,
                                                    add_generation_prompt=messages[-1]["role"] == "user")


def byte_alphabet():
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return {**{b: chr(b) for b in printable}, **{b: chr(256 + i) for i, b in enumerate(others)}}


def field(reader, key, default):
    entry = reader.fields.get("tokenizer.ggml." + key)
    return entry.contents() if entry else default


def main():
    folder = sys.argv[1]
    for argument in sys.argv[2:]:
        name, paths = argument.split("=", 1)
        path, *template_paths = paths.split(",")
        reader = GGUFReader(path)
        tokens, types = field(reader, "tokens", []), field(reader, "token_type", [])
        scores, merges = field(reader, "scores", []), field(reader, "merges", [])
        model = field(reader, "model", "")
        alphabet = byte_alphabet()
        bos, eos = field(reader, "bos_token_id", None), field(reader, "eos_token_id", None)
        own = reader.fields.get("tokenizer.chat_template")
        templates = dict(TEMPLATES.get(name, {}), **({"own": own.contents()} if own else {}))
        for template_path in template_paths:
            templates[os.path.basename(template_path)] = open(template_path, encoding="utf-8").read()
        chats = [[label, text, chat, render(text, chat, tokens[bos], tokens[eos])]
                 for label, text in templates.items() for chat in CHATS]
        strings = STRINGS + [chat[3] for chat in chats]
        if model == "gpt2":
            written = ["".join(alphabet[b] for b in s.encode()) for s in strings]
            single = set(alphabet.values())
        else:
            texts = strings + [s.decode(errors="replace") for s in INVALID]
            for special in ("<s>", "</s>", "<unk>"):  # what follows a special token gets a space prefix
                texts = texts + [s.replace(special, " ") for s in texts if special in s]
            written = ["\u2581" + s.replace(" ", "\u2581") for s in texts]
            single = set()
        text, raw = "\x00".join(written), "\x00".join(strings)  # user-defined tokens are written raw
        llama = Llama(path, vocab_only=True, verbose=False)
        ids = lambda data, special: llama.tokenize(data, add_bos=False, special=special)
        case = lambda data: [ids(data, False), ids(data, True)]
        keep = [i for i, t in enumerate(tokens)
                if t in text or t in raw or t in single or types[i] in (UNKNOWN, CONTROL, BYTE)]
        kept = {tokens[i] for i in keep}
        pairs = [m.split(" ") for m in merges]
        golden = {
            "source": "llama.cpp by llama-cpp-python 0.3.36",
            "model": model, "pre": field(reader, "pre", ""), "size": len(tokens),
            "bos": -1 if bos is None else bos, "eos": -1 if eos is None else eos,
            "unknown": field(reader, "unknown_token_id", -1), "add_space_prefix": field(reader, "add_space_prefix", model == "llama"),
            "tokens": [[i, tokens[i], types[i]] + ([scores[i]] if scores else []) for i in keep],
            "merges": [" ".join(p) for p in pairs if p[0] in kept and p[1] in kept and p[0] + p[1] in kept],
            "cases": [[s, *case(s.encode())] for s in STRINGS],
            "invalid": [s.hex() for s in INVALID],
            "templates": templates,
            "chats": [{"template": label, "messages": chat, "text": text, "ids": ids(text.encode(), True)}
                      for label, _, chat, text in chats],
        }
        out = os.path.join(folder, f"tokenizer_{name}.json")
        with open(out, "w", encoding="utf-8") as file:
            rows = [f" {json.dumps(k)}: " + json.dumps(v, ensure_ascii=False, separators=(",", ":")) for k, v in golden.items()]
            file.write("{\n" + ",\n".join(rows) + "\n}\n")
        print(out, os.path.getsize(out), len(golden["tokens"]), len(golden["merges"]), len(STRINGS))


if __name__ == "__main__":
    main()
