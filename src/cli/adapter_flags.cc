#include "cli/adapter_flags.h"

#include <fmt/ranges.h>

#include <map>

#include "cli/adapter_facts.h"

namespace patina {

namespace {

const std::map<std::string, AdapterKind> kKinds = {
    {"lora", AdapterKind::kLora}, {"dora", AdapterKind::kDora}, {"lokr", AdapterKind::kLokr}};

// A number of each site: the one that most have, and a pattern for those that have another.
struct Numbers {
  double usual;
  std::string pattern;  // "q=4,layers.1.down=8"
};

Numbers numbers_of(std::span<const AdaptedSite> sites, double (*number)(const AdaptedSite&)) {
  std::map<double, int> counts;
  std::map<std::string, std::set<double>> of_name;
  for (const AdaptedSite& site : sites) ++counts[number(site)], of_name[site.site].insert(number(site));
  Numbers numbers{std::ranges::max_element(counts, {}, [](const auto& item) { return item.second; })->first, ""};
  const auto add = [&](const std::string& where, double value) {
    if (value != numbers.usual)
      numbers.pattern += fmt::format("{}{}={}", numbers.pattern.empty() ? "" : ",", where, value);
  };
  for (const auto& [name, values] : of_name)
    if (values.size() == 1) add(name, *values.begin());
  for (const AdaptedSite& site : sites)
    if (of_name.at(site.site).size() > 1) add(site_label(site.layer, site.site), number(site));
  return numbers;
}

double rank_of(const AdaptedSite& site) {
  const auto* lokr = std::get_if<LokrFactors>(&site.factors);
  return static_cast<double>(lokr != nullptr ? lokr->dim : std::get<LoraFactors>(site.factors).rank);
}

double alpha_of(const AdaptedSite& site) {
  return static_cast<double>(std::visit([](const auto& factors) { return factors.alpha; }, site.factors));
}

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
  line.option("--dropout", flags.dropout, "P",
              "In training, leave out each number of the adapter's input with this probability.")
      ->check(between(0.0, 0.99));
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
  CLI::Option* const both = line.add_flag("--lokr-decompose-both,!--no-lokr-decompose-both", flags.lokr_decompose_both,
                                          "lokr: the first factor is of rank dim as well, where it is large enough.");
  flags.of_lora = {rank, alpha, rslora};
  flags.of_lokr = {dim, lokr_alpha, factor, both};
  flags.of_fresh = {rslora, rank_pattern, alpha_pattern, factor, both};
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

AdapterOptions take_over(std::span<const AdaptedSite> sites, const std::string& source, AdapterFlags& flags) {
  const AdapterFacts facts = adapter_facts(sites);
  const bool lokr = facts.kinds.contains("lokr");
  const std::string kinds = fmt::format("{}", fmt::join(facts.kinds, ", "));
  for (const CLI::Option* option : flags.of_fresh)
    if (option->count() > 0)
      fail(Error::Kind::kUsage, "{} is for a fresh adapter, --init-adapter {} is there already; leave {} out",
           option->get_name(), source, option->get_name());
  for (const CLI::Option* option : lokr ? flags.of_lora : flags.of_lokr)
    if (option->count() > 0)
      fail(Error::Kind::kUsage, "{} is no option of --init-adapter {}, whose type is {}; leave it out",
           option->get_name(), source, kinds);
  const auto check = [&](const CLI::Option* option, bool agrees, const std::string& found) {
    if (option->count() > 0 && !agrees)
      fail(Error::Kind::kUsage, "{} {} contradicts --init-adapter {}, which has {}; leave {} out", option->get_name(),
           option->results().front(), source, found, option->get_name());
  };
  const std::string ranks = fmt::format("{} {}", lokr ? "dim" : "rank", fmt::join(facts.ranks, ", "));
  const std::string alphas = fmt::format("alpha {}", fmt::join(facts.alphas, ", "));
  check(flags.type_option, facts.kinds == std::set{flags.type}, "type " + kinds);
  check(flags.rank_option, facts.ranks == std::set{flags.rank}, ranks);
  check(flags.dim_option, facts.ranks == std::set{flags.lokr_dim}, ranks);
  check(flags.alpha_option, facts.alphas == std::set{flags.alpha}, alphas);
  const float lokr_alpha = flags.lokr_alpha > 0 ? flags.lokr_alpha : static_cast<float>(*facts.ranks.begin());
  check(flags.lokr_alpha_option, facts.alphas == std::set{lokr_alpha}, alphas);
  flags.type = kinds;
  const Numbers rank = numbers_of(sites, rank_of), alpha = numbers_of(sites, alpha_of);
  flags.rank_pattern = rank.pattern, flags.alpha_pattern = alpha.pattern;
  AdapterOptions options;
  options.kind = lokr ? AdapterKind::kLokr : facts.kinds.contains("dora") ? AdapterKind::kDora : AdapterKind::kLora;
  options.rank = static_cast<int64_t>(rank.usual);
  options.alpha = static_cast<float>(alpha.usual);
  options.factor = facts.lokr_factor;
  options.decompose_both = facts.lokr_decompose_both;
  options.dropout = flags.dropout;
  return options;
}

std::string describe(const AdapterFlags& flags, const AdapterOptions& options) {
  const bool lokr = options.kind == AdapterKind::kLokr;
  std::string text = fmt::format("{}{}, {} {}, alpha {}", flags.rslora ? "rank-stabilised " : "", flags.type,
                                 lokr ? "dim" : "rank", options.rank, options.alpha);
  if (lokr)
    text += fmt::format(", factor {}{}", options.factor == 0 ? "differs" : fmt::to_string(options.factor),
                        options.decompose_both ? ", both factors decomposed" : "");
  if (!flags.rank_pattern.empty()) text += fmt::format(", ranks {}", flags.rank_pattern);
  if (!flags.alpha_pattern.empty()) text += fmt::format(", alphas {}", flags.alpha_pattern);
  if (flags.dropout > 0) text += fmt::format(", dropout {}", flags.dropout);
  return text;
}

}  // namespace patina
