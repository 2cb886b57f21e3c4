#include "runtime/base/table.hpp"

#include "runtime/base/error.hpp"
#include "tests/support/catch.hpp"

using namespace ringsmith;

TEST_CASE("a table aligns its columns and knows its width", "[table]") {
  Table t({{"phase", Table::Align::left}, {"ms"}});
  t.row({"forward", "1.5"}).row({"x", "10.25"});
  REQUIRE(t.str() ==
          "phase       ms\n"
          "--------------\n"
          "forward    1.5\n"
          "x        10.25\n");
  REQUIRE(t.width() == 14);
  REQUIRE_THROWS_AS(t.row({"too few"}), UsageError);
}
