// The tokenizer tables of a GGUF model file.
#pragma once

#include "data/tokenizer.h"
#include "formats/gguf.h"

namespace patina {

// Reads tokenizer.ggml.* and tokenizer.chat_template. Where the file is silent, llama.cpp's defaults hold:
// SentencePiece has BOS 1, EOS 2, unknown 0, writes BOS and a space prefix; Llama 3's pre-tokenizer writes BOS.
// (llama.cpp's default of BOS = EOS = 11 for byte-level files is Falcon's and is left out.) Error(kModel) naming the
// file and key where a table is missing, has another kind or length, or an id is out of range.
TokenizerSpec tokenizer_spec_from_gguf(const GgufFile& file);

}  // namespace patina
