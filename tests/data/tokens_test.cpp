// Compares the tokens with a plain search without a cache, and the words with a regular expression.
#include "runtime/data/tokens.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <regex>

#include "tests/data/test_files.hpp"

using namespace ringsmith;
using test::Folder;
using test::refuses;

namespace {

std::string base64(const std::string& bytes) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const auto byte = [&](std::size_t k) -> unsigned {
      return i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0;
    };
    const unsigned bits = byte(0) << 16 | byte(1) << 8 | byte(2);
    for (const int shift : {18, 12, 6, 0}) out += digits[bits >> shift & 63];
    if (i + 2 > bytes.size() - 1) out[out.size() - 1] = '=';
    if (i + 1 > bytes.size() - 1) out[out.size() - 2] = '=';
  }
  return out;
}

// The vocabulary: the 256 bytes, from 'Z' downwards and wrapping around, then these merges.
const std::vector<std::string> kMerges = {" r",   "in", "ing",   "th",     " t",      "he",
                                          " the", "nn", " ring", "er",     "  ",      "11",
                                          "::",   "'s", "\n\n",  " ringi", "\xc3\xa9"};
std::vector<std::string> pieces() {
  std::vector<std::string> out;
  for (int i = 0; i < 256; ++i) out.emplace_back(1, static_cast<char>(('Z' + 256 - i) % 256));
  out.insert(out.end(), kMerges.begin(), kMerges.end());
  return out;
}
std::string vocabulary_file(const std::vector<std::string>& all = pieces()) {
  std::string out;
  for (std::size_t i = 0; i < all.size(); ++i)
    out += base64(all[i]) + " " + std::to_string(i) + "\n";
  return out;
}

// Splits a text into GPT-2's words. Handles only ASCII letters and digits.
std::vector<std::string> words_of(const std::string& text) {
  static const std::regex word(
      "'(?:[sdmt]|ll|ve|re)| ?[A-Za-z]+| ?[0-9]+| ?[^\\sA-Za-z0-9]+|\\s+(?!\\S)|\\s+");
  std::vector<std::string> out;
  for (std::sregex_iterator i(text.begin(), text.end(), word), end; i != end; ++i)
    out.push_back(i->str());
  return out;
}

// Repeats the merge with the smallest number that occurs, at its leftmost position, until none
// applies.
std::vector<Token> slow_encode(const std::string& text) {
  const auto all = pieces();
  std::vector<Token> out;
  for (const std::string& word : words_of(text)) {
    std::vector<std::string> parts;
    for (const char c : word) parts.emplace_back(1, c);
    for (bool merged = true; merged;) {
      merged = false;
      for (std::size_t number = 0; number < all.size() && !merged; ++number)
        for (std::size_t i = 0; i + 1 < parts.size() && !merged; ++i)
          if (parts[i] + parts[i + 1] == all[number]) {
            parts[i] += parts[i + 1];
            parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(i) + 1);
            merged = true;
          }
    }
    for (const std::string& part : parts)
      out.push_back(static_cast<Token>(std::ranges::find(all, part) - all.begin()));
  }
  return out;
}

std::string shard(const std::vector<int>& tokens, std::uint32_t magic = 20240520,
                  std::uint32_t version = 1, int count = -1) {
  std::string out;
  const auto number = [&](std::uint32_t v, int bytes) {
    for (int i = 0; i < bytes; ++i) out += static_cast<char>(v >> 8 * i & 0xff);
  };
  number(magic, 4);
  number(version, 4);
  number(count < 0 ? static_cast<std::uint32_t>(tokens.size()) : static_cast<std::uint32_t>(count),
         4);
  out.resize(1024);
  for (const int t : tokens) number(static_cast<std::uint32_t>(t), 2);
  return out;
}

}  // namespace

TEST_CASE("a vocabulary merges what a slow search merges, and gives the text back") {
  const Folder folder;
  const Vocabulary vocabulary = Vocabulary::load(folder.write("v", vocabulary_file()));
  CHECK(vocabulary.size() == std::ssize(pieces()) + 1);
  CHECK(vocabulary.end_of_text() == pieces().size());
  std::vector<std::string> texts = {"",
                                    " ",
                                    "  ",
                                    "the ring",
                                    " the inner rings\n\n\n  turn",
                                    "it's they'll I'd 'tis don't''s",
                                    "a1112 11:: 3::4",
                                    "   x",
                                    "\t\tx \n y",
                                    "ends with space ",
                                    "\r\nwindows\r\n",
                                    "''",
                                    "' s"};
  std::uint32_t seed = 1;
  for (int i = 0; i < 300; ++i) {  // texts of few different characters, so that merges interact
    std::string text;
    for (int n = 0; n < 40; ++n) {
      seed = seed * 1664525 + 1013904223;
      text += "the ring's 1:\n"[(seed >> 16) % 14];
    }
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    INFO("'" << text << "'");
    const std::vector<Token> tokens = vocabulary.encode(text);
    CHECK(tokens == slow_encode(text));
    CHECK(vocabulary.decode(std::vector<std::int64_t>(tokens.begin(), tokens.end())) == text);
  }
  std::string any;
  for (int i = 0; i < 256; ++i) any += static_cast<char>(i);
  any += "caf\xc3\xa9";
  const auto tokens = vocabulary.encode(any);
  CHECK(vocabulary.decode(std::vector<std::int64_t>(tokens.begin(), tokens.end())) == any);
  CHECK(tokens.back() == pieces().size() - 1);  // a two-byte letter is one token
  const std::vector<std::int64_t> end{vocabulary.end_of_text()}, beyond{vocabulary.size()};
  CHECK(vocabulary.decode(end).empty());
  CHECK_THROWS_WITH(vocabulary.decode(beyond), ContainsSubstring("is not in a vocabulary of 274"));
}

TEST_CASE("broken vocabularies are refused by file and line") {
  const Folder folder;
  const auto refuse = [&](const std::string& content, const std::string& words) {
    const std::string file = folder.write("v", content);
    refuses([&] { (void)Vocabulary::load(file); }, file, words);
  };
  const std::string good = vocabulary_file();
  refuse("", "has no token for the byte 0");
  refuse("{\"!\": 0}", "line 1: expected a token in base64");
  refuse(good + "QQ= 273\n", "line 274: expected a token in base64");
  refuse(good + "QQ== 274\n", "line 274: expected the number 273");
  refuse(good + "QQ== 273\n", "line 274: the same token as another line");
  refuse(good + "QkI= 273x\n", "line 274: expected the number 273; give a file of tiktoken's");
  refuse(good.substr(good.find('\n') + 1), "line 1: expected the number 0");
  std::vector<std::string> many = pieces();
  for (int i = 0; many.size() < 65536; ++i) many.push_back("word" + std::to_string(i));
  refuse(vocabulary_file(many), "line 65536: more than 65,535 tokens");
  refuses([&] { (void)Vocabulary::load(folder.path() + "/none"); }, folder.path() + "/none",
          "No such file");
}

TEST_CASE("shards: tokens of 16 bits, the held-out ones by name or the last tenth of each") {
  const Folder folder;
  std::vector<int> numbers;
  for (int i = 0; i < 20; ++i) numbers.push_back(50256 - i);
  const std::string one = folder.write("b_train_0.bin", shard(numbers));
  CHECK(read_token_shard(one) == std::vector<Token>(numbers.begin(), numbers.end()));
  const TokenText alone = load_token_shards(one, 50257);
  CHECK(alone.train.size() == 18);
  CHECK(alone.validation == std::vector<Token>{50238, 50237});
  (void)folder.write("a_train_1.bin", shard({1, 2, 3}));
  (void)folder.write("notes.txt", std::string("not tokens"));
  CHECK(load_token_shards(folder.path(), 50257).train.size() == 21);
  CHECK(load_token_shards(folder.path(), 50257).train[0] == 1);
  (void)folder.write("c_val_0.bin", shard({7, 8}));
  const TokenText apart = load_token_shards(folder.path(), 50257);
  CHECK(apart.train.size() == 23);
  CHECK(apart.validation == std::vector<Token>{7, 8});
}

TEST_CASE("broken shards are refused by name") {
  const Folder folder;
  const auto refuse = [&](const std::string& content, const std::string& words) {
    const std::string file = folder.write("s.bin", content);
    refuses([&] { (void)load_token_shards(file, 50257); }, file, words);
  };
  refuse("", "does not begin with 20240520");
  refuse("some text", "does not begin with 20240520; give a .bin file");
  refuse(shard({1, 2}, 20240521), "does not begin with 20240520");
  refuse(shard({1, 2}).substr(0, 900), "ends within its header");
  refuse(shard({1, 2}, 20240520, 2), "has version 2, only 1");
  refuse(shard({1, 2, 3}).substr(0, 1029), "has 5 bytes of tokens, its header promises 6");
  refuse(shard({1, 2, 3}) + "x", "has 7 bytes of tokens, its header promises 6; fetch");
  refuse(shard({1, 2}, 20240520, 1, 2'000'000'000), "promises 4000000000");
  refuse(shard({1, 50257}), "token number 1 is 50257, but the vocabulary has 50257; give the");
  const std::string empty = folder.path() + "/empty";
  std::filesystem::create_directories(empty);
  refuses([&] { (void)load_token_shards(empty, 10); }, empty, "has no .bin file of tokens");
}
