// patina convert: a model file in another type.
#include "cli/common.h"
#include "cli/console.h"
#include "formats/rewrite.h"

namespace patina {

int run_convert(const Command& command, int argc, char** argv) {
  std::string model_path, out, type;
  bool overwrite = false;
  int threads = 0;
  CommandLine line(command);
  line.option("--model", model_path, "FILE", "GGUF model; it is never changed.")->required();
  line.option("--out", out, "FILE", "GGUF file to write.")->required();
  line.option("--type", type, "TYPE",
              "Type of the matrices: f32, f16, bf16, q8_0, q4_0 or q4_1. Norms and other tensors of one dimension are "
              "f32. K types (q4_k_m, ...) are made by llama.cpp's llama-quantize, from an f32 or bf16 file.")
      ->required()
      ->check(stored_type());
  add_threads_option(line, threads);
  add_overwrite_option(line, overwrite);
  if (!line.read(argc, argv)) return 0;

  const GgufFile model = GgufFile::open(model_path);
  if (model.string_or("general.type", "model") == "adapter")
    fail(Error::Kind::kUsage, "{}: is an adapter, expected a model; patina export writes adapters in another type",
         model_path);
  check_output_file(out, model_path, overwrite);
  const DType wanted = parse_stored_type(type);
  ThreadPool pool(threads);
  convert_model(model, wanted, out, pool);

  const GgufFile written = GgufFile::open(out);
  std::map<std::string_view, int64_t> types;
  for (const GgufTensor& tensor : written.tensors()) ++types[name(tensor.dtype)];
  std::string text;
  for (const auto& [dtype, count] : types) text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", dtype, count);
  write_out(fmt::format("{}: {}, {}\n", out, text, bytes_text(written.file_bytes())));
  return 0;
}

}  // namespace patina
