// Text as tokens (common fragments of words, numbered by a byte-pair vocabulary), and files of
// tokenised texts.
//
//   " rings"   r i n g s -> r in g s -> r ing s -> " r" ing s -> " ring" s     -> 7858 82
//              repeatedly, the adjacent pair whose token has the smallest number is merged
//
// Sennrich, Haddow and Birch, "Neural machine translation of rare words with subword units", 2016.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ringsmith {

using Token = std::uint16_t;  // as in the files; a vocabulary has at most 65,536 tokens

// A file in tiktoken's format: each line has a token's bytes in base64, a space, and its number.
// The numbers are 0 to n - 1 in the order of the merges, as in GPT-2's r50k_base.tiktoken. Number
// n, which is not in the file, marks the end of a text (GPT-2's <|endoftext|>, 50256).
class Vocabulary {
 public:
  // Throws UsageError naming the file, the fault and, if one line is at fault, its number.
  [[nodiscard]] static Vocabulary load(const std::string& path);

  [[nodiscard]] std::int64_t size() const { return std::ssize(pieces_) + 1; }
  [[nodiscard]] Token end_of_text() const { return static_cast<Token>(pieces_.size()); }
  // Splits the text into words as GPT-2 does (an optional space and letters, digits or symbols;
  // runs of white space; 's, 'll and similar), and merges each word separately. Bytes of 128 and
  // above count as letters, so symbols and digits in non-ASCII text may get tokens that differ from
  // GPT-2's. Both decode to the same bytes.
  [[nodiscard]] std::vector<Token> encode(std::string_view text) const;
  // Returns the bytes of these tokens; an end-of-text token has no bytes. Throws UsageError for a
  // token outside [0, size()).
  [[nodiscard]] std::string decode(std::span<const std::int64_t> tokens) const;

 private:
  std::vector<std::string> pieces_;                    // by number
  std::map<std::string, Token, std::less<>> numbers_;  // of pieces
};

// ---- shards: files of tokens, in llm.c's format ----
//
//   256 numbers of 32 bits: 20240520, the version 1, the count n, zeros    | n tokens of 16 bits
//
// All numbers are little-endian. Throws UsageError naming the file if it is not a shard, or if its
// length differs from its header.
[[nodiscard]] std::vector<Token> read_token_shard(const std::string& path);

struct TokenText {
  std::vector<Token> train, validation;
};
// Reads a shard, or a folder's *.bin in the order of their names. Of several files, those with
// "val" in the name are for validation. For a single file, or if no name has "val", the last tenth
// of each file is for validation. Throws UsageError if a folder has no such file, a file cannot be
// read, or a token is not below `vocabulary`.
[[nodiscard]] TokenText load_token_shards(const std::string& path, std::int64_t vocabulary);

}  // namespace ringsmith
