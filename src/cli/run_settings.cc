#include "cli/run_settings.h"

#include <algorithm>

#include "backend/cpu/cpu_backend.h"
#include "cli/console.h"

namespace patina {

namespace {

constexpr const char *kModel = "--model", *kData = "--data", *kValidation = "--val", *kSites = "--sites";
constexpr const char *kIsa = "isa", *kVersion = "version";  // of the session

// "--lr 0.001", "no --val".
std::string shown(const std::string& flag, const Json& value) {
  if (value.is_null() || value == "" || value == false) return "no " + flag;
  if (value == true) return flag;
  return fmt::format("{} {}", flag, value.is_string() ? value.get<std::string>() : value.dump());
}

// "7 layers: layers.0.q, layers.0.k, ...": adapted ones, of which there may be hundreds.
std::string shown_sites(const Json& sites) {
  constexpr size_t kShown = 8;
  if (!sites.is_array()) return "others";
  std::string text = fmt::format("{} matrices: ", sites.size());
  for (size_t i = 0; i < std::min(sites.size(), kShown); ++i) text += (i > 0 ? ", " : "") + sites[i].get<std::string>();
  return text + (sites.size() > kShown ? ", ..." : "");
}

// Error(kUsage) naming the first flag whose value is another one than that of the run in `out`.
void check_same_settings(const Json& saved, const Json& now, const std::string& out) {
  for (const auto& [flag, value] : now.items()) {
    const Json before = saved.value(flag, Json());
    if (before == value) continue;
    if (flag == kModel || flag == kData || (flag == kValidation && value != "" && before != ""))
      fail(Error::Kind::kUsage,
           "--resume: {} has another content than what the run in {} was begun with; give the same, or begin a run in "
           "another --out",
           flag, out);
    if (flag == kSites)
      fail(
          Error::Kind::kUsage,
          "--resume: --sites and --layers choose {}; the run in {} was begun with {}; give the same, or begin a run in "
          "another --out",
          shown_sites(value), out, shown_sites(before));
    fail(Error::Kind::kUsage,
         "--resume: there is {}; the run in {} was begun with {}; give the same, or begin a run in another --out",
         shown(flag, value), out, shown(flag, before));
  }
}

}  // namespace

Json run_settings(const TrainRun& run) {
  const TrainFlags& flags = run.flags;
  const TrainOptions& options = flags.options;
  const bool lokr = flags.adapter.kind == AdapterKind::kLokr;
  std::vector<std::string> sites;
  for (const Site& site : run.sites) sites.push_back(site_label(site.layer, site.name));
  return {{kModel, run.model_fingerprint},
          {kData, run.data_fingerprint},
          {kValidation, run.validation_fingerprint.empty() ? flags.run.validation : run.validation_fingerprint},
          {"--eval-every", options.eval_every},
          {"--patience", options.patience},
          {"--target-loss", options.target_loss},
          {"--adapter-type", flags.adapter_flags.type},
          {lokr ? "--lokr-dim" : "--rank", flags.adapter.rank},
          {lokr ? "--lokr-alpha" : "--alpha", flags.adapter.alpha},
          {"--rslora", flags.adapter_flags.rslora},
          {"--rank-pattern", flags.adapter_flags.rank_pattern},
          {"--alpha-pattern", flags.adapter_flags.alpha_pattern},
          {"--dropout", flags.adapter_flags.dropout},
          {"--lokr-factor", lokr ? flags.adapter.factor : 0},
          {"--lokr-decompose-both", lokr && flags.adapter.decompose_both},
          {"--init-adapter", flags.init_adapter},
          {kSites, sites},
          {"--epochs", options.steps > 0 ? 0 : options.epochs},
          {"--steps", options.steps},
          {"--optimizer", flags.run.optimizer},
          {"--muon-scale", options.optimizer.muon_scale},
          {"--lora-plus-ratio", options.optimizer.lora_plus_ratio},
          {"--weight-decay", options.optimizer.weight_decay},
          {"--lr", options.learning_rate},
          {"--schedule", flags.schedule},
          {"--warmup", options.warmup},
          {"--warmup-min", options.least_warmup_steps},
          {"--grad-clip", options.grad_clip},
          {"--max-bad-steps", options.max_bad_steps},
          {"--seed", options.seed},
          {"--bwd", flags.bwd}};
}

Json run_session(Json files, Json told) {
  return {{kSessionFiles, std::move(files)},
          {kSessionTold, std::move(told)},
          {kIsa, cpu_isa()},
          {kVersion, PATINA_VERSION}};
}

void restore_run(const Checkpoint& checkpoint, const Json& settings, const std::string& out, ParameterStore& store,
                 Trainer& trainer) {
  const CheckpointText& text = checkpoint.text();
  check_same_settings(text.settings, settings, out);
  for (const auto& [key, now] :
       {std::pair{kIsa, std::string(cpu_isa())}, std::pair{kVersion, std::string(PATINA_VERSION)}})
    if (const std::string before = text.session.at(key); before != now)
      say("patina: warning: the run was begun with {} {}, this is {}: its last bits may differ\n", key, before, now);
  checkpoint.restore_parameters(store);
  checkpoint.restore_optimizer(trainer.optimizer());
  trainer.set_state(text.state);
}

}  // namespace patina
