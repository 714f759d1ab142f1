// patina export: an adapter in another format.
#include "cli/common.h"
#include "cli/console.h"

namespace patina {

namespace fs = std::filesystem;

namespace {

// What a directory may hold beside a PEFT adapter: after an export they would be of another one than it.
constexpr const char* kOtherFiles[] = {"adapter.gguf", "adapter.safetensors", "adapters.safetensors", "train_log.json"};

}  // namespace

int run_export(const Command& command, int argc, char** argv) {
  std::string model_path, adapter_path, out, format_name, type = "f32";
  bool overwrite = false;
  std::map<std::string, const AdapterFormatRow*> formats;
  for (const AdapterFormatRow& row : adapter_formats()) formats[std::string(row.name)] = &row;
  CommandLine line(command);
  line.option("--adapter", adapter_path, "PATH", kAdapterHelp)->required();
  line.option("--model", model_path, "FILE", "GGUF model that the adapter was trained on.")->required();
  line.option("--format", format_name, "NAME",
              "peft (a directory), gguf (llama.cpp's LoRA), or lycoris (the safetensors file of LyCORIS and kohya).")
      ->required()
      ->check(quiet(CLI::IsMember(formats)));
  line.option("--out", out, "PATH", "File to write, or directory of a PEFT adapter.")->required();
  line.option("--type", type, "TYPE", "Type of the factors: f32 loses nothing; bf16 or f16.")
      ->check(stored_type({"f32", "f16", "bf16"}));
  add_overwrite_option(line, overwrite);
  if (!line.read(argc, argv)) return 0;

  const DecoderModel model = DecoderModel::load(model_path);
  AdapterFile adapter = read_fitting_adapter(model, adapter_path);
  const AdapterFormatRow& format = *formats.at(format_name);
  if (const std::string obstacle = format_obstacle(format.format, adapter.sites); !obstacle.empty())
    fail(Error::Kind::kUsage, "--format {}: {}", format_name, obstacle);
  constexpr std::string_view kSafetensors = ".safetensors";  // by which a reader tells the two kinds of files apart
  const bool ends_so = fs::path(out).extension() == kSafetensors, should = format.format == AdapterFormat::kLycoris;
  if (!format.is_directory && ends_so != should)
    fail(Error::Kind::kUsage, "--out {}: a file of --format {} {} in {}; choose another name", out, format_name,
         should ? "ends" : "does not end", kSafetensors);
  check_keeps_adapter(out, adapter_path);
  const fs::path file = format.is_directory ? fs::path(out) / "adapter_config.json" : fs::path(out);
  check_output_file(file, model_path, overwrite);
  if (format.is_directory) {
    std::error_code error;
    for (const char* other : kOtherFiles)
      if (fs::exists(fs::path(out) / other, error))
        fail(Error::Kind::kUsage, "--out {}: holds {} of another adapter; choose another directory", out, other);
    fs::create_directories(out, error);
    if (error) fail(Error::Kind::kIo, "--out {}: cannot be made: {}; choose another directory", out, error.message());
  }
  AdapterBase base = adapter_base(model);
  if (!adapter.base_model.empty()) base.name = adapter.base_model;
  write_adapter(format.format, out, adapter, base, parse_stored_type(type));
  write_out(fmt::format("{}: {}, {}\n", out, format.name,
                        counted(static_cast<int64_t>(adapter.sites.size()), "adapted layer")));
  return 0;
}

}  // namespace patina
