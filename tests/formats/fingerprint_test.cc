#include "formats/fingerprint.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace patina {
namespace {

std::vector<std::byte> pattern(size_t count, size_t factor, size_t modulus) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * factor % modulus);
  return bytes;
}

class Fingerprint : public testing::Test {
 protected:
  std::vector<std::byte> q = pattern(160, 1, 251), embedding = pattern(409600, 7, 253);
  std::vector<std::byte> small{std::byte{1}, std::byte{2}, std::byte{3}, std::byte{4}, std::byte{5}, std::byte{6}};
  std::vector<NamedTensorBytes> model() const {
    return {{"token_embd.weight", "F32", {200, 512}, embedding},
            {"blk.0.attn_q.weight", "Q4_1", {4, 64}, q},
            {"a", "F16", {3}, small}};
  }
};

// The value was computed with Python's hashlib from the definition in the header.
TEST_F(Fingerprint, KnownValue) {
  EXPECT_EQ(model_fingerprint(model()), "5c05bbff989e082a632c9eac2a0930702cfb21cefa33049258fbf58021a0bc70");
}

TEST_F(Fingerprint, OrderDoesNotMatter) {
  auto reversed = model();
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_EQ(model_fingerprint(reversed), model_fingerprint(model()));
}

TEST_F(Fingerprint, EveryPartMatters) {
  const std::string original = model_fingerprint(model());
  auto changed = model();
  changed[1].name = "blk.1.attn_q.weight";
  EXPECT_NE(model_fingerprint(changed), original);
  changed = model();
  changed[1].type = "Q4_0";
  EXPECT_NE(model_fingerprint(changed), original);
  changed = model();
  changed[1].shape = {64, 4};
  EXPECT_NE(model_fingerprint(changed), original);
  changed = model();
  changed.pop_back();
  EXPECT_NE(model_fingerprint(changed), original);
  for (const size_t at : {size_t{0}, size_t{65535}, size_t{409600 - 65536}, size_t{409599}}) {
    embedding[at] ^= std::byte{1};
    EXPECT_NE(model_fingerprint(model()), original) << at;
    embedding[at] ^= std::byte{1};
  }
  embedding[200000] ^= std::byte{1};  // the middle of a large tensor is not read
  EXPECT_EQ(model_fingerprint(model()), original);
}

TEST_F(Fingerprint, RefusesANameTwice) {
  auto twice = model();
  twice.push_back(twice[0]);
  EXPECT_THROW(model_fingerprint(twice), InternalError);
}

}  // namespace
}  // namespace patina
