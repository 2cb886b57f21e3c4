#include "labs/apps/common/command_line.hpp"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <limits>
#include <map>
#include <optional>
#include <type_traits>

#include "labs/apps/common/agreement.hpp"
#include "labs/apps/common/text.hpp"
#include "runtime/job/place.hpp"

namespace ringsmith::apps {

std::optional<double> read_real(const std::string& text) {
  double value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || !std::isfinite(value)) return {};
  return value;
}

std::optional<long long> read_whole(const std::string& text) {
  const std::size_t digits = text.rfind('-', 0) == 0 ? 1 : 0;
  // A leading zero might be meant as octal or hexadecimal.
  if (text.size() > digits + 1 && text[digits] == '0') return {};
  long long value = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end) return {};
  return value;
}

namespace {

constexpr std::size_t kColumn = 26;

class PlainHelp : public CLI::Formatter {
 public:
  std::string make_help(const CLI::App* app, std::string name,
                        CLI::AppFormatMode /*mode*/) const override {
    const auto positionals =
        app->get_options([](const CLI::Option* o) { return o->get_positional(); });
    std::string out = wrapped(app->get_description(), 0) + "\n\nUsage: " + name + " [OPTIONS]";
    for (const CLI::Option* option : positionals) out += " " + make_option_usage(option);
    out += "\n";
    if (!positionals.empty()) out += "\n" + make_group("Positionals", true, positionals);
    for (const std::string& group : app->get_groups()) {
      const auto options = app->get_options([&](const CLI::Option* option) {
        return option->get_group() == group && option->nonpositional();
      });
      if (!group.empty() && !options.empty()) out += "\n" + make_group(group, false, options);
    }
    const std::string footer = app->get_footer();
    const std::size_t first = footer.find_first_not_of('\n');
    if (first == std::string::npos) return out;
    return out + "\n" + footer.substr(first, footer.find_last_not_of('\n') + 1 - first) + "\n";
  }

 private:
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    std::string left = "  " + make_option_name(option, is_positional);
    // "INT:POSITIVE" -> "INT"
    const std::string type = option->get_type_name();
    if (option->get_items_expected_max() > 0 && !type.empty())
      left += " " + type.substr(0, type.find_first_of(":{"));
    std::string meaning = option->get_description();
    const std::string value = option->get_default_str();
    if (!value.empty() && value != "\"\"" && value != "[]") meaning += " [" + value + "]";
    left += left.size() + 2 > kColumn ? "\n" + std::string(kColumn, ' ')
                                      : std::string(kColumn - left.size(), ' ');
    return left + wrapped(meaning, kColumn) + "\n";
  }

  std::string make_group(std::string group, bool is_positional,
                         std::vector<const CLI::Option*> options) const override {
    std::string out = group + ":\n";
    for (const CLI::Option* option : options) out += make_option(option, is_positional);
    return out;
  }
};

// what: the accepted values, e.g. "a number above 0".
template <class Read, class Fits>
Check must_be(Read read, Fits fits, const std::string& what) {
  return [=](const std::string& text) {
    const auto value = read(text);
    return value && fits(*value) ? std::string() : fmt::format("'{}' is not {}", text, what);
  };
}

template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class T>
void convert(const std::string& name, const std::string& text, T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    value = text;
  } else if constexpr (std::is_floating_point_v<T>) {
    const auto number = read_real(text);
    if (!number) throw CLI::ValidationError(name, fmt::format("'{}' is not a number", text));
    value = static_cast<T>(*number);
  } else {
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end)
      throw CLI::ValidationError(
          name, fmt::format("'{}' is not a whole number from {} to {}", text,
                            std::numeric_limits<T>::min(), std::numeric_limits<T>::max()));
  }
}

template <class T>
const char* type_of() {
  if constexpr (std::is_same_v<T, std::string>)
    return "TEXT";
  else if constexpr (std::is_floating_point_v<T>)
    return "FLOAT";
  else
    return std::is_signed_v<T> ? "INT" : "UINT";
}

// Makes CLI11 2.6 read the values of options before it looks for missing arguments, as older
// versions do. Otherwise a wrong value would be reported only once all arguments are given.
template <class CliOption>
void read_before_arguments(CliOption& option) {
  if constexpr (requires { option.get_callback_priority(); })  // CLI11 2.6
    option.callback_priority(decltype(option.get_callback_priority())::PreRequirementsCheck);
}

// Returns the smallest number of edits that turn a into b. An edit inserts, removes or changes a
// character, or swaps two adjacent characters.
std::size_t edits_between(const std::string& a, const std::string& b) {
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i)
    for (std::size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min(
          {d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1)});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

std::string before_equals(const std::string& word) { return word.substr(0, word.find('=')); }

bool looks_like_option(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && word != "--" &&
         std::isdigit(static_cast<unsigned char>(word[1])) == 0 && word[1] != '.';
}

constexpr int kAnyNumber = 1 << 16;  // more values than any list has

}  // namespace

Option* Option::check(Check check) {
  option_->check(
      CLI::Validator([check = std::move(check)](std::string& t) { return check(t); }, ""));
  return this;
}

Option* Option::required() {
  option_->required();
  return this;
}

Option* Option::excludes(Option* other) {
  option_->excludes(other->option_);
  return this;
}

Option* Option::environment(const std::string& variable) {
  option_->envname(variable);
  return this;
}

Option* Option::default_text(const std::string& text) {
  option_->default_str(text);
  return this;
}

Option* Option::separated_by_commas(int most) {
  option_->delimiter(',')->expected(1, most);
  return this;
}

bool Option::given() const { return option_->count() > 0; }
std::string Option::name() const { return option_->get_name(); }

struct CommandLine::Impl {
  CLI::App app;
  std::deque<Option> options;
  std::string group = "Options";
  struct Refused {
    CLI::Option* option;
    std::string why;
  };
  std::vector<Refused> refused;
  std::map<const CLI::Option*, std::function<std::string()>> value_of;  // as text
  comm::Settings* compared = nullptr;
  std::span<const char* const> may_differ;
  std::deque<std::string> split;  // words of with_empty_values()
  bool leaves_the_rest = false;

  // take: stores the words as the value, and names the option in its errors. show: formats the
  // value.
  template <class Take, class Show>
  Option* add(const std::string& names, const std::string& meaning, const char* type,
              const std::string& otherwise, int most, const Take& take, const Show& show) {
    const auto named = std::make_shared<std::string>();
    CLI::Option* const option = app.add_option(
        names,
        [take, named](const CLI::results_t& words) {
          take(*named, words);
          return true;
        },
        meaning);
    *named = option->get_name();
    read_before_arguments(*option);
    value_of[option] = [option, show] {
      return option->count() == 0 && option->get_default_str().empty() ? "not given" : show();
    };
    option->type_name(type)->default_str(otherwise);
    if (most == 1)
      option->take_last();
    else
      option->take_all()->expected(1, most)->allow_extra_args(option->get_positional());
    return keep(option);
  }

  Option* keep(CLI::Option* option) {
    option->group(group);
    return &options.emplace_back(option);
  }

  [[nodiscard]] comm::Settings settings() const {
    comm::Settings out{{"the program", app.get_name()}};
    for (const CLI::Option* option : app.get_options()) {
      const auto found = value_of.find(option);
      const std::string name = option->get_name();
      if (found != value_of.end() && std::ranges::find(may_differ, name) == may_differ.end())
        out.emplace_back(name, found->second());
    }
    return out;
  }

  [[nodiscard]] const CLI::Option* find(const std::string& word) const {
    const bool cluster = word.size() > 2 && word[0] == '-' && word[1] != '-';  // -n5
    return app.get_option_no_throw(cluster ? word.substr(0, 2) : before_equals(word));
  }

  // Returns the first word that looks like an option but is unknown. Skips the values of options.
  [[nodiscard]] std::optional<std::string> first_unknown(int argc, const char* const* argv) const {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (word == "--") return {};
      if (!looks_like_option(word)) continue;
      const CLI::Option* const option = find(word);
      if (option == nullptr) return before_equals(word);
      const bool apart = word[1] == '-' ? word.find('=') == std::string::npos : word.size() == 2;
      if (apart && option->get_items_expected_min() > 0) ++i;
    }
    return {};
  }

  // Returns the words with "--svg=" as two, "--svg" and "". CLI11 would take the next word as the
  // value, even an option: a script with --svg=$EMPTY --quiet would write a file named --quiet.
  [[nodiscard]] std::vector<const char*> with_empty_values(int argc, const char* const* argv) {
    std::vector<const char*> out(argv, argv + std::min(argc, 1));
    int i = 1;
    for (; i < argc && std::string(argv[i]) != "--"; ++i) {
      const std::string word = argv[i];
      if (!looks_like_option(word) && leaves_the_rest) break;
      const CLI::Option* const option = looks_like_option(word) ? find(word) : nullptr;
      const bool takes_value = option != nullptr && option->get_items_expected_min() > 0;
      if (takes_value && word[1] == '-' && word.find('=') + 1 == word.size()) {
        out.push_back(split.emplace_back(before_equals(word)).c_str());
        out.push_back("");
        continue;
      }
      out.push_back(argv[i]);
      if (!takes_value) continue;
      const bool apart = word[1] == '-' ? word.find('=') == std::string::npos : word.size() == 2;
      if (apart && i + 1 < argc) out.push_back(argv[++i]);
    }
    out.insert(out.end(), argv + i, argv + argc);
    return out;
  }

  // Returns why the first given option that refuse() has named is refused, or nothing if none was
  // given.
  [[nodiscard]] std::optional<std::string> refusal() const {
    for (const auto& [option, why] : refused)
      if (option->count() > 0) return why + "; " + where_listed();
    return {};
  }

  [[nodiscard]] std::string complaint(const CLI::ParseError& e, int argc,
                                      const char* const* argv) const {
    if (const auto why = refusal()) return *why;
    if (const auto word = first_unknown(argc, argv)) return unknown(*word);
    std::string line = e.what();
    if (dynamic_cast<const CLI::ArgumentMismatch*>(&e) != nullptr &&
        line.find("required") != std::string::npos)  // "--lr: 1 required FLOAT missing"
      line = line.substr(0, line.find(':')) + " needs a value";
    if (dynamic_cast<const CLI::ExtrasError*>(&e) != nullptr)
      line = fmt::format("{}: unexpected argument", fmt::join(app.remaining(), " "));
    for (char& c : line)
      if (c == '\n') c = ' ';
    line.erase(line.find_last_not_of(' ') + 1);
    return line + "; " + where_listed();
  }

  [[nodiscard]] std::string where_listed() const {
    return app.get_name() + " --help lists the options";
  }

  [[nodiscard]] std::string unknown(const std::string& word) const {
    const std::string near = nearest(word);
    return word + ": unknown option; " + (near.empty() ? "" : "did you mean " + near + "? ") +
           where_listed();
  }

  // Returns an empty string if no option is close. --step and --steps are always close, because one
  // is a prefix of the other.
  [[nodiscard]] std::string nearest(const std::string& word) const {
    std::string best;
    std::size_t fewest = word.size() / 3 + 1;
    for (const CLI::Option* option : app.get_options()) {
      if (option->get_group().empty()) continue;
      for (const std::string& bare : option->get_lnames()) {
        const std::string name = "--" + bare;
        const std::size_t shorter = std::min(name.size(), word.size());
        const bool alike = shorter >= 5 && name.compare(0, shorter, word, 0, shorter) == 0;
        const std::size_t edits = alike ? 1 : edits_between(word, name);
        if (edits < fewest) {
          fewest = edits;
          best = name;
        }
      }
    }
    return best;
  }
};

CommandLine::CommandLine(const std::string& description, const std::string& program)
    : impl_(std::make_unique<Impl>()) {
  CLI::App& app = impl_->app;
  app.description(description);
  app.name(program);
  app.formatter(std::make_shared<PlainHelp>());
  app.set_help_flag("-h,--help", "print this text")->group(impl_->group);
  app.set_version_flag("--version", program + " (ringsmith) " RINGSMITH_VERSION,
                       "print the version")
      ->group(impl_->group);
}

CommandLine::~CommandLine() = default;

template <class T>
Option* CommandLine::add_option(const std::string& names, T& value, const std::string& meaning) {
  if constexpr (IsVector<T>::value) {
    using Element = typename T::value_type;
    return impl_->add(
        names, meaning, type_of<Element>(), "", kAnyNumber,
        [&value](const std::string& name, const CLI::results_t& words) {
          value.clear();
          for (const std::string& word : words) convert(name, word, value.emplace_back());
        },
        [&value] { return fmt::format("{}", fmt::join(value, ",")); });
  } else {
    return impl_->add(
        names, meaning, type_of<T>(), fmt::format("{}", value), 1,
        [&value](const std::string& name, const CLI::results_t& words) {
          convert(name, words.at(0), value);
        },
        [&value] { return fmt::format("{}", value); });
  }
}

Option* CommandLine::add_flag(const std::string& names, bool& value, const std::string& meaning) {
  CLI::Option* const option = impl_->app.add_flag_callback(
      names, [&value] { value = true; }, meaning);
  impl_->value_of[option] = [&value] { return value ? "given" : "not given"; };
  return impl_->keep(option);
}

void CommandLine::refuse(const std::string& names, const std::string& why) {
  CLI::Option* const option = impl_->app.add_option(
      names, [](const CLI::results_t&) { return true; }, "");
  option->expected(0, 1)->take_last()->group("");
  impl_->refused.push_back({option, why});
}

void CommandLine::group(const std::string& heading) { impl_->group = heading; }
void CommandLine::footer(const std::string& text) { impl_->app.footer(text); }
void CommandLine::leave_the_rest() {
  impl_->app.prefix_command();
  impl_->leaves_the_rest = true;
}

void CommandLine::compare(comm::Settings& settings, std::span<const char* const> may_differ) {
  impl_->compared = &settings;
  impl_->may_differ = may_differ;
}

bool CommandLine::parse(int argc, const char* const* argv, Speaker speaker) {
  for (const char* const name : impl_->may_differ)
    if (CLI::Option* const option = impl_->app.get_option_no_throw(name); option != nullptr)
      option->description(option->get_description() + "; ranks may differ");
  const bool speaks = speaker == Speaker::everybody || comm::rank_hint() == 0;
  const auto fail = [&](const std::string& why) {
    if (!speaks) throw QuietStop(ExitCode::usage, why);
    throw UsageError(why);
  };
  try {
    const std::vector<const char*> words = impl_->with_empty_values(argc, argv);
    impl_->app.parse(static_cast<int>(words.size()), words.data());
  } catch (const CLI::CallForHelp&) {
    if (speaks) std::fputs(impl_->app.help().c_str(), stdout);
    return false;
  } catch (const CLI::CallForVersion& version) {
    if (speaks) std::fprintf(stdout, "%s\n", version.what());
    return false;
  } catch (const CLI::ParseError& e) {
    fail(impl_->complaint(e, argc, argv));
  }
  if (const auto why = impl_->refusal()) fail(*why);
  if (impl_->compared != nullptr) *impl_->compared = impl_->settings();
  return true;
}

bool CommandLine::given(const std::string& option) const { return impl_->app.count(option) > 0; }

bool CommandLine::takes_value(const std::string& option) const {
  const CLI::Option* const found = impl_->app.get_option_no_throw(option);
  return found != nullptr && found->get_items_expected_max() > 0;
}

std::vector<std::string> CommandLine::rest() const { return impl_->app.remaining(); }

std::string CommandLine::unknown(const std::string& option) const {
  return impl_->unknown(before_equals(option));
}

std::size_t parse_size(const std::string& option, const std::string& text) {
  const std::string letters = "KkMmGg";
  const std::size_t letter = text.empty() ? std::string::npos : letters.find(text.back());
  const bool suffixed = letter != std::string::npos;
  const auto number = read_real(text.substr(0, text.size() - (suffixed ? 1 : 0)));
  const double unit = suffixed ? std::pow(1024.0, static_cast<double>(letter / 2 + 1)) : 1;
  require(number && *number >= 0 && *number * unit < 1e15,
          option + " '" + text + "' is not a size: write bytes, or 1K, 4M, 1G");
  return static_cast<std::size_t>(*number * unit);
}

Check whole(long long least, long long most) {
  return must_be(
      read_whole, [=](long long v) { return v >= least && v <= most; },
      fmt::format("a whole number from {} to {}", least, most));
}

Check real(double least, double most) {
  return must_be(
      read_real, [=](double v) { return v >= least && v <= most; },
      fmt::format("a number from {} to {}", least, most));
}

Check above_zero(double most) {
  return must_be(
      read_real, [=](double v) { return v > 0 && v <= most; },
      fmt::format("a number above 0, at most {}", most));
}

Check one_of(std::vector<std::string> choices) {
  return [choices = std::move(choices)](const std::string& text) {
    return std::ranges::find(choices, text) != choices.end()
               ? std::string()
               : fmt::format("'{}' is not one of {}", text, fmt::join(choices, ", "));
  };
}

Check existing_path() {
  return [](const std::string& text) {
    std::error_code ignored;
    return std::filesystem::exists(text, ignored) ? std::string()
                                                  : fmt::format("'{}' does not exist", text);
  };
}

Check existing_folder() {
  return [](const std::string& text) {
    std::error_code ignored;
    if (std::filesystem::is_directory(text, ignored)) return std::string();
    return fmt::format("'{}' {}", text,
                       std::filesystem::exists(text, ignored) ? "is not a folder"
                                                              : "is a folder that does not exist");
  };
}

// Instantiates add_option() for every type in use. For any other type the linker reports an
// undefined reference; add that type here.
#define RINGSMITH_OPTION_OF(...) \
  template Option* CommandLine::add_option(const std::string&, __VA_ARGS__&, const std::string&)
RINGSMITH_OPTION_OF(std::string);
RINGSMITH_OPTION_OF(int);
RINGSMITH_OPTION_OF(long);
RINGSMITH_OPTION_OF(long long);
RINGSMITH_OPTION_OF(unsigned long);
RINGSMITH_OPTION_OF(unsigned long long);
RINGSMITH_OPTION_OF(double);
RINGSMITH_OPTION_OF(std::vector<std::string>);
RINGSMITH_OPTION_OF(std::vector<int>);
RINGSMITH_OPTION_OF(std::vector<double>);
#undef RINGSMITH_OPTION_OF

}  // namespace ringsmith::apps
