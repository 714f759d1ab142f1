#include "formats/names.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace patina {
namespace {

constexpr SiteName kAllSites[] = {SiteName::kQ,    SiteName::kK,  SiteName::kV,    SiteName::kO,
                                  SiteName::kGate, SiteName::kUp, SiteName::kDown, SiteName::kLmHead};

TEST(Names, Aliases) {
  for (const std::string_view alias : {"q", "attn_q", "q_proj"}) EXPECT_EQ(site_from_alias(alias), SiteName::kQ);
  for (const std::string_view alias : {"o", "attn_output", "o_proj"}) EXPECT_EQ(site_from_alias(alias), SiteName::kO);
  for (const std::string_view alias : {"down", "ffn_down", "down_proj"})
    EXPECT_EQ(site_from_alias(alias), SiteName::kDown);
  for (const std::string_view alias : {"lm_head", "output"}) EXPECT_EQ(site_from_alias(alias), SiteName::kLmHead);
  for (const std::string_view alias : {"attn_q_norm", "attn", "", "Q", "q ", "proj", "put", "attn_output_norm"}) {
    EXPECT_EQ(site_from_alias(alias), std::nullopt) << alias;
  }
}

TEST(Names, Spelling) {
  EXPECT_EQ(gguf_tensor_name(SiteName::kQ, 3), "blk.3.attn_q.weight");
  EXPECT_EQ(gguf_tensor_name(SiteName::kO, 0), "blk.0.attn_output.weight");
  EXPECT_EQ(gguf_tensor_name(SiteName::kUp, 12), "blk.12.ffn_up.weight");
  EXPECT_EQ(gguf_tensor_name(SiteName::kLmHead, kNoLayer), "output.weight");
  EXPECT_EQ(hf_module_path(SiteName::kV, 3), "model.layers.3.self_attn.v_proj");
  EXPECT_EQ(hf_module_path(SiteName::kGate, 10), "model.layers.10.mlp.gate_proj");
  EXPECT_EQ(hf_module_path(SiteName::kLmHead, kNoLayer), "lm_head");
  EXPECT_THROW(gguf_tensor_name(SiteName::kLmHead, 0), InternalError);
  EXPECT_THROW(hf_module_path(SiteName::kQ, kNoLayer), InternalError);
}

TEST(Names, ParsesWhatItSpells) {
  for (const SiteName site : kAllSites) {
    for (const int layer : {0, 7, 123}) {
      const SitePlace place{site, site == SiteName::kLmHead ? kNoLayer : layer};
      EXPECT_EQ(parse_gguf_tensor_name(gguf_tensor_name(place.site, place.layer)), place);
      EXPECT_EQ(parse_hf_module_path(hf_module_path(place.site, place.layer)), place);
      EXPECT_EQ(parse_hf_module_path("base_model.model." + hf_module_path(place.site, place.layer)), place);
      EXPECT_EQ(site_from_alias(site_name(site)), site);
    }
  }
}

TEST(Names, FieldIssue17_MatchesWholeComponents) {
  for (const std::string_view name :
       {"blk.3.attn_q_norm.weight", "blk.3.attn_q.bias", "blk.3.attn_q", "blk.3.output.weight", "attn_output.weight",
        "blk.attn_q.weight", "blk.-1.attn_q.weight", "blk.03.attn_q.weight", "blk.3x.attn_q.weight",
        "blk.99999999999.attn_q.weight", "xblk.3.attn_q.weight", "output_norm.weight", "token_embd.weight", "",
        ".weight", "blk.3.weight", "blk..attn_q.weight"}) {
    EXPECT_EQ(parse_gguf_tensor_name(name), std::nullopt) << name;
  }
  for (const std::string_view path :
       {"model.layers.3.self_attn.q_proj.weight", "model.layers.3.self_attn.q_norm", "model.layers.3.mlp.q_proj",
        "model.layers.3.self_attn.gate_proj", "model.layers.3.q_proj", "layers.3.self_attn.q_proj", "model.lm_head",
        "model.layers.+3.self_attn.q_proj", "model.layers.3.self_attnq_proj", "model.layers.3.lm_head", "",
        "lm_head.x"}) {
    EXPECT_EQ(parse_hf_module_path(path), std::nullopt) << path;
  }
}

TEST(Names, Lists) {
  using Sites = std::vector<SiteName>;
  EXPECT_EQ(parse_sites("all"), Sites(std::begin(kAllSites), std::end(kAllSites) - 1));
  EXPECT_EQ(parse_sites("attn"), (Sites{SiteName::kQ, SiteName::kK, SiteName::kV, SiteName::kO}));
  EXPECT_EQ(parse_sites("mlp"), (Sites{SiteName::kGate, SiteName::kUp, SiteName::kDown}));
  EXPECT_EQ(parse_sites("v_proj, q,attn_q"), (Sites{SiteName::kQ, SiteName::kV}));
  EXPECT_EQ(parse_sites("lm_head,all"), Sites(std::begin(kAllSites), std::end(kAllSites)));
  for (const std::string_view list : {"", "q,", ",q", "q,,v", "q;v", "attn_q_norm", "ALL"}) {
    EXPECT_THROW(parse_sites(list), Error) << list;
  }
  try {
    parse_sites("q,query");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::kUsage);
    EXPECT_PRED_FORMAT2(testing::IsSubstring, "\"query\"", error.what());
    EXPECT_PRED_FORMAT2(testing::IsSubstring, "all, attn, mlp, q, k, v, o, gate, up, down (comma", error.what());
  }
}

}  // namespace
}  // namespace patina
