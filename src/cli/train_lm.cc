// patina train-lm: trains an adapter of a language model on text; patina plan train-lm: tells what that takes.
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <new>

#include "backend/cpu/cpu_backend.h"
#include "cli/adapter_facts.h"
#include "cli/console.h"
#include "cli/formulation.h"
#include "cli/interrupt.h"
#include "cli/memory.h"
#include "cli/profile.h"
#include "cli/run_log.h"
#include "cli/run_observer.h"
#include "cli/run_settings.h"
#include "cli/self_test.h"
#include "cli/train_events.h"
#include "cli/train_fit.h"
#include "cli/train_output.h"
#include "cli/train_summary.h"
#include "formats/names.h"
#include "measure/machine.h"
#include "train/estimate.h"

namespace patina {

namespace {

constexpr int kSignalled = 128;  // exit status: this and the signal
const std::map<std::string, Schedule> kSchedules = {
    {"cosine", Schedule::kCosine}, {"linear", Schedule::kLinear}, {"constant", Schedule::kConstant}};

// Options whose default depends on another or on the model: were they given?
struct Given {
  const CLI::Option *context, *batch_tokens, *bwd;
  const CLI::Option *sites, *layers;
  const CLI::Option* self_test;
};

Given add_options(CommandLine& line, TrainFlags& flags) {
  constexpr int64_t kMost = int64_t{1} << 30;
  TrainOptions& options = flags.options;
  Given given{};
  line.option("--model", flags.model, "FILE", "GGUF model; it is never changed.")->required();
  line.option("--data", flags.data, "FILE",
              "Data set: .txt, or .jsonl with messages, prompt and completion, or text. May be given more than once.")
      ->required()
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  line.option("--out", flags.out, "DIR", "Directory for the adapter; required, except with --show-mask.");
  add_adapter_options(line, flags.adapter_flags);
  given.sites = line.option(
      "--sites", flags.sites, "LIST",
      "Layers to adapt: all, attn (q,k,v,o), mlp (gate,up,down), lm_head where the model does not tie it to the "
      "embedding (not in all), or a list of these with commas.");
  given.layers = line.option("--layers", flags.layers, "N", "Adapt only the last N layers; 0 adapts all.")
                     ->check(quiet(CLI::Range(int64_t{0}, int64_t{1} << 16)));
  line.add_option(
          "--init-adapter", flags.init_adapter,
          "Adapter to start from, instead of a fresh one; kind, ranks, alphas and sites are its own. A PEFT or MLX "
          "directory, a GGUF LoRA, or a LyCORIS or kohya .safetensors file.")
      ->type_name("PATH");
  CLI::Option* trigger =
      line.add_option(
              "--trigger", flags.trigger,
              "Word that calls the adapter up; kept in its metadata for programs that show it. The data are used "
              "as they are.")
          ->type_name("WORD");
  line.option("--trigger-position", flags.trigger_position, "WHERE",
              "Where a prompt should have the trigger: prepend, append or replace.")
      ->check(quiet(CLI::IsMember({"prepend", "append", "replace"})))
      ->needs(trigger);
  given.context = line.option("--context", flags.context, "TOKENS",
                              "Longest sequence; the default is less where the model's own limit is.")
                      ->check(quiet(CLI::Range(int64_t{2}, kMost)));
  given.batch_tokens = line.option("--batch-tokens", options.batch_tokens, "TOKENS",
                                   "Tokens of an optimizer step, filled with whole sequences; at least --context, "
                                   "which is the default where that is more.")
                           ->check(quiet(CLI::Range(int64_t{1}, kMost)));
  line.option("--micro-tokens", flags.micro_tokens, "TOKENS",
              "Tokens in memory at once, or auto. Less takes less memory; the result changes by rounding only.");
  add_memory_options(line, flags.memory);
  add_run_options(line, flags.run, options);
  CLI::Option* epochs = line.option("--epochs", options.epochs, "N", "Passes over the data set.")
                            ->check(quiet(CLI::Range(int64_t{1}, kMost)));
  line.add_option("--steps", options.steps, "Optimizer steps, instead of --epochs.")
      ->type_name("N")
      ->check(quiet(CLI::Range(int64_t{1}, kMost)))
      ->excludes(epochs);
  line.option("--lr", options.learning_rate, "NUMBER", "Highest learning rate.")->check(above_zero());
  line.option("--schedule", flags.schedule, "NAME",
              "How the learning rate falls after the warm-up: cosine or linear to a tenth, or constant.")
      ->check(quiet(CLI::IsMember(kSchedules)));
  line.option("--warmup", options.warmup, "NUMBER", "Warm-up: below 1 a fraction of all steps, else steps.")
      ->check(not_negative());
  line.option("--weight-decay", options.optimizer.weight_decay, "NUMBER", "Decoupled weight decay.")
      ->check(not_negative());
  line.option("--grad-clip", options.grad_clip, "NUMBER", "Largest norm of the whole gradient; 0 does not clip.")
      ->check(not_negative());
  line.option("--loss-on", flags.loss_on, "WHAT", kLossOnHelp);
  line.option("--seed", options.seed, "N",
              "Of the first values and of the order of samples; the same seed gives the same adapter, to the bit.")
      ->check(seed_number());
  given.bwd = add_formulation_option(line, flags.bwd);
  add_threads_option(line, flags.threads);
  add_chat_template_option(line, flags.chat_template);
  line.add_option("--show-mask", flags.show_mask,
                  "Print which text of the first N samples is supervised, and train nothing.")
      ->type_name("N")
      ->check(quiet(CLI::Range(int64_t{1}, kMost)));
  line.add_flag("--profile", flags.profile, "Print after the run where the time of its steps went, op by op.");
  line.add_flag("--jsonl", flags.jsonl, "Print events on stdout, one JSON object a line.");
  line.add_flag("--overwrite", flags.overwrite, "Replace the files of an earlier run in --out.")->excludes("--resume");
  given.self_test = line.add_flag(kSelfTestFlag, kSelfTestHelp);
  return given;
}

int64_t parse_micro_tokens(const std::string& text) {
  if (text == kAuto) return 0;
  int64_t tokens = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), tokens);
  if (error != std::errc() || end != text.data() + text.size() || tokens < 1)
    fail(Error::Kind::kUsage, "--micro-tokens {}: expected auto or a number of tokens, at least 1", text);
  return tokens;
}

Validation load_validation(const TrainFlags& flags, const Tokenizer& tokenizer, const DatasetOptions& options,
                           Dataset& data) {
  if (flags.run.validation.empty()) return {};
  if (const std::optional<double> fraction = validation_fraction(flags.run.validation))
    return {hold_out(data, *fraction, flags.options.seed), ""};
  Dataset read = load_dataset(flags.run.validation, tokenizer, options);
  return {std::move(read.sequences), read.fingerprint};
}

std::vector<Site> choose_sites(const DecoderModel& model, const TrainFlags& flags) {
  std::set<std::string> names;
  for (const SiteName site : parse_sites(flags.sites)) {
    if (site == SiteName::kLmHead && model.tied_head())
      fail(Error::Kind::kUsage,
           "--sites {}: lm_head cannot be adapted: in this model it shares its weight with the embedding; leave it out",
           flags.sites);
    names.insert(std::string(site_name(site)));
  }
  return select_sites(model.sites(), names, static_cast<int>(flags.layers));
}

// What a run that goes on from another adapter takes from it; flags that say otherwise are refused.
void take_over(const AdapterFile& initial, const DecoderModel& model, const Given& given, TrainFlags& flags) {
  const AdapterFacts facts = adapter_facts(initial.sites);
  const auto check = [&](const CLI::Option* option, bool agrees, const std::string& found) {
    if (option->count() > 0 && !agrees)
      fail(Error::Kind::kUsage, "{} {} contradicts {}, which has {}; leave {} out", option->get_name(),
           option->results().front(), flags.init_adapter, found, option->get_name());
  };
  const auto list = [](const auto& values) { return fmt::format("{}", fmt::join(values, ", ")); };
  const int layers = model.config().layers, first = layers - static_cast<int>(facts.layers.size());
  const bool top = facts.layers.empty() || *facts.layers.begin() == first;
  std::set<std::string> sites;
  for (const SiteName site : parse_sites(flags.sites)) sites.insert(std::string(site_name(site)));
  AdapterFlags& asked = flags.adapter_flags;
  for (const CLI::Option* option : asked.of_fresh)
    if (option->count() > 0)
      fail(Error::Kind::kUsage, "{} is for a fresh adapter, {} is there already; leave it out", option->get_name(),
           flags.init_adapter);
  const bool lokr = flags.adapter.kind == AdapterKind::kLokr;
  check(asked.type_option, facts.kinds == std::set{asked.type}, "type " + list(facts.kinds));
  check(lokr ? asked.dim_option : asked.rank_option, facts.ranks == std::set{flags.adapter.rank},
        "rank " + list(facts.ranks));
  check(lokr ? asked.lokr_alpha_option : asked.alpha_option, facts.alphas == std::set{flags.adapter.alpha},
        "alpha " + list(facts.alphas));
  check(given.sites, sites == std::set(facts.sites.begin(), facts.sites.end()), "sites " + list(facts.sites));
  check(given.layers, top && (flags.layers > 0 ? flags.layers : layers) == std::ssize(facts.layers),
        "layers " + list(facts.layers));
  asked.type = list(facts.kinds);
  if (facts.kinds.contains("lokr"))
    flags.adapter.kind = AdapterKind::kLokr;
  else
    flags.adapter.kind = facts.kinds.contains("dora") ? AdapterKind::kDora : AdapterKind::kLora;
  flags.adapter.rank = *facts.ranks.rbegin();
  flags.adapter.alpha = *facts.alphas.rbegin();
  flags.layers = first == 0 ? 0 : std::ssize(facts.layers);
}

void print_masks(const Dataset& data, const Tokenizer& tokenizer, int64_t count) {
  for (const Sequence& sequence : data.sequences) {
    if (count-- == 0) break;
    write_out(fmt::format("sample {}: {}, {} supervised (+)\n{}\n", sequence.sample + 1,
                          counted(static_cast<int64_t>(sequence.ids.size()), "token"), sequence.supervised_tokens(),
                          show_mask(sequence, tokenizer)));
  }
}

// Whether a signal came before the first step.
bool ended_early(EventWriter& events) {
  if (interrupt_signal() == 0) return false;
  constexpr const char* kText = "interrupted before the first step; nothing was written";
  say("patina: {}\n", kText);
  events.write("fatal", {{"reason", "interrupted"}, {"message", kText}});
  return true;
}

// What patina plan adds to what every run says about itself.
void show_plan(const TrainRun& run, const TimeEstimate& time, EventWriter& events) {
  events.write("plan", plan_event(run, time));
  const std::string text = fmt::format(
      "{}\n{}: about {} a step, {} in all. An estimate: {:.1f} GFLOP a step at the {:.0f} GFLOP/s that the products of "
      "one layer reached just now; what is no product comes on top.\n",
      describe_memory(run), counted(run.plan.total_steps, "step"),
      time.step_ms < 1e4 ? fmt::format("{:.0f} ms", time.step_ms) : duration_text(time.step_ms / 1e3),
      duration_text(time.total_ms / 1e3), time.step_operations * 1e-9, time.gflops);
  if (run.flags.jsonl)
    say("{}", text);
  else
    write_out(text);
}

// Whether a run that ended early has an adapter to show.
bool holds_good_values(const ParameterStore& store, Trainer& trainer) {
  return trainer.optimizer().steps() > 0 &&
         std::ranges::all_of(store.values(), [](float value) { return std::isfinite(value); });
}

// A run that is set up.
struct Session {
  const TrainRun& run;
  Adapter& adapter;
  std::unique_ptr<Trainer> trainer;
  ThreadPool& pool;
  std::optional<Checkpoint> checkpoint;       // to go on from
  const std::optional<AdapterFile>& initial;  // what the adapter was made from
  RunLog& run_log;
  const Json& settings;
  Json log;  // train_log.json
};

int train_and_export(Session& session, OutputDirectory& out, EventWriter& events) {
  const TrainRun& run = session.run;
  const TrainFlags& flags = run.flags;
  Adapter& adapter = session.adapter;
  std::unique_ptr<Trainer>& trainer = session.trainer;
  std::optional<Checkpoint>& checkpoint = session.checkpoint;
  Json& log = session.log;
  TrainResult result;
  std::optional<Error> failure;
  std::optional<Profile> profile;
  if (flags.profile) profile.emplace(trainer->graph());
  {
    RunObserver observer(*trainer, adapter.parameters(), events);
    RunSaver saver(
        out.path(), flags.run, session.settings,
        [&] { return run_session(session.run_log.lengths(), observer.told()); },
        [&](const std::string& text) { observer.warn(text, 1); });
    observer.save_with(saver);
    if (checkpoint) {
      const TrainState& state = checkpoint->text().state;
      saver.resumed_at(state.steps);
      observer.set_told(checkpoint->text().session.at(kSessionTold));
      events.write("resume",
                   {{"path", checkpoint->path().string()}, {"step", state.steps}, {"epoch", state.epoch + 1}});
      say("going on after step {} from {}\n\n", grouped(state.steps), checkpoint->path().string());
    } else {
      for (const FallbackWarning& warning : fallback_warnings(run.plan.formulations))
        observer.warn(warning.text, warning.count);
      for (const std::string& warning : optimizer_warnings(adapter.parameters(), flags.options.optimizer))
        observer.warn(warning, 1);
    }
    checkpoint.reset();
    try {
      result = trainer->run(
          observer, [] { return interrupt_signal() != 0; }, profile ? &*profile : nullptr);
    } catch (const Error& error) {
      if (error.kind() != Error::Kind::kNonFinite) throw;
      // The last good step is the one before those that were not applied; after any other failure it is not known.
      if (!holds_good_values(adapter.parameters(), *trainer) || trainer->state().bad_steps == 0)
        fail(Error::Kind::kNonFinite, "{}; no adapter was written to {}", error.what(), flags.out);
      failure = error;
    }
    if (!failure && result.steps > 0 && trainer->optimizer().steps() == 0)
      fail(
          Error::Kind::kNonFinite,
          "none of the {} steps could be applied, for no loss was finite; no adapter was written to {}; lower --lr and "
          "--alpha",
          result.steps, flags.out);
    saver.save(*trainer, adapter.parameters(), events);
    if (flags.run.export_best) saver.restore_best(*trainer, adapter.parameters());
    log.update(observer.told());
  }
  if (profile && !failure) {
    const double peak_gflops = multiply_add_peak(session.pool);
    log["profile"] = profile_event(*profile, result.steps, peak_gflops);
    events.write("profile", log["profile"]);
    say("\n{}", profile_table(*profile, result.steps, peak_gflops));
  }
  profile.reset();  // it refers to the graph
  const TrainState state = trainer->state();
  trainer.reset();  // export copies the adapter: that fits into what the run no longer needs
  const Json done = {{"steps", result.steps},
                     {"epochs", result.epochs},
                     {"finalLoss", result.final_loss},
                     {"bestLoss", result.best_loss},
                     {"reason", reason_name(result.reason)},
                     {"adapter", flags.out},
                     {"ms", result.ms}};
  if (!failure) log["done"] = done;
  AdapterFile file;
  file.sites = adapter.sites();
  file.metadata = {{"patina.version", PATINA_VERSION},
                   {kBaseFingerprint, run.model_fingerprint},
                   {"patina.data_fingerprint", run.data.fingerprint}};
  if (session.initial)
    for (const char* key : {kTrigger, kTriggerPosition})
      if (const auto kept = session.initial->metadata.find(key); kept != session.initial->metadata.end())
        file.metadata.insert(*kept);
  if (!flags.trigger.empty()) {
    file.metadata[kTrigger] = flags.trigger;
    file.metadata[kTriggerPosition] = flags.trigger_position;
  }
  const std::vector<OutputDirectory::File> written = out.write(file, adapter_base(run.model.weights), log);
  for (const OutputDirectory::File& one : written)
    events.write("export",
                 {{"path", one.path.string()}, {"format", one.format}, {"tensors", one.tensors}, {"bytes", one.bytes}});
  if (failure)
    fail(failure->kind(), "{}; the adapter as the last good step left it is in {}", failure->what(), flags.out);
  events.write("done", done);
  print_summary(flags, run.data.chat, result, state, written);
  return result.reason == TrainResult::Reason::kInterrupted ? kSignalled + interrupt_signal() : 0;
}

int train(TrainFlags& flags, const Given& given, EventWriter& events) {
  TrainOptions& options = flags.options;
  options.micro_tokens = parse_micro_tokens(flags.micro_tokens);
  flags.adapter = adapter_options(flags.adapter_flags, options.seed);
  options.schedule = kSchedules.at(flags.schedule);
  resolve_run_flags(flags.run, options);
  parse_recompute(flags.memory.recompute, 1);  // before anything slow
  memory_budget(flags.memory.memory);
  options.stream_weights = flags.memory.weights == kStream;
  const FormulationChoice bwd = choose_formulation(flags.bwd, given.bwd->count() > 0);
  options.gradients.formulation = bwd.formulation;
  flags.bwd = name(bwd.formulation);
  flags.bwd_inherited = bwd.inherited;
  DatasetOptions data_options;
  data_options.loss_on = parse_loss_on(flags.loss_on);
  data_options.chat_template = flags.chat_template;
  try {
    static_cast<void>(Json(flags.trigger).dump());
  } catch (const Json::exception&) {
    fail(Error::Kind::kUsage, "--trigger: is not valid UTF-8; give it as UTF-8 text");
  }
  const bool show_only = flags.show_mask > 0, writes = !show_only && !flags.plan_only;
  if (flags.out.empty() && writes) fail(Error::Kind::kUsage, "--out is required: a directory for the adapter");
  catch_interrupts();  // before anything slow
  std::optional<OutputDirectory> out;
  std::optional<Checkpoint> checkpoint;  // to go on from
  if (writes) {
    using Earlier = OutputDirectory::Earlier;
    out.emplace(flags.out, flags.run.resume  ? Earlier::kResume
                           : flags.overwrite ? Earlier::kReplace
                                             : Earlier::kRefuse);
    if (flags.run.resume) checkpoint = find_checkpoint(out->path());
    if (flags.run.resume && !checkpoint)
      say("patina: {} holds no checkpoint: the run begins with the first step\n", flags.out);
  }

  const LanguageModel model = load_language_model(flags.model);
  flags.context = resolve_context(model.weights, flags.context, given.context->count() > 0);
  if (given.batch_tokens->count() == 0) options.batch_tokens = std::max(options.batch_tokens, flags.context);
  if (options.batch_tokens < flags.context)
    fail(Error::Kind::kUsage,
         "--batch-tokens {} is less than --context {}: a step must hold the longest sequence; raise the one or lower "
         "the other",
         options.batch_tokens, flags.context);
  std::optional<AdapterFile> initial;
  if (!flags.init_adapter.empty()) {
    initial = read_fitting_adapter(model.weights, flags.init_adapter);
    take_over(*initial, model.weights, given, flags);
  }
  std::vector<Site> sites;
  if (initial)
    for (const AdaptedSite& site : initial->sites) sites.push_back({site.layer, site.site, site.in, site.out});
  else
    sites = choose_sites(model.weights, flags);
  data_options.context_tokens = flags.context;
  Dataset data = load_datasets(std::vector<std::filesystem::path>(flags.data.begin(), flags.data.end()),
                               *model.tokenizer, data_options);
  const Validation validation = load_validation(flags, *model.tokenizer, data_options, data);
  if (ended_early(events)) return kSignalled + interrupt_signal();
  if (show_only) {
    print_masks(data, *model.tokenizer, flags.show_mask);
    return 0;
  }

  if (checkpoint && options.micro_tokens == 0) options.micro_tokens = saved_micro_tokens(checkpoint->text().settings);
  const int64_t process_bytes = anonymous_bytes();
  if (!initial) check_trainables(sites, flags.adapter);
  const std::unique_ptr<Adapter> made =
      initial ? std::make_unique<Adapter>(model.weights.sites(), initial->sites, flags.init_adapter)
              : std::make_unique<Adapter>(sites, flags.adapter);
  Adapter& adapter = *made;
  const int64_t budget_bytes = memory_budget(flags.memory.memory);
  const int64_t fixed_bytes =
      process_bytes + 4 * static_cast<int64_t>(adapter.parameters().values().size_bytes()) + adapter.constant_bytes();
  ThreadPool pool(flags.threads);
  std::unique_ptr<Trainer> trainer = fit(model, adapter, data, validation, flags, budget_bytes, fixed_bytes, pool);
  const TrainPlan plan = trainer->plan();
  const TrainRun run{flags,
                     model,
                     data,
                     validation,
                     sites,
                     adapter.parameters().parameters(),
                     plan,
                     budget_bytes,
                     anonymous_bytes(),
                     model.weights.fingerprint()};
  Json log = {{"start", start_event(run)},
              {"model", model_event(run)},
              {"data", data_event(run)},
              {"memory", memory_event(run)}};
  for (const auto& [name, fields] : log.items()) events.write(name, fields);
  say("{}\n", describe(run));

  if (ended_early(events)) return kSignalled + interrupt_signal();
  if (flags.plan_only) {
    show_plan(run, estimate_time(model.weights, *trainer, data.sequences, bwd.formulation, cpu_backend(), pool),
              events);
    return 0;
  }
  const Json settings = run_settings(run);
  if (checkpoint) restore_run(*checkpoint, settings, flags.out, adapter.parameters(), *trainer);
  if (!checkpoint) remove_checkpoints(out->path());
  RunLog run_log(out->path(), checkpoint ? checkpoint->text().session.at(kSessionFiles) : Json());
  for (const auto& [name, fields] : log.items()) run_log.add(name, fields);
  events.also_to([&](const std::string& name, const Json& fields) { run_log.add(name, fields); });

  Session session{run,     adapter, std::move(trainer), pool,          std::move(checkpoint),
                  initial, run_log, settings,           std::move(log)};
  try {
    return train_and_export(session, *out, events);
  } catch (const Error& error) {
    run_log.add("fatal", {{"reason", kind_name(error.kind())}, {"message", error.what()}});
    throw;
  }
}

int run(const Command& command, int argc, char** argv, bool plan_only) {
  TrainFlags flags;
  flags.plan_only = plan_only;
  CommandLine line(command);
  const Given given = add_options(line, flags);
  // The last event of a run that fails; where the line itself is wrong, --jsonl may not have been read yet.
  const auto fatal = [&](std::string_view reason, std::string_view message) {
    const bool asked = flags.jsonl || std::find(argv + 1, argv + argc, std::string_view("--jsonl")) != argv + argc;
    EventWriter(asked).write("fatal", {{"reason", reason}, {"message", message}});
  };
  try {
    if (!line.read(argc, argv)) return 0;
    if (given.self_test->count() > 0)  // the command line of a self-test does not come here
      fail(Error::Kind::kUsage, "{}: goes with patina train-lm itself, not with plan or a file of flags; run patina {}",
           kSelfTestFlag, "train-lm --self-test");
    EventWriter events(flags.jsonl);
    return train(flags, given, events);
  } catch (const CLI::ParseError& error) {
    fatal(kind_name(Error::Kind::kUsage), error.what());
    throw;
  } catch (const Error& error) {
    fatal(kind_name(error.kind()), error.what());
    throw;
  } catch (const std::bad_alloc&) {
    fatal(kind_name(Error::Kind::kMemory), "out of memory");
    throw;
  } catch (const std::exception& error) {
    fatal("internal", error.what());
    throw;
  }
}

}  // namespace

int run_train_lm(const Command& command, int argc, char** argv) {
  if (asks_for_self_test(argc, argv)) {
    const Subject subjects[] = {product_subject(), lm_subject()};
    return run_self_test_command(command, subjects, kSelfTestFlag, argc, argv);
  }
  return run(command, argc, argv, false);
}

int run_plan(const Command& command, int argc, char** argv) {
  constexpr std::string_view kPlanned = "train-lm";
  const std::string_view found = argc > 1 ? argv[1] : "";
  if (found == "--help" || found == "-h") {
    write_out(
        fmt::format("{}\n\nUsage: patina plan {} [OPTIONS]\n\nThe options are those of patina {}; --out is not "
                    "needed, and nothing is trained or written.\n",
                    command.summary, kPlanned, kPlanned));
    return 0;
  }
  if (found != kPlanned)
    fail(Error::Kind::kUsage, "plan which command? expected {}, found \"{}\" (see patina plan --help)", kPlanned,
         found);
  return run({"plan train-lm", command.summary, command.run}, argc - 1, argv + 1, true);
}

}  // namespace patina
