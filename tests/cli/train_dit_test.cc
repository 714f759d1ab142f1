// patina train-dit, as a user runs it.
#include <gtest/gtest.h>
#include <signal.h>

#include "cli/event_schema.h"
#include "cli/run_patina.h"
#include "formats/safetensors.h"
#include "support/song_files.h"
#include "support/tiny_dit.h"

namespace patina::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

// A tiny transformer, three songs, and patina beside them.
class Studio {
 public:
  explicit Studio(const TinyDit& tiny = {}) : model_(write_tiny_dit(directory_.path() / "model.safetensors", tiny)) {
    fs::create_directory(path("songs"));
    for (uint32_t i = 0; i < 3; ++i) {
      SongFile song;
      song.frames = 30 + 7 * i;
      song.dtype = i == 1 ? DType::kBF16 : DType::kF32;
      write_song(path("songs/" + std::to_string(i) + ".safetensors"), i, song);
    }
  }
  std::string path(const std::string& name) const { return (directory_.path() / name).string(); }
  const fs::path& model() const { return model_; }
  std::vector<std::string> arguments(const std::string& out, const std::vector<std::string>& more = {}) const {
    std::vector<std::string> all = {"train-dit",
                                    "--model",
                                    model_.string(),
                                    "--data",
                                    path("songs"),
                                    "--out",
                                    path(out),
                                    "--rank",
                                    "4",
                                    "--alpha",
                                    "8",
                                    "--epochs",
                                    "6",
                                    "--grad-accum",
                                    "2",
                                    "--lr",
                                    "2e-3",
                                    "--target-loss",
                                    "0"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }
  Process start(const std::vector<std::string>& arguments) const { return Process(directory_, arguments); }
  Outcome run(const std::vector<std::string>& arguments) const { return start(arguments).wait(); }

 private:
  TempDir directory_;
  fs::path model_;
};

TEST(TrainDit, WritesTheFilesThatPlayersLookFor) {
  const Studio studio;
  const std::string before = read_file(studio.model());
  const Outcome lora = studio.run(studio.arguments("lora", {"--jsonl", "--val", "0.4"}));
  ASSERT_EQ(lora.status, 0) << lora.err;
  for (const json& event : lora.json_lines()) EXPECT_EQ(schema_fault(event), "");
  EXPECT_TRUE(read_file(studio.model()) == before);
  EXPECT_FALSE(fs::exists(studio.path("lora/adapter.gguf")));
  const SafetensorsFile weights = SafetensorsFile::open(studio.path("lora/adapter_model.safetensors"));
  EXPECT_EQ(weights.tensors().size(), 2u * 2 * 11);
  const SafetensorsTensor* a = weights.find("base_model.model.layers.1.cross_attn.k_proj.lora_A.weight");
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->shape, (Shape{4, 32}));
  const json config = json::parse(read_file(studio.path("lora/adapter_config.json")));
  EXPECT_TRUE(config.at("task_type").is_null());
  EXPECT_EQ(config.at("target_modules").size(), 11u);

  std::vector<std::string> lokr_arguments = studio.arguments("lokr", {"--adapter-type", "lokr", "--lokr-dim", "4"});
  for (const char* flag : {"--rank", "--alpha"}) {
    const auto at = std::find(lokr_arguments.begin(), lokr_arguments.end(), flag);
    lokr_arguments.erase(at, at + 2);
  }
  const Outcome lokr = studio.run(lokr_arguments);
  ASSERT_EQ(lokr.status, 0) << lokr.err;
  const SafetensorsFile factors = SafetensorsFile::open(studio.path("lokr/lokr_weights.safetensors"));
  EXPECT_NE(factors.find("lycoris_layers_0_self_attn_q_proj.lokr_w1"), nullptr);
  EXPECT_NE(factors.find("lycoris_layers_1_mlp_down_proj.alpha"), nullptr);
  EXPECT_TRUE(factors.metadata().contains("lokr_config"));
  EXPECT_FALSE(fs::exists(studio.path("lokr/adapter_config.json")));

  // What was written is taken as the start of another run, and says what it is.
  for (const std::string kind : {"lora", "lokr"}) {
    std::vector<std::string> again = {"train-dit",
                                      "--model",
                                      studio.model().string(),
                                      "--data",
                                      studio.path("songs"),
                                      "--out",
                                      studio.path(kind + "2"),
                                      "--epochs",
                                      "1",
                                      "--init-adapter",
                                      studio.path(kind)};
    const Outcome more = studio.run(again);
    EXPECT_EQ(more.status, 0) << more.err;
  }
}

TEST(TrainDit, GoesOnToTheSameBitsAfterAKill) {
  const Studio studio;
  const std::vector<std::string> more = {"--save-every", "1", "--dropout", "0.1", "--crop", "24"};
  ASSERT_EQ(studio.run(studio.arguments("straight", more)).status, 0);
  std::vector<std::string> arguments = studio.arguments("killed", more);
  const Process process = studio.start(arguments);
  while (!fs::exists(studio.path("killed/checkpoints")) || fs::is_empty(studio.path("killed/checkpoints"))) usleep(500);
  kill(process.id(), SIGKILL);
  process.wait();
  arguments.push_back("--resume");
  const Outcome resumed = studio.run(arguments);
  ASSERT_EQ(resumed.status, 0) << resumed.err;
  EXPECT_TRUE(read_file(studio.path("straight/adapter_model.safetensors")) ==
              read_file(studio.path("killed/adapter_model.safetensors")));
  set_flag(arguments, "--cfg-ratio", "0.5");
  const Outcome other = studio.run(arguments);
  EXPECT_EQ(other.status, 2);
  EXPECT_NE(other.err.find("there is --cfg-ratio 0.5; the run in"), std::string::npos) << other.err;
  // The songs are the same, and count otherwise.
  write_file(studio.path("songs/channel_stats.json"), R"({"channel_mean": [0,0,0,0], "channel_std": [1,2,3,4]})");
  set_flag(arguments, "--cfg-ratio", "0.15");
  const Outcome spread = studio.run(arguments);
  EXPECT_EQ(spread.status, 2);
  EXPECT_NE(spread.err.find("there is channel spread"), std::string::npos) << spread.err;
}

TEST(TrainDit, ASongThatIsCutWhileItIsReadIsNamedInOneLine) {
  const Studio studio;
  std::vector<std::string> arguments = studio.arguments("out", {"--jsonl"});
  set_flag(arguments, "--epochs", "100000");
  const Process process = studio.start(arguments);
  process.await_event("step");
  fs::resize_file(studio.path("songs/1.safetensors"), 0);
  const Outcome run = process.wait();
  EXPECT_EQ(run.status, 1) << run.err;
  EXPECT_NE(run.err.find("patina: " + studio.path("songs/1.safetensors") + ": became shorter"), std::string::npos)
      << run.err;
}

TEST(TrainDit, ReplacesNothingThatIsNotItsOwn) {
  const Studio studio;
  fs::create_directories(studio.path("out/milestones/mine"));
  write_file(studio.path("out/milestones/mine/notes.txt"), "kept");
  EXPECT_EQ(studio.run(studio.arguments("out", {"--overwrite"})).status, 0);
  EXPECT_EQ(read_file(studio.path("out/milestones/mine/notes.txt")), "kept");
  const Outcome songs = studio.run(studio.arguments("songs", {"--overwrite"}));
  EXPECT_EQ(songs.status, 2);
  EXPECT_NE(songs.err.find("the run would write into --data"), std::string::npos) << songs.err;
  fs::rename(studio.path("model.safetensors"), studio.path("out/adapter_model.safetensors"));
  std::vector<std::string> arguments = studio.arguments("out", {"--overwrite"});
  set_flag(arguments, "--model", studio.path("out/adapter_model.safetensors"));
  const Outcome model = studio.run(arguments);
  EXPECT_EQ(model.status, 2);
  EXPECT_NE(model.err.find("the run would write into --model"), std::string::npos) << model.err;
}

TEST(TrainDit, PlansWithoutTraining) {
  const Studio studio;
  std::vector<std::string> arguments = studio.arguments("out");
  arguments.insert(arguments.begin(), "plan");
  const Outcome plan = studio.run(arguments);
  ASSERT_EQ(plan.status, 0) << plan.err;
  EXPECT_NE(plan.out.find("audio-seconds a second"), std::string::npos) << plan.out;
  EXPECT_FALSE(fs::exists(studio.path("out")));
  arguments.push_back("--prepare-stats");
  EXPECT_EQ(studio.run(arguments).status, 2);
  EXPECT_FALSE(fs::exists(studio.path("songs/channel_stats.json")));
}

TEST(TrainDit, PreparesChannelStats) {
  const Studio studio;
  const Outcome outcome =
      studio.run({"train-dit", "--model", studio.model().string(), "--data", studio.path("songs"), "--prepare-stats"});
  ASSERT_EQ(outcome.status, 0) << outcome.err;
  const json stats = json::parse(read_file(studio.path("songs/channel_stats.json")));
  EXPECT_EQ(stats.at("channel_std").size(), 4u);
  EXPECT_EQ(stats.at("n_frames"), 30 + 37 + 44);
}

TEST(TrainDit, BadInputIsOneLineThatNamesIt) {
  const Studio studio;
  const auto complaint = [&](const std::vector<std::string>& more, int status) {
    const Outcome outcome = studio.run(studio.arguments("out", more));
    EXPECT_EQ(outcome.status, status) << outcome.err;
    EXPECT_EQ(outcome.error_lines(), 1u) << outcome.err;
    return outcome.err;
  };
  EXPECT_NE(complaint({"--t-min", "0.9", "--t-max", "0.2"}, 2).find("--t-min 0.9 is not below"), std::string::npos);
  EXPECT_NE(complaint({"--sites", "lm_head"}, 2).find("self.q"), std::string::npos);
  EXPECT_NE(complaint({"--crop", "some"}, 2).find("--crop some"), std::string::npos);
  EXPECT_NE(complaint({"--timestep-mu", "19", "--t-max", "0.5"}, 2).find("leave nothing"), std::string::npos);
  TinyDit tiny;
  tiny.null_conditioning = false;
  const Studio without(tiny);
  const Outcome missing = without.run(without.arguments("out"));
  EXPECT_EQ(missing.status, 1);
  EXPECT_NE(missing.err.find("null_condition_emb"), std::string::npos) << missing.err;
  EXPECT_EQ(without.run(without.arguments("out", {"--cfg-ratio", "0"})).status, 0);
}

}  // namespace
}  // namespace patina::testing
