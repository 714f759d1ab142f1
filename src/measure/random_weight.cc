#include "measure/random_weight.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "quant/block_scales.h"
#include "quant/decode.h"

namespace patina {

namespace {

constexpr int64_t kTaskBytes = 1 << 16;
constexpr size_t kTableSize = 1 << 16;

constexpr uint8_t kLowestPower = 123;  // MXFP4's scale is a power of two: code 127 is 1, and values are up to 6 of it

const std::vector<float>& normal_table() {
  static const std::vector<float> table = [] {
    const RandomStream random(1, RandomUse::kTest, 2);
    std::vector<float> numbers(kTableSize);
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>(random.normal(i));
    return numbers;
  }();
  return table;
}

void split(int64_t count, int64_t task_count, ThreadPool& pool, FunctionRef<void(int64_t, int64_t)> body) {
  pool.run((count + task_count - 1) / task_count,
           [&](int64_t task, int) { body(task * task_count, std::min(count, (task + 1) * task_count)); });
}

void fill_normal(float* to, int64_t begin, int64_t end, const RandomStream& random, float scale) {
  const std::vector<float>& table = normal_table();
  for (int64_t i = begin; i < end; i += 8) {
    const std::array<uint32_t, 4> bits = random.bits(static_cast<uint64_t>(i / 8));
    for (int64_t j = 0; j < std::min<int64_t>(8, end - i); ++j)
      to[i - begin + j] = scale * table[bits[static_cast<size_t>(j / 2)] >> 16 * (j % 2) & (kTableSize - 1)];
  }
}

uint16_t bf16_bits(float value) {
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(rounded_to_bits(value, 8)) >> 16);
}

uint16_t f16_bits(float value) {
  const float magnitude = std::abs(value);
  const uint32_t sign = std::signbit(value) ? 0x8000u : 0u;
  // Below 2^-14 F16 counts in steps of 2^-24; above, the exponent's bias is 112 less than F32's.
  const uint32_t bits = magnitude < 0x1p-14f
                            ? static_cast<uint32_t>(std::nearbyint(magnitude * 0x1p24f))
                            : (std::bit_cast<uint32_t>(rounded_to_bits(magnitude, 11)) >> 13) - (112u << 10);
  return static_cast<uint16_t>(sign | bits);
}

void fill_floats(DType dtype, std::byte* to, int64_t begin, int64_t end, const RandomStream& random) {
  std::vector<float> numbers(static_cast<size_t>(end - begin));
  fill_normal(numbers.data(), begin, end, random, 1.0f);
  if (dtype == DType::kF32) {
    std::memcpy(to + 4 * begin, numbers.data(), 4 * numbers.size());
    return;
  }
  auto* const words = reinterpret_cast<uint16_t*>(to) + begin;
  for (size_t i = 0; i < numbers.size(); ++i)
    words[i] = dtype == DType::kBF16 ? bf16_bits(numbers[i]) : f16_bits(numbers[i]);
}

void fill_blocks(DType dtype, std::byte* to, int64_t begin, int64_t end, const RandomStream& random) {
  const int64_t block_bytes = info(dtype).block_bytes;
  uint64_t index = static_cast<uint64_t>(begin) << 16;
  std::byte* at = to + begin * block_bytes;
  for (int64_t left = (end - begin) * block_bytes; left > 0; left -= 16, at += 16) {
    const std::array<uint32_t, 4> bits = random.bits(index++);
    std::memcpy(at, bits.data(), static_cast<size_t>(std::min<int64_t>(16, left)));
  }
  for (int64_t block = begin; block < end; ++block) {
    std::byte* const first = to + block * block_bytes;
    if (dtype == DType::kMXFP4) {
      first[0] = static_cast<std::byte>(kLowestPower + (static_cast<unsigned>(first[0]) & 3));
      continue;
    }
    const auto* scales = std::ranges::find(kBlockScales, dtype, &BlockScales::dtype);
    PATINA_CHECK(scales != std::end(kBlockScales), "type {}", name(dtype));
    for (const size_t offset : scales->offsets()) {  // a random mantissa under a positive sign and a fixed exponent
      uint16_t word;
      std::memcpy(&word, first + offset, sizeof word);
      word = static_cast<uint16_t>((word & 0x3ff) | (scales->exponent + 15) << 10);
      std::memcpy(first + offset, &word, sizeof word);
    }
  }
}

}  // namespace

OperandMemory::OperandMemory(int64_t bytes) : bytes_(static_cast<size_t>(std::max<int64_t>(bytes, 1))) {
  void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) fail(Error::Kind::kMemory, "cannot reserve {} bytes; use fewer tokens", bytes_);
  madvise(mapped, bytes_, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(mapped);
}

OperandMemory::OperandMemory(OperandMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

OperandMemory& OperandMemory::operator=(OperandMemory&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

OperandMemory::~OperandMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

float rounded_to_bits(float value, int significant_bits) {
  const uint32_t unit = 1u << (24 - significant_bits), bits = std::bit_cast<uint32_t>(value);
  return std::bit_cast<float>((bits + unit / 2 - 1 + (bits / unit & 1)) & ~(unit - 1));
}

OperandMemory random_floats(int64_t count, uint64_t seed, ThreadPool& pool, float scale) {
  OperandMemory memory(count * static_cast<int64_t>(sizeof(float)));
  const RandomStream random(seed, RandomUse::kTest, 3);
  split(count, kTaskBytes, pool,
        [&](int64_t begin, int64_t end) { fill_normal(memory.f32() + begin, begin, end, random, scale); });
  return memory;
}

OperandMemory random_stored_weight(DType dtype, int64_t rows, int64_t columns, uint64_t seed, ThreadPool& pool) {
  const int64_t bytes = rows * bytes_of(dtype, columns);
  OperandMemory memory(bytes);
  const RandomStream random(seed, RandomUse::kTest, 4);
  const auto fill = info(dtype).block_values == 1 ? fill_floats : fill_blocks;
  // A multiple of 8 blocks a task: fill_normal draws 8 numbers at once.
  split(bytes / info(dtype).block_bytes, kTaskBytes / info(dtype).block_bytes / 8 * 8, pool,
        [&](int64_t begin, int64_t end) { fill(dtype, memory.data(), begin, end, random); });
  return memory;
}

OperandMemory decoded(const Tensor& weight, ThreadPool& pool) {
  const int64_t rows = weight.shape[0], columns = weight.shape[1];
  OperandMemory memory(rows * columns * static_cast<int64_t>(sizeof(float)));
  const DecodeRow decode = decode_row(weight.dtype);
  pool.run(rows, [&](int64_t r, int) { decode(weight.row(r), 0, columns, memory.f32() + r * columns); });
  return memory;
}

}  // namespace patina
