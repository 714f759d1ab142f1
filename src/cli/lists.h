// Values of flags that are lists with commas.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "ir/formulation.h"
#include "tensor/dtype.h"

namespace patina {

// The items of a list, each read by `item` and none twice. Error(kUsage) naming the flag.
template <typename Item>
std::vector<Item> read_list(const char* flag, std::string_view text, Item (*item)(const char* flag, std::string_view)) {
  std::vector<Item> items;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    const Item value = item(flag, word);
    if (std::ranges::find(items, value) != items.end())
      fail(Error::Kind::kUsage, "{}: \"{}\" is there twice", flag, word);
    items.push_back(value);
    if (comma == std::string_view::npos) return items;
    text.remove_prefix(comma + 1);
  }
}

// "F32,BF16": types that Patina reads.
std::vector<DType> read_types(const char* flag, std::string_view text);
// "fused,mm"
std::vector<Formulation> read_formulations(const char* flag, std::string_view text);
// Any words.
std::vector<std::string> read_words(const char* flag, std::string_view text);

}  // namespace patina
