#include "runtime/data/tokens.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <limits>
#include <unordered_map>

#include "runtime/base/error.hpp"
#include "runtime/data/dataset.hpp"

namespace ringsmith {

namespace {

// Decodes base64. Returns false if the text is malformed.
bool from_base64(std::string_view text, std::string& out) {
  constexpr std::string_view kBase64Digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  out.clear();
  if (text.empty() || text.size() % 4 != 0) return false;
  const std::size_t padding = text.ends_with("==") ? 2 : text.ends_with("=") ? 1 : 0;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool pad = i + padding >= text.size();
    const std::size_t digit = pad ? 0 : kBase64Digits.find(text[i]);
    if (digit == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if (i % 4 == 3)
      for (const int shift : {16, 8, 0}) out += static_cast<char>(bits >> shift & 0xff);
  }
  out.resize(out.size() - padding);
  return true;
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 128;
}
bool is_sign(char c) { return !is_space(c) && !is_digit(c) && !is_letter(c); }

std::size_t first_word(std::string_view text) {
  for (const std::string_view end : {"'s", "'d", "'m", "'t", "'ll", "'ve", "'re"})
    if (text.starts_with(end)) return end.size();
  const std::size_t begin = text[0] == ' ' && text.size() > 1 ? 1 : 0;
  for (const auto kind : {is_letter, is_digit, is_sign})
    if (kind(text[begin]))
      return static_cast<std::size_t>(
          std::find_if_not(text.begin() + static_cast<std::ptrdiff_t>(begin), text.end(), kind) -
          text.begin());
  // A run of white space is a word. If it is longer than 1 and text follows, its last character is
  // left to the next word.
  const auto spaces =
      static_cast<std::size_t>(std::find_if_not(text.begin(), text.end(), is_space) - text.begin());
  return spaces < text.size() && spaces > 1 ? spaces - 1 : spaces;
}

}  // namespace

Vocabulary Vocabulary::load(const std::string& path) {
  const std::vector<std::uint8_t> file = read_file(path, "vocabulary");
  const std::string text(file.begin(), file.end());
  Vocabulary out;
  std::size_t line_number = 0;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    at = end + 1;
    ++line_number;
    const auto check = [&](bool fine, const std::string& what) {
      require(fine, "vocabulary '" + path + "', line " + std::to_string(line_number) + ": " + what +
                        "; give a file of tiktoken's format such as r50k_base.tiktoken");
    };
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t space = line.find(' ');
    std::string piece;
    std::size_t number = 0;
    check(space != std::string_view::npos && from_base64(line.substr(0, space), piece),
          "expected a token in base64 and its number");
    const std::string_view digits = line.substr(space + 1);
    const auto parsed = std::from_chars(digits.data(), digits.data() + digits.size(), number);
    check(parsed.ec == std::errc() && parsed.ptr == digits.data() + digits.size() &&
              number == out.pieces_.size(),
          "expected the number " + std::to_string(out.pieces_.size()));
    check(number < std::numeric_limits<Token>::max(),
          "more than 65,535 tokens do not fit in 16 bits");
    check(out.numbers_.emplace(piece, static_cast<Token>(number)).second,
          "the same token as another line");
    out.pieces_.push_back(piece);
  }
  for (int byte = 0; byte < 256; ++byte)
    require(out.numbers_.contains(std::string(1, static_cast<char>(byte))),
            "vocabulary '" + path + "' has no token for the byte " + std::to_string(byte) +
                "; give a file of tiktoken's format such as r50k_base.tiktoken");
  return out;
}

std::vector<Token> Vocabulary::encode(std::string_view text) const {
  std::vector<Token> out;
  std::unordered_map<std::string_view, std::vector<Token>> known;  // words seen before
  while (!text.empty()) {
    const std::string_view word = text.substr(0, first_word(text));
    text.remove_prefix(word.size());
    const auto [entry, fresh] = known.try_emplace(word);
    std::vector<Token>& tokens = entry->second;
    if (fresh) {
      for (const char c : word) tokens.push_back(numbers_.find(std::string_view(&c, 1))->second);
      for (;;) {
        std::size_t best = 0;
        std::int64_t smallest = std::ssize(pieces_);
        for (std::size_t i = 0; i + 1 < tokens.size(); ++i) {
          const auto pair = numbers_.find(pieces_[tokens[i]] + pieces_[tokens[i + 1]]);
          if (pair != numbers_.end() && pair->second < smallest) best = i, smallest = pair->second;
        }
        if (smallest == std::ssize(pieces_)) break;
        tokens[best] = static_cast<Token>(smallest);
        tokens.erase(tokens.begin() + static_cast<std::ptrdiff_t>(best) + 1);
      }
    }
    out.insert(out.end(), tokens.begin(), tokens.end());
  }
  return out;
}

std::string Vocabulary::decode(std::span<const std::int64_t> tokens) const {
  std::string out;
  for (const std::int64_t token : tokens) {
    require(
        token >= 0 && token < size(),
        "token " + std::to_string(token) + " is not in a vocabulary of " + std::to_string(size()));
    if (token != end_of_text()) out += pieces_[static_cast<std::size_t>(token)];
  }
  return out;
}

namespace {

constexpr std::size_t kHeader = 256 * sizeof(std::int32_t);
constexpr std::uint32_t kMagic = 20240520, kVersion = 1;

std::uint32_t little_endian(const std::uint8_t* p) {
  return std::uint32_t{p[3]} << 24 | std::uint32_t{p[2]} << 16 | std::uint32_t{p[1]} << 8 | p[0];
}

}  // namespace

std::vector<Token> read_token_shard(const std::string& path) {
  const std::vector<std::uint8_t> file = read_file(path, "token shard");
  const auto check = [&](bool fine, const std::string& what) {
    require(fine, "token shard '" + path + "' " + what);
  };
  check(file.size() >= 4 && little_endian(file.data()) == kMagic,
        "does not begin with 20240520; give a .bin file of GPT-2 tokens as llm.c writes it");
  check(file.size() >= kHeader, "ends within its header; write the file again");
  const std::uint32_t version = little_endian(&file[4]), count = little_endian(&file[8]);
  check(version == kVersion, "has version " + std::to_string(version) +
                                 ", only 1, tokens of 16 bits, can be read; write it for GPT-2");
  const std::size_t bytes = file.size() - kHeader;
  check(bytes == 2 * std::size_t{count},
        "has " + std::to_string(bytes) + " bytes of tokens, its header promises " +
            std::to_string(2 * std::size_t{count}) + "; fetch or write the file again");
  std::vector<Token> tokens(count);
  for (std::size_t i = 0; i < tokens.size(); ++i)
    tokens[i] = static_cast<Token>(file[kHeader + 2 * i] | file[kHeader + 2 * i + 1] << 8);
  return tokens;
}

TokenText load_token_shards(const std::string& path, std::int64_t vocabulary) {
  namespace fs = std::filesystem;
  std::vector<std::string> files{path};
  if (fs::is_directory(path)) {
    files.clear();
    for (const auto& entry : fs::directory_iterator(path))
      if (entry.path().extension() == ".bin") files.push_back(entry.path().string());
    std::ranges::sort(files);
    require(!files.empty(), "folder '" + path + "' has no .bin file of tokens");
  }
  const auto validates = [](const std::string& file) {
    return fs::path(file).filename().string().find("val") != std::string::npos;
  };
  const bool apart = files.size() > 1 && std::ranges::any_of(files, validates);
  TokenText out;
  for (const std::string& file : files) {
    const std::vector<Token> tokens = read_token_shard(file);
    const auto strange = std::ranges::find_if(tokens, [&](Token t) { return t >= vocabulary; });
    if (strange != tokens.end())
      throw UsageError("token shard '" + file + "': token number " +
                       std::to_string(strange - tokens.begin()) + " is " +
                       std::to_string(*strange) + ", but the vocabulary has " +
                       std::to_string(vocabulary) + "; give the vocabulary it was made with");
    const auto held_out =
        apart ? (validates(file) ? std::ssize(tokens) : 0) : std::ssize(tokens) / 10;
    out.train.insert(out.train.end(), tokens.begin(), tokens.end() - held_out);
    out.validation.insert(out.validation.end(), tokens.end() - held_out, tokens.end());
  }
  return out;
}

}  // namespace ringsmith
