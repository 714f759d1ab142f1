#include "cli/train_run.h"

#include <algorithm>
#include <cmath>
#include <new>

#include "cli/common.h"
#include "cli/console.h"
#include "cli/formulation.h"
#include "cli/interrupt.h"
#include "cli/profile.h"
#include "cli/run_log.h"
#include "cli/run_observer.h"
#include "cli/run_settings.h"
#include "cli/spelling.h"
#include "cli/train_summary.h"
#include "measure/machine.h"

namespace patina {

namespace {

constexpr int kSignalled = 128;  // exit status: this and the signal

// What patina plan adds to what every run says about itself.
void show_plan(const TrainRun& run, const TimeEstimate& time, const std::string& remark, EventWriter& events) {
  events.write("plan", plan_event(run, time));
  const std::string text = fmt::format(
      "{}\n{}: about {} a step, {} in all. An estimate: {:.1f} GFLOP a step at the {:.0f} GFLOP/s that the products of "
      "one layer reached just now; what is no product comes on top.\n{}",
      describe_memory(run), counted(run.plan.total_steps, "step"),
      time.step_ms < 1e4 ? fmt::format("{:.0f} ms", time.step_ms) : duration_text(time.step_ms / 1e3),
      duration_text(time.total_ms / 1e3), time.step_operations * 1e-9, time.gflops, remark);
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

// How the loop ended: with an error where it was a bad step's, and there is an adapter to show nevertheless.
struct Outcome {
  TrainResult result;
  std::optional<Error> failure;
};

Outcome run_loop(Training& training, RunObserver& observer, Profile* profile) {
  Outcome outcome;
  Trainer& trainer = *training.trainer;
  const std::string& out = training.run.flags.out;
  try {
    outcome.result = trainer.run(
        observer, [] { return interrupt_signal() != 0; }, profile);
  } catch (const Error& error) {
    if (error.kind() != Error::Kind::kNonFinite) throw;
    // The last good step is the one before those that were not applied; after any other failure it is not known.
    if (!holds_good_values(training.adapter.parameters(), trainer) || trainer.state().bad_steps == 0)
      fail(Error::Kind::kNonFinite, "{}; no adapter was written to {}", error.what(), out);
    outcome.failure = error;
  }
  if (!outcome.failure && outcome.result.steps > 0 && trainer.optimizer().steps() == 0)
    fail(Error::Kind::kNonFinite,
         "none of the {} steps could be applied, for no loss was finite; no adapter was written to {}; lower --lr and "
         "--alpha",
         outcome.result.steps, out);
  return outcome;
}

AdapterFile exported(const Training& training) {
  const TrainFlags& flags = training.run.flags;
  AdapterFile file;
  file.sites = training.adapter.sites();
  file.metadata = {{"patina.version", PATINA_VERSION},
                   {kBaseFingerprint, training.run.model_fingerprint},
                   {"patina.data_fingerprint", training.run.data_fingerprint}};
  if (training.base.family == ModelFamily::kDit) file.metadata[std::string(kFamilyMetadata)] = kDitFamily;
  if (training.initial)
    for (const char* key : {kTrigger, kTriggerPosition})
      if (const auto kept = training.initial->metadata.find(key); kept != training.initial->metadata.end())
        file.metadata.insert(*kept);
  if (!flags.trigger.empty()) {
    file.metadata[kTrigger] = flags.trigger;
    file.metadata[kTriggerPosition] = flags.trigger_position;
  }
  return file;
}

// Everything from the first step to the last checkpoint; `log` gets what train_log.json keeps.
Outcome train(Training& training, RunPlace& place, RunLog& run_log, Json& log, EventWriter& events) {
  const TrainFlags& flags = training.run.flags;
  ParameterStore& store = training.adapter.parameters();
  Trainer& trainer = *training.trainer;
  std::optional<Profile> profile;
  if (flags.profile) profile.emplace(trainer.objective().graph());
  const MilestoneRule milestones{flags.run.milestone_step, [&](const std::string& name) {
                                   return place.out->write_milestone(name, exported(training), training.base,
                                                                     flags.run.milestone_keep);
                                 }};
  RunObserver observer(trainer, store, training.samples, milestones, events);
  RunSaver saver(
      place.out->path(), flags.run, training.settings, [&] { return run_session(run_log.lengths(), observer.told()); },
      [&](const std::string& text) { observer.warn(text, 1); });
  observer.save_with(saver);
  if (place.checkpoint) {
    const TrainState& state = place.checkpoint->text().state;
    const std::string path = place.checkpoint->path().string();
    saver.resumed_at(state.steps);
    observer.set_told(place.checkpoint->text().session.at(kSessionTold));
    events.write("resume", {{"path", path}, {"step", state.steps}, {"epoch", state.epoch + 1}});
    say("going on after step {} from {}\n\n", grouped(state.steps), path);
  } else {
    for (const FallbackWarning& warning : fallback_warnings(training.run.formulations))
      observer.warn(warning.text, warning.count);
    for (const std::string& warning : optimizer_warnings(store, flags.options.optimizer)) observer.warn(warning, 1);
    observer.take_samples();
  }
  place.checkpoint.reset();
  Outcome outcome = run_loop(training, observer, profile ? &*profile : nullptr);
  if (!outcome.failure && interrupt_signal() == 0) observer.take_samples();
  saver.save(trainer, store, events);
  if (flags.run.export_best) saver.restore_best(trainer, store);
  log.update(observer.told());
  if (profile && !outcome.failure) {
    const double peak_gflops = multiply_add_peak(training.pool);
    log["profile"] = profile_event(*profile, outcome.result.steps, peak_gflops);
    events.write("profile", log["profile"]);
    say("\n{}", profile_table(*profile, outcome.result.steps, peak_gflops));
  }
  return outcome;
}

int train_and_export(Training& training, RunPlace& place, RunLog& run_log, EventWriter& events) {
  const TrainFlags& flags = training.run.flags;
  Json log = std::move(training.opening);
  const auto [result, failure] = train(training, place, run_log, log, events);
  const TrainState state = training.trainer->state();
  training.trainer.reset();  // export copies the adapter: that fits into what the run no longer needs
  training.adapter.parameters().free_gradients();
  const Json done = {{"steps", result.steps},
                     {"epochs", result.epochs},
                     {"finalLoss", result.final_loss},
                     {"bestLoss", result.best_loss},
                     {"reason", reason_name(result.reason)},
                     {"adapter", flags.out},
                     {"ms", result.ms}};
  if (!failure) log["done"] = done;
  const std::vector<OutputDirectory::File> written = place.out->write(exported(training), training.base, log);
  for (const OutputDirectory::File& one : written)
    events.write("export",
                 {{"path", one.path.string()}, {"format", one.format}, {"tensors", one.tensors}, {"bytes", one.bytes}});
  if (failure)
    fail(failure->kind(), "{}; the adapter as the last good step left it is in {}", failure->what(), flags.out);
  events.write("done", done);
  const Json& epochs = log.at("epochs");
  const auto first = std::ranges::find_if(epochs, [](const Json& epoch) { return epoch.at("loss").is_number(); });
  const double first_loss = first == epochs.end() ? result.final_loss : first->at("loss").get<double>();
  print_summary(training.run, result, state, first_loss, written, training.usage(written));
  return result.reason == TrainResult::Reason::kInterrupted ? ended_status() : 0;
}

}  // namespace

RunPlace open_run(const TrainFlags& flags, bool writes) {
  if (flags.out.empty() && writes) fail(Error::Kind::kUsage, "--out is required: a directory for the adapter");
  catch_interrupts();
  RunPlace place;
  if (!writes) return place;
  refuse_own_input(flags.out, flags.model, "--model");
  using Earlier = OutputDirectory::Earlier;
  place.out = std::make_unique<OutputDirectory>(flags.out, flags.run.resume  ? Earlier::kResume
                                                           : flags.overwrite ? Earlier::kReplace
                                                                             : Earlier::kRefuse);
  if (flags.run.resume) place.checkpoint = find_checkpoint(place.out->path());
  if (flags.run.resume && !place.checkpoint)
    say("patina: {} holds no checkpoint: the run begins with the first step\n", flags.out);
  return place;
}

bool ended_early(EventWriter& events) {
  if (interrupt_signal() == 0) return false;
  constexpr const char* kText = "interrupted before the first step; nothing was written";
  say("patina: {}\n", kText);
  events.write("fatal", {{"reason", "interrupted"}, {"message", kText}});
  return true;
}

int ended_status() { return kSignalled + interrupt_signal(); }

int run_training(Training training, RunPlace place, EventWriter& events) {
  const TrainFlags& flags = training.run.flags;
  for (const auto& [name, fields] : training.opening.items()) events.write(name, fields);
  say("{}\n", training.description);
  if (ended_early(events)) return ended_status();
  if (flags.plan_only) {
    const TimeEstimate time = training.estimate(*training.trainer);
    show_plan(training.run, time, training.remark(time), events);
    return 0;
  }
  if (place.checkpoint) {
    restore_run(*place.checkpoint, training.settings, flags.out, training.adapter.parameters(), *training.trainer);
  } else {
    remove_checkpoints(place.out->path());
    place.out->remove_milestones();
  }
  RunLog run_log(place.out->path(), place.checkpoint ? place.checkpoint->text().session.at(kSessionFiles) : Json());
  for (const auto& [name, fields] : training.opening.items()) run_log.add(name, fields);
  events.also_to([&](const std::string& name, const Json& fields) { run_log.add(name, fields); });
  try {
    return train_and_export(training, place, run_log, events);
  } catch (const Error& error) {
    run_log.add("fatal", {{"reason", kind_name(error.kind())}, {"message", spelled(error.what())}});
    throw;
  }
}

int run_train_command(CommandLine& line, const TrainFlags& flags, int argc, char** argv,
                      const std::function<int(EventWriter&)>& train) {
  return tell_failure(argc, argv, &flags.jsonl, [&] {
    if (!line.read(argc, argv)) return 0;
    EventWriter events(flags.jsonl);
    return train(events);
  });
}

int tell_failure(int argc, char** argv, const bool* jsonl, const std::function<int()>& run) {
  // Where the line itself is wrong, --jsonl may not have been read yet.
  const auto fatal = [&](std::string_view reason, std::string_view message) {
    const bool asked = *jsonl || std::find(argv + 1, argv + argc, std::string_view("--jsonl")) != argv + argc;
    EventWriter(asked).write("fatal", {{"reason", reason}, {"message", spelled(message)}});
  };
  try {
    return run();
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

}  // namespace patina
