// patina train-lm: trains a LoRA adapter of a language model on text; patina plan train-lm: tells what that takes.
#include <fmt/ranges.h>

#include <charconv>
#include <new>

#include "backend/cpu/cpu_backend.h"
#include "cli/adapter_facts.h"
#include "cli/console.h"
#include "cli/formulation.h"
#include "cli/interrupt.h"
#include "cli/memory.h"
#include "cli/profile.h"
#include "cli/progress.h"
#include "cli/train_events.h"
#include "cli/train_output.h"
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
};

Given add_options(CommandLine& line, TrainFlags& flags) {
  constexpr int64_t kMost = int64_t{1} << 30;
  TrainOptions& options = flags.options;
  Given given{};
  line.option("--model", flags.model, "FILE", "GGUF model; it is never changed.")->required();
  line.option("--data", flags.data, "FILE", "Data set: .txt, or .jsonl with messages, prompt and completion, or text.")
      ->required();
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
  line.option("--weight-decay", options.adamw.weight_decay, "NUMBER", "Decoupled weight decay of AdamW.")
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
  line.add_flag("--overwrite", flags.overwrite, "Replace the files of an earlier run in --out.");
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

// Before they are allocated: a rank that no machine holds would take this one down.
void check_trainables(const std::vector<Site>& sites, const AdapterOptions& options) {
  constexpr int64_t kBytes = 16;  // value, gradient and two moments, F32
  const int64_t parameters = count_parameters(sites, options);
  const std::string_view flag = options.kind == AdapterKind::kLokr ? "--lokr-dim" : "--rank";
  if (parameters > machine_bytes() / kBytes)
    fail(Error::Kind::kMemory,
         "{} {}: the {} trainable parameters take {} ({} bytes each), this machine has {}; lower it or adapt fewer "
         "layers",
         flag, options.rank, grouped(parameters), bytes_text(parameters * kBytes), kBytes, bytes_text(machine_bytes()));
}

// The options with which the run fits into its memory beside `fixed_bytes`.
TrainOptions fitting_options(const LanguageModel& model, Adapter& adapter, const Dataset& data, const TrainFlags& flags,
                             int64_t budget_bytes, int64_t fixed_bytes) {
  TrainOptions options = flags.options;
  const int layers = model.weights.config().layers, asked = parse_recompute(flags.memory.recompute, layers);
  const FitChoices choices{asked == 0, options.micro_tokens == 0, flags.memory.weights == kAuto};
  options.gradients.segments = std::max(asked, 1);
  const MemoryFit fit = fit_memory(model.weights, adapter, data.sequences, options, choices, budget_bytes - fixed_bytes,
                                   cpu_backend(), flags.threads);
  const std::string recompute = recompute_flag(fit.segments, layers);
  if (!fit.fits)
    fail(Error::Kind::kMemory,
         "the run takes at least {} (with --recompute {} and --micro-tokens {}), and {} is {}; lower --context{}, or "
         "raise --memory",
         bytes_text(fixed_bytes + fit.weights_bytes + fit.arena_bytes), recompute, fit.micro_tokens,
         bytes_text(budget_bytes), flags.memory.memory.empty() ? "80 % of what is free" : "all that --memory allows",
         choices.segments && choices.micro_tokens && choices.weights
             ? ""
             : " or leave --recompute, --micro-tokens and --weights at auto");
  options.gradients.segments = fit.segments;
  options.stream_weights = fit.stream_weights;
  if (fit.micro_tokens != resolve_micro_tokens(options, data.sequences)) options.micro_tokens = fit.micro_tokens;
  return options;
}

// The trainer of the run with the fastest options that fit into its memory; says what was chosen.
std::unique_ptr<Trainer> fit(const LanguageModel& model, Adapter& adapter, const Dataset& data, TrainFlags& flags,
                             int64_t budget_bytes, int64_t fixed_bytes, ThreadPool& pool) {
  TrainOptions options;
  std::unique_ptr<Trainer> trainer;
  // What a trainer takes beside its plan is known once it is there. Where that is too much, the next one leaves room.
  for (int64_t over_bytes = 0, planned_bytes = INT64_MAX; planned_bytes > budget_bytes;) {
    trainer.reset();
    options = fitting_options(model, adapter, data, flags, budget_bytes, fixed_bytes + over_bytes);
    trainer = std::make_unique<Trainer>(model.weights, adapter, data.sequences, options, cpu_backend(), pool);
    const TrainPlan& plan = trainer->plan();
    planned_bytes = plan.weights_bytes + plan.arena_bytes + anonymous_bytes();
    over_bytes += planned_bytes - budget_bytes;
  }
  const int layers = model.weights.config().layers;
  const char* const weights = options.stream_weights ? kStream : kMapped;
  if (options.gradients.segments > std::max(1, parse_recompute(flags.memory.recompute, layers)) ||
      options.micro_tokens != flags.options.micro_tokens || (options.stream_weights && flags.memory.weights == kAuto))
    say("patina: to fit into {}: --recompute {} --micro-tokens {} --weights {}\n", bytes_text(budget_bytes),
        recompute_flag(options.gradients.segments, layers), trainer->plan().micro_tokens, weights);
  flags.options = options;
  flags.memory.weights = weights;
  return trainer;
}

// Shows a run to people and programs, and keeps what train_log.json needs.
class RunObserver final : public TrainObserver {
 public:
  RunObserver(Trainer& trainer, EventWriter& events) : trainer_(trainer), events_(events) {}

  void on_step(const StepReport& step) override {
    clip_scale_ = step.clip_scale;
    progress_.on_step(step);
    events_.write("step", step_event(step));
  }
  void on_epoch(const EpochReport& epoch) override {
    progress_.on_epoch(epoch);
    Json event = epoch_event(epoch);
    events_.write("epoch", event);
    Json norms = Json::object();  // before clipping
    for (const GradientNorm& gradient : trainer_.gradient_norms())
      norms[gradient.parameter] = gradient.norm / clip_scale_;
    event["gradNorms"] = norms;
    epochs_.push_back(event);
  }
  void on_warning(const std::string& message) override { warn(message, 1); }
  void warn(const std::string& message, int64_t count) {
    progress_.print_line("warning: " + message);
    events_.write("warning", {{"message", message}, {"count", count}});
    warnings_.push_back(message);
  }

  const Json& epochs() const { return epochs_; }
  const Json& warnings() const { return warnings_; }

 private:
  Trainer& trainer_;
  EventWriter& events_;
  Progress progress_;
  double clip_scale_ = 1.0;
  Json epochs_ = Json::array(), warnings_ = Json::array();
};

void print_masks(const Dataset& data, const Tokenizer& tokenizer, int64_t count) {
  for (const Sequence& sequence : data.sequences) {
    if (count-- == 0) break;
    write_out(fmt::format("sample {}: {}, {} supervised (+)\n{}\n", sequence.sample + 1,
                          counted(static_cast<int64_t>(sequence.ids.size()), "token"), sequence.supervised_tokens(),
                          show_mask(sequence, tokenizer)));
  }
}

// For a shell to read back.
std::string shell_quoted(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-+=:,@%";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

// `chat`: the data were conversations; a prompt for an adapter of plain text takes no chat format.
void print_summary(const TrainFlags& flags, bool chat, const TrainResult& result,
                   std::span<const OutputDirectory::File> written) {
  const std::string out = shell_quoted(flags.out), model = shell_quoted(flags.model);
  std::string chat_flags = chat ? "" : " --raw";
  if (chat && !flags.chat_template.empty()) chat_flags = " --chat-template " + flags.chat_template;
  say("\n{} after {} in {}: mean loss of the last epoch {:.4f}\n", reason_name(result.reason),
      counted(result.steps, "step"), duration_text(result.ms / 1e3), result.final_loss);
  std::vector<std::string> formats;
  for (const OutputDirectory::File& file : written) formats.push_back(file.format);
  say("The adapter lies in {} in these formats: {}; train_log.json beside it tells the whole run.\n", out,
      fmt::join(formats, ", "));
  say("Use it:\n  patina generate --model {} --adapter {}{} --prompt 'your {}'\n", model, out, chat_flags,
      chat ? "question" : "text");
  for (const OutputDirectory::File& file : written)
    if (file.format == "gguf") say("  llama-cli -m {} --lora {}\n", model, shell_quoted(file.path.string()));
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

int train(TrainFlags& flags, const Given& given, EventWriter& events) {
  TrainOptions& options = flags.options;
  options.micro_tokens = parse_micro_tokens(flags.micro_tokens);
  flags.adapter = adapter_options(flags.adapter_flags, options.seed);
  options.schedule = kSchedules.at(flags.schedule);
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
  const bool show_only = flags.show_mask > 0, writes = !show_only && !flags.plan_only;
  if (flags.out.empty() && writes) fail(Error::Kind::kUsage, "--out is required: a directory for the adapter");
  catch_interrupts();  // before anything slow
  std::optional<OutputDirectory> out;
  if (writes) out.emplace(flags.out, flags.overwrite);

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
  const Dataset data = load_dataset(flags.data, *model.tokenizer, data_options);
  if (ended_early(events)) return kSignalled + interrupt_signal();
  if (show_only) {
    print_masks(data, *model.tokenizer, flags.show_mask);
    return 0;
  }

  const int64_t process_bytes = anonymous_bytes();
  if (!initial) check_trainables(sites, flags.adapter);
  const std::unique_ptr<Adapter> made =
      initial ? std::make_unique<Adapter>(model.weights.sites(), initial->sites, flags.init_adapter)
              : std::make_unique<Adapter>(sites, flags.adapter);
  Adapter& adapter = *made;
  const int64_t budget_bytes = memory_budget(flags.memory.memory);
  const int64_t fixed_bytes = process_bytes + 4 * static_cast<int64_t>(adapter.parameters().values().size_bytes()) +
                              adapter.constant_bytes();
  ThreadPool pool(flags.threads);
  std::unique_ptr<Trainer> trainer = fit(model, adapter, data, flags, budget_bytes, fixed_bytes, pool);
  const TrainPlan plan = trainer->plan();
  const TrainRun run{flags,
                     model,
                     data,
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
  TrainResult result;
  std::optional<Profile> profile;
  if (flags.profile) profile.emplace(trainer->graph());
  {
    RunObserver observer(*trainer, events);
    for (const FallbackWarning& warning : fallback_warnings(run.plan.formulations))
      observer.warn(warning.text, warning.count);
    try {
      result = trainer->run(
          observer, [] { return interrupt_signal() != 0; }, profile ? &*profile : nullptr);
    } catch (const Error& error) {
      if (error.kind() != Error::Kind::kNonFinite) throw;
      fail(Error::Kind::kNonFinite, "{}; nothing was written to {}", error.what(), flags.out);
    }
    log["epochs"] = observer.epochs();
    log["warnings"] = observer.warnings();
  }
  if (profile) {
    const double peak_gflops = multiply_add_peak(pool);
    log["profile"] = profile_event(*profile, result.steps, peak_gflops);
    events.write("profile", log["profile"]);
    say("\n{}", profile_table(*profile, result.steps, peak_gflops));
  }
  profile.reset();  // it refers to the graph
  trainer.reset();  // export copies the adapter: that fits into what the run no longer needs
  const Json done = {{"steps", result.steps},
                     {"epochs", result.epochs},
                     {"finalLoss", result.final_loss},
                     {"bestLoss", result.best_loss},
                     {"reason", reason_name(result.reason)},
                     {"adapter", flags.out},
                     {"ms", result.ms}};
  log["done"] = done;
  AdapterFile file;
  file.sites = adapter.sites();
  file.metadata = {{"patina.version", PATINA_VERSION},
                   {kBaseFingerprint, run.model_fingerprint},
                   {"patina.data_fingerprint", data.fingerprint}};
  if (initial)
    for (const char* key : {kTrigger, kTriggerPosition})
      if (const auto kept = initial->metadata.find(key); kept != initial->metadata.end()) file.metadata.insert(*kept);
  if (!flags.trigger.empty()) {
    file.metadata[kTrigger] = flags.trigger;
    file.metadata[kTriggerPosition] = flags.trigger_position;
  }
  const std::vector<OutputDirectory::File> written = out->write(file, adapter_base(model.weights), log);
  for (const OutputDirectory::File& one : written)
    events.write("export",
                 {{"path", one.path.string()}, {"format", one.format}, {"tensors", one.tensors}, {"bytes", one.bytes}});
  events.write("done", done);
  print_summary(flags, data.chat, result, written);
  return result.reason == TrainResult::Reason::kInterrupted ? kSignalled + interrupt_signal() : 0;
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

int run_train_lm(const Command& command, int argc, char** argv) { return run(command, argc, argv, false); }

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
