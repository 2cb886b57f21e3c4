// Texts from other sources are made safe to print on a terminal.
#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using ringsmith::printable;

TEST_CASE("control characters are shown, not obeyed", "[printable]") {
  CHECK(printable("rank 1: 5 < 7") == "rank 1: 5 < 7");
  CHECK(printable("\x1b[2Jgone\n\t\x7f") == "\\x1b[2Jgone\\x0a\\x09\\x7f");
  CHECK(printable("K\xc3\xb6ln, \xe2\x82\xac 5, \xf0\x9f\x92\xbe") ==
        "K\xc3\xb6ln, \xe2\x82\xac 5, \xf0\x9f\x92\xbe");
  CHECK(printable("\xc2\x9b") == "\\xc2\\x9b");                    // CSI as one character
  CHECK(printable("\xc3") == "\\xc3");                             // truncated
  CHECK(printable("\xe0\x82\x9b") == "\\xe0\\x82\\x9b");           // CSI in three bytes
  CHECK(printable("\xf0\x80\x82\x9b") == "\\xf0\\x80\\x82\\x9b");  // and in four
  CHECK(printable("\xed\xa0\x80") == "\\xed\\xa0\\x80");           // a surrogate
  CHECK(printable("\xf4\x90\x80\x80") == "\\xf4\\x90\\x80\\x80");  // beyond U+10FFFF
  CHECK(printable("\xc3(\xff\x80") == "\\xc3(\\xff\\x80");
  CHECK(printable(std::string_view("a\0b", 3)) == "a\\x00b");
}
