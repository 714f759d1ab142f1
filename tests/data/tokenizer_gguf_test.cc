#include "data/tokenizer_gguf.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "base/error.h"
#include "data/chat.h"
#include "data/golden_tokenizer.h"

namespace patina {
namespace {

TEST(TokenizerGguf, RealModelGivesTheGoldenIds) {
  const std::string path = std::string(PATINA_SOURCE_DIR) + "/models/SmolLM2-135M-Instruct.Q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const auto tokenizer = Tokenizer::make(tokenizer_spec_from_gguf(GgufFile::open(path)));
  EXPECT_EQ(tokenizer->vocabulary(), 49152);
  EXPECT_FALSE(tokenizer->spec().add_bos);
  EXPECT_TRUE(tokenizer->is_end(tokenizer->spec().eos));
  const nlohmann::json golden = testing::read_golden("tokenizer_smollm2");
  for (const auto& entry : golden["cases"]) {
    const std::string text = entry[0];
    EXPECT_EQ(tokenizer->encode(text, false), entry[1].get<std::vector<int32_t>>()) << entry[0];
    EXPECT_EQ(tokenizer->encode(text, true), entry[2].get<std::vector<int32_t>>()) << entry[0];
    EXPECT_EQ(tokenizer->decode(tokenizer->encode(text, false)), text);
  }
  const ChatStyle style = chat_style(tokenizer->spec(), "");
  for (const auto& chat : golden["chats"]) {
    std::vector<ChatMessage> messages;
    for (const auto& message : chat["messages"]) messages.push_back({message[0], message[1]});
    EXPECT_EQ(render_chat(*tokenizer, style, messages, messages.back().role == "user").ids,
              chat["ids"].get<std::vector<int32_t>>());
  }
}

class SmallFile : public ::testing::Test {
 protected:
  SmallFile() {
    path_ = std::filesystem::temp_directory_path() / fmt::format("patina_tokenizer_{}.gguf", getpid());
    writer_.set("general.architecture", std::string("llama"));
  }
  ~SmallFile() override { std::filesystem::remove(path_); }

  TokenizerSpec spec() {
    writer_.write(path_);
    return tokenizer_spec_from_gguf(GgufFile::open(path_));
  }
  std::string refusal() {
    try {
      Tokenizer::make(spec());
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), Error::Kind::kModel);
      EXPECT_NE(std::string(error.what()).find(path_.string()), std::string::npos) << error.what();
      return error.what();
    }
    return "accepted";
  }
  void set_tokens(const std::string& model) {
    writer_.set("tokenizer.ggml.model", model);
    writer_.set("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b", "ab"});
    writer_.set("tokenizer.ggml.merges", std::vector<std::string>{"a b"});
    writer_.set("tokenizer.ggml.scores", std::vector<float>{-1, -2, -3});
  }

  GgufWriter writer_;
  std::filesystem::path path_;
};

TEST_F(SmallFile, SentencePieceDefaults) {
  set_tokens("llama");
  const TokenizerSpec read = spec();
  EXPECT_EQ(read.bos, 1);
  EXPECT_EQ(read.eos, 2);
  EXPECT_EQ(read.unknown, 0);
  EXPECT_TRUE(read.add_bos);
  EXPECT_FALSE(read.add_eos);
  EXPECT_TRUE(read.add_space_prefix);
  EXPECT_EQ(read.scores, (std::vector<float>{-1, -2, -3}));
  EXPECT_EQ(read.types.size(), 3u);
}

TEST_F(SmallFile, ByteLevelDefaults) {
  set_tokens("gpt2");
  writer_.set("tokenizer.ggml.pre", std::string("llama-bpe"));
  const TokenizerSpec read = spec();
  EXPECT_EQ(read.bos, -1);
  EXPECT_EQ(read.eos, -1);
  EXPECT_TRUE(read.add_bos);
  EXPECT_EQ(Tokenizer::make(read)->encode("ab", false), std::vector<int32_t>{2});
}

TEST_F(SmallFile, OtherPreTokenizersWriteNoBosUnlessTheFileSaysSo) {
  set_tokens("gpt2");
  writer_.set("tokenizer.ggml.pre", std::string("gpt-2"));
  EXPECT_FALSE(spec().add_bos);
  writer_.set("tokenizer.ggml.add_bos_token", true);
  EXPECT_TRUE(spec().add_bos);
}

TEST_F(SmallFile, NoModelIsRefused) { EXPECT_NE(refusal().find("tokenizer.ggml.model"), std::string::npos); }

TEST_F(SmallFile, NoTokensAreRefused) {
  writer_.set("tokenizer.ggml.model", std::string("gpt2"));
  EXPECT_NE(refusal().find("is empty"), std::string::npos);
}

TEST_F(SmallFile, AnUnknownTypeIsRefused) {
  set_tokens("llama");
  writer_.set("tokenizer.ggml.token_type", std::vector<int32_t>{1, 7, 1});
  EXPECT_NE(refusal().find("the value 7"), std::string::npos);
}

TEST_F(SmallFile, TablesOfOtherLengthsAreRefused) {
  set_tokens("llama");
  writer_.set("tokenizer.ggml.token_type", std::vector<int32_t>{1, 1});
  EXPECT_NE(refusal().find("3 tokens but 2 token types"), std::string::npos);
}

TEST_F(SmallFile, AnIdOutOfRangeIsRefused) {
  set_tokens("llama");
  writer_.set("tokenizer.ggml.eos_token_id", uint32_t{4000000000});
  EXPECT_NE(refusal().find("eos_token_id is 4000000000"), std::string::npos);
}

TEST_F(SmallFile, AMissingPreTokenizerIsRefused) {
  set_tokens("gpt2");
  EXPECT_NE(refusal().find("known are smollm"), std::string::npos);
}

}  // namespace
}  // namespace patina
