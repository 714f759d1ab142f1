// patina train-lm: trains an adapter of a language model on text.
#include <charconv>

#include "backend/cpu/cpu_backend.h"
#include "cli/console.h"
#include "cli/lm_run.h"
#include "cli/lm_samples.h"
#include "cli/memory.h"
#include "cli/run_settings.h"
#include "cli/self_test.h"
#include "cli/train_fit.h"
#include "cli/train_run.h"
#include "formats/names.h"

namespace patina {

namespace {

// Options whose default depends on another or on the model: were they given?
struct Given {
  const CLI::Option *context, *batch_tokens, *self_test;
};

Given add_options(CommandLine& line, LmFlags& flags) {
  constexpr int64_t kMost = int64_t{1} << 30;
  Given given{};
  line.option("--model", flags.model, "FILE", "GGUF model; it is never changed.")->required();
  line.option("--data", flags.data, "FILE",
              "Data set: .txt, or .jsonl with messages, prompt and completion, or text. May be given more than once.")
      ->required()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  add_target_options(
      line, flags,
      "Layers to adapt: all, attn (q,k,v,o), mlp (gate,up,down), lm_head where the model does not tie it to the "
      "embedding (not in all), or a list of these with commas.");
  given.context = line.option("--context", flags.asked_context, "TOKENS",
                              "Longest sequence; the default is less where the model's own limit is. auto: as the "
                              "longest sample of .jsonl files, within that limit; of .txt files the default.");
  given.batch_tokens = line.option("--batch-tokens", flags.batch_tokens, "TOKENS",
                                   "Tokens of an optimizer step, filled with whole sequences; at least --context, "
                                   "which is the default where that is more.")
                           ->check(quiet(CLI::Range(int64_t{1}, kMost)));
  line.option("--micro-tokens", flags.asked_micro_tokens, "TOKENS",
              "Tokens in memory at once, or auto. Less takes less memory; the result changes by rounding only.");
  line.option("--loss-on", flags.loss_on, "WHAT", kLossOnHelp);
  add_chat_template_option(line, flags.chat_template);
  line.add_option("--show-mask", flags.show_mask,
                  "Print which text of the first N samples is supervised, and train nothing.")
      ->type_name("N")
      ->check(quiet(CLI::Range(int64_t{1}, kMost)));
  CLI::Option* prompts = line.add_option("--sample-prompts", flags.sample_prompts,
                                         "A file with a JSON object with \"prompt\" on each line: what the base model "
                                         "and the adapter answer, side "
                                         "by side, before the first step and after the last.")
                             ->type_name("FILE");
  line.option("--sample-every", flags.sample_every, "STEPS", "Answer them every so many steps too; 0 does not.")
      ->check(quiet(CLI::Range(int64_t{0}, kMost)))
      ->needs(prompts);
  line.option("--sample-tokens", flags.sample_tokens, "TOKENS", "Longest of these answers.")
      ->check(quiet(CLI::Range(int64_t{1}, kMost)))
      ->needs(prompts);
  line.option("--sample-temperature", flags.sample_temperature, "NUMBER",
              "0 takes the most likely token; higher is more varied, with the same random numbers (--seed) for both.")
      ->check(not_negative())
      ->needs(prompts);
  add_train_options(line, flags);
  given.self_test = line.add_flag(kSelfTestFlag, kSelfTestHelp);
  return given;
}

// A number of tokens, at least `least`; 0 for auto.
int64_t parse_tokens(const char* flag, const std::string& text, int64_t least) {
  if (text == kAuto) return 0;
  int64_t tokens = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  if (error != std::errc() || end != text.data() + text.size() || tokens < least)
    fail(Error::Kind::kUsage, "{} {}: expected auto or a number of tokens, at least {}", flag, text, least);
  return tokens;
}

// The longest sequence that is read, before the data are there: what was asked for, or for auto all that may be.
int64_t context_to_read(const LmFlags& flags, const DecoderModel& model, bool given) {
  const auto is_text = [](const std::string& path) { return std::filesystem::path(path).extension() == ".txt"; };
  if (flags.context > 0) return resolve_context(model, flags.context, given);
  return resolve_context(model, std::ranges::any_of(flags.data, is_text) ? kDefaultContextTokens : INT64_MAX, false);
}

// What depends on the context: for auto that of the longest sequence.
void settle_context(LmFlags& flags, bool batch_given, const Dataset& data, const Validation& validation) {
  if (flags.asked_context == kAuto)
    flags.context = std::max({int64_t{2}, longest_sequence(data.sequences), longest_sequence(validation.sequences)});
  if (!batch_given) flags.batch_tokens = std::max(flags.batch_tokens, flags.context);
  if (flags.batch_tokens < flags.context)
    fail(Error::Kind::kUsage,
         "--batch-tokens {} is less than --context {}: a step must hold the longest sequence; raise the one or lower "
         "the other",
         flags.batch_tokens, flags.context);
}

Validation load_validation(const LmFlags& flags, const Tokenizer& tokenizer, const DatasetOptions& options,
                           Dataset& data) {
  if (flags.run.validation.empty()) return {};
  if (const std::optional<double> fraction = validation_fraction(flags.run.validation))
    return {hold_out(data, *fraction, flags.options.seed), ""};
  Dataset read = load_dataset(flags.run.validation, tokenizer, options);
  return {std::move(read.sequences), read.fingerprint};
}

void print_masks(const Dataset& data, const Tokenizer& tokenizer, int64_t count) {
  for (const Sequence& sequence : data.sequences) {
    if (count-- == 0) break;
    write_out(fmt::format("sample {}: {}, {} supervised (+)\n{}\n", sequence.sample + 1,
                          counted(static_cast<int64_t>(sequence.ids.size()), "token"), sequence.supervised_tokens(),
                          show_mask(sequence, tokenizer)));
  }
}

std::set<std::string> asked_sites(const LmFlags& flags) {
  std::set<std::string> names;
  for (const SiteName site : parse_sites(flags.sites, ModelFamily::kDecoder))
    names.insert(std::string(site_name(site)));
  return names;
}

std::vector<Site> choose_sites(const DecoderModel& model, const LmFlags& flags) {
  const std::set<std::string> names = asked_sites(flags);
  if (names.contains(std::string(site_name(SiteName::kLmHead))) && model.tied_head())
    fail(Error::Kind::kUsage,
         "--sites {}: lm_head cannot be adapted: in this model it shares its weight with the embedding; leave it out",
         flags.sites);
  return select_sites(model.sites(), names, static_cast<int>(flags.layers));
}

int train(LmFlags& flags, const Given& given, EventWriter& events) {
  flags.micro_tokens = parse_tokens("--micro-tokens", flags.asked_micro_tokens, 1);
  flags.context = parse_tokens("--context", flags.asked_context, 2);
  resolve_train_flags(flags);
  DatasetOptions data_options;
  data_options.loss_on = parse_loss_on(flags.loss_on);
  data_options.chat_template = flags.chat_template;
  const bool show_only = flags.show_mask > 0;
  std::vector<Prompt> prompts;
  if (!flags.sample_prompts.empty()) prompts = read_prompts(flags.sample_prompts);
  RunPlace place = open_run(flags, !show_only && !flags.plan_only);

  const LanguageModel model = load_language_model(flags.model);
  flags.context = context_to_read(flags, model.weights, given.context->count() > 0);
  std::optional<AdapterFile> initial;
  std::vector<Site> sites;
  if (flags.init_adapter.empty()) {
    sites = choose_sites(model.weights, flags);
  } else {
    initial = read_fitting_adapter(model.weights, flags.init_adapter);
    take_over(*initial, model.weights.config().layers, asked_sites(flags), flags);
    for (const AdaptedSite& site : initial->sites) sites.push_back({site.layer, site.site, site.in, site.out});
  }
  data_options.context_tokens = flags.context;
  Dataset data = load_datasets(std::vector<std::filesystem::path>(flags.data.begin(), flags.data.end()),
                               *model.tokenizer, data_options);
  const Validation validation = load_validation(flags, *model.tokenizer, data_options, data);
  settle_context(flags, given.batch_tokens->count() > 0, data, validation);
  if (ended_early(events)) return ended_status();
  if (show_only) {
    print_masks(data, *model.tokenizer, flags.show_mask);
    return 0;
  }

  if (place.checkpoint && flags.micro_tokens == 0)
    flags.micro_tokens = saved_micro_tokens(place.checkpoint->text().settings);
  const int64_t process_bytes = anonymous_bytes();
  if (!initial) check_trainables(sites, flags.adapter);
  const std::unique_ptr<Adapter> adapter =
      initial ? std::make_unique<Adapter>(model.weights.sites(), initial->sites, flags.init_adapter)
              : std::make_unique<Adapter>(sites, flags.adapter);
  if (initial) adapter->set_dropout(flags.adapter.dropout, flags.options.seed);
  const int64_t budget_bytes = memory_budget(flags.memory.memory);
  const OptimizerMemory optimizer = optimizer_memory(adapter->parameters(), flags.options.optimizer, flags.threads);
  const int64_t fixed_bytes = process_bytes + 2 * static_cast<int64_t>(adapter->parameters().values().size_bytes()) +
                              adapter->constant_bytes() + optimizer.moments_bytes + optimizer.scratch_bytes;
  ThreadPool pool(flags.threads);
  const auto lm_options = [&](const TrainOptions& options, int64_t micro_tokens) {
    return LmTrainOptions{options, flags.batch_tokens, micro_tokens};
  };
  const int64_t micro_tokens = resolve_micro_tokens(lm_options(flags.options, flags.micro_tokens), data.sequences);
  const Conversation conversation(*model.tokenizer, !data.chat, "", flags.chat_template);
  std::optional<LmSamples> samples;
  if (!prompts.empty())
    samples.emplace(
        model.weights, *adapter, conversation, std::move(prompts), *model.tokenizer,
        SampleOptions{flags.sample_tokens, {.temperature = flags.sample_temperature, .seed = flags.options.seed}},
        pool);
  const int64_t sample_bytes = samples ? samples->memory_bytes() : 0;
  const FitSubject subject{
      model.weights.config().layers,
      micro_tokens,
      flags.micro_tokens == 0,
      "--micro-tokens",
      sample_bytes,
      samples ? samples->window_bytes() : 0,
      "--context",
      [&](const TrainOptions& options, FitChoices choices, int64_t bytes) {
        return fit_memory(model.weights, *adapter, data.sequences, lm_options(options, micro_tokens), choices, bytes,
                          cpu_backend(), flags.threads);
      },
      [&](const TrainOptions& options, int64_t micro) {
        return std::make_unique<Trainer>(
            std::make_unique<LmObjective>(model.weights, *adapter, data.sequences, validation.sequences,
                                          lm_options(options, micro), cpu_backend(), pool),
            *adapter, options, pool);
      }};
  Fitted fitted = fit(subject, flags, budget_bytes, fixed_bytes);
  if (fitted.micro != micro_tokens) flags.micro_tokens = fitted.micro;
  TrainPlan plan = fitted.trainer->plan();
  if (samples && flags.options.stream_weights) {
    samples->stream_weights();
    plan.weights_bytes += samples->window_bytes();
  }

  const TrainRun run{flags,
                     sites,
                     model.weights.config().layers,
                     adapter->parameters().parameters(),
                     plan,
                     fitted.trainer->objective().formulations(),
                     budget_bytes,
                     anonymous_bytes(),
                     data.memory_bytes(),
                     sample_bytes,
                     model.weights.fingerprint(),
                     data.fingerprint,
                     validation.fingerprint};
  const LmRun lm{run, flags, model, data, validation, fitted.micro};
  const DecoderLayer& middle = model.weights.layers()[model.weights.layers().size() / 2];
  return run_training({run, *adapter, std::move(fitted.trainer), pool, opening_events(lm), describe(lm),
                       lm_settings(lm), initial, adapter_base(model.weights),
                       samples ? SampleRule{flags.sample_every, [&] { return samples->take(); }} : SampleRule{},
                       [&](const Trainer& trainer) {
                         return estimate_time(trainer, middle.products(), fitted.micro,
                                              flags.options.gradients.formulation, cpu_backend(), pool);
                       },
                       [](const TimeEstimate&) { return std::string(); },
                       [&](std::span<const OutputDirectory::File> written) { return usage_text(lm, written); }},
                      std::move(place), events);
}

int run(const Command& command, int argc, char** argv, bool plan_only) {
  LmFlags flags;
  flags.command = "train-lm";
  flags.plan_only = plan_only;
  CommandLine line(command);
  const Given given = add_options(line, flags);
  return run_train_command(line, flags, argc, argv, [&](EventWriter& events) {
    refuse_self_test(*given.self_test, flags.command);  // its own command line does not come here
    return train(flags, given, events);
  });
}

}  // namespace

int run_train_lm(const Command& command, int argc, char** argv) {
  if (asks_for_self_test(argc, argv)) {
    const Subject subjects[] = {product_subject(), lm_subject()};
    return run_self_test_command(command, subjects, kSelfTestFlag, argc, argv);
  }
  return run(command, argc, argv, false);
}
int plan_train_lm(const Command& command, int argc, char** argv) { return run(command, argc, argv, true); }

}  // namespace patina
