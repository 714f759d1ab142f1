// patina generate: answers one prompt, streamed, or a file of prompts, as JSONL.
#include <chrono>
#include <nlohmann/json.hpp>

#include "backend/cpu/cpu_backend.h"
#include "cli/common.h"
#include "cli/console.h"
#include "cli/prompts.h"
#include "infer/generator.h"

namespace patina {

namespace {

using Clock = std::chrono::steady_clock;

struct GenerateFlags {
  std::string model, adapter, prompt, prompts, system, chat_template;
  bool raw = false;
  int64_t max_tokens = 256, context = 0;
  Sampling sampling;
  int threads = 0;
};

// Length of the longest prefix that does not end inside a UTF-8 sequence which later bytes may complete.
size_t complete_utf8(std::string_view text) {
  for (size_t back = 1; back <= std::min<size_t>(3, text.size()); ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xc0) == 0x80) continue;
    const size_t length = byte >= 0xf0 ? 4 : byte >= 0xe0 ? 3 : byte >= 0xc0 ? 2 : 1;
    return length > back ? text.size() - back : text.size();
  }
  return text.size();
}

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Time of prompts and of answers, apart.
struct Timing {
  int64_t prompt_tokens = 0, answer_tokens = 0;
  double prompt_seconds = 0.0, answer_seconds = 0.0;

  void print() const {
    const auto rate = [](int64_t tokens, double seconds) {
      return static_cast<double>(tokens) / std::max(seconds, 1e-9);
    };
    say("prompt {} in {:.2f} s ({:.1f} tokens/s), generated {} in {:.2f} s ({:.1f} tokens/s)\n",
        counted(prompt_tokens, "token"), prompt_seconds, rate(prompt_tokens, prompt_seconds),
        counted(answer_tokens, "token"), answer_seconds, rate(answer_tokens, answer_seconds));
  }
};

class Answers {
 public:
  Answers(Generator& generator, const Tokenizer& tokenizer, const GenerateFlags& flags)
      : generator_(generator), tokenizer_(tokenizer), flags_(flags) {}

  // on_token sees all ids so far.
  std::vector<int32_t> answer(std::span<const int32_t> prompt,
                              FunctionRef<void(const std::vector<int32_t>&)> on_token) {
    generator_.reset();
    const Clock::time_point start = Clock::now();
    Clock::time_point first = start;
    std::vector<int32_t> ids;
    const auto note_first = [&] {
      if (first == start) first = Clock::now();
    };
    generator_.generate(
        prompt, flags_.max_tokens, flags_.sampling,
        [&](int32_t token) {
          note_first();
          return tokenizer_.is_end(token);
        },
        [&](int32_t token) {
          ids.push_back(token);
          on_token(ids);
          return true;
        });
    timing_.prompt_tokens += static_cast<int64_t>(prompt.size());
    timing_.answer_tokens += static_cast<int64_t>(ids.size());
    timing_.prompt_seconds += std::chrono::duration<double>(first - start).count();
    timing_.answer_seconds += seconds_since(first);
    return ids;
  }

  const Timing& timing() const { return timing_; }
  bool context_full() const { return generator_.length() >= generator_.capacity(); }

 private:
  Generator& generator_;
  const Tokenizer& tokenizer_;
  const GenerateFlags& flags_;
  Timing timing_;
};

void stream_answer(Answers& answers, const Conversation& conversation, std::span<const int32_t> prompt,
                   int64_t max_tokens) {
  std::string text;
  size_t written = 0;
  const std::vector<int32_t> ids = answers.answer(prompt, [&](const std::vector<int32_t>& so_far) {
    text = conversation.answer_text(so_far);
    const size_t complete = complete_utf8(text);
    if (complete <= written) return;
    write_out(std::string_view(text).substr(written, complete - written));
    written = complete;
  });
  write_out(text.substr(std::min(written, text.size())) + "\n");
  if (static_cast<int64_t>(ids.size()) == max_tokens)
    say("stopped at --max-tokens {}\n", max_tokens);
  else if (answers.context_full())
    say("stopped at the end of the context; raise --context where the model allows it\n");
}

void answer_file(Answers& answers, const Conversation& conversation, std::span<const Prompt> prompts,
                 std::span<const std::vector<int32_t>> prompt_ids) {
  for (size_t i = 0; i < prompts.size(); ++i) {
    const std::vector<int32_t> ids = answers.answer(prompt_ids[i], [](const std::vector<int32_t>&) {});
    const nlohmann::ordered_json object = {
        {"prompt", prompts[i].text}, {"text", conversation.answer_text(ids)}, {"ids", ids}};
    write_out(object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
  }
}

void add_options(CommandLine& line, GenerateFlags& flags) {
  line.option("--model", flags.model, "FILE", "GGUF model.")->required();
  line.option("--adapter", flags.adapter, "PATH", kAdapterHelp);
  CLI::Option_group* source = line.add_option_group("Prompt", "One of these is required");
  source->add_option("--prompt", flags.prompt, "The prompt; the answer is streamed to stdout.")->type_name("TEXT");
  source
      ->add_option("--prompts", flags.prompts,
                   "A file with a JSON object with \"prompt\" on each line; for each a line {\"prompt\", \"text\", "
                   "\"ids\"} goes to stdout.")
      ->type_name("FILE");
  source->require_option(1);
  line.option("--system", flags.system, "TEXT",
              "System message; the default is that of the model's own template, if it has one.");
  line.add_flag("--raw", flags.raw, "Continue the prompt as plain text, without the chat format.");
  line.option("--max-tokens", flags.max_tokens, "TOKENS", "Longest answer.")
      ->check(quiet(CLI::Range(int64_t{1}, int64_t{1} << 30)));
  line.option("--temperature", flags.sampling.temperature, "NUMBER",
              "0 takes the most likely token; higher is more varied.")
      ->check(not_negative());
  line.option("--top-p", flags.sampling.top_p, "NUMBER",
              "Choose among the most likely tokens that together have this probability.")
      ->check(fraction());
  line.option("--seed", flags.sampling.seed, "N", "Of the random choices; the same seed gives the same answer.")
      ->check(seed_number());
  line.add_option(
          "--context", flags.context,
          "Prompt and answer together at most; the default is the prompt plus --max-tokens, as far as the model goes.")
      ->type_name("TOKENS")
      ->check(quiet(CLI::Range(int64_t{1}, int64_t{1} << 30)));
  add_chat_template_option(line, flags.chat_template);
  add_threads_option(line, flags.threads);
}

}  // namespace

int run_generate(const Command& command, int argc, char** argv) {
  GenerateFlags flags;
  CommandLine line(command);
  add_options(line, flags);
  if (!line.read(argc, argv)) return 0;
  if (flags.raw && !flags.chat_template.empty())
    fail(Error::Kind::kUsage, "--raw and --chat-template exclude each other; leave one out");

  const bool from_file = !flags.prompts.empty();
  const std::vector<Prompt> prompts = from_file ? read_prompts(flags.prompts) : std::vector<Prompt>{{flags.prompt, ""}};
  const LanguageModel model = load_language_model(flags.model);
  const std::unique_ptr<Adapter> adapter = load_adapter(model.weights, flags.adapter);
  const Conversation conversation(*model.tokenizer, flags.raw, flags.system, flags.chat_template);
  const std::vector<std::vector<int32_t>> prompt_ids = conversation.prompt_ids(prompts);
  const int64_t longest = longest_prompt(prompt_ids);
  const bool context_given = flags.context > 0;
  const int64_t context =
      resolve_context(model.weights, context_given ? flags.context : longest + flags.max_tokens, context_given);

  check_prompts_fit(prompts, prompt_ids, context, context_given);

  ThreadPool pool(flags.threads);
  Generator generator(model.weights, adapter.get(), cpu_backend(), pool, context);
  Answers answers(generator, *model.tokenizer, flags);
  if (from_file)
    answer_file(answers, conversation, prompts, prompt_ids);
  else
    stream_answer(answers, conversation, prompt_ids.front(), flags.max_tokens);
  answers.timing().print();
  return 0;
}

}  // namespace patina
