// Text as tokens: frequent pieces of words under numbers, from a byte-pair vocabulary; and texts
// that were turned into such numbers before, in files.
//
//   " rings"   r i n g s -> r in g s -> r ing s -> " r" ing s -> " ring" s     -> 7858 82
//              of all neighbours the pair with the smallest number becomes one, again and again
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

using Token = std::uint16_t;  // as in the files; vocabularies have at most 65,536

// A file of tiktoken's format: on each line the bytes of a token in base64, a space, its number.
// The numbers are 0 to n - 1 in the order in which the pieces were merged, as in GPT-2's, which is
// r50k_base.tiktoken. Number n is not in the file: it ends a text (GPT-2's <|endoftext|>, 50256).
class Vocabulary {
 public:
  // UsageError naming the file, its line and the fault.
  [[nodiscard]] static Vocabulary load(const std::string& path);

  [[nodiscard]] std::int64_t size() const { return std::ssize(pieces_) + 1; }
  [[nodiscard]] Token end_of_text() const { return static_cast<Token>(pieces_.size()); }
  // Text is cut into words as GPT-2's is (an optional space and letters, digits or signs; runs of
  // white space; 's, 'll and their likes), and each word is merged by itself. Bytes from 128 on
  // count as letters: of text that is not ASCII, signs and digits may become other tokens than
  // GPT-2's, with the same bytes.
  [[nodiscard]] std::vector<Token> encode(std::string_view text) const;
  // The bytes of these tokens, nothing for the end of a text. UsageError for one that is not in
  // [0, size()).
  [[nodiscard]] std::string decode(std::span<const std::int64_t> tokens) const;

 private:
  std::vector<std::string> pieces_;                    // by number
  std::map<std::string, Token, std::less<>> numbers_;  // of pieces
};

// ---- shards: files of tokens, as llm.c writes them ----
//
//   256 numbers of 32 bits: 20240520, the version 1, the count n, zeros    | n tokens of 16 bits
//
// all little-endian. UsageError naming the file if it is not one, or shorter or longer than its
// header says.
[[nodiscard]] std::vector<Token> read_token_shard(const std::string& path);

struct TokenText {
  std::vector<Token> train, validation;
};
// A shard, or a folder's *.bin in the order of their names. Those with "val" in the name are for
// validation; if there are none, the last tenth of each. UsageError, also for a token that is not
// below `vocabulary`.
[[nodiscard]] TokenText load_token_shards(const std::string& path, std::int64_t vocabulary);

}  // namespace ringsmith
