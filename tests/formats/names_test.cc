#include "formats/names.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace patina {
namespace {

constexpr ModelFamily kLm = ModelFamily::kDecoder, kDit = ModelFamily::kDit;
constexpr SiteName kAllSites[] = {SiteName::kQ,    SiteName::kK,  SiteName::kV,    SiteName::kO,
                                  SiteName::kGate, SiteName::kUp, SiteName::kDown, SiteName::kLmHead};

// The sites of a family that answer to a name.
std::vector<SiteName> called(std::string_view alias, ModelFamily family) {
  std::vector<SiteName> found;
  for (const SiteName site : sites_of(family))
    if (answers_to(site, alias)) found.push_back(site);
  return found;
}

TEST(Names, Aliases) {
  using Sites = std::vector<SiteName>;
  for (const std::string_view alias : {"q", "attn_q", "q_proj"}) EXPECT_EQ(called(alias, kLm), Sites{SiteName::kQ});
  for (const std::string_view alias : {"o", "attn_output", "o_proj"})
    EXPECT_EQ(called(alias, kLm), Sites{SiteName::kO});
  for (const std::string_view alias : {"down", "ffn_down", "down_proj"})
    EXPECT_EQ(called(alias, kLm), Sites{SiteName::kDown});
  for (const std::string_view alias : {"lm_head", "output"}) EXPECT_EQ(called(alias, kLm), Sites{SiteName::kLmHead});
  for (const std::string_view alias : {"attn_q_norm", "attn", "", "Q", "q ", "proj", "put", "attn_output_norm"})
    for (const ModelFamily family : {kLm, kDit}) EXPECT_EQ(called(alias, family), Sites{}) << alias;
  for (const std::string_view alias : {"q", "q_proj"})
    EXPECT_EQ(called(alias, kDit), (Sites{SiteName::kSelfQ, SiteName::kCrossQ}));
  for (const std::string_view alias : {"cross.q", "cross_attn.q_proj"})
    EXPECT_EQ(called(alias, kDit), Sites{SiteName::kCrossQ});
  for (const std::string_view alias : {"mlp.up", "up", "up_proj"})
    EXPECT_EQ(called(alias, kDit), Sites{SiteName::kMlpUp});
}

TEST(Names, Spelling) {
  EXPECT_EQ(gguf_tensor_name(SiteName::kQ, 3), "blk.3.attn_q.weight");
  EXPECT_EQ(gguf_tensor_name(SiteName::kO, 0), "blk.0.attn_output.weight");
  EXPECT_EQ(gguf_tensor_name(SiteName::kUp, 12), "blk.12.ffn_up.weight");
  EXPECT_EQ(gguf_tensor_name(SiteName::kLmHead, kNoLayer), "output.weight");
  EXPECT_EQ(hf_module_path(SiteName::kV, 3), "model.layers.3.self_attn.v_proj");
  EXPECT_EQ(hf_module_path(SiteName::kGate, 10), "model.layers.10.mlp.gate_proj");
  EXPECT_EQ(hf_module_path(SiteName::kLmHead, kNoLayer), "lm_head");
  EXPECT_EQ(gguf_tensor_name(SiteName::kCrossQ, 3), "decoder.layers.3.cross_attn.q_proj.weight");
  EXPECT_EQ(hf_module_path(SiteName::kSelfO, 3), "layers.3.self_attn.o_proj");
  EXPECT_EQ(hf_module_path(SiteName::kMlpDown, 0), "layers.0.mlp.down_proj");
  EXPECT_EQ(hf_module_end(SiteName::kDown), "down_proj");
  EXPECT_EQ(hf_module_end(SiteName::kCrossV), "cross_attn.v_proj");
  EXPECT_THROW(gguf_tensor_name(SiteName::kLmHead, 0), InternalError);
  EXPECT_THROW(hf_module_path(SiteName::kQ, kNoLayer), InternalError);
}

TEST(Names, ParsesWhatItSpells) {
  for (const ModelFamily family : {kLm, kDit})
    for (const SiteName site : sites_of(family))
      for (const int layer : {0, 7, 123}) {
        const SitePlace place{site, site == SiteName::kLmHead ? kNoLayer : layer};
        const std::string gguf = gguf_tensor_name(site, place.layer), path = hf_module_path(site, place.layer);
        EXPECT_EQ(parse_gguf_tensor_name(gguf, family), place);
        EXPECT_EQ(parse_hf_module_path(path, family), place);
        EXPECT_EQ(parse_hf_module_path("base_model.model." + path, family), place);
        EXPECT_EQ(site_from_name(site_name(site)), site);
        const ModelFamily other = family == kLm ? kDit : kLm;
        EXPECT_EQ(parse_gguf_tensor_name(gguf, other), std::nullopt);
        EXPECT_EQ(parse_hf_module_path(path, other), std::nullopt);
      }
}

TEST(Names, FieldIssue17_MatchesWholeComponents) {
  for (const std::string_view name :
       {"blk.3.attn_q_norm.weight", "blk.3.attn_q.bias", "blk.3.attn_q", "blk.3.output.weight", "attn_output.weight",
        "blk.attn_q.weight", "blk.-1.attn_q.weight", "blk.03.attn_q.weight", "blk.3x.attn_q.weight",
        "blk.99999999999.attn_q.weight", "xblk.3.attn_q.weight", "output_norm.weight", "token_embd.weight", "",
        ".weight", "blk.3.weight", "blk..attn_q.weight"}) {
    EXPECT_EQ(parse_gguf_tensor_name(name, kLm), std::nullopt) << name;
  }
  for (const std::string_view path :
       {"model.layers.3.self_attn.q_proj.weight", "model.layers.3.self_attn.q_norm", "model.layers.3.mlp.q_proj",
        "model.layers.3.self_attn.gate_proj", "model.layers.3.q_proj", "layers.3.self_attn.q_proj", "model.lm_head",
        "model.layers.+3.self_attn.q_proj", "model.layers.3.self_attnq_proj", "model.layers.3.lm_head", "",
        "lm_head.x"}) {
    EXPECT_EQ(parse_hf_module_path(path, kLm), std::nullopt) << path;
  }
}

TEST(Names, Lists) {
  using Sites = std::vector<SiteName>;
  EXPECT_EQ(parse_sites("all", kLm), Sites(std::begin(kAllSites), std::end(kAllSites) - 1));
  EXPECT_EQ(parse_sites("attn", kLm), (Sites{SiteName::kQ, SiteName::kK, SiteName::kV, SiteName::kO}));
  EXPECT_EQ(parse_sites("mlp", kLm), (Sites{SiteName::kGate, SiteName::kUp, SiteName::kDown}));
  EXPECT_EQ(parse_sites("v_proj, q,attn_q", kLm), (Sites{SiteName::kQ, SiteName::kV}));
  EXPECT_EQ(parse_sites("lm_head,all", kLm), Sites(std::begin(kAllSites), std::end(kAllSites)));
  EXPECT_EQ(parse_sites("self", kDit), (Sites{SiteName::kSelfQ, SiteName::kSelfK, SiteName::kSelfV, SiteName::kSelfO}));
  EXPECT_EQ(parse_sites("cross.v,q", kDit), (Sites{SiteName::kSelfQ, SiteName::kCrossQ, SiteName::kCrossV}));
  EXPECT_EQ(parse_sites("attn,mlp", kDit), sites_of(kDit));
  EXPECT_EQ(parse_sites("all", kDit), sites_of(kDit));
  EXPECT_THROW(parse_sites("lm_head", kDit), Error);
  EXPECT_THROW(parse_sites("self", kLm), Error);
  for (const std::string_view list : {"", "q,", ",q", "q,,v", "q;v", "attn_q_norm", "ALL"}) {
    EXPECT_THROW(parse_sites(list, kLm), Error) << list;
  }
  try {
    parse_sites("q,query", kLm);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), Error::Kind::kUsage);
    EXPECT_PRED_FORMAT2(testing::IsSubstring, "\"query\"", error.what());
    EXPECT_PRED_FORMAT2(testing::IsSubstring, "all, attn, mlp, q, k, v, o, gate, up, down (comma", error.what());
  }
}

}  // namespace
}  // namespace patina
