// Adapters made by PEFT and LyCORIS themselves (tools/make_adapter_goldens.py): read by us, they change weights as
// those packages do.
#include <gtest/gtest.h>

#include <cstring>

#include "adapter/delta.h"
#include "adapter/files.h"
#include "adapter/sites.h"
#include "formats/names.h"
#include "formats/safetensors.h"

namespace patina {
namespace {

namespace fs = std::filesystem;

const fs::path kGoldens = fs::path(PATINA_SOURCE_DIR) / "tests/adapter/goldens";

std::vector<float> floats(const SafetensorsFile& file, const std::string& name) {
  const SafetensorsTensor* tensor = file.find(name);
  if (tensor == nullptr || tensor->dtype != DType::kF32) throw std::runtime_error(name);
  std::vector<float> values(static_cast<size_t>(tensor->shape.elements()));
  std::memcpy(values.data(), tensor->data, static_cast<size_t>(tensor->bytes));
  return values;
}

class AdapterGoldens : public ::testing::TestWithParam<const char*> {};

TEST_P(AdapterGoldens, ChangesAreThoseOfThePackage) {
  const std::string name = GetParam();
  const SafetensorsFile expected = SafetensorsFile::open(kGoldens / (name + ".expected.safetensors"));
  AdapterBase base;
  base.layers = 2;
  const bool is_directory = name.starts_with("peft");
  const AdapterFile adapter = read_adapter(kGoldens / (is_directory ? name : name + ".safetensors"), base);
  EXPECT_EQ(adapter.format, is_directory ? "peft" : "lycoris");
  EXPECT_EQ(adapter.sites.size() * 2, expected.tensors().size());
  for (const AdaptedSite& site : adapter.sites) {
    const std::string module = hf_module_path(site_from_name(site.site).value(), site.layer);
    const std::vector<float> weight = floats(expected, module + ".weight"), delta = floats(expected, module + ".delta");
    ASSERT_EQ(std::ssize(weight), site.in * site.out);
    double worst = 0.0, most = 0.0;
    std::vector<double> got(static_cast<size_t>(site.in));
    for (int64_t row = 0; row < site.out; ++row) {
      const size_t first = static_cast<size_t>(row * site.in);
      delta_row(site, row, std::span(weight).subspan(first, got.size()), got);
      for (size_t i = 0; i < got.size(); ++i) {
        const double wanted = static_cast<double>(delta[first + i]);
        most = std::max(most, std::abs(wanted));
        worst = !(std::abs(got[i] - wanted) <= worst) ? std::abs(got[i] - wanted) : worst;
      }
    }
    // The packages add to the weight in F32.
    EXPECT_TRUE(worst <= 1e-6 * most) << module << ": " << worst << " of " << most;
    EXPECT_GT(most, 0.01);
  }
}

INSTANTIATE_TEST_SUITE_P(All, AdapterGoldens,
                         ::testing::Values("peft_lora", "peft_rslora", "peft_dora", "peft_lokr", "peft_lokr_whole",
                                           "lycoris_lora", "lycoris_rslora", "lycoris_dora", "lycoris_lokr",
                                           "lycoris_lokr_twice", "lycoris_lokr_whole"),
                         [](const auto& test) { return std::string(test.param); });

}  // namespace
}  // namespace patina
