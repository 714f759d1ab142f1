// --recompute and --memory.
#include <gtest/gtest.h>

#include "cli/run_patina.h"

namespace patina::testing {
namespace {

using nlohmann::json;

class MemoryFlags : public ::testing::Test {
 protected:
  Outcome train(const std::vector<std::string>& flags) {
    std::vector<std::string> more = flags;
    more.insert(more.end(), {"--jsonl", "--overwrite"});
    return place_.run(place_.train_arguments("out", more));
  }
  std::string adapter() const { return read_file(place_.path("out/adapter_model.safetensors")); }
  // The event `name` of a run that succeeded.
  static json event(const Outcome& run, const std::string& name) {
    EXPECT_EQ(run.status, 0) << run.err;
    for (const json& line : run.json_lines())
      if (line.at("event") == name) return line;
    ADD_FAILURE() << "no event " << name;
    return {};
  }
  static int64_t activations(const Outcome& run) {
    const json memory = event(run, "memory");
    return memory.at("saved").get<int64_t>() + memory.at("scratch").get<int64_t>();
  }

  const Workplace place_{{.layers = 4}};
};

TEST_F(MemoryFlags, RecomputeTakesLessAndChangesNoBit) {
  const Outcome off = train({"--recompute", "off"});
  EXPECT_EQ(event(off, "start").at("recompute"), "off");
  const std::string bytes = adapter();
  const Outcome two = train({"--recompute", "2"});
  EXPECT_EQ(event(two, "start").at("recompute"), "2 segments");
  EXPECT_EQ(adapter(), bytes);
  const Outcome layer = train({"--recompute", "layer"});
  EXPECT_EQ(event(layer, "start").at("recompute"), "layer");
  EXPECT_EQ(adapter(), bytes);
  EXPECT_EQ(event(train({"--recompute", "1000"}), "start").at("recompute"), "layer");
  EXPECT_LT(activations(layer), activations(two));
  EXPECT_LT(activations(two), activations(off));
  EXPECT_EQ(event(train({}), "start").at("recompute"), "off") << "there is room";
  EXPECT_EQ(adapter(), bytes);
}

#if !PATINA_SANITIZED  // a sanitizer keeps what is freed
TEST_F(MemoryFlags, ABudgetIsMetOrRefused) {
  const Outcome free = train({});
  const json planned = event(free, "memory");
  const int64_t total = planned.at("planned"), saved = planned.at("saved");
  const Outcome tight = train({"--memory", std::to_string(total - saved / 4) + "B"});
  const json fitted = event(tight, "memory");
  EXPECT_EQ(fitted.at("budget"), total - saved / 4);
  EXPECT_LE(fitted.at("planned"), fitted.at("budget"));
  // The process itself takes a little more or less from run to run.
  EXPECT_LT(fitted.at("planned").get<int64_t>() - fitted.at("process").get<int64_t>(),
            total - planned.at("process").get<int64_t>());
  EXPECT_NE(event(tight, "start").at("recompute"), "off");
  EXPECT_NE(tight.err.find("to fit into"), std::string::npos) << tight.err;

  const std::string before = adapter();
  const Outcome none = train({"--memory", "1.5MB"});
  EXPECT_EQ(none.status, 1);
  EXPECT_EQ(none.error_lines(), 1u) << none.err;
  for (const char* text : {"at least", "--recompute layer", "--micro-tokens", "1.5 MB", "--memory"})
    EXPECT_NE(none.err.find(text), std::string::npos) << text << "\n" << none.err;
  EXPECT_EQ(none.json_lines().back().at("reason"), "memory");
  EXPECT_EQ(adapter(), before) << "the earlier adapter is still there";
}
#endif

TEST_F(MemoryFlags, WrongValuesAreOneLineEach) {
  for (const char* value : {"layers", "0", "-1", "2x", "", " "}) {
    const Outcome run = train({"--recompute", value});
    EXPECT_EQ(run.status, 2) << value;
    EXPECT_EQ(run.error_lines(), 1u) << run.err;
    EXPECT_NE(run.err.find("--recompute"), std::string::npos) << run.err;
  }
  for (const char* value : {"2", "GiB", "2 TiBs", "-1GB", "nanGB", "infGB", "0MB", "1e300GB"}) {
    const Outcome run = train({"--memory", value});
    EXPECT_EQ(run.status, 2) << value << run.err;
    EXPECT_EQ(run.error_lines(), 1u) << run.err;
    EXPECT_NE(run.err.find("--memory"), std::string::npos) << run.err;
  }
  for (const char* value : {"2GiB", "2 gb", "1.5 GiB", "900000kB"})
    EXPECT_EQ(train({"--memory", value}).status, 0) << value;
}

}  // namespace
}  // namespace patina::testing
