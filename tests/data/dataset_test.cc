#include "data/dataset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "base/sha256.h"
#include "data/byte_tokenizer.h"
#include "data/sampler.h"

namespace patina {
namespace {

using testing::byte_tokenizer;
using testing::kBos;
using testing::kEos;

class DatasetTest : public ::testing::Test {
 protected:
  DatasetTest()
      : directory_(std::filesystem::path(::testing::TempDir()) /
                   (std::string("patina_") + ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(directory_);
  }
  ~DatasetTest() override { std::filesystem::remove_all(directory_); }

  Dataset load(const std::string& name, std::string_view content, int64_t context = 64,
               std::string_view loss_on = "assistant", bool add_bos = false) {
    write_file(directory_ / name, content);
    return load_dataset(directory_ / name, *byte_tokenizer(add_bos),
                        {.context_tokens = context, .loss_on = parse_loss_on(loss_on), .chat_template = ""});
  }
  Dataset text(std::string_view content, int64_t context = 64, std::string_view loss_on = "assistant",
               bool add_bos = false) {
    return load("d.txt", content, context, loss_on, add_bos);
  }
  Dataset jsonl(std::string_view content, int64_t context = 64, std::string_view loss_on = "assistant",
                bool add_bos = false) {
    return load("d.jsonl", content, context, loss_on, add_bos);
  }

  // The one line that loading fails with; it names the file.
  std::string refusal(const std::string& name, std::string_view content, int64_t context = 64,
                      std::string_view loss_on = "assistant", Error::Kind kind = Error::Kind::kData) {
    try {
      load(name, content, context, loss_on);
    } catch (const Error& error) {
      EXPECT_EQ(static_cast<int>(error.kind()), static_cast<int>(kind)) << error.what();
      const std::string line = error.what(), prefix = (directory_ / name).string();
      EXPECT_EQ(line.find('\n'), std::string::npos) << line;
      if (kind != Error::Kind::kData) return line;
      EXPECT_TRUE(line.starts_with(prefix)) << line;
      return line.substr(std::min(line.size(), prefix.size()));
    }
    ADD_FAILURE() << "loaded without an error";
    return "";
  }

  std::filesystem::path directory_;
};

std::string shown(const std::vector<int32_t>& ids) { return byte_tokenizer()->decode(ids, /*show_special=*/true); }

// The labels of a sequence, decoded.
std::string labels(const Sequence& sequence) {
  std::vector<int32_t> ids;
  for (size_t i = 0; i < sequence.ids.size(); ++i)
    if (sequence.supervised[i]) ids.push_back(sequence.ids[i]);
  return shown(ids);
}

void expect_adds_up(const Dataset& data) {
  int64_t used = static_cast<int64_t>(data.sequences.size()), skipped = 0, tokens = 0, supervised = 0;
  for (const auto& [reason, count] : data.skipped) skipped += count;
  for (const Sequence& sequence : data.sequences) {
    ASSERT_EQ(sequence.ids.size(), sequence.supervised.size());
    EXPECT_EQ(sequence.supervised[0], 0);
    EXPECT_GT(sequence.supervised_tokens(), 0);
    tokens += static_cast<int64_t>(sequence.ids.size());
    supervised += static_cast<int64_t>(std::count(sequence.supervised.begin(), sequence.supervised.end(), 1));
  }
  EXPECT_EQ(data.read, used + skipped);
  EXPECT_EQ(data.tokens, tokens);
  EXPECT_EQ(data.supervised_tokens, supervised);
}

const std::string kTwoTurns =
    R"({"messages": [{"role": "user", "content": "u1"}, {"role": "assistant", "content": "a1"},)"
    R"( {"role": "user", "content": "u2"}, {"role": "assistant", "content": "a2"}]})";

// Text

TEST_F(DatasetTest, TextIsCutIntoConsecutiveSequences) {
  const Dataset data = text("abcdefghij", 4);
  ASSERT_EQ(data.sequences.size(), 3u);
  EXPECT_EQ(shown(data.sequences[0].ids), "abcd");
  EXPECT_EQ(shown(data.sequences[1].ids), "efgh");
  EXPECT_EQ(shown(data.sequences[2].ids), "ij");
  EXPECT_EQ(labels(data.sequences[0]), "bcd");  // nothing comes before the first token
  EXPECT_EQ(labels(data.sequences[2]), "j");
  EXPECT_EQ(data.sequences[2].sample, 2);
  EXPECT_EQ(data.truncated, 0);
  expect_adds_up(data);
}

TEST_F(DatasetTest, TextBeginsEachSequenceWithBosWhereTheModelWantsOne) {
  const Dataset data = text("abcdefg", 4, "assistant", /*add_bos=*/true);
  ASSERT_EQ(data.sequences.size(), 3u);
  EXPECT_EQ(shown(data.sequences[1].ids), "<s>def");
  EXPECT_EQ(labels(data.sequences[1]), "def");
  EXPECT_EQ(labels(data.sequences[2]), "g");
  EXPECT_EQ(data.supervised_tokens, 7);
  expect_adds_up(data);
}

TEST_F(DatasetTest, ALastTextTokenAloneIsSkippedAndCounted) {
  const Dataset data = text("abcde", 4);
  EXPECT_EQ(data.sequences.size(), 1u);
  EXPECT_EQ(data.skipped, (std::map<std::string, int64_t>{{"fewer than two tokens", 1}}));
  expect_adds_up(data);
}

TEST_F(DatasetTest, SpecialTokenTextStaysTextInTextFiles) {
  const Dataset data = text("<s>a</s>");
  EXPECT_EQ(data.sequences.at(0).ids.size(), 8u);
  EXPECT_EQ(std::count(data.sequences[0].ids.begin(), data.sequences[0].ids.end(), kEos), 0);
}

TEST_F(DatasetTest, FingerprintIsTheHashOfTheFilesBytes) {
  const std::string content =
      "\xEF\xBB\xBF"
      "ab\r\n";
  Sha256 hash;
  hash.update(content);
  const Dataset data = text(content);
  EXPECT_EQ(data.fingerprint, hash.hex_digest());
  EXPECT_EQ(shown(data.sequences.at(0).ids), "ab\r\n");  // the byte order mark is no text, line ends are
}

TEST_F(DatasetTest, FieldIssue06_EmptyFilesAreRefused) {
  EXPECT_NE(refusal("d.txt", "").find("an empty file"), std::string::npos);
  EXPECT_NE(refusal("d.jsonl", "").find("an empty file"), std::string::npos);
  EXPECT_NE(refusal("d.txt", "\xEF\xBB\xBF").find("an empty file"), std::string::npos);
}

TEST_F(DatasetTest, FieldIssue06_WhitespaceOnlyFilesAreRefused) {
  EXPECT_NE(refusal("d.txt", " \r\n\t\n").find("white space only"), std::string::npos);
  EXPECT_NE(refusal("d.jsonl", "\n\n \r\n").find("white space only"), std::string::npos);
}

TEST_F(DatasetTest, FieldIssue06_AOneTokenTextIsRefusedUnlessBosComesBeforeIt) {
  const std::string line = refusal("d.txt", "a");
  EXPECT_NE(line.find("no supervised token"), std::string::npos) << line;
  EXPECT_NE(line.find("fewer than two tokens: 1"), std::string::npos) << line;
  EXPECT_EQ(labels(text("a", 64, "assistant", /*add_bos=*/true).sequences.at(0)), "a");
}

TEST_F(DatasetTest, FieldIssue06_AOneLineTextShorterThanTheContextIsOneShortSample) {
  const Dataset data = text("abc\n", int64_t{1} << 40);
  ASSERT_EQ(data.sequences.size(), 1u);
  EXPECT_EQ(shown(data.sequences[0].ids), "abc\n");
  EXPECT_LE(data.sequences[0].ids.capacity(), 64u);
  expect_adds_up(data);
}

TEST_F(DatasetTest, FieldIssue06_BothOfTwoExamplesAreTrainedInEveryEpoch) {
  const Dataset data = jsonl(R"({"prompt": "a", "completion": "b"})"
                             "\n"
                             R"({"prompt": "c", "completion": "d"})");
  ASSERT_EQ(data.sequences.size(), 2u);
  for (int64_t epoch = 0; epoch < 20; ++epoch)
    for (const int64_t batch_tokens : {4, 64}) {
      std::multiset<size_t> seen;
      for (const auto& step : plan_epoch(data.sequences, batch_tokens, /*seed=*/1, epoch))
        seen.insert(step.begin(), step.end());
      EXPECT_EQ(seen, (std::multiset<size_t>{0, 1})) << "epoch " << epoch;
    }
}

TEST_F(DatasetTest, OtherFilesAndContextsAreRefused) {
  EXPECT_NE(refusal("d.json", "{}").find(".txt or .jsonl"), std::string::npos);
  refusal("d.txt", "abc", /*context=*/1, "assistant", Error::Kind::kUsage);
  EXPECT_THROW(load_dataset(directory_ / "missing.txt", *byte_tokenizer(), {}), Error);
}

// JSONL

TEST_F(DatasetTest, FieldIssue09_BothAnswersAndTheirEndMarkersAreSupervised) {
  const Dataset data = jsonl(kTwoTurns, 512);
  ASSERT_EQ(data.sequences.size(), 1u);
  EXPECT_EQ(labels(data.sequences[0]), "a1<|im_end|>a2<|im_end|>");
  expect_adds_up(data);
}

TEST_F(DatasetTest, FieldIssue09_SupervisedSpansCanBePrinted) {
  const Dataset data = jsonl(kTwoTurns, 512);
  EXPECT_EQ(show_mask(data.sequences.at(0), *byte_tokenizer()),
            R"(- "<|im_start|>user\nu1<|im_end|>\n<|im_start|>assistant\n")"
            "\n"
            R"(+ "a1<|im_end|>")"
            "\n"
            R"(- "\n<|im_start|>user\nu2<|im_end|>\n<|im_start|>assistant\n")"
            "\n"
            R"(+ "a2<|im_end|>")"
            "\n"
            R"(- "\n")"
            "\n");
}

TEST_F(DatasetTest, ACompletionIsSupervisedWithItsEndMarker) {
  const Dataset data = jsonl(R"({"prompt": "ab", "completion": "cd</s>"})", 64, "assistant", /*add_bos=*/true);
  EXPECT_EQ(shown(data.sequences.at(0).ids), "<s>abcd</s></s>");  // the first </s> is text, one token a byte
  EXPECT_EQ(data.sequences[0].ids.size(), 10u);
  EXPECT_EQ(labels(data.sequences[0]), "cd</s></s>");
  EXPECT_EQ(data.sequences[0].ids.front(), kBos);
  EXPECT_EQ(data.sequences[0].ids.back(), kEos);
  expect_adds_up(data);
}

// SentencePiece writes a space before a text; between prompt and completion there is none.
TEST_F(DatasetTest, ACompletionFollowsItsPromptWithoutASpaceOfItsOwn) {
  TokenizerSpec spec = byte_tokenizer()->spec();
  spec.add_space_prefix = true;
  write_file(directory_ / "d.jsonl", R"({"prompt": "ab", "completion": "cd"})");
  const Dataset data = load_dataset(directory_ / "d.jsonl", *Tokenizer::make(spec), {});
  EXPECT_EQ(shown(data.sequences.at(0).ids), " abcd</s>");
}

TEST_F(DatasetTest, FieldIssue10_TheEndMarkerKeepsItsLabelWhateverElseItStandsFor) {
  TokenizerSpec spec = byte_tokenizer(/*add_bos=*/true)->spec();
  spec.eos = spec.bos;  // as pad = eos, or <|endoftext|> for everything
  write_file(directory_ / "d.jsonl", R"({"prompt": "a", "completion": "b"})");
  const Dataset data = load_dataset(directory_ / "d.jsonl", *Tokenizer::make(spec), {});
  EXPECT_EQ(labels(data.sequences.at(0)), "b<s>");
}

TEST_F(DatasetTest, FieldIssue11_NoSampleBeginsWithTwoBos) {
  for (const std::string& line :
       {kTwoTurns, std::string(R"({"text": "<s>ab"})"), std::string(R"({"prompt": "<s>ab", "completion": "c"})")}) {
    const Dataset data = jsonl(line, 512, "assistant", /*add_bos=*/true);
    EXPECT_EQ(std::count(data.sequences.at(0).ids.begin(), data.sequences[0].ids.end(), kBos), 1) << line;
    EXPECT_EQ(data.sequences[0].ids[0], kBos);
  }
}

TEST_F(DatasetTest, PlainTextIsSupervisedWholeAsThereIsNoAssistant) {
  for (const char* loss_on : {"assistant", "all"})
    EXPECT_EQ(labels(jsonl(R"({"text": "abc"})", 64, loss_on).sequences.at(0)), "bc");
}

TEST_F(DatasetTest, LossOnAllSupervisesEveryTokenButTheFirst) {
  EXPECT_EQ(labels(jsonl(R"({"prompt": "ab", "completion": "c"})", 64, "all").sequences.at(0)), "bc</s>");
  const Dataset data = jsonl(kTwoTurns, 512, "all");
  EXPECT_EQ(data.supervised_tokens, data.tokens - 1);
}

TEST_F(DatasetTest, LossAfterAMarkerBeginsBehindItsFirstOccurrence) {
  const Dataset data = jsonl(R"({"text": "Q:a A:b A:c"})"
                             "\n"
                             R"({"text": "Q:a"})"
                             "\n"
                             R"({"text": "Q:a A:"})"
                             "\n",
                             64, "after:A:");
  ASSERT_EQ(data.sequences.size(), 1u);
  EXPECT_EQ(labels(data.sequences[0]), "b A:c");
  EXPECT_EQ(data.skipped, (std::map<std::string, int64_t>{{"no text after the marker \"A:\"", 2}}));
  expect_adds_up(data);
}

TEST_F(DatasetTest, LossAfterAMarkerKeepsATokenThatBeginsInTheMarker) {
  EXPECT_EQ(labels(jsonl(R"({"text": "A: 42"})", 64, "after:A: ").sequences.at(0)), " 42");
  EXPECT_EQ(labels(jsonl(R"({"text": "A: 42"})", 64, "after:A:").sequences.at(0)), " 42");
}

TEST_F(DatasetTest, LossAfterAMarkerSeesSpecialTokens) {
  EXPECT_EQ(labels(jsonl(kTwoTurns, 512, "after:u2<|im_end|>\n<|im_start|>assistant\n").sequences.at(0)),
            "a2<|im_end|>\n");
}

TEST_F(DatasetTest, LossFromAMarkerBeginsWithIt) {
  const Dataset data = jsonl(R"({"prompt": "Q:", "completion": "x<think>b<think>c"})"
                             "\n"
                             R"({"prompt": "Q:", "completion": "x"})"
                             "\n",
                             64, "from:<think>");
  ASSERT_EQ(data.sequences.size(), 1u);
  EXPECT_TRUE(labels(data.sequences[0]).starts_with("<think>b<think>c")) << labels(data.sequences[0]);
  EXPECT_EQ(data.skipped, (std::map<std::string, int64_t>{{"no marker \"<think>\"", 1}}));
  expect_adds_up(data);
}

TEST_F(DatasetTest, LossAfterAMarkerHoldsForAWholeTextFile) {
  const Dataset data = text("abcd#fghijkl", 4, "after:#");
  ASSERT_EQ(data.sequences.size(), 2u);
  EXPECT_EQ(labels(data.sequences[0]), "fgh");
  EXPECT_EQ(labels(data.sequences[1]), "jkl");
  EXPECT_EQ(data.sequences[0].sample, 1);
  expect_adds_up(data);
}

TEST_F(DatasetTest, ALongSampleLosesItsEndAndCountsAsTruncated) {
  const Dataset data = jsonl(R"({"prompt": "abc", "completion": "defgh"})"
                             "\n"
                             R"({"prompt": "abcdef", "completion": "g"})"
                             "\n"
                             R"({"prompt": "abc", "completion": "de"})",
                             6);
  ASSERT_EQ(data.sequences.size(), 2u);
  EXPECT_EQ(shown(data.sequences[0].ids), "abcdef");
  EXPECT_EQ(labels(data.sequences[0]), "def");
  EXPECT_EQ(shown(data.sequences[1].ids), "abcde</s>");
  EXPECT_EQ(data.truncated, 2);
  EXPECT_EQ(data.skipped,
            (std::map<std::string, int64_t>{{"no supervised token left after truncation to 6 tokens", 1}}));
  EXPECT_EQ(data.sequences[1].sample, 2);
  expect_adds_up(data);
}

TEST_F(DatasetTest, FieldIssue07_MalformedJsonNamesFileAndLine) {
  const std::string good = R"({"text": "ab"})";
  for (const std::string& bad : {std::string(R"({"text": "ab)"), std::string("{'text': 'ab'}"), std::string("null x"),
                                 std::string("1e999"), std::string(R"({"text": "\ud800"})"),
                                 std::string(R"({"text": "ab"} {"text": "cd"})"), std::string(100000, '[')}) {
    const std::string line = refusal("d.jsonl", good + "\r\n\r\n" + good + "\n" + bad + "\n" + good);
    EXPECT_TRUE(line.starts_with(":4: ")) << line;
    EXPECT_LT(line.size(), 300u);
  }
}

TEST_F(DatasetTest, WrongFieldsAndTypesNameFileAndLine) {
  for (const char* bad : {R"([1])",
                          R"("text")",
                          R"({})",
                          R"({"text": 1})",
                          R"({"text": "ab", "id": 7})",
                          R"({"prompt": "a"})",
                          R"({"prompt": "a", "completion": null})",
                          R"({"prompt": "a", "completion": "b", "text": "c"})",
                          R"({"messages": "a"})",
                          R"({"messages": []})",
                          R"({"messages": ["a"]})",
                          R"({"messages": [{"role": "user"}]})",
                          R"({"messages": [{"role": "user", "content": ["a"]}]})",
                          R"({"a\nb": 1})",
                          R"({"messages": [{"role": "user", "content": "a", "weight": 0}]})",
                          R"({"text": "ab", "weight": 0})",
                          R"({"text": "ab", "weight": -1})",
                          R"({"text": "ab", "weight": "2"})",
                          R"({"text": "ab", "weight": 1e300})",
                          R"({"messages": [{"role": "narr\nator", "content": "a"}]})"}) {
    const std::string line = refusal("d.jsonl", std::string("\n") + bad);
    EXPECT_TRUE(line.starts_with(":2: ")) << bad << ": " << line;
  }
}

TEST_F(DatasetTest, SamplesHaveWeights) {
  const Dataset data = jsonl(R"({"text": "abc", "weight": 2.5})"
                             "\n"
                             R"({"text": "abc"})");
  ASSERT_EQ(data.sequences.size(), 2u);
  EXPECT_EQ(data.sequences[0].weight, 2.5f);
  EXPECT_EQ(data.sequences[1].weight, 1.0f);
  EXPECT_EQ(data.sequences[0].ids, data.sequences[1].ids);
}

TEST_F(DatasetTest, FilesAreReadOneBehindTheOther) {
  write_file(directory_ / "a.jsonl", R"({"text": "abc"})");
  write_file(directory_ / "b.jsonl",
             "{\"prompt\": \"a\", \"completion\": \"b\"}\n{\"prompt\": \"x\", \"completion\": \"yz\"}");
  const std::filesystem::path paths[] = {directory_ / "a.jsonl", directory_ / "b.jsonl"};
  const Dataset a = load_dataset(paths[0], *byte_tokenizer(), {}), both = load_datasets(paths, *byte_tokenizer(), {});
  EXPECT_EQ(load_datasets(std::span(paths).first(1), *byte_tokenizer(), {}).fingerprint, a.fingerprint);
  EXPECT_EQ(both.read, 3);
  ASSERT_EQ(both.sequences.size(), 3u);
  EXPECT_EQ(both.sequences[0].ids, a.sequences[0].ids);
  EXPECT_EQ(both.sequences[2].sample, 2);
  EXPECT_NE(both.fingerprint, a.fingerprint);
  const std::filesystem::path swapped[] = {paths[1], paths[0]};
  EXPECT_NE(load_datasets(swapped, *byte_tokenizer(), {}).fingerprint, both.fingerprint);
}

TEST_F(DatasetTest, AFractionIsHeldOut) {
  std::string lines;
  for (int i = 0; i < 20; ++i) lines += fmt::format("{{\"text\": \"sample {}\"}}\n", i);
  Dataset data = jsonl(lines), again = jsonl(lines), other = jsonl(lines);
  const auto samples = [](const std::vector<Sequence>& sequences) {
    std::vector<int64_t> list;
    for (const Sequence& sequence : sequences) list.push_back(sequence.sample);
    return list;
  };
  const int64_t tokens = data.tokens;
  const std::vector<Sequence> held = hold_out(data, 0.25, 1);
  EXPECT_EQ(held.size(), 5u);
  EXPECT_EQ(data.sequences.size(), 15u);
  EXPECT_EQ(samples(hold_out(again, 0.25, 1)), samples(held));
  EXPECT_NE(samples(hold_out(other, 0.25, 2)), samples(held));
  int64_t kept = data.tokens;
  for (const Sequence& sequence : held) kept += static_cast<int64_t>(sequence.ids.size());
  EXPECT_EQ(kept, tokens);
  EXPECT_THROW(hold_out(data, 0.99, 1), Error);
}

TEST_F(DatasetTest, OneFileHoldsOneKindOfSample) {
  const std::string line = refusal("d.jsonl", R"({"text": "ab"})"
                                              "\n"
                                              R"({"prompt": "a", "completion": "b"})");
  EXPECT_TRUE(line.starts_with(":2: ")) << line;
  EXPECT_NE(line.find("line 1"), std::string::npos) << line;
}

TEST_F(DatasetTest, BytesThatAreNotUtf8NameFileAndLine) {
  for (const char* bad :
       {"\xFF", "\x80", "\xC3", "\xC0\xAF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82z"})
    for (const char* name : {"d.txt", "d.jsonl"}) {
      const std::string line = refusal(name, std::string("\n\n") + bad);
      EXPECT_TRUE(line.starts_with(":3: ")) << line;
    }
  EXPECT_EQ(text("\u00e9\u20ac\U0001F600").tokens, 9);
}

TEST_F(DatasetTest, ByteOrderMarkCarriageReturnsAndBlankLinesCountAsNothing) {
  const Dataset data = jsonl(
      "\xEF\xBB\xBF"
      R"({"text": "ab"})"
      "\r\n\r\n \n"
      R"({"text": "cd"})"
      "\r\n");
  EXPECT_EQ(data.read, 2);
  EXPECT_EQ(shown(data.sequences.at(1).ids), "cd");
}

TEST_F(DatasetTest, VeryLongLinesAreRead) {
  const Dataset data = jsonl(R"({"text": ")" + std::string(1 << 20, 'a') + "\"}", 16);
  EXPECT_EQ(data.sequences.at(0).ids.size(), 16u);
  EXPECT_EQ(data.truncated, 1);
}

TEST_F(DatasetTest, FieldIssue07_EverySampleIsUsedOrSkippedWithAReason) {
  const Dataset data = jsonl(R"({"text": "ab"})"
                             "\n"
                             R"({"text": ""})"
                             "\n"
                             R"({"text": "a"})"
                             "\n");
  EXPECT_EQ(data.read, 3);
  EXPECT_EQ(data.sequences.size(), 1u);
  EXPECT_EQ(data.skipped, (std::map<std::string, int64_t>{{"fewer than two tokens", 2}}));
  expect_adds_up(data);
}

TEST_F(DatasetTest, FieldIssue08_ASampleWithoutAnAnswerIsSkipped) {
  const std::string question = R"({"messages": [{"role": "user", "content": "u1"}]})";
  const Dataset data = jsonl(question + "\n" + kTwoTurns, 512);
  EXPECT_EQ(data.sequences.size(), 1u);
  EXPECT_EQ(data.skipped, (std::map<std::string, int64_t>{{"no answer", 1}}));
}

TEST_F(DatasetTest, FieldIssue08_ADataSetWithNoSupervisedTokenIsRefused) {
  const std::string question = R"({"messages": [{"role": "user", "content": "u1"}]})";
  std::string line = refusal("d.jsonl", question + "\n" + question);
  EXPECT_NE(line.find("no supervised token in any of 2 samples (no answer: 2); "), std::string::npos) << line;
  line = refusal("d.jsonl", R"({"prompt": "abc", "completion": "d"})", /*context=*/3);
  EXPECT_NE(line.find("after truncation to 3 tokens: 1"), std::string::npos) << line;
  line = refusal("d.txt", "abc", 64, "after:\n");
  EXPECT_NE(line.find(R"(no text after the marker "\n": 1)"), std::string::npos) << line;
}

TEST(LossOnTest, Parses) {
  EXPECT_EQ(parse_loss_on("assistant").kind, LossOn::Kind::kAssistant);
  EXPECT_EQ(parse_loss_on("all").kind, LossOn::Kind::kAll);
  EXPECT_EQ(parse_loss_on("after:A: x").marker, "A: x");
  for (const char* bad : {"", "after", "after:", "from:", "Assistant", "user"})
    EXPECT_THROW(parse_loss_on(bad), Error) << bad;
}

}  // namespace
}  // namespace patina
