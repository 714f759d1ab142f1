#include "support/tiny_model.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <random>
#include <string>
#include <vector>

namespace patina::testing {

namespace {

// F32 to F16, rounded towards zero; for numbers in the normal range of F16.
uint16_t half_bits(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto exponent = static_cast<int32_t>((bits >> 23) & 0xff) - 112;
  if (exponent <= 0) return 0;
  return static_cast<uint16_t>(((bits >> 16) & 0x8000u) | (static_cast<uint32_t>(exponent) << 10) |
                               ((bits >> 13) & 0x3ffu));
}

class Bytes {
 public:
  explicit Bytes(std::vector<std::byte>& out) : out_(out) {}
  template <typename T>
  void put(T value) {
    const auto* bytes = reinterpret_cast<const std::byte*>(&value);
    out_.insert(out_.end(), bytes, bytes + sizeof value);
  }

 private:
  std::vector<std::byte>& out_;
};

// `count` random values of at most about `scale`, in the stored type. Blocks take random bits for their values: any
// bits are valid.
std::vector<std::byte> random_values(DType dtype, int64_t count, float scale, std::mt19937& random) {
  std::vector<std::byte> data;
  Bytes bytes(data);
  std::uniform_real_distribution<float> uniform(-scale, scale);
  const auto noise = [&](int n) {
    for (int i = 0; i < n; ++i) bytes.put(static_cast<uint8_t>(random()));
  };
  for (int64_t i = 0; i < count; i += info(dtype).block_values) switch (dtype) {
      case DType::kF32:
        bytes.put(uniform(random));
        break;
      case DType::kF16:
        bytes.put(half_bits(uniform(random)));
        break;
      case DType::kBF16:
        bytes.put(static_cast<uint16_t>(std::bit_cast<uint32_t>(uniform(random)) >> 16));
        break;
      case DType::kQ8_0:  // d, 32 signed bytes
        bytes.put(half_bits(scale / 127.0f));
        noise(32);
        break;
      case DType::kQ4_1:  // d, least value, 32 nibbles
        bytes.put(half_bits(scale / 7.5f));
        bytes.put(half_bits(-scale));
        noise(16);
        break;
      case DType::kQ4_K:  // d, d of the least values, 16 six-bit scales, 256 nibbles
        bytes.put(half_bits(scale / (63.0f * 7.5f)));
        bytes.put(half_bits(scale / 63.0f));
        noise(12 + 128);
        break;
      case DType::kQ2_K:  // 16 four-bit scales and minima, 256 two-bit codes, d, d of the minima
        noise(16 + 64);
        bytes.put(half_bits(scale / (15.0f * 1.5f)));
        bytes.put(half_bits(scale / 15.0f));
        break;
      case DType::kQ3_K:  // 256 three-bit codes, 16 six-bit scales, d
        noise(32 + 64 + 12);
        bytes.put(half_bits(scale / (32.0f * 4.0f)));
        break;
      case DType::kIQ4_NL:  // d, 32 nibbles
        bytes.put(half_bits(scale / 127.0f));
        noise(16);
        break;
      case DType::kIQ4_XS:  // d, 8 six-bit scales, 256 nibbles
        bytes.put(half_bits(scale / (8.0f * 127.0f)));
        noise(2 + 4 + 128);
        break;
      case DType::kMXFP4:  // exponent of half the unit, 32 nibbles: up to 12 halves
        bytes.put(static_cast<uint8_t>(128 + std::lround(std::log2(scale / 12.0f))));
        noise(16);
        break;
      case DType::kI32:
        noise(4);
        break;
      default:
        PATINA_CHECK(false, "no tiny model in type {}", name(dtype));
    }
  return data;
}

// GPT-2's names of bytes: printable Latin-1 is itself, the other bytes follow from U+0100 on.
std::string byte_token(int byte) {
  const auto printable = [](int b) { return (b >= '!' && b <= '~') || (b >= 0xa1 && b <= 0xac) || b >= 0xae; };
  int code = byte;
  if (!printable(byte)) {
    code = 256;
    for (int b = 0; b < byte; ++b) code += printable(b) ? 0 : 1;
  }
  if (code < 128) return std::string(1, static_cast<char>(code));
  return {static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))};
}

}  // namespace

void write_tiny_model(const std::filesystem::path& path, const TinyModel& model) {
  constexpr int64_t kHeads = 8, kKvHeads = 2;
  GgufWriter file;
  const auto key = [&](const char* name) { return fmt::format("{}.{}", model.architecture, name); };
  file.set("general.architecture", model.architecture);
  file.set("general.name", "tiny");
  file.set(key("block_count"), static_cast<uint32_t>(model.layers));
  file.set(key("context_length"), static_cast<uint32_t>(model.context));
  file.set(key("embedding_length"), static_cast<uint32_t>(model.width));
  file.set(key("feed_forward_length"), static_cast<uint32_t>(model.feed_forward));
  file.set(key("attention.head_count"), static_cast<uint32_t>(kHeads));
  file.set(key("attention.head_count_kv"), static_cast<uint32_t>(kKvHeads));
  file.set(key("attention.layer_norm_rms_epsilon"), 1e-5f);

  std::vector<std::string> tokens = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
  std::vector<int32_t> types(tokens.size(), 3);
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(byte_token(byte));
  tokens.push_back("th");
  types.resize(tokens.size(), 1);
  file.set("tokenizer.ggml.model", "gpt2");
  file.set("tokenizer.ggml.pre", "gpt-2");
  file.set("tokenizer.ggml.tokens", tokens);
  file.set("tokenizer.ggml.token_type", types);
  file.set("tokenizer.ggml.merges", std::vector<std::string>{"t h"});
  file.set("tokenizer.ggml.bos_token_id", uint32_t{1});
  file.set("tokenizer.ggml.eos_token_id", uint32_t{2});
  file.set("tokenizer.ggml.padding_token_id", uint32_t{2});  // as many real models have it
  if (model.chat_template)
    file.set("tokenizer.chat_template",
             "{% for m in messages %}{{'<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n'}}{% "
             "endfor %}");

  std::mt19937 random(model.seed);
  const int64_t d = model.width, f = model.feed_forward, kv = d / kHeads * kKvHeads,
                v = static_cast<int64_t>(tokens.size());
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t columns) {
    DType dtype = model.dtype;
    Shape shape{rows, columns};
    if (model.edit && !model.edit(name + ".weight", dtype, shape)) return;
    const float scale = std::sqrt(3.0f / static_cast<float>(columns));
    file.add_tensor(name + ".weight", dtype, shape, random_values(dtype, shape.elements(), scale, random));
  };
  const auto norm = [&](const std::string& name) {
    DType dtype = DType::kF32;
    Shape shape{d};
    if (model.edit && !model.edit(name + ".weight", dtype, shape)) return;
    std::vector<float> numbers;
    std::uniform_real_distribution<float> uniform(0.5f, 1.5f);
    for (int64_t i = 0; i < shape.elements(); ++i) numbers.push_back(uniform(random));
    file.add_tensor(name + ".weight", DType::kF32, shape, std::as_bytes(std::span(numbers)));
  };
  matrix("token_embd", v, d);
  norm("output_norm");
  if (!model.tied_head) matrix("output", v, d);
  for (int64_t i = 0; i < model.layers; ++i) {
    const auto name = [&](const char* what) { return fmt::format("blk.{}.{}", i, what); };
    norm(name("attn_norm"));
    matrix(name("attn_q"), d, d);
    matrix(name("attn_k"), kv, d);
    matrix(name("attn_v"), kv, d);
    matrix(name("attn_output"), d, d);
    norm(name("ffn_norm"));
    matrix(name("ffn_gate"), f, d);
    matrix(name("ffn_up"), f, d);
    matrix(name("ffn_down"), d, f);
  }
  if (model.add) model.add(file);
  file.write(path);
}

}  // namespace patina::testing
