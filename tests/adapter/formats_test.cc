// Every kind of adapter in every format: what the written tensors mean by the format's own rule, and what comes back.
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <span>

#include "adapter/files.h"
#include "adapter/format_rules.h"
#include "adapter/sites.h"
#include "base/file.h"
#include "formats/names.h"
#include "support/temp_dir.h"

namespace patina {
namespace {

using namespace patina::testing;
namespace fs = std::filesystem;
using nlohmann::json;

struct Kind {
  const char* name;
  std::vector<AdaptedSite> sites;
  bool gguf;           // has a form in GGUF ...
  bool exact_in_gguf;  // ... that is read back as the same numbers
};

std::vector<Kind> kinds() {
  const float root = std::sqrt(8.0f);
  const auto q = [](int layer, int64_t rank, float alpha, bool dora = false) {
    return lora_site(layer, "q", 12, 8, rank, alpha, dora);
  };
  const auto down = [](int layer, int64_t rank, float alpha, bool dora = false) {
    return lora_site(layer, "down", 24, 12, rank, alpha, dora);
  };
  const auto lokr = [](int64_t dim, float alpha, bool low1, bool low2) {
    return std::vector<AdaptedSite>{lokr_site(0, "q", {4, 4, 4, 6}, dim, alpha, low1, low2),
                                    lokr_site(1, "q", {4, 4, 4, 6}, dim, alpha, low1, low2),
                                    lokr_site(1, "up", {4, 6, 4, 4}, dim, alpha, low1, low2)};
  };
  return {{"lora", {q(0, 2, 3), q(1, 2, 3), down(0, 2, 3), lora_site(-1, "lm_head", 12, 20, 2, 3)}, true, true},
          {"rslora", {q(0, 8, 5 * root), q(1, 8, 5 * root)}, true, true},
          {"mixed ranks", {q(0, 2, 3), q(1, 5, 3), down(0, 1, 3)}, true, true},
          {"mixed alphas", {q(0, 2, 3), q(1, 2, 7), down(0, 4, 12)}, true, false},
          {"dora", {q(0, 2, 3, true), q(1, 2, 3, true), down(0, 3, 3, true)}, false, false},
          {"lokr whole", lokr(3, 3, false, false), false, false},
          {"lokr factored", lokr(2, 5, false, true), true, false},
          {"lokr factored twice", lokr(1, 5, true, true), true, false}};
}

const std::vector<int32_t> kRows8 = {0, 2, 1, 3, 4, 6, 5, 7};
const std::vector<int32_t> kRows16 = {1, 3, 0, 2, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15};

AdapterBase base_model() {
  return {"some/base", "llama", 2, [](int layer, std::string_view site) -> std::span<const int32_t> {
            if (site != "q") return {};
            return layer < 0 ? std::span<const int32_t>() : std::span<const int32_t>(kRows8);
          }};
}
// The LoKr sites have 16 rows.
AdapterBase base_of(const Kind& kind) {
  AdapterBase base = base_model();
  if (kind.sites[0].out == 16)
    base.row_map = [](int, std::string_view site) {
      return site == "q" ? std::span<const int32_t>(kRows16) : std::span<const int32_t>();
    };
  return base;
}

SitePlace place(const AdaptedSite& site) { return {site_from_name(site.site).value(), site.layer}; }

void check(AdapterFormat format, const fs::path& path, const Kind& kind, double tolerance,
           double (*error_of)(const Matrix&, const Matrix&) = distance) {
  const std::vector<Matrix> deltas = deltas_of_file(format, path, kind.sites, base_of(kind), weight_of);
  for (size_t i = 0; i < deltas.size(); ++i) {
    const double error = error_of(deltas[i], delta_of(kind.sites[i]));
    EXPECT_TRUE(error <= tolerance) << site_label(kind.sites[i].layer, kind.sites[i].site) << " " << error;
  }
}

fs::path path_in(const TempDir& directory, const AdapterFormatRow& format) {
  if (format.is_directory) return directory.path();
  return directory.path() / (format.format == AdapterFormat::kGguf ? "x.gguf" : "x.safetensors");
}

// The files' own numbers give what was written, but for their rounding, and what our reader makes of them.
TEST(Formats, WrittenTensorsMeanTheAdapter) {
  for (const Kind& kind : kinds())
    for (const AdapterFormatRow& format : adapter_formats())
      for (const DType dtype : {DType::kF32, DType::kBF16}) {
        SCOPED_TRACE(fmt::format("{} {} {}", kind.name, format.name, name(dtype)));
        const TempDir directory;
        const fs::path path = path_in(directory, format);
        const AdapterFile adapter{kind.sites, "", {{"patina.version", "0"}}};
        if (format.format == AdapterFormat::kGguf && !kind.gguf) {
          EXPECT_THROW(write_adapter(format.format, path, adapter, base_of(kind), dtype), Error);
          continue;
        }
        write_adapter(format.format, path, adapter, base_of(kind), dtype);
        if (dtype == DType::kF32) {
          check(format.format, path, kind, 1e-6);
        } else {
          // Each rounding is at most 2^-9; where both factors of a LoKr are low-rank, four of few numbers are rounded.
          const auto* lokr = std::get_if<LokrFactors>(&kind.sites[0].factors);
          check(format.format, path, kind, lokr != nullptr && !lokr->w1.is_whole() ? 8e-3 : 4e-3, relative_norm);
        }
        Kind back = kind;
        back.sites = read_adapter(path, base_of(kind)).sites;
        check(format.format, path, back, 1e-6);
      }
}

void expect_same_numbers(const std::vector<float>& got, const std::vector<float>& expected) {
  EXPECT_TRUE(std::ranges::equal(std::as_bytes(std::span(got)), std::as_bytes(std::span(expected))));
}

void expect_same_bits(const AdaptedSite& got, const AdaptedSite& expected) {
  SCOPED_TRACE(site_label(expected.layer, expected.site));
  EXPECT_EQ(site_label(got.layer, got.site), site_label(expected.layer, expected.site));
  EXPECT_EQ(got.in, expected.in);
  EXPECT_EQ(got.out, expected.out);
  ASSERT_EQ(got.factors.index(), expected.factors.index());
  if (const auto* lora = std::get_if<LoraFactors>(&got.factors)) {
    const auto& other = std::get<LoraFactors>(expected.factors);
    EXPECT_EQ(lora->rank, other.rank);
    EXPECT_EQ(lora->alpha, other.alpha);
    expect_same_numbers(lora->a, other.a);
    expect_same_numbers(lora->b, other.b);
    expect_same_numbers(lora->magnitude, other.magnitude);
    return;
  }
  const auto &lokr = std::get<LokrFactors>(got.factors), &other = std::get<LokrFactors>(expected.factors);
  EXPECT_EQ(lokr.dim, other.dim);
  EXPECT_EQ(lokr.alpha, other.alpha);
  for (const auto& [factor, same] : {std::pair{&lokr.w1, &other.w1}, {&lokr.w2, &other.w2}}) {
    EXPECT_EQ(factor->rows, same->rows);
    EXPECT_EQ(factor->columns, same->columns);
    expect_same_numbers(factor->whole, same->whole);
    expect_same_numbers(factor->a, same->a);
    expect_same_numbers(factor->b, same->b);
  }
}

TEST(Formats, RoundTrips) {
  for (const Kind& kind : kinds())
    for (const AdapterFormatRow& format : adapter_formats()) {
      if (format.format == AdapterFormat::kGguf && !kind.gguf) continue;
      SCOPED_TRACE(fmt::format("{} {}", kind.name, format.name));
      const TempDir directory;
      const fs::path path = path_in(directory, format);
      write_adapter(format.format, path, {kind.sites, "", {{"patina.trigger", "tide"}}}, base_of(kind));
      const AdapterFile back = read_adapter(path, base_of(kind));
      EXPECT_EQ(back.format, format.name);
      EXPECT_EQ(back.base_model, "some/base");
      EXPECT_EQ(back.metadata, (std::map<std::string, std::string>{{"patina.trigger", "tide"}}));
      ASSERT_EQ(back.sites.size(), kind.sites.size());
      std::vector<AdaptedSite> expected = kind.sites;
      std::ranges::sort(expected, {}, [](const AdaptedSite& site) {
        return std::pair(site.layer < 0 ? 1000 : site.layer, place(site).site);
      });
      for (size_t i = 0; i < expected.size(); ++i) {
        if (format.format != AdapterFormat::kGguf || kind.exact_in_gguf)
          expect_same_bits(back.sites[i], expected[i]);
        else
          EXPECT_TRUE(distance(delta_of(back.sites[i]), delta_of(expected[i])) <= 1e-6) << i;
      }
    }
}

// PEFT chooses the shapes of LoKr's factors: an adapter it would not choose so cannot be written.
TEST(Formats, PeftRefusesWhatItWouldBuildOtherwise) {
  const std::vector<AdaptedSite> odd = {lokr_site(0, "q", {2, 8, 4, 6}, 2, 4, false, true)};
  const std::string why = format_obstacle(AdapterFormat::kPeft, odd);
  EXPECT_NE(why.find("decompose_factor"), std::string::npos) << why;
  EXPECT_NE(why.find("patina merge"), std::string::npos) << why;
  const std::vector<AdaptedSite> mixed = {lora_site(0, "q", 12, 8, 2, 3), lora_site(1, "q", 12, 8, 2, 3, true)};
  EXPECT_NE(format_obstacle(AdapterFormat::kPeft, mixed).find("layers.1.q"), std::string::npos);
  EXPECT_EQ(format_obstacle(AdapterFormat::kLycoris, odd), "");
}

// Unlike us and LyCORIS, PEFT scales by alpha / r where both factors are whole.
TEST(Formats, PeftScalesWholeFactors) {
  const TempDir directory;
  const std::vector<AdaptedSite> sites = {lokr_site(0, "q", {4, 4, 4, 6}, 3, 3, false, false)};
  write_adapter(AdapterFormat::kPeft, directory.path(), {sites, "", {}}, base_model());
  json config = json::parse(read_file(directory.path() / "adapter_config.json"));
  config["alpha"] = 6;
  write_file(directory.path() / "adapter_config.json", config.dump());
  const AdapterFile back = read_adapter(directory.path(), base_model());
  EXPECT_TRUE(distance(delta_of(back.sites[0]), scaled(2.0, delta_of(sites[0]))) <= 1e-7);
}

}  // namespace
}  // namespace patina
