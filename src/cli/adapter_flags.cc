#include "cli/adapter_flags.h"

#include <map>

namespace patina {

namespace {

const std::map<std::string, AdapterKind> kKinds = {
    {"lora", AdapterKind::kLora}, {"dora", AdapterKind::kDora}, {"lokr", AdapterKind::kLokr}};

}  // namespace

void add_adapter_options(CommandLine& line, AdapterFlags& flags) {
  const auto whole = [](int64_t least) { return quiet(CLI::Range(least, int64_t{1} << 16)); };
  flags.type_option =
      line.option("--adapter-type", flags.type, "KIND",
                  "Kind of adapter: lora; dora, which also trains the norms of the rows; or lokr, a Kronecker product.")
          ->check(quiet(CLI::IsMember(kKinds)));
  CLI::Option* const rank = line.option("--rank", flags.rank, "N", "Rank of the adapter.")->check(whole(1));
  CLI::Option* const alpha =
      line.option("--alpha", flags.alpha, "NUMBER", "The adapter's part is scaled by alpha / rank.")
          ->check(above_zero());
  CLI::Option* const rslora =
      line.add_flag("--rslora", flags.rslora, "Scale by alpha / sqrt(rank): for ranks of 64 and more.");
  CLI::Option* const rank_pattern =
      line.add_option("--rank-pattern", flags.rank_pattern,
                      "Other ranks for some layers: 'layers.*.q=32,down=8'. The first pattern that matches counts.")
          ->type_name("LIST");
  CLI::Option* const alpha_pattern =
      line.add_option("--alpha-pattern", flags.alpha_pattern, "Other alphas for some layers, in the same form.")
          ->type_name("LIST");
  CLI::Option* const dropout =
      line.option("--dropout", flags.dropout, "P",
                  "In training, leave out each number of the adapter's input with this probability.")
          ->check(quiet(CLI::Range(0.0, 0.99)));
  CLI::Option* const dim =
      line.option("--lokr-dim", flags.lokr_dim, "N",
                  "lokr: rank of the second factor, which stays whole where it has no more than twice as many columns.")
          ->check(whole(1));
  CLI::Option* const lokr_alpha =
      line.option("--lokr-alpha", flags.lokr_alpha, "NUMBER",
                  "lokr: the adapter's part is scaled by alpha / dim where a factor is not whole; 0 is dim.")
          ->check(not_negative());
  CLI::Option* const factor =
      line.option("--lokr-factor", flags.lokr_factor, "N",
                  "lokr: size of the first factor, or the next smaller one that divides the width; -1: near its root.")
          ->check(quiet(CLI::Range(int64_t{-1}, int64_t{1} << 16)));
  CLI::Option* const both = line.add_flag("--lokr-decompose-both", flags.lokr_decompose_both,
                                          "lokr: the first factor is of rank dim as well, where it is large enough.");
  flags.of_lora = {rank, alpha, rslora};
  flags.of_lokr = {dim, lokr_alpha, factor, both};
  flags.of_fresh = {rslora, rank_pattern, alpha_pattern, dropout, factor, both};
  flags.rank_option = rank, flags.alpha_option = alpha, flags.dim_option = dim, flags.lokr_alpha_option = lokr_alpha;
}

AdapterOptions adapter_options(const AdapterFlags& flags, uint64_t seed) {
  AdapterOptions options;
  options.kind = kKinds.at(flags.type);
  const bool lokr = options.kind == AdapterKind::kLokr;
  for (const CLI::Option* option : lokr ? flags.of_lora : flags.of_lokr)
    if (option->count() > 0)
      fail(Error::Kind::kUsage, "{} is no option of --adapter-type {}; {}", option->get_name(), flags.type,
           lokr ? "lokr has --lokr-dim and --lokr-alpha" : "leave it out, or choose --adapter-type lokr");
  const float lokr_alpha = flags.lokr_alpha > 0 ? flags.lokr_alpha : static_cast<float>(flags.lokr_dim);
  options.rank = lokr ? flags.lokr_dim : flags.rank;
  options.alpha = lokr ? lokr_alpha : flags.alpha;
  options.ranks = SiteNumbers("--rank-pattern", flags.rank_pattern);
  options.alphas = SiteNumbers("--alpha-pattern", flags.alpha_pattern);
  options.rslora = flags.rslora;
  options.factor = flags.lokr_factor;
  options.decompose_both = flags.lokr_decompose_both;
  options.dropout = flags.dropout;
  options.seed = seed;
  return options;
}

std::string describe(const AdapterFlags& flags, const AdapterOptions& options) {
  const bool lokr = options.kind == AdapterKind::kLokr;
  std::string text = fmt::format("{}{}, {} {}, alpha {}", flags.rslora ? "rank-stabilised " : "", flags.type,
                                 lokr ? "dim" : "rank", options.rank, options.alpha);
  if (lokr)
    text += fmt::format(", factor {}{}", options.factor, options.decompose_both ? ", both factors decomposed" : "");
  if (!flags.rank_pattern.empty()) text += fmt::format(", ranks {}", flags.rank_pattern);
  if (!flags.alpha_pattern.empty()) text += fmt::format(", alphas {}", flags.alpha_pattern);
  if (flags.dropout > 0) text += fmt::format(", dropout {}", flags.dropout);
  return text;
}

}  // namespace patina
